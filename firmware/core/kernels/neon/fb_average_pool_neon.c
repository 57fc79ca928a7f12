/* Mean of a whole plane with NEON: global pooling. */
#include "fb_neon.h"

#ifdef __ARM_NEON

uint32_t fb_average_pool_neon_scratch(const fb_layer *layer) {
    bool global = layer->kernel_h == layer->in.height && layer->kernel_w == layer->in.width && fb_all_inside(layer);
    return global ? 0 : FB_NOT_FOR_THIS;
}

void fb_average_pool_neon(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    uint32_t plane = (uint32_t)layer->in.height * layer->in.width, c, i;
    (void)in2;
    (void)scratch;
    for (c = 0; c < layer->in.channels; c++, in += plane) {
        int32x4_t sums = vdupq_n_s32(0);
        int32_t sum = -layer->in.zero_point * (int32_t)plane;
        for (i = 0; i + 16 <= plane; i += 16) sums = vpadalq_s16(sums, vpaddlq_s8(vld1q_s8(in + i)));
        sum += fb_neon_total(sums);
        for (; i < plane; i++) sum += in[i];
        *out++ = fb_requantize(sum, (int32_t)layer->factor[0], layer->shift, layer->out.zero_point, layer->low);
    }
}

#endif
