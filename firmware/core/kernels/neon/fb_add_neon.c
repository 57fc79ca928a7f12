/* Sum of two tensors with NEON, 8 values at a time. May write over an input. */
#include "fb_neon.h"

#ifdef __ARM_NEON

uint32_t fb_add_neon_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

/* a · f + b · g + offset, rounded; factors have up to 22 bits. */
static inline int32x4_t rounded(int16x4_t a, int16x4_t b, int32x4_t f, int32x4_t g, int32x4_t offset, int32x4_t shift) {
    return fb_neon_round(vmlaq_s32(vmlaq_s32(offset, vmovl_s16(a), f), vmovl_s16(b), g), shift);
}

void fb_add_neon(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    int32_t a = (int32_t)layer->factor[0], b = (int32_t)layer->factor[1];
    int32_t start = -layer->in.zero_point * a - layer->in2.zero_point * b;
    int32x4_t f = vdupq_n_s32(a), g = vdupq_n_s32(b), offset = vdupq_n_s32(start);
    int32x4_t shift = vdupq_n_s32(-(int32_t)layer->shift);
    int16x8_t zero_point = vdupq_n_s16(layer->out.zero_point);
    int8x8_t low = vdup_n_s8(layer->low);
    uint32_t i;
    (void)scratch;
    for (i = 0; i + 8 <= layer->out.size; i += 8) {
        int16x8_t x = vmovl_s8(vld1_s8(in + i)), y = vmovl_s8(vld1_s8(in2 + i));
        int32x4_t first = rounded(vget_low_s16(x), vget_low_s16(y), f, g, offset, shift);
        int32x4_t second = rounded(vget_high_s16(x), vget_high_s16(y), f, g, offset, shift);
        vst1_s8(out + i, fb_neon_int8(first, second, zero_point, low));
    }
    for (; i < layer->out.size; i++) {
        int32_t sum = in[i] * a + in2[i] * b + start;
        out[i] = fb_requantize(sum, 1, layer->shift, layer->out.zero_point, layer->low);
    }
}

#endif
