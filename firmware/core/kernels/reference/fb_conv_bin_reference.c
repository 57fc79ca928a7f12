/* Binary convolution, bit by bit: the twin of all the others, and what is left when there is no RAM for tables. */
#include "../fb_kernels.h"

uint32_t fb_conv_bin_reference_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

/* Whether the filter's weight at (tap, channel) is +1. */
static bool positive(const fb_layer *layer, const uint16_t *filter, uint32_t tap, uint32_t channel) {
    uint32_t bit = tap * layer->in.channels + channel;
    if (layer->flags & FB_FLAG_CHUNKS) bit = (channel / 16 * 9 + tap) * 16 + channel % 16;
    return filter[bit / 16] >> bit % 16 & 1;
}

static int32_t sum_of(const fb_layer *layer, const uint16_t *filter, const int8_t *in, int32_t top, int32_t left) {
    int32_t height = layer->in.height, width = layer->in.width, sum = 0;
    uint32_t tap = 0, c;
    for (int32_t y = top; y < top + layer->kernel_h; y++) {
        for (int32_t x = left; x < left + layer->kernel_w; x++, tap++) {
            bool border = y < 0 || y >= height || x < 0 || x >= width;
            for (c = 0; c < layer->in.channels; c++) {
                int32_t value = border ? layer->in.zero_point
                                       : in[((size_t)c * (size_t)height + (size_t)y) * (size_t)width + (size_t)x];
                sum += positive(layer, filter, tap, c) ? value : -value;
            }
        }
    }
    return sum;
}

void fb_conv_bin_reference(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    (void)scratch;
    for (uint32_t o = 0; o < layer->out.channels; o++) {
        const uint16_t *filter = layer->bits + (size_t)o * layer->words;
        for (int32_t y = 0; y < layer->out.height; y++) {
            for (int32_t x = 0; x < layer->out.width; x++) {
                int32_t sum = sum_of(layer, filter, in, y * layer->stride_h - layer->pad_top,
                                     x * layer->stride_w - layer->pad_left);
                *out++ = fb_requantize(sum + layer->bias[o], layer->mult[o], layer->shift, layer->out.zero_point,
                                       layer->low);
            }
        }
    }
}
