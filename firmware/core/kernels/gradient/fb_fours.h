/* Four gradients in a word, the first in its lowest byte. Private to the core.
 *
 * Most gradients are small: a word whose values are all below 64 needs no look at each, which is what counting costs
 * otherwise.
 */
#ifndef FB_FOURS_H
#define FB_FOURS_H

#include <string.h>

#include "../fb_kernels.h"

#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && defined(__GNUC__)
#define FB_FOURS_DSP
#endif

#define FB_FOUR_SIGNS 0x80808080u

/* Whether words may be loaded from here: Cortex-M0 loads no other ones. */
static inline bool fb_fours_aligned(const void *p) { return ((uintptr_t)p & 3) == 0; }

static inline uint32_t fb_load_four(const int8_t *p) {
    uint32_t word;
#if defined(__GNUC__)
    memcpy(&word, __builtin_assume_aligned(p, 4), sizeof word);
#else
    memcpy(&word, p, sizeof word);
#endif
    return word;
}

static inline void fb_store_four(int8_t *p, uint32_t word) {
#if defined(__GNUC__)
    memcpy(__builtin_assume_aligned(p, 4), &word, sizeof word);
#else
    memcpy(p, &word, sizeof word);
#endif
}

/* Value i of a word. */
static inline int32_t fb_of_four(uint32_t word, unsigned i) { return (int8_t)(word >> 8 * i); }

/* A word of four values of −128 … 127. */
static inline uint32_t fb_four(int32_t a, int32_t b, int32_t c, int32_t d) {
#if defined(__thumb2__) && defined(__GNUC__)
    uint32_t word = (uint32_t)a;
    __asm__("bfi %0, %1, #8, #8\n\tbfi %0, %2, #16, #8\n\tbfi %0, %3, #24, #8" : "+r"(word) : "r"(b), "r"(c), "r"(d));
    return word;
#else
    return (uint32_t)(uint8_t)a | (uint32_t)(uint8_t)b << 8 | (uint32_t)(uint8_t)c << 16 | (uint32_t)d << 24;
#endif
}

/* v / 2^shift to the nearest, ties away from zero, of −128 … 127. */
static inline int32_t fb_scaled(int32_t v, unsigned shift) {
#if defined(__thumb2__) && defined(__GNUC__)
    v += v >> 31;
    __asm__("asrs %0, %0, %1\n\tadcs %0, %0, #0" : "+r"(v) : "r"(shift) : "cc"); /* as in fb_scale */
    return fb_saturate(v);
#else
    return fb_scale(v + fb_half(shift), shift, 0, false);
#endif
}

/* Sums of bytes, without carries. */
static inline uint32_t fb_add_fours(uint32_t a, uint32_t b) {
#if defined(FB_FOURS_DSP)
    uint32_t sum;
    __asm__("uadd8 %0, %1, %2" : "=r"(sum) : "r"(a), "r"(b) : "cc");
    return sum;
#else
    return ((a & ~FB_FOUR_SIGNS) + (b & ~FB_FOUR_SIGNS)) ^ ((a ^ b) & FB_FOUR_SIGNS);
#endif
}

/* sum += the four, each + 128. */
static inline uint32_t fb_add_four(uint32_t word, uint32_t sum) {
    word ^= FB_FOUR_SIGNS;
#if defined(FB_FOURS_DSP)
    __asm__("usada8 %0, %1, %2, %0" : "+r"(sum) : "r"(word), "r"(0));
    return sum;
#else
    return sum + (word & 0xFF) + (word >> 8 & 0xFF) + (word >> 16 & 0xFF) + (word >> 24);
#endif
}

/* sum += the first · the lower half of `by` + the third · its upper half; these halves are not negative. */
static inline void fb_add_even(uint32_t word, uint32_t by, int32_t *sum) {
#if defined(FB_FOURS_DSP)
    __asm__("sxtb16 %0, %1" : "=r"(word) : "r"(word));
    __asm__("smlad %0, %1, %2, %0" : "+r"(*sum) : "r"(word), "r"(by));
#else
    *sum += fb_of_four(word, 0) * (int32_t)(by & 0xFFFF) + fb_of_four(word, 2) * (int32_t)(by >> 16);
#endif
}

/* Not 0 if a value is 64 or more, or −64 or less: v + 63 has its sign bit then, except for 64, whose
 * two highest bits differ. */
static inline uint32_t fb_large_of_four(uint32_t word) {
    return (fb_add_fours(word, 0x3F3F3F3Fu) | (word ^ word << 1)) & FB_FOUR_SIGNS;
}

/* A byte of ones for each value that is negative. */
static inline uint32_t fb_bytes_of_signs(uint32_t word) {
    uint32_t ones = word >> 7 & 0x01010101u;
    return (ones << 8) - ones;
}

/* The values whose bits are set, 16 … 19 of `bits`; 0 in place of the others. */
static inline uint32_t fb_pass(uint32_t word, uint32_t bits) {
#if defined(FB_FOURS_DSP)
    __asm__("msr APSR_g, %1\n\tsel %0, %0, %2" : "+r"(word) : "r"(bits), "r"(0) : "cc");
    return word;
#else
    uint32_t ones = (bits >> 16 & 15) * 0x00204081u & 0x01010101u;
    return word & ((ones << 8) - ones);
#endif
}

#endif
