/* Requantization of int8 layers: 31-bit multipliers, 64-bit products. Private to the core. */
#ifndef FB_LONG_H
#define FB_LONG_H

#include "fb_kernels.h"

/* As fb_requantize, with a 64-bit product. With the usual shifts only its upper word is shifted. */
static inline int8_t fb_requantize_long(int32_t sum, int32_t multiplier, unsigned shift, int32_t zero_point,
                                        int32_t low) {
    int64_t product = (int64_t)sum * multiplier + ((int64_t)1 << (shift - 1)) + (sum >> 31); /* multiplier > 0 */
    int64_t v;
    int32_t r;
    if (shift > 32) {
        r = fb_saturate(((int32_t)(product >> 32) >> (shift - 32)) + zero_point);
        return (int8_t)(r < low ? low : r);
    }
    v = (product >> shift) + zero_point;
    r = v > 127 ? 127 : v < low ? low : (int32_t)v;
    return (int8_t)r;
}

/* The same for shifts above 32: `shift` is without these 32, and only the upper word of the product is rounded. */
static inline int8_t fb_requantize_upper(int32_t sum, int32_t multiplier, unsigned shift, int32_t zero_point,
                                         int32_t low) {
    int64_t product = (int64_t)sum * multiplier + (sum >> 31); /* ties away from zero */
    int32_t half = (int32_t)1 << (shift - 1), upper = (int32_t)(product >> 32);
    int32_t v = fb_saturate(((upper + half) >> shift) + zero_point);
    return (int8_t)(v < low ? low : v);
}

#endif
