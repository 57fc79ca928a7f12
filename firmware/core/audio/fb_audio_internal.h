/* What the files of the audio front end share; docs/audio.md has the formulas. */
#ifndef FB_AUDIO_INTERNAL_H
#define FB_AUDIO_INTERNAL_H

#include "../include/fb_audio.h"

#define FB_AUDIO_CIRCLE 1024
#define FB_AUDIO_QUARTER (FB_AUDIO_CIRCLE / 4)

extern const int16_t fb_audio_sine[FB_AUDIO_QUARTER + 1];

/* 32768 log2(value), by a table and interpolation; `value` is at least 1. */
uint32_t fb_audio_log2(uint64_t value);

/* In 1/32768; 1 itself is 32767. */
typedef struct fb_audio_angle {
    int16_t cosine, sine;
} fb_audio_angle;

/* Of an angle in steps of 2π / 1024: 0 to 767. */
static inline fb_audio_angle fb_audio_rotation(uint32_t steps) {
    const int16_t *sine = fb_audio_sine;
    fb_audio_angle found;
    if (steps <= FB_AUDIO_QUARTER) {
        found.cosine = sine[FB_AUDIO_QUARTER - steps];
        found.sine = sine[steps];
    } else if (steps <= 2 * FB_AUDIO_QUARTER) {
        found.cosine = (int16_t)-sine[steps - FB_AUDIO_QUARTER];
        found.sine = sine[2 * FB_AUDIO_QUARTER - steps];
    } else {
        found.cosine = (int16_t)-sine[3 * FB_AUDIO_QUARTER - steps];
        found.sine = (int16_t)-sine[steps - 2 * FB_AUDIO_QUARTER];
    }
    return found;
}

/* Each bit that differs from its neighbour below, gathered over many values. */
static inline uint32_t fb_audio_fold(int32_t value) { return (uint32_t)value ^ (uint32_t)value << 1; }

/* The least h such that the values whose folds were gathered are within −2^h … 2^h − 1. */
static inline uint32_t fb_audio_headroom(uint32_t folds) {
    uint32_t h = 0;
    while (folds >>= 1) h++;
    return h;
}

/* The complex FFT of the windowed samples, as pairs, in audio->spectrum. The result is to be multiplied by 2^exponent;
 * its values are within −2^headroom … 2^headroom − 1. */
typedef struct fb_audio_scale {
    int32_t exponent;
    uint32_t headroom;
} fb_audio_scale;

fb_audio_scale fb_audio_spectrum(const fb_audio *audio);

/* Which bins count and into which bands: fills weights and starts (which may be NULL), sets how many bins count. */
fb_status fb_audio_plan_bands(const fb_audio_config *config, uint16_t *weights, uint16_t *starts, uint32_t *first_bin,
                              uint32_t *bins);

/* Features of the spectrum. */
void fb_audio_bands(const fb_audio *audio, fb_audio_scale scale, int8_t *row);

#endif
