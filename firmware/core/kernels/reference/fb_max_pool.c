/* Largest value of a window; places outside the image never win. */
#include "../fb_kernels.h"

uint32_t fb_max_pool_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

void fb_max_pool(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    int32_t height = layer->in.height, width = layer->in.width, oy, ox, y, x;
    uint32_t c;
    (void)in2;
    (void)scratch;
    for (c = 0; c < layer->in.channels; c++, in += (size_t)height * (size_t)width) {
        for (oy = 0; oy < layer->out.height; oy++) {
            int32_t top = oy * layer->stride_h - layer->pad_top, bottom = top + layer->kernel_h;
            if (top < 0) top = 0;
            if (bottom > height) bottom = height;
            for (ox = 0; ox < layer->out.width; ox++) {
                int32_t left = ox * layer->stride_w - layer->pad_left, right = left + layer->kernel_w;
                int32_t most = -128;
                if (left < 0) left = 0;
                if (right > width) right = width;
                for (y = top; y < bottom; y++) {
                    const int8_t *row = in + (size_t)y * (size_t)width;
                    for (x = left; x < right; x++) {
                        if (row[x] > most) most = row[x];
                    }
                }
                *out++ = (int8_t)most;
            }
        }
    }
}
