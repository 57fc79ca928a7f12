/* Requantization of int8 layers: 31-bit multipliers, 64-bit products. Private to the core. */
#ifndef FB_LONG_H
#define FB_LONG_H

#include "fb_kernels.h"

/* As fb_requantize, with a 64-bit product. */
static inline int8_t fb_requantize_long(int32_t sum, int32_t multiplier, unsigned shift, int32_t zero_point,
                                        int32_t low) {
    int64_t product = (int64_t)sum * multiplier;
    int64_t v = ((product + ((int64_t)1 << (shift - 1)) + (product >> 63)) >> shift) + zero_point;
    int32_t r = v > 127 ? 127 : v < low ? low : (int32_t)v;
    return (int8_t)r;
}

#endif
