/* Sum of two tensors with AVX2, 16 values at a time. May write over an input.
 *
 * Factors have 22 bits, VPMADDWD takes 16: a·f + b·g = (a·f1 + b·g1)·2^11 + (a·f0 + b·g0), f = f1·2^11 + f0.
 */
#include "../fb_kernels_host.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

enum { SPLIT = 11, LOW = (1 << SPLIT) - 1 };

typedef struct terms {
    __m256i high, low, offset;
    __m128i shift;
} terms;

uint32_t fb_add_avx2_scratch(const fb_layer *layer) {
    (void)layer;
    return __builtin_cpu_supports("avx2") ? 0 : FB_NOT_FOR_THIS;
}

/* Pairs (a, b) to sums, shifted and rounded. */
AVX2 static inline __m256i rounded(__m256i pairs, const terms *t) {
    __m256i high = _mm256_slli_epi32(_mm256_madd_epi16(pairs, t->high), SPLIT);
    __m256i sum = _mm256_add_epi32(high, _mm256_madd_epi16(pairs, t->low));
    sum = _mm256_add_epi32(sum, t->offset);
    return sum;
}

AVX2 static inline __m256i shifted(__m256i sum, __m256i half, __m128i shift) {
    return _mm256_sra_epi32(_mm256_add_epi32(_mm256_add_epi32(sum, half), _mm256_srai_epi32(sum, 31)), shift);
}

AVX2 void fb_add_avx2(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    int32_t a = (int32_t)layer->factor[0], b = (int32_t)layer->factor[1];
    int32_t offset = -layer->in.zero_point * a - layer->in2.zero_point * b;
    __m256i half = _mm256_set1_epi32((int32_t)1 << (layer->shift - 1)), zero = _mm256_set1_epi16(layer->out.zero_point);
    __m128i least = _mm_set1_epi8(layer->low);
    terms t;
    uint32_t i;
    (void)scratch;
    t.high = _mm256_set1_epi32((a >> SPLIT) | (b >> SPLIT) << 16);
    t.low = _mm256_set1_epi32((a & LOW) | (b & LOW) << 16);
    t.offset = _mm256_set1_epi32(offset);
    t.shift = _mm_cvtsi32_si128(layer->shift);
    for (i = 0; i + 16 <= layer->out.size; i += 16) {
        __m256i x = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(in + i)));
        __m256i y = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(in2 + i)));
        __m256i low = shifted(rounded(_mm256_unpacklo_epi16(x, y), &t), half, t.shift);
        __m256i high = shifted(rounded(_mm256_unpackhi_epi16(x, y), &t), half, t.shift);
        __m256i v = _mm256_adds_epi16(_mm256_packs_epi32(low, high), zero); /* unpacked in halves, packed in halves */
        __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        _mm_storeu_si128((__m128i *)(void *)(out + i), _mm_max_epi8(bytes, least));
    }
    for (; i < layer->out.size; i++) {
        int32_t sum = in[i] * a + in2[i] * b + offset;
        out[i] = fb_requantize(sum, 1, layer->shift, layer->out.zero_point, layer->low);
    }
}

#endif
