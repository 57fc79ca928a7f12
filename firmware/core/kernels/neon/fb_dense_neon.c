/* Dense layers with NEON, two filters at a time, as both need the same inputs. */
#include "../fb_long.h"
#include "fb_neon.h"

#ifdef __ARM_NEON

/* Σ x · w of 16 values joins `sum`. Two products of −128 · −128 would not fit 16 bits, so each is widened by itself. */
static inline int32x4_t dot(int32x4_t sum, int8x16_t x, int8x16_t w) {
    sum = vpadalq_s16(sum, vmull_s8(vget_low_s8(x), vget_low_s8(w)));
    return vpadalq_s16(sum, vmull_s8(vget_high_s8(x), vget_high_s8(w)));
}

uint32_t fb_dense_int8_neon_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

void fb_dense_int8_neon(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    uint32_t n = layer->inputs, i, o;
    (void)in2;
    (void)scratch;
    for (o = 0; o < layer->out.channels; o += 2) {
        uint32_t other = o + 1 < layer->out.channels ? o + 1 : o; /* the last one, if it is alone, twice */
        const int8_t *v = layer->weights + (size_t)o * n, *w = layer->weights + (size_t)other * n;
        int32x4_t sum = vdupq_n_s32(0), sum2 = sum;
        int32_t first = layer->bias[o], second = layer->bias[other];
        for (i = 0; i + 32 <= n; i += 32) {
            int8x16_t x = vld1q_s8(in + i), y = vld1q_s8(in + i + 16);
            sum = dot(dot(sum, x, vld1q_s8(v + i)), y, vld1q_s8(v + i + 16));
            sum2 = dot(dot(sum2, x, vld1q_s8(w + i)), y, vld1q_s8(w + i + 16));
        }
        first += fb_neon_total(sum);
        second += fb_neon_total(sum2);
        for (; i < n; i++) {
            first += in[i] * v[i];
            second += in[i] * w[i];
        }
        out[o] = fb_requantize_long(first, layer->mult_int8[o], layer->shift, layer->out.zero_point, layer->low);
        out[other] =
            fb_requantize_long(second, layer->mult_int8[other], layer->shift, layer->out.zero_point, layer->low);
    }
}

/* Binary: bits select inputs, made unsigned by adding 128; Σ ±x = 2 · Σ of the positive ones − Σ of all.
 *
 *     scratch: uint8_t [⌈inputs / 16⌉ · 16]
 */
uint32_t fb_dense_bin_neon_scratch(const fb_layer *layer) { return fb_product(layer->words, 16); }

void fb_dense_bin_neon(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    static const uint8_t places[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t place = vld1q_u8(places);
    uint8_t *biased = scratch;
    int32_t all = 0;
    uint32_t i, o;
    (void)in2;
    for (i = 0; i < layer->inputs; i++) {
        biased[i] = (uint8_t)(in[i] ^ -128);
        all += in[i];
    }
    memset(biased + layer->inputs, 0, layer->words * 16 - layer->inputs);
    for (o = 0; o < layer->out.channels; o++) {
        const uint16_t *bits = layer->bits + (size_t)o * layer->words;
        uint32x4_t sums = vdupq_n_u32(0);
        uint8x16_t set = vdupq_n_u8(0); /* how many bits were, in each lane */
        int32_t positive, count = 0;
        for (i = 0; i < layer->words; i++) {
            uint8x16_t word = vcombine_u8(vdup_n_u8((uint8_t)bits[i]), vdup_n_u8((uint8_t)(bits[i] >> 8)));
            uint8x16_t mask = vtstq_u8(word, place);
            sums = vpadalq_u16(sums, vpaddlq_u8(vandq_u8(mask, vld1q_u8(biased + (size_t)i * 16))));
            set = vsubq_u8(set, mask);
            if (i % 255 == 254) {
                count += fb_neon_total(vreinterpretq_s32_u32(vpaddlq_u16(vpaddlq_u8(set))));
                set = vdupq_n_u8(0);
            }
        }
        count += fb_neon_total(vreinterpretq_s32_u32(vpaddlq_u16(vpaddlq_u8(set))));
        positive = fb_neon_total(vreinterpretq_s32_u32(sums)) - 128 * count;
        out[o] = fb_requantize(2 * positive - all + layer->bias[o], layer->mult[o], layer->shift, layer->out.zero_point,
                               layer->low);
    }
}

#endif
