/* Largest value of a window, with SSE4.1, 16 results at a time: fb_max_pool_rows.h. */
#include "../fb_kernels_host.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <smmintrin.h>

#include "../fb_max_pool_rows.h"

#define SSE4 __attribute__((target("sse4.1")))

enum { LANES = 16 };

uint32_t fb_max_pool_sse4_scratch(const fb_layer *layer) {
    return layer->stride_w <= 2 && __builtin_cpu_supports("sse4.1") ? fb_max_pool_row(layer, LANES) : FB_NOT_FOR_THIS;
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
    fb_max_pool_rest(in, width, rows, to, x);
}

SSE4 static inline void windows(const int8_t *row, uint32_t kernel, uint32_t step, int8_t *to) {
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
    _mm_storeu_si128((__m128i *)(void *)to, most);
}

SSE4 void fb_max_pool_sse4(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    fb_max_pool_rows(layer, in, out, scratch, LANES, columns, windows);
}

#endif
