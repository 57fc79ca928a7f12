/* Products of packed sums (fb_bin_tile.h) with a multiplier. Private to tiles. */
#ifndef FB_TILE_SCALE_H
#define FB_TILE_SCALE_H

#include "fb_bin_tile.h"

/* The lower lane · factor + offset. */
static inline int32_t fb_low_product(uint32_t word, int32_t factor, int32_t offset) {
#if defined(__riscv_mul)
    return (int32_t)((int64_t)(int32_t)(word << 16) * (factor * 65536) >> 32) + offset; /* mulh drops what is below */
#else
    return fb_low(word) * factor + offset;
#endif
}

/* The upper lane · factor + offset. */
static inline int32_t fb_high_product(uint32_t word, int32_t factor, int32_t offset) {
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__)
    int32_t r;
    __asm__("smlatb %0, %1, %2, %3" : "=r"(r) : "r"(word + 0x8000u), "r"(factor), "r"(offset));
    return r;
#else
    return fb_high(word) * factor + offset;
#endif
}

#endif
