/* Sum of two tensors on Helium (MVE): 8 values at a time, in 32-bit lanes. May write over an input. */
#include "../fb_kernels_mve.h"

#if defined(FB_MVE) || defined(FB_PLAN_BOARDS)

uint32_t fb_add_mve_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}
#endif

#ifdef FB_MVE
#include <arm_mve.h>

/* `count` times 8 values. In assembly, where loads and stores step on: 20 instructions instead of 27. */
#define ADD(rounding) \
    __asm__ volatile("dls lr, %[count]\n\t" \
                     "1:\n\t" \
                     "vldrb.s32 q0, [%[in]], #4\n\t" \
                     "vldrb.s32 q1, [%[in]], #4\n\t" \
                     "vmlas.s32 q0, %q[factor], %[offset]\n\t" \
                     "vldrb.s32 q2, [%[in2]], #4\n\t" \
                     "vmlas.s32 q1, %q[factor], %[offset]\n\t" \
                     "vldrb.s32 q3, [%[in2]], #4\n\t" \
                     "vmla.s32 q0, q2, %[b]\n\t" \
                     "vmla.s32 q1, q3, %[b]\n\t" rounding "vrshl.s32 q0, %[shift]\n\t" \
                     "vrshl.s32 q1, %[shift]\n\t" \
                     "vadd.i32 q0, q0, %[zero_point]\n\t" \
                     "vadd.i32 q1, q1, %[zero_point]\n\t" \
                     "vmax.s32 q0, q0, %q[low]\n\t" \
                     "vmax.s32 q1, q1, %q[low]\n\t" \
                     "vmin.s32 q0, q0, %q[high]\n\t" \
                     "vmin.s32 q1, q1, %q[high]\n\t" \
                     "vstrb.32 q0, [%[out]], #4\n\t" \
                     "vstrb.32 q1, [%[out]], #4\n\t" \
                     "le lr, 1b" \
                     : [in] "+l"(in), [in2] "+l"(in2), [out] "+l"(out) \
                     : [count] "r"(count), [factor] "w"(factor), [offset] "r"(offset), [b] "r"(b), [shift] "r"(shift), \
                       [zero_point] "r"(zero_point), [low] "w"(low), [high] "w"(high) \
                     : "lr", "q0", "q1", "q2", "q3", "memory")

/* Ties away from zero. */
#define AWAY_FROM_ZERO \
    "vshr.s32 q2, q0, #31\n\t" \
    "vshr.s32 q3, q1, #31\n\t" \
    "vadd.i32 q0, q0, q2\n\t" \
    "vadd.i32 q1, q1, q3\n\t"

void fb_add_mve(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const int32_t a = (int32_t)layer->factor[0], b = (int32_t)layer->factor[1], shift = -(int32_t)layer->shift;
    const int32_t offset = -layer->in.zero_point * a - layer->in2.zero_point * b, zero_point = layer->out.zero_point;
    const int32x4_t factor = vdupq_n_s32(a), low = vdupq_n_s32(layer->low), high = vdupq_n_s32(127);
    const uint32_t count = layer->out.size / 8;
    uint32_t left = layer->out.size % 8;
    (void)scratch;
    if (count > 0 && layer->low == zero_point) { /* what is below zero does not matter: ties up */
        ADD("");
    } else if (count > 0) {
        ADD(AWAY_FROM_ZERO);
    }
    for (; left > 0; left--) {
        *out++ = fb_requantize(*in++ * a + *in2++ * b + offset, 1, layer->shift, zero_point, layer->low);
    }
}

#endif
