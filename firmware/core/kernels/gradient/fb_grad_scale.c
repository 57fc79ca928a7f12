/* Gradients, value by value: scaled into the exponent of another tensor, counted, halved; and masks.
 *
 * A mask has a bit for each value of a tensor, the first in the lowest bit of the first byte. Planes follow each other
 * in it without gaps. Where planes are multiples of 8, four values are in the works at a time (fb_fours.h), unless
 * code must be small.
 */
#include "fb_fours.h"
#include "fb_gradient.h"

/* v · factor / 2^shift to the nearest; |v| ≤ 128, factor as fb_factors says. */
static int32_t rescale(int32_t v, int32_t factor, int32_t shift) {
    int32_t product = v * factor;
    if (shift > 30) return 0;
    if (shift > 0) return (product + ((int32_t)1 << (shift - 1)) + (product >> 31)) >> shift;
    if (product > 127 || product < -127 || shift < -16) return product > 0 ? 128 : product < 0 ? -128 : 0;
    return product * ((int32_t)1 << -shift);
}

static int32_t factor_of(const fb_factors *f, uint32_t plane) {
    return f->narrow ? f->narrow[plane] : f->wide ? f->wide[plane] >> 16 : f->one;
}

static inline int32_t magnitude(int32_t v) { return v < 0 ? -v : v; }

/* Values i … end − 1, which share a byte of the mask. `usual`: a shift of 1 … 30. */
FB_INLINE void scale_some(const int8_t *from, int8_t *to, uint32_t n, uint32_t bits, int32_t factor, int32_t shift,
                          const int8_t *each, bool usual, bool join, fb_count *counts) {
    int32_t half = usual ? (int32_t)1 << (shift - 1) : 0;
    for (uint32_t i = 0; i < n; i++, bits >>= 1) {
        int32_t v = 0;
        if (each) factor = each[i];
        if (bits & 1) {
            int32_t product = from[i] * factor;
            v = usual ? (product + half + (product >> 31)) >> shift : rescale(from[i], factor, shift);
        }
        if (join) v += to[i];
        if (magnitude(v) >= 64) { /* seldom */
            counts->large++;
            if (magnitude(v) >= 127) {
                counts->saturated++;
                v = v > 0 ? 127 : -127;
            }
        }
        to[i] = (int8_t)v;
    }
}

FB_INLINE void scale_all(const int8_t *from, int8_t *to, const fb_tensor *shape, const fb_factors *factors,
                         int32_t shift, const uint8_t *mask, const int8_t *each, bool usual, bool join,
                         fb_count *counts) {
    uint32_t plane = (uint32_t)shape->height * shape->width, i = 0;
    fb_count found = {0, 0};
    for (uint32_t o = 0; o < shape->channels; o++) {
        int32_t factor = factor_of(factors, o);
        for (uint32_t end = i + plane, n; i < end; i += n) {
            n = 8 - i % 8 < end - i ? 8 - i % 8 : end - i;
            scale_some(from + i, to + i, n, mask ? (uint32_t)mask[i / 8] >> i % 8 : 255, factor, shift,
                       each ? each + i : NULL, usual, join, &found);
        }
    }
    counts->large += found.large;
    counts->saturated += found.saturated;
}

#ifndef FB_SMALL_CODE

/* Count large values and cut off −128. `large`: their sign bits. */
static uint32_t settle(uint32_t word, uint32_t large, fb_count *counts) {
    uint32_t sizes = word ^ fb_bytes_of_signs(word); /* those of negative values less 1 */
    counts->large += (large >> 7) * 0x01010101u >> 24;
    if (((sizes + 0x02020202u) & FB_FOUR_SIGNS) == 0) return word;
    for (unsigned i = 0; i < 4; i++) {
        int32_t v = fb_of_four(word, i);
        counts->saturated += magnitude(v) >= 127;
        if (v == -128) word |= 1u << 8 * i;
    }
    return word;
}

/* Four values, of which those in `word` pass, the others are 0. `copy`: factors are 1 and the shift is 0; else it is a usual
 * one. */
FB_INLINE void scale_four(uint32_t word, int8_t *to, int32_t factor, int32_t shift, bool copy, bool join,
                          fb_count *counts) {
    uint32_t given = word, large;
    if (word == 0) {
        if (!join) fb_store_four(to, 0);
        if (!join || !fb_large_of_four(fb_load_four(to))) return;
    }
    if (!copy && word) {
#define SCALED(i) fb_scaled(fb_of_four(given, i) * factor, (unsigned)shift)
        word = fb_four(SCALED(0), SCALED(1), SCALED(2), SCALED(3));
#undef SCALED
    }
    if (join) {
        uint32_t there = fb_load_four(to);
        if (fb_large_of_four(word) | fb_large_of_four(there)) { /* seldom: the sum may have more than 8 bits */
            int8_t from[4];
            memcpy(from, &given, sizeof from);
            scale_some(from, to, 4, 15, factor, shift, NULL, !copy, true, counts);
            return;
        }
        word = fb_add_fours(word, there);
    }
    large = fb_large_of_four(word);
    if (large) word = settle(word, large, counts);
    fb_store_four(to, word);
}

/* Planes of multiples of 8, from words to words. */
FB_INLINE void scale_fours(const int8_t *from, int8_t *to, const fb_tensor *shape, const fb_factors *factors,
                           int32_t shift, const uint8_t *mask, bool copy, bool join, fb_count *counts) {
    static const uint8_t all = 255;
    uint32_t plane = (uint32_t)shape->height * shape->width, next = mask ? 1 : 0;
    fb_count found = {0, 0};
    if (!mask) mask = &all;
    for (uint32_t o = 0; o < shape->channels; o++) {
        int32_t factor = factor_of(factors, o);
        for (const int8_t *end = from + plane; from < end; from += 8, to += 8, mask += next) {
            uint32_t bits = (uint32_t)*mask << 16;
            uint32_t word = fb_pass(fb_load_four(from), bits), word2 = fb_pass(fb_load_four(from + 4), bits >> 4);
            scale_four(word, to, factor, shift, copy, join, &found);
            scale_four(word2, to + 4, factor, shift, copy, join, &found);
        }
    }
    counts->large += found.large;
    counts->saturated += found.saturated;
}

/* Whether it can be done so; and whether as a copy. */
static bool by_fours(const int8_t *from, const int8_t *to, const fb_tensor *shape, const fb_factors *factors,
                     int32_t shift, bool *copy) {
    *copy = shift == 0 && factors->one == 1 && !factors->wide && !factors->narrow;
    return (*copy || (shift >= 1 && shift <= 30)) && (uint32_t)shape->height * shape->width % 8 == 0 &&
           fb_fours_aligned(from) && fb_fours_aligned(to);
}

#endif

void fb_grad_scale(const int8_t *from, int8_t *to, const fb_tensor *shape, const fb_factors *factors, int32_t shift,
                   const uint8_t *mask, bool join, fb_count *counts) {
#ifndef FB_SMALL_CODE
    bool copy;
    if (!factors->each && by_fours(from, to, shape, factors, shift, &copy)) {
        if (copy) {
            scale_fours(from, to, shape, factors, shift, mask, true, join, counts);
        } else if (join) {
            scale_fours(from, to, shape, factors, shift, mask, false, true, counts);
        } else {
            scale_fours(from, to, shape, factors, shift, mask, false, false, counts);
        }
        return;
    }
#endif
    if (factors->each) {
        scale_all(from, to, shape, factors, shift, mask, factors->each, false, join, counts);
    } else if (shift < 1 || shift > 30) {
        scale_all(from, to, shape, factors, shift, mask, NULL, false, join, counts);
    } else if (join) {
        scale_all(from, to, shape, factors, shift, mask, NULL, true, true, counts);
    } else {
        scale_all(from, to, shape, factors, shift, mask, NULL, true, false, counts);
    }
}

bool fb_grad_cuts_off(const int8_t *from, const int8_t *to, const fb_tensor *shape, const fb_factors *factors,
                      int32_t shift, const uint8_t *mask, bool join, uint32_t most) {
    uint32_t plane = (uint32_t)shape->height * shape->width, i = 0, cut = 0;
    for (uint32_t o = 0; o < shape->channels; o++) {
        int32_t factor = factor_of(factors, o);
        for (uint32_t end = i + plane; i < end; i++) {
            bool pass = !mask || (mask[i / 8] >> i % 8 & 1);
            int32_t v = pass ? rescale(from[i], factors->each ? factors->each[i] : factor, shift) : 0;
            if (join) v += to[i];
            if (magnitude(v) > 127 && ++cut > most) return true;
        }
    }
    return false;
}

void fb_grad_count(fb_count *counts, const int8_t *values, uint32_t n) {
    uint32_t i = 0;
#ifndef FB_SMALL_CODE
    if (fb_fours_aligned(values)) {
        for (; n - i >= 8; i += 8) {
            uint32_t word = fb_load_four(values + i), word2 = fb_load_four(values + i + 4);
            if (fb_large_of_four(word) | fb_large_of_four(word2)) {
                settle(word, fb_large_of_four(word), counts);
                settle(word2, fb_large_of_four(word2), counts);
            }
        }
    }
#endif
    for (; i < n; i++) {
        int32_t v = magnitude(values[i]);
        if (v < 64) continue;
        counts->large++;
        counts->saturated += v >= 127;
    }
}

void fb_grad_halve(int8_t *values, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) values[i] = (int8_t)rescale(values[i], 1, 1);
}

#ifndef FB_SMALL_CODE
/* Where value − first < between, both as bytes, for eight values: a bit for each. */
#ifdef FB_FOURS_DSP
static inline uint32_t some_below(uint32_t word, uint32_t minus_first, uint32_t between, uint32_t bits) {
    __asm__("uadd8 %0, %0, %1\n\tusub8 %0, %0, %2\n\tsel %0, %3, %4"
            : "+r"(word)
            : "r"(minus_first), "r"(between), "r"(0), "r"(bits)
            : "cc");
    return word;
}

static inline uint32_t below(uint32_t word, uint32_t word2, uint32_t minus_first, uint32_t between) {
    uint32_t found = some_below(word, minus_first, between * 0x01010101u, 0x08040201u);
    found |= some_below(word2, minus_first, between * 0x01010101u, 0x80402010u);
    return found * 0x01010101u >> 24;
}
#else
/* Even and odd bytes in lanes of 16 bits, in which a difference shows as the bit above a byte. */
static inline uint32_t some_below(uint32_t word, uint32_t minus_first, uint32_t between) {
    const uint32_t lanes = 0x00FF00FFu, reach = (between + 255) * 0x10001u;
    uint32_t from_first = fb_add_fours(word, minus_first);
    uint32_t even = reach - (from_first & lanes), odd = reach - (from_first >> 8 & lanes);
    uint32_t found = (even >> 8 & 0x10001u) | (odd >> 7 & 0x20002u);
    return (found | found >> 14) & 15;
}

static inline uint32_t below(uint32_t word, uint32_t word2, uint32_t minus_first, uint32_t between) {
    return some_below(word, minus_first, between) | some_below(word2, minus_first, between) << 4;
}
#endif
#endif

void fb_grad_mask(const int8_t *values, uint32_t n, int32_t low, int32_t high, uint8_t *mask) {
    uint32_t between = (uint32_t)(high - low - 1); /* so many values pass, from low + 1 on */
#ifndef FB_SMALL_CODE
    if (between <= 255 && fb_fours_aligned(values)) {
        uint32_t minus_first = (uint32_t)(-low - 1 + 256) % 256 * 0x01010101u;
        for (; n >= 8; n -= 8, values += 8) {
            *mask++ = (uint8_t)below(fb_load_four(values), fb_load_four(values + 4), minus_first, between);
        }
    }
#endif
    for (; n > 0; mask++) {
        uint32_t bits = 0, bit = 1;
        for (; bit < 256 && n > 0; bit <<= 1, n--) {
            if ((uint32_t)(*values++ - low - 1) < between) bits |= bit;
        }
        *mask = (uint8_t)bits;
    }
}
