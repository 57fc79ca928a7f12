/* Mean of a window, in the output's scale. Over the border of the image, of the pixels that are inside. */
#include "../fb_kernels.h"

uint32_t fb_average_pool_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

FB_INLINE int32_t sum_of(const int8_t *row, int32_t width, int32_t down, int32_t across) {
    int32_t sum = 0, x;
    for (; down; down--, row += width) {
        const int8_t *p = row;
        for (x = across; x >= 4; x -= 4, p += 4) sum += p[0] + p[1] + p[2] + p[3];
        for (; x; x--) sum += *p++;
    }
    return sum;
}

#ifndef FB_SMALL_CODE /* the other takes these windows as well */
static void inside(const fb_layer *layer, const int8_t *in, int8_t *out) {
    int32_t width = layer->in.width, oy, ox;
    int32_t offset = -layer->in.zero_point * layer->kernel_h * layer->kernel_w;
    uint32_t c;
    for (c = 0; c < layer->in.channels; c++, in += (size_t)layer->in.height * (size_t)width) {
        for (oy = 0; oy < layer->out.height; oy++) {
            for (ox = 0; ox < layer->out.width; ox++) {
                const int8_t *row =
                    in + (size_t)(oy * layer->stride_h) * (size_t)width + (size_t)(ox * layer->stride_w);
                int32_t sum = offset + sum_of(row, width, layer->kernel_h, layer->kernel_w);
                *out++ = fb_requantize(sum, (int32_t)layer->factor[0], layer->shift, layer->out.zero_point, layer->low);
            }
        }
    }
}
#endif

/* Of n pixels out of a window's, the multiplier is larger by window / n. */
static void bordered(const fb_layer *layer, const int8_t *in, int8_t *out) {
    int32_t height = layer->in.height, width = layer->in.width, oy, ox;
    uint32_t window = (uint32_t)layer->kernel_h * layer->kernel_w, c;
    for (c = 0; c < layer->in.channels; c++, in += (size_t)height * (size_t)width) {
        for (oy = 0; oy < layer->out.height; oy++) {
            int32_t top = oy * layer->stride_h - layer->pad_top, bottom = top + layer->kernel_h;
            if (top < 0) top = 0;
            if (bottom > height) bottom = height;
            for (ox = 0; ox < layer->out.width; ox++) {
                int32_t left = ox * layer->stride_w - layer->pad_left, right = left + layer->kernel_w, sum;
                uint32_t multiplier = layer->factor[0], n;
                if (left < 0) left = 0;
                if (right > width) right = width;
                n = (uint32_t)((bottom - top) * (right - left)); /* at least 1: padding is less than the window */
                if (n != window) multiplier = (multiplier * window + n / 2) / n;
                sum = sum_of(in + (size_t)top * (size_t)width + (size_t)left, width, bottom - top, right - left);
                sum -= layer->in.zero_point * (int32_t)n;
                *out++ = fb_requantize(sum, (int32_t)multiplier, layer->shift, layer->out.zero_point, layer->low);
            }
        }
    }
}

void fb_average_pool(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    (void)scratch;
#ifndef FB_SMALL_CODE
    if (fb_all_inside(layer)) {
        inside(layer, in, out);
        return;
    }
#endif
    bordered(layer, in, out);
}
