/* The FFT of a window: int16 with one exponent for all values (block floating point). Before a stage of the FFT values are
 * given just the headroom that the stage may need, so that quiet sounds are as precise as loud ones: against a float
 * FFT the signal-to-noise ratio on speech is 66 dB at any loudness (docs/results/audio-front-end.md).
 *
 * N real samples are N / 2 complex ones, z[n] = x[2n] + j x[2n + 1], in bit-reversed order. Stages of radix 4 (and one
 * of radix 2 first, where N / 2 is no power of 4) go over them in place:
 *
 *     | real 0 | imaginary 0 | real 1 | …
 */
#include "fb_audio_internal.h"

#include <string.h>

/* Windowed samples, scaled to the full range of int16, in bit-reversed order. */
static fb_audio_scale load(const fb_audio *audio) {
    const int16_t *x = audio->samples, *hann = audio->hann;
    uint32_t window = audio->config.window, half = window / 2, top = audio->config.fft / 4u, place = 0, bit, n;
    uint32_t folds = 0, shift;
    fb_audio_scale scale;
    for (n = 0; n < window; n++) folds |= fb_audio_fold(x[n]);
    shift = fb_audio_headroom(folds);
    scale.exponent = (int32_t)shift - 15;
    memset(audio->spectrum, 0, audio->config.fft * sizeof *audio->spectrum);
    folds = 0;
    for (n = 0; n < window; n++) {
        int32_t value = (x[n] * hann[n <= half ? n : window - n] + (int32_t)(1u << shift >> 1)) >> shift;
        folds |= fb_audio_fold(value);
        audio->spectrum[2 * place + (n & 1)] = (int16_t)value;
        if (n & 1) { /* count up from the highest bit down */
            for (bit = top; place & bit; bit >>= 1) place ^= bit;
            place |= bit;
        }
    }
    scale.headroom = fb_audio_headroom(folds);
    return scale;
}

static uint32_t radix_2(int16_t *z, uint32_t points, uint32_t shift) {
    uint32_t folds = 0, i;
    int32_t half = (int32_t)(1u << shift >> 1);
    for (i = 0; i < points; i += 2, z += 4) {
        int32_t a = z[0] + half, b = z[1] + half, c = z[2], d = z[3];
        z[0] = (int16_t)((a + c) >> shift);
        z[1] = (int16_t)((b + d) >> shift);
        z[2] = (int16_t)((a - c) >> shift);
        z[3] = (int16_t)((b - d) >> shift);
        folds |= fb_audio_fold(z[0]) | fb_audio_fold(z[1]) | fb_audio_fold(z[2]) | fb_audio_fold(z[3]);
    }
    return folds;
}

typedef struct complex32 {
    int32_t re, im;
} complex32;

static inline complex32 get(const int16_t *z) {
    complex32 found = {z[0], z[1]};
    return found;
}

/* z (cosine − j sine) */
static inline complex32 turned(const int16_t *z, fb_audio_angle w) {
    complex32 found = {(z[0] * w.cosine + z[1] * w.sine + 0x4000) >> 15,
                       (z[1] * w.cosine - z[0] * w.sine + 0x4000) >> 15};
    return found;
}

static inline uint32_t put(int16_t *z, int32_t re, int32_t im, uint32_t shift) {
    re >>= shift;
    im >>= shift;
    z[0] = (int16_t)re;
    z[1] = (int16_t)im;
    return fb_audio_fold(re) | fb_audio_fold(im);
}

/* Four transforms of `done` points each, at a distance of 2 · done values, become one; `a` is the place in the first.
 * In bit-reversed order the second has the samples 4n + 2, the third 4n + 1. The half that rounds is in each of the four
 * sums by way of a. */
static inline uint32_t butterfly(int16_t *a, uint32_t done, complex32 b, complex32 c, complex32 d, uint32_t shift) {
    int32_t half = (int32_t)(1u << shift >> 1), re = a[0] + half, im = a[1] + half;
    int32_t p_re = re + b.re, p_im = im + b.im, q_re = re - b.re, q_im = im - b.im;
    int32_t s_re = c.re + d.re, s_im = c.im + d.im, t_re = c.re - d.re, t_im = c.im - d.im;
    uint32_t folds = put(a, p_re + s_re, p_im + s_im, shift);
    folds |= put(a + 2 * done, q_re + t_im, q_im - t_re, shift);
    folds |= put(a + 4 * done, p_re - s_re, p_im - s_im, shift);
    return folds | put(a + 6 * done, q_re - t_im, q_im + t_re, shift);
}

static uint32_t radix_4(int16_t *spectrum, uint32_t points, uint32_t done, uint32_t shift) {
    uint32_t step = FB_AUDIO_CIRCLE / (4 * done), folds = 0, k;
    int16_t *z, *end = spectrum + 2 * points;
    for (z = spectrum; z < end; z += 8 * done) {
        folds |= butterfly(z, done, get(z + 2 * done), get(z + 4 * done), get(z + 6 * done), shift);
    }
    for (k = 1; k < done; k++) {
        fb_audio_angle w1 = fb_audio_rotation(k * step), w2 = fb_audio_rotation(2 * k * step);
        fb_audio_angle w3 = fb_audio_rotation(3 * k * step);
        for (z = spectrum + 2 * k; z < end; z += 8 * done) {
            complex32 b = turned(z + 2 * done, w2), c = turned(z + 4 * done, w1), d = turned(z + 6 * done, w3);
            folds |= butterfly(z, done, b, c, d, shift);
        }
    }
    return folds;
}

fb_audio_scale fb_audio_spectrum(const fb_audio *audio) {
    uint32_t points = audio->config.fft / 2u, done = 1, shift;
    fb_audio_scale scale = load(audio);
    for (shift = points; shift > 2; shift >>= 2) continue;
    if (shift == 2) { /* an odd power of 2. Sums are at most twice as large. */
        shift = scale.headroom > 14 ? scale.headroom - 14 : 0;
        scale.headroom = fb_audio_headroom(radix_2(audio->spectrum, points, shift));
        scale.exponent += (int32_t)shift;
        done = 2;
    }
    for (; done < points; done *= 4) {
        uint32_t most = done == 1 ? 13 : 12; /* sums of 4; with turns 1 + 3 √2 times as large, 2^2.4 */
        shift = scale.headroom > most ? scale.headroom - most : 0;
        scale.headroom = fb_audio_headroom(radix_4(audio->spectrum, points, done, shift));
        scale.exponent += (int32_t)shift;
    }
    return scale;
}
