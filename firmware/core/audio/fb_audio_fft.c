/* The FFT of a window: int16 with one exponent for all values (block floating point). Before a stage of the FFT values are
 * given just the headroom that the stage may need, so that quiet sounds are as precise as loud ones: against a float
 * FFT the signal-to-noise ratio on speech is 66 dB at any loudness (docs/results/audio-front-end.md).
 *
 * N real samples are N / 2 complex ones, z[n] = x[2n] + j x[2n + 1], in bit-reversed order. Stages of radix 4 (and one
 * of radix 2 first, where N / 2 is no power of 4) go over them in place:
 *
 *     | real 0, imaginary 0 | real 1, imaginary 1 | …        a word each, the real part in its lower half
 */
#include "fb_audio_internal.h"

#include <string.h>

#if defined(__ARM_FEATURE_DSP) && !defined(__ARM_NEON) /* two products in one instruction */
#include <arm_acle.h>
#define FB_AUDIO_DSP
#endif

typedef struct complex32 {
    int32_t re, im;
} complex32;

static inline complex32 unpacked(uint32_t pair) {
    complex32 found = {(int16_t)(pair & 0xFFFF), (int16_t)(pair >> 16)};
    return found;
}

/* Shifts, stores and folds both parts. */
static inline uint32_t put(uint32_t *z, int32_t re, int32_t im, uint32_t shift) {
    *z = ((uint32_t)(re >> shift) & 0xFFFF) | (uint32_t)(im >> shift) << 16;
    return *z ^ *z << 1;
}

/* Folds of pairs: the lowest bit of the upper part is mixed with the lower part's sign, and says nothing. */
static inline uint32_t pairs_headroom(uint32_t folds) { return fb_audio_headroom((folds | folds >> 16) & 0xFFFF); }

/* The place after `place` in bit-reversed order: counts up from the highest bit down. */
static inline uint32_t next_place(uint32_t place, uint32_t top) {
    while (place & top) {
        place ^= top;
        top >>= 1;
    }
    return place | top;
}

/* Windowed samples, scaled to the full range of int16, in bit-reversed order. */
static fb_audio_scale load(const fb_audio *audio) {
    const int16_t *x = audio->samples, *end = x + audio->config.window, *middle, *hann = audio->hann;
    uint32_t *spectrum = audio->spectrum, top = audio->config.fft / 4u, place = 0, folds = 0, shift;
    int32_t half;
    fb_audio_scale scale;
    for (; x < end; x++) folds |= fb_audio_fold(*x);
    shift = fb_audio_headroom(folds);
    half = (int32_t)(1u << shift >> 1);
    scale.exponent = (int32_t)shift - 15;
    memset(spectrum, 0, audio->config.fft / 2u * sizeof *spectrum);
    folds = 0;
    x = audio->samples;
    middle = x + audio->config.window / 2;
    for (; x < middle; x += 2, hann += 2, place = next_place(place, top)) {
        folds |= put(spectrum + place, x[0] * hann[0] + half, x[1] * hann[1] + half, shift);
    }
    hann = audio->hann + (end - x); /* and backwards */
    for (; x + 1 < end; x += 2, hann -= 2, place = next_place(place, top)) {
        folds |= put(spectrum + place, x[0] * hann[0] + half, x[1] * hann[-1] + half, shift);
    }
    if (x < end) folds |= put(spectrum + place, x[0] * hann[0] + half, 0, shift);
    scale.headroom = pairs_headroom(folds);
    return scale;
}

/* Neighbours become their sum and difference. */
static uint32_t radix_2(uint32_t *z, uint32_t points, uint32_t shift) {
    uint32_t folds = 0, i;
    int32_t half = (int32_t)(1u << shift >> 1);
    for (i = 0; i < points; i += 2) {
        complex32 a = unpacked(z[i]), b = unpacked(z[i + 1]);
        a.re += half;
        a.im += half;
        folds |= put(z + i, a.re + b.re, a.im + b.im, shift);
        folds |= put(z + i + 1, a.re - b.re, a.im - b.im, shift);
    }
    return folds;
}

/* pair · (cosine − j sine) */
static inline complex32 turned(uint32_t pair, fb_audio_angle w) {
    complex32 found;
#ifdef FB_AUDIO_DSP
    int16x2_t z = (int16x2_t)pair, angle = (int16x2_t)((uint32_t)(uint16_t)w.cosine | (uint32_t)(uint16_t)w.sine << 16);
    found.re = __smlad(z, angle, 0x4000) >> 15;
    found.im = __smlsdx(angle, z, 0x4000) >> 15;
#else
    complex32 z = unpacked(pair);
    found.re = (z.re * w.cosine + z.im * w.sine + 0x4000) >> 15;
    found.im = (z.im * w.cosine - z.re * w.sine + 0x4000) >> 15;
#endif
    return found;
}

/* Four transforms of `done` points each become one; `z` is the place in the first. In bit-reversed order the second has
 * the samples 4n + 2, the third 4n + 1. The half that rounds gets into each of the four sums by way of the first. */
static inline uint32_t butterfly(uint32_t *z, uint32_t done, complex32 b, complex32 c, complex32 d, uint32_t shift) {
    complex32 a = unpacked(z[0]);
    int32_t half = (int32_t)(1u << shift >> 1), re = a.re + half, im = a.im + half;
    int32_t p_re = re + b.re, p_im = im + b.im, q_re = re - b.re, q_im = im - b.im;
    int32_t s_re = c.re + d.re, s_im = c.im + d.im, t_re = c.re - d.re, t_im = c.im - d.im;
    uint32_t folds = put(z, p_re + s_re, p_im + s_im, shift);
    folds |= put(z + done, q_re + t_im, q_im - t_re, shift);
    folds |= put(z + 2 * done, p_re - s_re, p_im - s_im, shift);
    return folds | put(z + 3 * done, q_re - t_im, q_im + t_re, shift);
}

static uint32_t radix_4(uint32_t *spectrum, uint32_t points, uint32_t done, uint32_t shift) {
    uint32_t step = FB_AUDIO_CIRCLE / (4 * done), folds = 0, k, *z, *end = spectrum + points;
    for (z = spectrum; z < end; z += 4 * done) {
        complex32 b = unpacked(z[done]), c = unpacked(z[2 * done]), d = unpacked(z[3 * done]);
        folds |= butterfly(z, done, b, c, d, shift);
    }
    for (k = 1; k < done; k++) {
        fb_audio_angle w1 = fb_audio_rotation(k * step), w2 = fb_audio_rotation(2 * k * step);
        fb_audio_angle w3 = fb_audio_rotation(3 * k * step);
        for (z = spectrum + k; z < end; z += 4 * done) {
            complex32 b = turned(z[done], w2), c = turned(z[2 * done], w1), d = turned(z[3 * done], w3);
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
        scale.headroom = pairs_headroom(radix_2(audio->spectrum, points, shift));
        scale.exponent += (int32_t)shift;
        done = 2;
    }
    for (; done < points; done *= 4) {
        uint32_t most = done == 1 ? 13 : 12; /* sums of 4; with turns 1 + 3 √2 times as large, 2^2.4 */
        shift = scale.headroom > most ? scale.headroom - most : 0;
        scale.headroom = pairs_headroom(radix_4(audio->spectrum, points, done, shift));
        scale.exponent += (int32_t)shift;
    }
    return scale;
}
