/* int8 convolution of each channel by itself on Helium (MVE), any kernel, stride and padding: eight pixels at a time.
 *
 * Rows of a channel are widened to 16 bits, padding included, in a ring: each row once.
 *
 * scratch: rows[kernel_h] addresses | ring[kernel_h][columns]
 */
#include "../fb_kernels_mve.h"
#include "../fb_long.h"

#if defined(FB_MVE) || defined(FB_PLAN_BOARDS)

/* Of whole eights of pixels. */
static uint32_t columns_of(const fb_layer *layer) {
    return ((layer->out.width + 7u) / 8 * 8 - 1) * layer->stride_w + layer->kernel_w;
}

uint32_t fb_depthwise_int8_mve_scratch(const fb_layer *layer) {
    if (layer->shift < 33) return FB_NOT_FOR_THIS; /* products of one word */
    return layer->kernel_h * (columns_of(layer) * (uint32_t)sizeof(int16_t) + FB_POINTER_SIZE);
}
#endif

#ifdef FB_MVE
#include "fb_requantize_mve.h"

/* Columns from −pad_left on of row y, which may be outside. */
static void widen(const fb_layer *layer, const int8_t *plane, int32_t y, int16_t *to) {
    const int32_t columns = (int32_t)columns_of(layer), width = layer->in.width, left = layer->pad_left;
    const int16x8_t zero = vdupq_n_s16(layer->in.zero_point);
    int32_t x, end = columns < width + left ? columns : width + left;
    for (x = 0; x < columns; x += 8) vstrhq_p_s16(to + x, zero, vctp16q((uint32_t)(columns - x)));
    if (y < 0 || y >= layer->in.height) return;
    plane += y * width;
    for (x = left; x < end; x += 8, plane += 8) {
        const mve_pred16_t some = vctp16q((uint32_t)(end - x));
        vstrhq_p_s16(to + x, vldrbq_z_s16(plane, some), some);
    }
}

/* A row of output. `rows` are those of the window; `dense`: stride 1. */
FB_INLINE void put_row(const fb_layer *layer, const int16_t *const *rows, uint32_t c, int8_t *out, uint32_t height,
                       uint32_t width, bool dense) {
    const uint32_t stride = dense ? 1 : layer->stride_w, last = layer->out.width;
    const uint32x4_t places = vmulq_n_u32(vidupq_n_u32(0, 1), stride);
    const int32_t mult = layer->mult_int8[c];
    uint32_t x, ky, kx;
    for (x = 0; x < last; x += 8) {
        const int8_t *w = layer->weights + (size_t)c * layer->inputs;
        int32x4_t left = vdupq_n_s32(layer->bias[c]), right = left;
        for (ky = 0; ky < height; ky++) {
            const int16_t *row = rows[ky] + x * stride;
            for (kx = 0; kx < width; kx++, row++, w++) {
                const int16_t *behind = row + 4 * stride;
                left = vmlaq_n_s32(left, dense ? vldrhq_s32(row) : vldrhq_gather_shifted_offset_s32(row, places), *w);
                right = vmlaq_n_s32(right,
                                    dense ? vldrhq_s32(behind) : vldrhq_gather_shifted_offset_s32(behind, places), *w);
            }
        }
        vstrbq_p_s32(out + x, fb_requantize_mve(layer, left, mult, false), vctp32q(last - x));
        if (x + 4 < last)
            vstrbq_p_s32(out + x + 4, fb_requantize_mve(layer, right, mult, false), vctp32q(last - x - 4));
    }
}

void fb_depthwise_int8_mve(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const uint32_t columns = columns_of(layer), height = layer->kernel_h;
    const int16_t **rows = scratch;
    int16_t *ring = (int16_t *)(rows + height);
    const bool dense = layer->stride_w == 1, usual = height == 3 && layer->kernel_w == 3;
    uint32_t c, y, i;
    (void)in2;
    for (c = 0; c < layer->out.channels; c++, in += (size_t)layer->in.height * layer->in.width) {
        int32_t next = -(int32_t)layer->pad_top; /* row to widen */
        for (y = 0; y < layer->out.height; y++, out += layer->out.width) {
            const int32_t top = (int32_t)(y * layer->stride_h) - layer->pad_top;
            if (next < top) next = top;
            for (; next < top + (int32_t)height; next++) {
                widen(layer, in, next, ring + (uint32_t)(next + layer->pad_top) % height * columns);
            }
            for (i = 0; i < height; i++) rows[i] = ring + (y * layer->stride_h + i) % height * columns;
            if (usual && dense) {
                put_row(layer, rows, c, out, 3, 3, true);
            } else if (usual) {
                put_row(layer, rows, c, out, 3, 3, false);
            } else {
                put_row(layer, rows, c, out, height, layer->kernel_w, false);
            }
        }
    }
}

#endif
