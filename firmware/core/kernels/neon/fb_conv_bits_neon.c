/* Convolution of bits with NEON: 128 pixels at a time. See fb_bits_planes.h. */
#include "fb_neon.h"

#ifdef __ARM_NEON

#include "../fb_bits_planes.h"

uint32_t fb_conv_bits_neon_scratch(const fb_layer *layer) { return fb_bits_scratch(layer); }

static inline uint8x16_t look_up(uint8x16_t table, uint8x16_t index) {
#ifdef __aarch64__
    return vqtbl1q_u8(table, index);
#else
    const uint8x8x2_t halves = {{vget_low_u8(table), vget_high_u8(table)}};
    return vcombine_u8(vtbl2_u8(halves, vget_low_u8(index)), vtbl2_u8(halves, vget_high_u8(index)));
#endif
}

static void add(const uint8_t *planes, const uint32_t *shifts, const uint8_t *weights, uint32_t count, uint16_t *sums) {
    static const uint8_t each[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint8x16_t inputs = vld1q_u8(each);
    uint8x16_t a[FB_LANES / 16];
    uint32_t i, k;
    for (k = 0; k < FB_LANES / 16; k++) a[k] = vdupq_n_u8(0);
    for (i = 0; i < count; i++) {
        const uint8x16_t table = vcntq_u8(veorq_u8(vdupq_n_u8(weights[i]), inputs));
        const uint8_t *x = planes + shifts[i];
        a[0] = vaddq_u8(a[0], look_up(table, vld1q_u8(x)));
        a[1] = vaddq_u8(a[1], look_up(table, vld1q_u8(x + 16)));
        a[2] = vaddq_u8(a[2], look_up(table, vld1q_u8(x + 32)));
        a[3] = vaddq_u8(a[3], look_up(table, vld1q_u8(x + 48)));
        a[4] = vaddq_u8(a[4], look_up(table, vld1q_u8(x + 64)));
        a[5] = vaddq_u8(a[5], look_up(table, vld1q_u8(x + 80)));
        a[6] = vaddq_u8(a[6], look_up(table, vld1q_u8(x + 96)));
        a[7] = vaddq_u8(a[7], look_up(table, vld1q_u8(x + 112)));
    }
    for (k = 0; k < FB_LANES / 16; k++, sums += 16) {
        vst1q_u16(sums, vaddw_u8(vld1q_u16(sums), vget_low_u8(a[k])));
        vst1q_u16(sums + 8, vaddw_u8(vld1q_u16(sums + 8), vget_high_u8(a[k])));
    }
}

static inline int32x4_t scaled(uint16x4_t sums, uint16x4_t n, int32_t bias, int32_t mult, int32x4_t minus_shift) {
    const int32x4_t counted = vreinterpretq_s32_u32(vshll_n_u16(sums, 1));
    const int32x4_t sum = vsubq_s32(vreinterpretq_s32_u32(vmovl_u16(n)), counted);
    return fb_neon_round(vmulq_n_s32(vaddq_s32(sum, vdupq_n_s32(bias)), mult), minus_shift);
}

static void finish(const fb_layer *layer, uint32_t filter, const uint16_t *sums, const uint16_t *n, int8_t *out,
                   uint32_t count) {
    const int32_t bias = layer->bias[filter], mult = layer->mult[filter];
    const int32x4_t minus_shift = vdupq_n_s32(-(int32_t)layer->shift);
    const int16x8_t zero_point = vdupq_n_s16(layer->out.zero_point);
    const int8x8_t low = vdup_n_s8(layer->low);
    for (; count >= 8; count -= 8, sums += 8, n += 8, out += 8) {
        const int32x4_t a = scaled(vld1_u16(sums), vld1_u16(n), bias, mult, minus_shift);
        const int32x4_t b = scaled(vld1_u16(sums + 4), vld1_u16(n + 4), bias, mult, minus_shift);
        vst1_s8(out, fb_neon_int8(a, b, zero_point, low));
    }
    for (; count; count--, sums++, n++) {
        *out++ = fb_requantize(*n - 2 * *sums + bias, mult, layer->shift, layer->out.zero_point, layer->low);
    }
}

void fb_conv_bits_neon(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    fb_bits_run(layer, in, out, scratch, add, finish);
}

#endif
