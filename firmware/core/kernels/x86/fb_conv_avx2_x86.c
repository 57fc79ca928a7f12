/* Binary convolution with AVX2: 4 filters × 16 pixels at a time.
 *
 *     a = 8 words of a plane      u8 [pixel][channel]
 *     b = a word of a filter      ±1 [channel], the same for every pixel
 *     sum[filter][pixel][2] += a0 · b0 + a1 · b1, a2 · b2 + a3 · b3          VPMADDUBSW, VPADDW
 *
 * A step adds at most 2 · 255 to a 16-bit lane, so 64 steps fit; then the lanes are widened. See fb_conv_x86.h.
 */
#include "../fb_kernels_host.h"
#include "fb_conv_x86.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,popcnt")))

enum { STEPS = 64, FILTERS = 4 };

AVX2 static int32_t expand(const fb_layer *layer, const uint16_t *bits, int8_t *to) {
    const __m256i place = _mm256_set1_epi64x((int64_t)0x8040201008040201u), one = _mm256_set1_epi8(1);
    const __m256i bytes = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3,
                                           3, 3, 3, 3, 3, 3);
    uint32_t count = layer->inputs, i, positive = 0;
    for (i = 0; i < count; i += 32) {
        uint32_t word = bits[i / 16];
        __m256i unset;
        if (count - i > 16) word |= (uint32_t)bits[i / 16 + 1] << 16;
        positive += (uint32_t)__builtin_popcount(word);
        unset = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)word), bytes), place);
        unset = _mm256_cmpeq_epi8(unset, _mm256_setzero_si256());
        _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm256_or_si256(unset, one));
    }
    return (int32_t)(2 * positive) - (int32_t)count;
}

AVX2 static inline __m256i weights(const int8_t *filter, uint32_t k) {
    int32_t word;
    memcpy(&word, filter + (size_t)k * 4, 4);
    return _mm256_set1_epi32(word);
}

AVX2 static inline __m256i requantized(const fb_layer *layer, __m256i sum, int32_t bias, int32_t multiplier) {
    __m256i product = _mm256_mullo_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(bias)), _mm256_set1_epi32(multiplier));
    __m256i half = _mm256_set1_epi32((int32_t)1 << (layer->shift - 1));
    __m256i v = _mm256_add_epi32(_mm256_add_epi32(product, half), _mm256_srai_epi32(product, 31));
    v = _mm256_sra_epi32(v, _mm_cvtsi32_si128(layer->shift));
    return _mm256_add_epi32(v, _mm256_set1_epi32(layer->out.zero_point));
}

/* 16 pixels of a filter, `count` of which exist. */
AVX2 static void finish(const fb_x86_block *block, unsigned i, uint32_t p, const __m256i sum[2]) {
    __m256i a = requantized(block->layer, sum[0], block->bias[i], block->multiplier[i]);
    __m256i b = requantized(block->layer, sum[1], block->bias[i], block->multiplier[i]);
    __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8); /* packing works in halves */
    __m128i v = _mm_packs_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    uint32_t count = block->pixels - p;
    int8_t bytes[16];
    v = _mm_max_epi8(v, _mm_set1_epi8(block->layer->low));
    if (count >= 16) {
        _mm_storeu_si128((__m128i *)(void *)(block->out[i] + p), v);
    } else {
        _mm_storeu_si128((__m128i *)(void *)bytes, v);
        memcpy(block->out[i] + p, bytes, count);
    }
}

/* For each filter of a block. */
#define EACH(do) \
    do (0) do(1) do(2) do(3)

AVX2 static void block_of(const fb_x86_block *block) {
    const __m256i ones = _mm256_set1_epi16(1);
    uint32_t p, k, i;
    for (p = 0; p < block->pixels; p += 16) {
        __m256i sum[FILTERS][2];
        for (i = 0; i < FILTERS; i++) sum[i][0] = sum[i][1] = _mm256_setzero_si256();
        for (k = 0; k < block->terms;) {
            uint32_t end = block->terms - k < STEPS ? block->terms : k + STEPS;
#define START(i) __m256i left##i = _mm256_setzero_si256(), right##i = left##i;
            EACH(START)
            for (; k < end; k++) {
                const uint32_t *at = block->planes + block->offsets[k] + p;
                __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)at);
                __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(at + 8));
#define STEP(i) \
    { \
        __m256i w = weights(block->filter[i], k); \
        left##i = _mm256_add_epi16(left##i, _mm256_maddubs_epi16(a, w)); \
        right##i = _mm256_add_epi16(right##i, _mm256_maddubs_epi16(b, w)); \
    }
                EACH(STEP)
            }
#define WIDEN(i) \
    sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(left##i, ones)); \
    sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(right##i, ones));
            EACH(WIDEN)
        }
        for (i = 0; i < FILTERS; i++) finish(block, i, p, sum[i]);
    }
}

static const fb_x86_conv avx2 = {FILTERS, 4, block_of, expand};

uint32_t fb_conv_bin_avx2_scratch(const fb_layer *layer) {
    return __builtin_cpu_supports("avx2") ? fb_conv_x86_scratch(layer, avx2.filters) : FB_NOT_FOR_THIS;
}

void fb_conv_bin_avx2(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    fb_conv_x86_run(layer, in, out, scratch, &avx2);
}

#endif
