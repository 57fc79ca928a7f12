/* Bands on the mel scale. Between the middles of two neighbouring bands a bin belongs to both: band j gets its weight,
 * band j − 1 the rest, so that one weight per bin is all there is to keep.
 *
 *     segment     0        1        2       …   bands
 *     starts[j] → | band 0 | band 0 | band 1 …        |
 *                 | rises  | falls  | falls           |
 *                 |        | band 1 | band 2          |
 *                 |        | rises  | rises           |
 */
#include "fb_audio_internal.h"

enum { MEL_HZ = 700 }; /* mel(f) is proportional to log2(1 + f / 700) */

fb_status fb_audio_plan_bands(const fb_audio_config *config, uint16_t *weights, uint16_t *starts, uint32_t *first_bin,
                              uint32_t *bins) {
    uint32_t fft = config->fft, bands = config->bands;
    uint32_t low = fb_audio_log2((MEL_HZ + config->low_hz) * fft);
    uint32_t range = fb_audio_log2((MEL_HZ + config->high_hz) * fft) - low; /* below 3.64 · 32768 */
    uint32_t k, next = 0;                                                   /* the segment that starts next */
    uint64_t fed = 0;                                                       /* bands with a bin, one bit each */
    *first_bin = *bins = 0;
    for (k = 1; k < fft / 2; k++) {
        uint32_t at = fb_audio_log2(MEL_HZ * fft + FB_AUDIO_RATE * k), scaled, segment, weight;
        if (at < low) continue;
        if (at - low >= range) break;
        scaled = (at - low) * (bands + 1);
        segment = scaled / range;
        weight = ((scaled % range) << 15) / range;
        if (weight && segment < bands) fed |= (uint64_t)1 << segment;
        if (segment) fed |= (uint64_t)1 << (segment - 1);
        if (!*bins) *first_bin = k;
        for (; next <= segment; next++) {
            if (starts) starts[next] = (uint16_t)k;
        }
        if (weights) weights[*bins] = (uint16_t)weight;
        ++*bins;
    }
    for (; starts && next <= bands + 1; next++) starts[next] = (uint16_t)k;
    return fed == UINT64_MAX >> (64 - bands) ? FB_OK : FB_ERR_SHAPE;
}

/* value · weight / 32768, rounded down, without products of 64 bits: `value` is at most 2^31. */
static uint32_t weighted(uint32_t value, uint32_t weight) {
    return (value >> 16) * weight * 2 + ((value & 0xFFFF) * weight >> 15);
}

/* |X[k]|² of the real FFT from the complex FFT Z of pairs: 2 X[k] = (Z[k] + Z*[n − k]) − j e^(−jπk/n) (Z[k] − Z*[n − k]).
 * `halved` is 1 where sums need a bit that is not there. */
static inline uint32_t power(const int16_t *spectrum, uint32_t points, uint32_t k, uint32_t step, uint32_t halved) {
    const int16_t *z = spectrum + 2 * k, *m = spectrum + 2 * (points - k);
    fb_audio_angle w = fb_audio_rotation(k * step);
    int32_t half = (int32_t)halved;
    int32_t sum_re = (z[0] + m[0] + half) >> halved, sum_im = (z[1] - m[1] + half) >> halved;
    int32_t dif_re = (z[0] - m[0] + half) >> halved, dif_im = (z[1] + m[1] + half) >> halved;
    int32_t re = (sum_re + ((dif_im * w.cosine - dif_re * w.sine + 0x4000) >> 15) + 1) >> 1;
    int32_t im = (sum_im + ((-dif_re * w.cosine - dif_im * w.sine + 0x4000) >> 15) + 1) >> 1;
    return (uint32_t)re * (uint32_t)re + (uint32_t)im * (uint32_t)im;
}

/* log2 of energy · 4^exponent on the scale of the configuration. */
static int8_t feature(const fb_audio_config *config, uint64_t energy, int32_t exponent) {
    int32_t level, steps;
    if (!energy) return -128;
    level = (int32_t)fb_audio_log2(energy) + (2 * exponent - config->floor) * 32768;
    steps = (level * config->gain + (1 << 18)) >> 19;
    return (int8_t)((steps < 0 ? 0 : steps > 255 ? 255 : steps) - 128);
}

void fb_audio_bands(const fb_audio *audio, fb_audio_scale scale, int8_t *row) {
    const fb_audio_config *config = &audio->config;
    uint32_t points = config->fft / 2u, step = FB_AUDIO_CIRCLE / config->fft, halved = scale.headroom > 14;
    uint32_t segment, k = audio->first_bin;
    int32_t exponent = scale.exponent + (int32_t)halved;
    const uint16_t *weight = audio->weights;
    uint64_t energy = 0; /* of the band that rose in the segment before */
    for (segment = 0; segment <= config->bands; segment++) {
        uint64_t rises = 0, falls = 0;
        for (; k < audio->starts[segment + 1]; k++) {
            uint32_t all = power(audio->spectrum, points, k, step, halved), part = weighted(all, *weight++);
            rises += part;
            falls += all - part;
        }
        if (segment) row[segment - 1] = feature(config, energy + falls, exponent);
        energy = rises;
    }
}
