/* Largest value of a window, with NEON, for windows that move 1 or 2 columns at a time.
 *
 * First the largest of each column, into a row in scratch whose ends never win; then, 8 results at a time, the largest
 * of that row at each column of the window:
 *
 *     scratch: | −128 … pad_left | W columns | −128 … |
 */
#include "fb_neon.h"

#ifdef __ARM_NEON

enum { SLACK = 32 }; /* bytes: the last 8 results read as far as if all of them existed */

/* Columns of a row, padding included. */
static uint32_t row_size(const fb_layer *layer) {
    uint32_t seen = (layer->out.width - 1u) * layer->stride_w + layer->kernel_w;
    uint32_t there = (uint32_t)layer->pad_left + layer->in.width;
    return (seen > there ? seen : there) + SLACK;
}

uint32_t fb_max_pool_neon_scratch(const fb_layer *layer) {
    return layer->stride_w <= 2 ? row_size(layer) : FB_NOT_FOR_THIS;
}

static void columns(const int8_t *in, uint32_t width, int32_t rows, int8_t *to) {
    uint32_t x = 0;
    int32_t y;
    for (; x + 16 <= width; x += 16) {
        int8x16_t most = vld1q_s8(in + x);
        for (y = 1; y < rows; y++) most = vmaxq_s8(most, vld1q_s8(in + (size_t)y * width + x));
        vst1q_s8(to + x, most);
    }
    for (; x + 8 <= width; x += 8) {
        int8x8_t most = vld1_s8(in + x);
        for (y = 1; y < rows; y++) most = vmax_s8(most, vld1_s8(in + (size_t)y * width + x));
        vst1_s8(to + x, most);
    }
    for (; x < width; x++) {
        int8_t most = in[x];
        for (y = 1; y < rows; y++) {
            if (in[(size_t)y * width + x] > most) most = in[(size_t)y * width + x];
        }
        to[x] = most;
    }
}

/* 8 results of which the first window starts at `row`. */
static inline int8x8_t windows(const int8_t *row, uint32_t kernel, uint32_t step) {
    int8x8_t most = vdup_n_s8(-128);
    uint32_t k;
    if (step == 1) {
        for (k = 0; k < kernel; k++) most = vmax_s8(most, vld1_s8(row + k));
        return most;
    }
    for (k = 0; k < kernel; k += 2) { /* even columns and the odd ones beside them */
        int8x8x2_t two = vld2_s8(row + k);
        most = vmax_s8(most, two.val[0]);
        if (k + 1 < kernel) most = vmax_s8(most, two.val[1]);
    }
    return most;
}

void fb_max_pool_neon(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    int32_t height = layer->in.height, oy;
    uint32_t width = layer->in.width, n = layer->out.width, c, x;
    int8_t *row = scratch;
    (void)in2;
    memset(row, -128, row_size(layer));
    for (c = 0; c < layer->in.channels; c++, in += (size_t)height * width) {
        for (oy = 0; oy < layer->out.height; oy++, out += n) {
            int32_t top = oy * layer->stride_h - layer->pad_top, bottom = top + layer->kernel_h;
            if (top < 0) top = 0;
            if (bottom > height) bottom = height;
            columns(in + (size_t)top * width, width, bottom - top, row + layer->pad_left);
            for (x = 0; x < n; x += 8) {
                int8x8_t v = windows(row + (size_t)x * layer->stride_w, layer->kernel_w, layer->stride_w);
                int8_t bytes[8];
                if (n - x >= 8) {
                    vst1_s8(out + x, v);
                } else {
                    vst1_s8(bytes, v);
                    memcpy(out + x, bytes, n - x);
                }
            }
        }
    }
}

#endif
