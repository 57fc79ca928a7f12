/* Mean of a window on Helium (MVE): 16 values at a time. No padding. */
#include "../fb_kernels_mve.h"

#if defined(FB_MVE) || defined(FB_PLAN_BOARDS)

uint32_t fb_average_pool_mve_scratch(const fb_layer *layer) { return fb_all_inside(layer) ? 0 : FB_NOT_FOR_THIS; }
#endif

#ifdef FB_MVE
#include <arm_mve.h>

void fb_average_pool_mve(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const size_t width = layer->in.width, plane = layer->in.height * width;
    const int32_t offset = -layer->in.zero_point * layer->kernel_h * layer->kernel_w;
    uint32_t rows = layer->kernel_h, run = layer->kernel_w, c, oy, ox, y, left;
    (void)in2;
    (void)scratch;
    if (run == width) { /* the rows of the window follow each other */
        run *= rows;
        rows = 1;
    }
    for (c = 0; c < layer->in.channels; c++, in += plane) {
        for (oy = 0; oy < layer->out.height; oy++) {
            for (ox = 0; ox < layer->out.width; ox++) {
                const int8_t *row = in + oy * layer->stride_h * width + ox * layer->stride_w;
                int32_t sum = offset;
                for (y = 0; y < rows; y++, row += width) {
                    const int8_t *x = row;
                    for (left = run; left >= 16; left -= 16, x += 16) sum = vaddvaq_s8(sum, vldrbq_s8(x));
                    if (left) sum = vaddvaq_s8(sum, vldrbq_z_s8(x, vctp8q(left)));
                }
                *out++ = fb_requantize(sum, (int32_t)layer->factor[0], layer->shift, layer->out.zero_point, layer->low);
            }
        }
    }
}

#endif
