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
    uint32_t fed = 0; /* bands that have a bin, up to the first that has none */
    *first_bin = *bins = 0;
    for (k = 1; k < fft / 2; k++) {
        uint32_t at = fb_audio_log2(MEL_HZ * fft + FB_AUDIO_RATE * k), scaled, segment, weight;
        if (at < low) continue;
        if (at - low >= range) break;
        scaled = (at - low) * (bands + 1);
        segment = scaled / range;
        weight = ((scaled % range) << 15) / range;
        if (segment == fed + 1) fed++; /* falls here */
        if (segment == fed && weight && fed < bands) fed++;
        if (!*bins) *first_bin = k;
        for (; next <= segment; next++) {
            if (starts) starts[next] = (uint16_t)k;
        }
        if (weights) weights[*bins] = (uint16_t)weight;
        ++*bins;
    }
    for (; starts && next <= bands + 1; next++) starts[next] = (uint16_t)k;
    return fed == bands ? FB_OK : FB_ERR_SHAPE;
}

/* value · weight / 32768, rounded down, without products of 64 bits: `value` is at most 2^31. */
static uint32_t weighted(uint32_t value, uint32_t weight) {
    return (value >> 16) * weight * 2 + ((value & 0xFFFF) * weight >> 15);
}

static inline uint32_t squared(int32_t re, int32_t im) {
    return (uint32_t)re * (uint32_t)re + (uint32_t)im * (uint32_t)im;
}

/* Powers |X[k]|² of the real FFT, in place of the complex FFT Z of n pairs, for k = from … to and n − k, to ≤ n / 2:
 *
 *     2 X[k]      = (Z[k] + Z*[n − k]) − j e^(−jπk/n) (Z[k] − Z*[n − k])
 *     2 X*[n − k] = (Z[k] + Z*[n − k]) + j e^(−jπk/n) (Z[k] − Z*[n − k])
 *
 * Differences have 17 bits, so that cosine and sine have one less here. Results are halved `shift` times. */
static void make_powers(uint32_t *spectrum, uint32_t n, uint32_t from, uint32_t to, uint32_t shift) {
    uint32_t step = FB_AUDIO_CIRCLE / (2 * n), k;
    const int16_t *sine = fb_audio_sine + from * step, *cosine = fb_audio_sine + FB_AUDIO_QUARTER - from * step;
    uint32_t *z = spectrum + from, *m = spectrum + n - from;
    int32_t half = (int32_t)(1u << shift >> 1);
    for (k = from; k <= to; k++, sine += step, cosine -= step, z++, m--) {
        int32_t z_re = (int16_t)(*z & 0xFFFF), z_im = (int16_t)(*z >> 16);
        int32_t m_re = (int16_t)(*m & 0xFFFF), m_im = (int16_t)(*m >> 16);
        int32_t sum_re = z_re + m_re + half, sum_im = z_im - m_im + half, dif_re = z_re - m_re, dif_im = z_im + m_im;
        int32_t c = *cosine >> 1, s = *sine >> 1;
        int32_t re = (dif_im * c - dif_re * s + 0x2000) >> 14, im = (dif_re * c + dif_im * s + 0x2000) >> 14;
        *m = squared((sum_re - re) >> shift, (sum_im + im) >> shift);
        *z = squared((sum_re + re) >> shift, (sum_im - im) >> shift); /* in the middle, where both are one, this */
    }
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
    uint32_t n = config->fft / 2u, first = audio->first_bin, last = audio->starts[config->bands + 1] - 1u;
    uint32_t shift = scale.headroom > 14 ? 2 : 1; /* |X| must be below 2^16 */
    uint32_t from = first < n - last ? first : n - last, to = last < n - first ? last : n - first, segment;
    int32_t exponent = scale.exponent + (int32_t)shift - 1;
    const uint16_t *weight = audio->weights;
    const uint32_t *power = audio->spectrum + first;
    uint64_t energy = 0; /* of the band that rose in the segment before */
    if (last <= n / 2) from = first;
    if (first >= n / 2) from = n - last;
    make_powers(audio->spectrum, n, from, to < n / 2 ? to : n / 2, shift);
    for (segment = 0; segment <= config->bands; segment++) {
        const uint32_t *end = audio->spectrum + audio->starts[segment + 1];
        uint64_t rises = 0, falls = 0;
        for (; power < end; power++) {
            uint32_t part = weighted(*power, *weight++);
            rises += part;
            falls += *power - part;
        }
        if (segment) row[segment - 1] = feature(config, energy + falls, exponent);
        energy = rises;
    }
}
