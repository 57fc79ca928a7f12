/* Largest value of a window on Helium (MVE): 16 outputs of a row at a time, loaded a stride apart. Places outside the
 * image never win. */
#include "../fb_kernels_mve.h"

#if defined(FB_MVE) || defined(FB_PLAN_BOARDS)

enum { COLUMNS = 16 };

uint32_t fb_max_pool_mve_scratch(const fb_layer *layer) {
    return layer->stride_w <= 17 ? 0 : FB_NOT_FOR_THIS; /* offsets of 16 columns are 8 bits */
}
#endif

#ifdef FB_MVE
#include <arm_mve.h>

/* How many of `count` values a `stride` apart, from `start`, come before `end`. */
static uint32_t before(int32_t end, int32_t start, int32_t stride) {
    return start >= end ? 0 : (uint32_t)((end - start + stride - 1) / stride);
}

void fb_max_pool_mve(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const int32_t height = layer->in.height, width = layer->in.width, stride = layer->stride_w;
    const uint8x16_t columns = vmulq_n_u8(vidupq_n_u8(0, 1), layer->stride_w);
    int32_t oy, ox, y, x;
    uint32_t c;
    (void)in2;
    (void)scratch;
    for (c = 0; c < layer->in.channels; c++, in += (size_t)height * (size_t)width) {
        for (oy = 0; oy < layer->out.height; oy++, out += layer->out.width) {
            int32_t top = oy * layer->stride_h - layer->pad_top, bottom = top + layer->kernel_h;
            if (top < 0) top = 0;
            if (bottom > height) bottom = height;
            for (ox = 0; ox < layer->out.width; ox += COLUMNS) {
                const mve_pred16_t there = vctp8q((uint32_t)(layer->out.width - ox));
                int8x16_t most = vdupq_n_s8(-128);
                for (x = 0; x < layer->kernel_w; x++) {
                    const int32_t first = ox * stride - layer->pad_left + x;
                    const mve_pred16_t inside = (mve_pred16_t)(there & vctp8q(before(width, first, stride)) &
                                                               ~vctp8q(before(0, first, stride)));
                    for (y = top; y < bottom; y++) {
                        const int8_t *row = (const int8_t *)((uintptr_t)in + (uintptr_t)(y * width + first));
                        most = vmaxq_m_s8(most, most, vldrbq_gather_offset_z_s8(row, columns, inside), inside);
                    }
                }
                vstrbq_p_s8(out + ox, most, there);
            }
        }
    }
}

#endif
