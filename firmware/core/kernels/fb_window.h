/* The inputs of one output pixel in the order of its weights. Private to the core. */
#ifndef FB_WINDOW_H
#define FB_WINDOW_H

#include "fb_kernels.h"

#include <string.h>

/* window[kernel_h][kernel_w][channels], from row `top` and column `left` on; what is outside is the zero point. */
static inline void fb_window(const fb_layer *layer, const int8_t *in, int32_t top, int32_t left, int8_t *window) {
    const int32_t height = layer->in.height, width = layer->in.width;
    const size_t plane = (size_t)height * (size_t)width;
    const uint32_t channels = layer->in.channels;
    int32_t y, x;
    for (y = top; y < top + layer->kernel_h; y++) {
        for (x = left; x < left + layer->kernel_w; x++) {
            if (y < 0 || y >= height || x < 0 || x >= width) {
                memset(window, layer->in.zero_point, channels);
                window += channels;
            } else {
                const int8_t *p = in + (size_t)y * (size_t)width + (size_t)x;
                uint32_t c;
                for (c = channels; c; c--, p += plane) *window++ = *p;
            }
        }
    }
}

#endif
