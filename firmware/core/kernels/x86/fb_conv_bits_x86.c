/* Convolution of bits with AVX2: 128 pixels at a time. See fb_bits_planes.h. */
#include "../fb_kernels_host.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>
#include <string.h>

#include "../fb_bits_planes.h"

#define AVX2 __attribute__((target("avx2")))

static const uint8_t set_bits[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};

uint32_t fb_conv_bits_avx2_scratch(const fb_layer *layer) {
    return __builtin_cpu_supports("avx2") ? fb_bits_scratch(layer) : FB_NOT_FOR_THIS;
}

AVX2 static inline __m256i load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

AVX2 static inline void widen(uint16_t *sums, __m256i v) {
    const __m256i low = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(v));
    const __m256i high = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(v, 1));
    _mm256_storeu_si256((__m256i *)(void *)sums, _mm256_add_epi16(load(sums), low));
    _mm256_storeu_si256((__m256i *)(void *)(sums + 16), _mm256_add_epi16(load(sums + 16), high));
}

AVX2 static void add(const uint8_t *planes, const uint32_t *shifts, const uint8_t *weights, uint32_t count,
                     uint16_t *sums) {
    /* differing(w, x) = set(x) where w is 0, with the bits of x turned where w has them */
    const __m256i set = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)set_bits));
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    uint32_t i;
    for (i = 0; i < count; i++) {
        const __m256i index = _mm256_xor_si256(_mm256_set1_epi8((int8_t)weights[i]),
                                               _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0,
                                                                1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
        const __m256i table = _mm256_shuffle_epi8(set, index);
        const uint8_t *x = planes + shifts[i];
        a = _mm256_add_epi8(a, _mm256_shuffle_epi8(table, load(x)));
        b = _mm256_add_epi8(b, _mm256_shuffle_epi8(table, load(x + 32)));
        c = _mm256_add_epi8(c, _mm256_shuffle_epi8(table, load(x + 64)));
        d = _mm256_add_epi8(d, _mm256_shuffle_epi8(table, load(x + 96)));
    }
    widen(sums, a);
    widen(sums + 32, b);
    widen(sums + 64, c);
    widen(sums + 96, d);
}

AVX2 static void finish(const fb_layer *layer, uint32_t filter, const uint16_t *sums, const uint16_t *n, int8_t *out,
                        uint32_t count) {
    const int32_t bias = layer->bias[filter], mult = layer->mult[filter];
    const __m256i half = _mm256_set1_epi32((int32_t)1 << (layer->shift - 1));
    const __m128i shift = _mm_cvtsi32_si128(layer->shift), low = _mm_set1_epi8(layer->low);
    for (; count >= 8; count -= 8, sums += 8, n += 8, out += 8) {
        const __m256i s = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)sums));
        __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)n));
        __m128i words;
        v = _mm256_add_epi32(_mm256_sub_epi32(v, _mm256_add_epi32(s, s)), _mm256_set1_epi32(bias));
        v = _mm256_mullo_epi32(v, _mm256_set1_epi32(mult));
        v = _mm256_add_epi32(_mm256_add_epi32(v, half), _mm256_srai_epi32(v, 31)); /* ties away from zero */
        v = _mm256_add_epi32(_mm256_sra_epi32(v, shift), _mm256_set1_epi32(layer->out.zero_point));
        words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        _mm_storel_epi64((__m128i *)(void *)out, _mm_max_epi8(_mm_packs_epi16(words, words), low));
    }
    for (; count; count--, sums++, n++) {
        *out++ = fb_requantize(*n - 2 * *sums + bias, mult, layer->shift, layer->out.zero_point, layer->low);
    }
}

void fb_conv_bits_avx2(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    fb_bits_run(layer, in, out, scratch, add, finish);
}

#endif
