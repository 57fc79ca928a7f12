/* Convolution of bits by binary weights, bit by bit: the twin of the others. Padding is 0, or +1 with FB_FLAG_ONES. */
#include "../fb_kernels.h"

uint32_t fb_conv_bits_reference_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

/* Whether the filter's weight at (tap, channel) is +1. */
static bool positive(const fb_layer *layer, const uint16_t *filter, uint32_t tap, uint32_t channel) {
    uint32_t bit = tap * layer->in.channels + channel;
    if (layer->flags & FB_FLAG_CHUNKS) bit = (channel / 16 * 9 + tap) * 16 + channel % 16;
    return filter[bit / 16] >> bit % 16 & 1;
}

static int32_t sum_of(const fb_layer *layer, const uint16_t *filter, const uint16_t *in, int32_t top, int32_t left) {
    int32_t height = layer->in.height, width = layer->in.width, sum = 0;
    bool ones = layer->flags & FB_FLAG_ONES;
    uint32_t tap = 0, c;
    for (int32_t y = top; y < top + layer->kernel_h; y++) {
        for (int32_t x = left; x < left + layer->kernel_w; x++, tap++) {
            bool border = y < 0 || y >= height || x < 0 || x >= width;
            if (border && !ones) continue;
            for (c = 0; c < layer->in.channels; c++) {
                size_t word = ((size_t)(c / 16) * (size_t)height + (size_t)y) * (size_t)width + (size_t)x;
                bool one = border || (in[word] >> c % 16 & 1);
                sum += positive(layer, filter, tap, c) == one ? 1 : -1;
            }
        }
    }
    return sum;
}

void fb_conv_bits_reference(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const uint16_t *words = (const uint16_t *)(const void *)in;
    (void)in2;
    (void)scratch;
    for (uint32_t o = 0; o < layer->out.channels; o++) {
        const uint16_t *filter = layer->bits + (size_t)o * layer->words;
        for (int32_t y = 0; y < layer->out.height; y++) {
            for (int32_t x = 0; x < layer->out.width; x++) {
                int32_t sum = sum_of(layer, filter, words, y * layer->stride_h - layer->pad_top,
                                     x * layer->stride_w - layer->pad_left);
                *out++ = fb_requantize(sum + layer->bias[o], layer->mult[o], layer->shift, layer->out.zero_point,
                                       layer->low);
            }
        }
    }
}
