/* Requantization for NEON, shared by its kernels. Private to the core. */
#ifndef FB_NEON_H
#define FB_NEON_H

#include "../fb_kernels_host.h"

#ifdef __ARM_NEON

#include <arm_neon.h>
#include <string.h>

/* `sum` / 2^shift to the nearest integer, ties away from zero, as fb_requantize. */
static inline int32x4_t fb_neon_round(int32x4_t sum, int32x4_t minus_shift) {
    return vrshlq_s32(vsraq_n_s32(sum, sum, 31), minus_shift);
}

/* Rounded values to int8. Narrowing saturates, so the zero point may be added to 16 bits. */
static inline int8x8_t fb_neon_int8(int32x4_t a, int32x4_t b, int16x8_t zero_point, int8x8_t low) {
    int16x8_t v = vqaddq_s16(vcombine_s16(vqmovn_s32(a), vqmovn_s32(b)), zero_point);
    return vmax_s8(vqmovn_s16(v), low);
}

static inline int32_t fb_neon_total(int32x4_t v) {
    int32x2_t pair = vadd_s32(vget_low_s32(v), vget_high_s32(v));
    return vget_lane_s32(vpadd_s32(pair, pair), 0);
}

#endif
#endif
