/* Largest of the signs in a window: +1 if one of them is, the OR of its words, 16 channels at a time. Places outside the
 * image never win.
 *
 *     in, out: uint16_t [channels / 16][height][width]; bits left over are 0, and stay so
 */
#include "../fb_kernels.h"

uint32_t fb_max_pool_bits_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

void fb_max_pool_bits(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    int32_t height = layer->in.height, width = layer->in.width, oy, ox, y, x;
    const uint16_t *plane = (const uint16_t *)(const void *)in; /* at an even address: fb_kernels.h */
    uint16_t *words = (uint16_t *)(void *)out;
    uint32_t chunk;
    (void)in2;
    (void)scratch;
    for (chunk = fb_words(layer->in.channels); chunk--; plane += (size_t)height * (size_t)width) {
        for (oy = 0; oy < layer->out.height; oy++) {
            int32_t top = oy * layer->stride_h - layer->pad_top, bottom = top + layer->kernel_h;
            if (top < 0) top = 0;
            if (bottom > height) bottom = height;
            for (ox = 0; ox < layer->out.width; ox++) {
                int32_t left = ox * layer->stride_w - layer->pad_left, right = left + layer->kernel_w;
                const uint16_t *row = plane + (size_t)top * (size_t)width;
                uint32_t ones = 0;
                if (left < 0) left = 0;
                if (right > width) right = width;
                for (y = top; y < bottom; y++, row += width) {
                    for (x = left; x < right; x++) ones |= row[x];
                }
                *words++ = (uint16_t)ones;
            }
        }
    }
}
