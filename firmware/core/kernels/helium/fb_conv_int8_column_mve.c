/* int8 convolution of any kernel, stride and padding on Helium (MVE): the inputs of a pixel are gathered in the order
 * of the weights, and each filter is a dot product, 16 products per instruction.
 *
 *     column[kernel_h][kernel_w][channels]    inputs of one output pixel
 */
#include "../fb_kernels_mve.h"
#include "../fb_long.h"
#include "../fb_window.h"

#if defined(FB_MVE) || defined(FB_PLAN_BOARDS)

uint32_t fb_conv_int8_column_mve_scratch(const fb_layer *layer) { return layer->inputs; }
#endif

#ifdef FB_MVE
#include <arm_mve.h>

void fb_conv_int8_column_mve(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const size_t plane = (size_t)layer->out.height * layer->out.width;
    const int8_t *column = scratch;
    int32_t y, x;
    uint32_t o;
    (void)in2;
    for (y = 0; y < layer->out.height; y++) {
        for (x = 0; x < layer->out.width; x++, out++) {
            const int8_t *w = layer->weights;
            fb_window(layer, in, y * layer->stride_h - layer->pad_top, x * layer->stride_w - layer->pad_left, scratch);
            for (o = 0; o < layer->out.channels; o++) {
                const int8_t *p = column;
                int32_t sum = layer->bias[o];
                uint32_t left = layer->inputs;
                for (; left >= 16; left -= 16, p += 16, w += 16) sum = vmladavaq_s8(sum, vldrbq_s8(p), vldrbq_s8(w));
                if (left) {
                    const mve_pred16_t rest = vctp8q(left);
                    sum = vmladavaq_s8(sum, vldrbq_z_s8(p, rest), vldrbq_z_s8(w, rest));
                    w += left;
                }
                out[o * plane] =
                    fb_requantize_long(sum, layer->mult_int8[o], layer->shift, layer->out.zero_point, layer->low);
            }
        }
    }
}

#endif
