/* Requantization of four sums of int8 layers on Helium (MVE). Private to its kernels. */
#ifndef FB_REQUANTIZE_MVE_H
#define FB_REQUANTIZE_MVE_H

#include "../fb_kernels.h"

#include <arm_mve.h>
#include <string.h>

/* As fb_requantize_upper, for layers with a shift above 32. Of a negative number's magnitude ⌊·⌋ is the complement of
 * ⌊· − 1⌋: ties go away from zero. With `relu`, results below zero are cut off, however they were rounded. */
FB_INLINE int32x4_t fb_requantize_mve(const fb_layer *layer, int32x4_t sum, int32_t mult, bool relu) {
    const int32x4_t sign = vshrq_n_s32(sum, 31);
    int32x4_t upper = vmulhq_s32(relu ? sum : vabsq_s32(sum), vdupq_n_s32(mult));
    if (!relu) upper = veorq_s32(upper, sign);
    upper = vaddq_n_s32(vrshlq_n_s32(upper, 32 - layer->shift), layer->out.zero_point);
    return vminq_s32(vmaxq_s32(upper, vdupq_n_s32(layer->low)), vdupq_n_s32(127));
}

#endif
