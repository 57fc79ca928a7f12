/* Mean of a window, in the output's scale. No padding. */
#include "../fb_kernels.h"

uint32_t fb_average_pool_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

void fb_average_pool(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    int32_t width = layer->in.width, oy, ox, y, x;
    int32_t offset = -layer->in.zero_point * layer->kernel_h * layer->kernel_w;
    uint32_t c;
    (void)in2;
    (void)scratch;
    for (c = 0; c < layer->in.channels; c++, in += (size_t)layer->in.height * (size_t)width) {
        for (oy = 0; oy < layer->out.height; oy++) {
            for (ox = 0; ox < layer->out.width; ox++) {
                const int8_t *row =
                    in + (size_t)(oy * layer->stride_h) * (size_t)width + (size_t)(ox * layer->stride_w);
                int32_t sum = offset;
                for (y = 0; y < layer->kernel_h; y++, row += width) {
                    const int8_t *p = row;
                    for (x = layer->kernel_w; x >= 4; x -= 4, p += 4) sum += p[0] + p[1] + p[2] + p[3];
                    for (; x; x--) sum += *p++;
                }
                *out++ = fb_requantize(sum, (int32_t)layer->factor[0], layer->shift, layer->out.zero_point, layer->low);
            }
        }
    }
}
