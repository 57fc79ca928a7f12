/* Convolutions with AVX-512 VNNI: 8 filters × 32 pixels at a time, one VPDPBUSD for 16 pixels × 4 channels.
 *
 *     a = 16 words of a plane     u8 [pixel][channel]
 *     b = a word of a filter      s8 [channel], the same for every pixel
 *     sum[filter][pixel] += Σ a · b
 *
 * A step of 4 channels is 2 loads of pixels, 8 broadcasts of weights and 16 dot products. See fb_conv_x86.h.
 */
#include "../fb_kernels_host.h"
#include "../fb_long.h"
#include "fb_avx512.h"
#include "fb_conv_x86.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <string.h>

#define AVX512 FB_AVX512

static bool supported(void) {
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

AVX512 static int32_t expand(const fb_layer *layer, const uint16_t *bits, int8_t *to) {
    const __m512i plus = _mm512_set1_epi8(1), minus = _mm512_set1_epi8(-1);
    uint32_t count = layer->inputs, i, positive = 0;
    for (i = 0; i < count; i += 64) {
        uint32_t left = count - i < 64 ? count - i : 64;
        uint64_t word = 0;
        memcpy(&word, bits + i / 16, left == 64 ? 8 : (left + 15) / 16 * 2);
        positive += (uint32_t)__builtin_popcountll(word);
        _mm512_storeu_si512(to + i, _mm512_mask_blend_epi8(word, minus, plus));
    }
    return (int32_t)(2 * positive) - (int32_t)count;
}

/* With 64-bit products, 8 pixels. */
AVX512 static inline void store_long(const fb_layer *layer, __m256i sum, int32_t multiplier, int8_t *out,
                                     uint32_t count) {
    __mmask8 mask = (__mmask8)(count >= 8 ? 0xFFu : (1u << count) - 1);
    __m512i product = _mm512_mul_epi32(_mm512_cvtepi32_epi64(sum), _mm512_set1_epi64(multiplier));
    __m512i half = _mm512_set1_epi64(1LL << (layer->shift - 1));
    __m512i v = _mm512_add_epi64(_mm512_add_epi64(product, half), _mm512_srai_epi64(product, 63));
    v = _mm512_add_epi64(_mm512_sra_epi64(v, _mm_cvtsi32_si128(layer->shift)),
                         _mm512_set1_epi64(layer->out.zero_point));
    _mm512_mask_cvtsepi64_storeu_epi8(out, mask, _mm512_max_epi64(v, _mm512_set1_epi64(layer->low)));
}

AVX512 static inline void finish(const fb_x86_block *block, unsigned i, uint32_t p, __m512i sum) {
    uint32_t count = block->pixels - p;
    int8_t *out = block->out[i] + p;
    sum = _mm512_add_epi32(sum, _mm512_set1_epi32(block->bias[i]));
    if (block->layer->bits) {
        fb_avx512_store(block->layer, sum, block->multiplier[i], out, count);
    } else {
        store_long(block->layer, _mm512_castsi512_si256(sum), block->multiplier[i], out, count);
        if (count > 8) {
            store_long(block->layer, _mm512_extracti64x4_epi64(sum, 1), block->multiplier[i], out + 8, count - 8);
        }
    }
}

/* For each filter of a block. */
#define EACH(do) \
    do (0) do(1) do(2) do(3) do(4) do(5) do(6) do(7)

AVX512 static inline __m512i weights(const int8_t *filter, uint32_t k) {
    int32_t word;
    memcpy(&word, filter + (size_t)k * 4, 4);
    return _mm512_set1_epi32(word);
}

/* _mm512_dpbusd_epi32, for which GCC 12 copies every sum twice. */
AVX512 static inline __m512i dot(__m512i sum, __m512i pixels, __m512i w) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(pixels), "v"(w));
    return sum;
}

AVX512 static void block_of(const fb_x86_block *block) {
    uint32_t p, k;
    for (p = 0; p < block->pixels; p += 32) {
#define START(i) \
    __m512i left##i = _mm512_setzero_si512(), right##i = left##i; \
    const int8_t *filter##i = block->filter[i];
        EACH(START)
        if (block->pixels - p > 16) {
            for (k = 0; k < block->terms; k++) {
                const uint32_t *at = block->planes + block->offsets[k] + p;
                __m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + 16);
#define STEP(i) \
    { \
        __m512i w = weights(filter##i, k); \
        left##i = dot(left##i, a, w); \
        right##i = dot(right##i, b, w); \
    }
                EACH(STEP)
            }
#define RIGHT(i) finish(block, i, p + 16, right##i);
            EACH(RIGHT)
        } else {
            for (k = 0; k < block->terms; k++) {
                __m512i a = _mm512_loadu_si512(block->planes + block->offsets[k] + p);
#define STEP_LEFT(i) left##i = dot(left##i, a, weights(filter##i, k));
                EACH(STEP_LEFT)
            }
        }
#define LEFT(i) finish(block, i, p, left##i);
        EACH(LEFT)
    }
}

static const fb_x86_conv vnni = {8, 4, block_of, expand};

uint32_t fb_conv_bin_vnni_scratch(const fb_layer *layer) {
    return supported() ? fb_conv_x86_scratch(layer, vnni.filters) : FB_NOT_FOR_THIS;
}

void fb_conv_bin_vnni(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    fb_conv_x86_run(layer, in, out, scratch, &vnni);
}

uint32_t fb_conv_int8_vnni_scratch(const fb_layer *layer) { return fb_conv_bin_vnni_scratch(layer); }

void fb_conv_int8_vnni(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    fb_conv_bin_vnni(layer, in, in2, out, scratch);
}

#endif
