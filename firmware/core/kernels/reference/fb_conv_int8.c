/* int8 convolution of any kernel, stride and padding. */
#include "../fb_long.h"

uint32_t fb_conv_int8_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

static int32_t sum_of(const fb_layer *layer, const int8_t *w, const int8_t *in, int32_t top, int32_t left) {
    int32_t height = layer->in.height, width = layer->in.width, sum = 0, y, x;
    size_t plane = (size_t)height * (size_t)width;
    uint32_t c;
    for (y = top; y < top + layer->kernel_h; y++) {
        for (x = left; x < left + layer->kernel_w; x++) {
            if (y < 0 || y >= height || x < 0 || x >= width) {
                for (c = 0; c < layer->in.channels; c++) sum += layer->in.zero_point * *w++;
            } else {
                const int8_t *p = in + (size_t)y * (size_t)width + (size_t)x;
                for (c = 0; c < layer->in.channels; c++, p += plane) sum += *p * *w++;
            }
        }
    }
    return sum;
}

void fb_conv_int8(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    int32_t y, x;
    uint32_t o;
    (void)in2;
    (void)scratch;
    for (o = 0; o < layer->out.channels; o++) {
        const int8_t *w = layer->weights + (size_t)o * layer->inputs;
        for (y = 0; y < layer->out.height; y++) {
            for (x = 0; x < layer->out.width; x++) {
                int32_t sum =
                    sum_of(layer, w, in, y * layer->stride_h - layer->pad_top, x * layer->stride_w - layer->pad_left);
                *out++ = fb_requantize_long(sum + layer->bias[o], layer->mult_int8[o], layer->shift,
                                            layer->out.zero_point, layer->low);
            }
        }
    }
}
