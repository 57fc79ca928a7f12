/* What fb_max_pool_sse4 and fb_max_pool_neon share: for windows that move 1 or 2 columns at a time, first the largest of
 * each column, into a row in scratch whose ends never win; then, a vector of results at a time, the largest of that row
 * at each column of the window:
 *
 *     scratch: | −128 … pad_left | W columns | −128 … |
 */
#ifndef FB_MAX_POOL_ROWS_H
#define FB_MAX_POOL_ROWS_H

#include <string.h>

#include "fb_kernels.h"

/* Bytes of the row, padding included. Behind it `lanes` results are read as if all of them existed, two columns each,
 * twice as far. */
static inline uint32_t fb_max_pool_row(const fb_layer *layer, uint32_t lanes) {
    uint32_t seen = (layer->out.width - 1u) * layer->stride_w + layer->kernel_w;
    uint32_t there = (uint32_t)layer->pad_left + layer->in.width;
    return (seen > there ? seen : there) + 4 * lanes;
}

/* The largest of each of `width` columns of `rows` rows. */
typedef void fb_columns_function(const int8_t *in, uint32_t width, int32_t rows, int8_t *to);

/* As many results as a vector has lanes; the window of the first starts at `row`, the next `step` columns further. */
typedef void fb_windows_function(const int8_t *row, uint32_t kernel, uint32_t step, int8_t *to);

FB_INLINE void fb_max_pool_rows(const fb_layer *layer, const int8_t *in, int8_t *out, int8_t *row, uint32_t lanes,
                                fb_columns_function *columns, fb_windows_function *windows) {
    int32_t height = layer->in.height, oy;
    uint32_t width = layer->in.width, n = layer->out.width, c, x;
    memset(row, -128, fb_max_pool_row(layer, lanes));
    for (c = 0; c < layer->in.channels; c++, in += (size_t)height * width) {
        for (oy = 0; oy < layer->out.height; oy++, out += n) {
            int32_t top = oy * layer->stride_h - layer->pad_top, bottom = top + layer->kernel_h;
            if (top < 0) top = 0;
            if (bottom > height) bottom = height;
            columns(in + (size_t)top * width, width, bottom - top, row + layer->pad_left);
            for (x = 0; x < n; x += lanes) {
                const int8_t *first = row + (size_t)x * layer->stride_w;
                int8_t bytes[16];
                if (n - x >= lanes) {
                    windows(first, layer->kernel_w, layer->stride_w, out + x);
                } else {
                    windows(first, layer->kernel_w, layer->stride_w, bytes);
                    memcpy(out + x, bytes, n - x);
                }
            }
        }
    }
}

/* Columns that are left over, from `x` on. */
static inline void fb_max_pool_rest(const int8_t *in, uint32_t width, int32_t rows, int8_t *to, uint32_t x) {
    for (; x < width; x++) {
        int8_t most = in[x];
        for (int32_t y = 1; y < rows; y++) {
            if (in[(size_t)y * width + x] > most) most = in[(size_t)y * width + x];
        }
        to[x] = most;
    }
}

#endif
