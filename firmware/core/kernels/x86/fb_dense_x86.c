/* Dense layers with AVX2. What they read is the weights, once: memory sets their speed. */
#include "../fb_kernels_host.h"
#include "../fb_long.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,popcnt")))

static uint32_t room(uint32_t bytes) { return __builtin_cpu_supports("avx2") ? bytes : FB_NOT_FOR_THIS; }

AVX2 static inline int32_t total(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

/* int8: inputs are widened to 16 bits once, weights as they are read. */
uint32_t fb_dense_int8_avx2_scratch(const fb_layer *layer) { return room(fb_product(layer->inputs, 2)); }

AVX2 void fb_dense_int8_avx2(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    int16_t *wide = scratch;
    const int8_t *w = layer->weights;
    uint32_t i, o;
    (void)in2;
    for (i = 0; i < layer->inputs; i++) wide[i] = in[i];
    for (o = 0; o < layer->out.channels; o++, w += layer->inputs) {
        __m256i even = _mm256_setzero_si256(), odd = even;
        int32_t sum = layer->bias[o];
        for (i = 0; i + 32 <= layer->inputs; i += 32) {
            __m256i a = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(w + i)));
            __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(w + i + 16)));
            __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(wide + i));
            __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)(wide + i + 16));
            even = _mm256_add_epi32(even, _mm256_madd_epi16(a, x));
            odd = _mm256_add_epi32(odd, _mm256_madd_epi16(b, y));
        }
        sum += total(_mm256_add_epi32(even, odd));
        for (; i < layer->inputs; i++) sum += in[i] * w[i];
        out[o] = fb_requantize_long(sum, layer->mult_int8[o], layer->shift, layer->out.zero_point, layer->low);
    }
}

/* Binary: bits select inputs, made unsigned by adding 128; Σ ±x = 2 · Σ of the positive ones − Σ of all. */
uint32_t fb_dense_bin_avx2_scratch(const fb_layer *layer) { return room(fb_sum(layer->inputs, 32)); }

AVX2 void fb_dense_bin_avx2(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const __m256i place = _mm256_set1_epi64x((int64_t)0x8040201008040201u), zero = _mm256_setzero_si256();
    const __m256i bytes = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3,
                                           3, 3, 3, 3, 3, 3);
    uint8_t *biased = scratch;
    int32_t all = 0;
    uint32_t i, o;
    (void)in2;
    for (i = 0; i < layer->inputs; i++) {
        biased[i] = (uint8_t)(in[i] ^ -128);
        all += in[i];
    }
    memset(biased + layer->inputs, 0, 32);
    for (o = 0; o < layer->out.channels; o++) {
        const uint16_t *bits = layer->bits + (size_t)o * layer->words;
        __m256i sums = zero; /* four of 64 bits, each below 2^32 */
        int32_t set = 0, positive;
        for (i = 0; i < layer->words; i += 2) {
            uint32_t word = bits[i];
            __m256i mask;
            if (i + 1 < layer->words) word |= (uint32_t)bits[i + 1] << 16;
            set += __builtin_popcount(word);
            mask = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)word), bytes), place);
            mask = _mm256_cmpeq_epi8(mask, place);
            mask = _mm256_and_si256(mask, _mm256_loadu_si256((const __m256i *)(const void *)(biased + i * 16)));
            sums = _mm256_add_epi64(sums, _mm256_sad_epu8(mask, zero));
        }
        positive = total(sums) - 128 * set;
        out[o] = fb_requantize(2 * positive - all + layer->bias[o], layer->mult[o], layer->shift, layer->out.zero_point,
                               layer->low);
    }
}

#endif
