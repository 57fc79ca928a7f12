/* What kernels with AVX-512 share. Private to the core. */
#ifndef FB_AVX512_H
#define FB_AVX512_H

#include "../fb_kernels_host.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define FB_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,popcnt")))

/* Requantize 16 sums of a binary layer and store the first `count`. */
FB_AVX512 static inline void fb_avx512_store(const fb_layer *layer, __m512i sum, int32_t multiplier, int8_t *out,
                                             uint32_t count) {
    __mmask16 mask = (__mmask16)(count >= 16 ? 0xFFFFu : (1u << count) - 1);
    __m512i low = _mm512_set1_epi32(layer->low), zero = _mm512_set1_epi32(layer->out.zero_point);
    __m512i product = _mm512_mullo_epi32(sum, _mm512_set1_epi32(multiplier));
    __m512i half = _mm512_set1_epi32((int32_t)1 << (layer->shift - 1));
    __m512i v = _mm512_add_epi32(_mm512_add_epi32(product, half), _mm512_srai_epi32(product, 31));
    v = _mm512_add_epi32(_mm512_sra_epi32(v, _mm_cvtsi32_si128(layer->shift)), zero);
    _mm512_mask_cvtsepi32_storeu_epi8(out, mask, _mm512_max_epi32(v, low));
}

#endif
#endif
