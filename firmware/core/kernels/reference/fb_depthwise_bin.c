/* Binary convolution of each channel by itself, bit by bit. */
#include "../fb_kernels.h"

uint32_t fb_depthwise_bin_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

static int32_t weight(const fb_layer *layer, uint32_t c, int32_t tap) {
    const uint16_t *filter = layer->bits + (size_t)c * layer->words;
    return filter[tap / 16] >> tap % 16 & 1 ? 1 : -1;
}

static int32_t weight_sum(const fb_layer *layer, uint32_t c) {
    int32_t sum = 0;
    for (int32_t tap = 0; tap < (int32_t)layer->inputs; tap++) sum += weight(layer, c, tap);
    return sum;
}

void fb_depthwise_bin(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    int32_t height = layer->in.height, width = layer->in.width, zero = layer->in.zero_point;
    (void)in2;
    (void)scratch;
    for (uint32_t c = 0; c < layer->out.channels; c++, in += (size_t)height * (size_t)width) {
        int32_t outside = layer->bias[c] + zero * weight_sum(layer, c); /* as if all were the zero point */
        for (int32_t oy = 0; oy < layer->out.height; oy++) {
            int32_t top = oy * layer->stride_h - layer->pad_top, y0 = top < 0 ? -top : 0;
            int32_t y1 = height - top < layer->kernel_h ? height - top : layer->kernel_h;
            for (int32_t ox = 0; ox < layer->out.width; ox++) {
                int32_t left = ox * layer->stride_w - layer->pad_left, x0 = left < 0 ? -left : 0, sum = outside;
                int32_t x1 = width - left < layer->kernel_w ? width - left : layer->kernel_w;
                for (int32_t y = y0; y < y1; y++) {
                    const int8_t *row = in + (top + y) * width + left;
                    for (int32_t x = x0; x < x1; x++)
                        sum += (row[x] - zero) * weight(layer, c, y * layer->kernel_w + x);
                }
                *out++ = fb_requantize(sum, layer->mult[c], layer->shift, layer->out.zero_point, layer->low);
            }
        }
    }
}
