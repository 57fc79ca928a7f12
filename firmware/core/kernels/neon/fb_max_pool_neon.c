/* Largest value of a window, with NEON, 8 results at a time: fb_max_pool_rows.h. */
#include "../fb_max_pool_rows.h"
#include "fb_neon.h"

#ifdef __ARM_NEON

enum { LANES = 8 };

uint32_t fb_max_pool_neon_scratch(const fb_layer *layer) {
    return layer->stride_w <= 2 ? fb_max_pool_row(layer, LANES) : FB_NOT_FOR_THIS;
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
    fb_max_pool_rest(in, width, rows, to, x);
}

static inline void windows(const int8_t *row, uint32_t kernel, uint32_t step, int8_t *to) {
    int8x8_t most = vdup_n_s8(-128);
    uint32_t k;
    for (k = 0; step == 1 && k < kernel; k++) most = vmax_s8(most, vld1_s8(row + k));
    for (k = 0; step == 2 && k < kernel; k += 2) { /* even columns and the odd ones beside them */
        int8x8x2_t two = vld2_s8(row + k);
        most = vmax_s8(most, two.val[0]);
        if (k + 1 < kernel) most = vmax_s8(most, two.val[1]);
    }
    vst1_s8(to, most);
}

void fb_max_pool_neon(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    fb_max_pool_rows(layer, in, out, scratch, LANES, columns, windows);
}

#endif
