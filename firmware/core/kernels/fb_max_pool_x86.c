/* Largest value of a window, with SSE4.1, for windows that move 1 or 2 columns at a time.
 *
 * First the largest of each column, into a row in scratch whose ends never win; then, 16 results at a time, the largest
 * of that row at each column of the window:
 *
 *     scratch: | −128 … pad_left | W columns | −128 … |
 */
#include "../fb_kernels_host.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <smmintrin.h>
#include <string.h>

#define SSE4 __attribute__((target("sse4.1")))

enum { SLACK = 64 }; /* bytes: the last 16 results read as far as if all of them existed */

/* Columns of a row, padding included. */
static uint32_t row_size(const fb_layer *layer) {
    uint32_t seen = (layer->out.width - 1u) * layer->stride_w + layer->kernel_w;
    uint32_t there = (uint32_t)layer->pad_left + layer->in.width;
    return (seen > there ? seen : there) + SLACK;
}

uint32_t fb_max_pool_sse4_scratch(const fb_layer *layer) {
    return layer->stride_w <= 2 && __builtin_cpu_supports("sse4.1") ? row_size(layer) : FB_NOT_FOR_THIS;
}

SSE4 static void columns(const int8_t *in, uint32_t width, int32_t rows, int8_t *to) {
    uint32_t x = 0;
    int32_t y;
    for (; x + 16 <= width; x += 16) {
        __m128i most = _mm_loadu_si128((const __m128i *)(const void *)(in + x));
        for (y = 1; y < rows; y++) {
            most = _mm_max_epi8(most, _mm_loadu_si128((const __m128i *)(const void *)(in + (size_t)y * width + x)));
        }
        _mm_storeu_si128((__m128i *)(void *)(to + x), most);
    }
    for (; x + 8 <= width; x += 8) {
        __m128i most = _mm_loadl_epi64((const __m128i *)(const void *)(in + x));
        for (y = 1; y < rows; y++) {
            most = _mm_max_epi8(most, _mm_loadl_epi64((const __m128i *)(const void *)(in + (size_t)y * width + x)));
        }
        _mm_storel_epi64((__m128i *)(void *)(to + x), most);
    }
    for (; x < width; x++) {
        int8_t most = in[x];
        for (y = 1; y < rows; y++) {
            if (in[(size_t)y * width + x] > most) most = in[(size_t)y * width + x];
        }
        to[x] = most;
    }
}

/* 16 results of which the first window starts at `row`. */
SSE4 static inline __m128i windows(const int8_t *row, uint32_t kernel, uint32_t step) {
    const __m128i even = _mm_set1_epi16(0xFF);
    __m128i most = _mm_set1_epi8(-128);
    uint32_t k;
    for (k = 0; k < kernel; k++) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(row + k));
        if (step == 2) {
            __m128i more = _mm_loadu_si128((const __m128i *)(const void *)(row + k + 16));
            v = _mm_packus_epi16(_mm_and_si128(v, even), _mm_and_si128(more, even));
        }
        most = _mm_max_epi8(most, v);
    }
    return most;
}

SSE4 void fb_max_pool_sse4(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
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
            for (x = 0; x < n; x += 16) {
                __m128i v = windows(row + (size_t)x * layer->stride_w, layer->kernel_w, layer->stride_w);
                int8_t bytes[16];
                if (n - x >= 16) {
                    _mm_storeu_si128((__m128i *)(void *)(out + x), v);
                } else {
                    _mm_storeu_si128((__m128i *)(void *)bytes, v);
                    memcpy(out + x, bytes, n - x);
                }
            }
        }
    }
}

#endif
