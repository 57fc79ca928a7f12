#include "../run/fb_front_end.h"
#include "fb_audio_internal.h"

#include <string.h>

/* Checks a configuration and says how many bytes it needs: spectrum, samples, hann, weights, starts. */
static fb_status plan(const fb_audio_config *config, uint32_t *first_bin, uint32_t *bins, size_t *size) {
    fb_status status;
    if (!config || !fb_front_end_takes_audio(config)) return FB_ERR_ARGUMENT;
    status = fb_audio_plan_bands(config, NULL, NULL, first_bin, bins);
    *size = 2u * ((size_t)config->fft + config->window + (config->window + 1u) / 2 + 1 + *bins + config->bands + 2u);
    return status;
}

fb_status fb_audio_check(const fb_audio_config *config) {
    uint32_t first_bin, bins;
    size_t size;
    return plan(config, &first_bin, &bins, &size);
}

size_t fb_audio_size(const fb_audio_config *config) {
    uint32_t first_bin, bins;
    size_t size;
    return plan(config, &first_bin, &bins, &size) == FB_OK ? size : 0;
}

/* 32768 sin²(π n / window), n = 0 … window / 2 rounded up; of an odd window the last two are the same. */
static void make_hann(int16_t *hann, uint32_t window) {
    for (uint32_t i = 0; i <= (window + 1) / 2; i++) {
        uint32_t n = i <= window / 2 ? i : window - i;
        uint32_t at = (n << 21) / window, index = at >> 12, rest = at & 4095; /* a quarter has 256 · 4096 places */
        uint32_t sine = (uint32_t)fb_audio_sine[index];
        if (rest) sine += (((uint32_t)fb_audio_sine[index + 1] - sine) * rest + 2048) >> 12;
        hann[i] = (int16_t)((sine * sine + 0x4000) >> 15);
    }
}

fb_status fb_audio_open(fb_audio *audio, const fb_audio_config *config, void *memory, size_t size) {
    uint32_t first_bin, bins;
    size_t needed;
    fb_status status = plan(config, &first_bin, &bins, &needed);
    if (status != FB_OK) return status;
    if (!audio || !memory) return FB_ERR_ARGUMENT;
    if ((uintptr_t)memory % FB_ALIGN) return FB_ERR_ALIGN;
    if (size < needed) return FB_ERR_ARENA;
    audio->config = *config;
    audio->filled = 0;
    audio->first_bin = (uint16_t)first_bin;
    audio->spectrum = memory;
    audio->samples = (int16_t *)(audio->spectrum + config->fft / 2);
    audio->hann = audio->samples + config->window;
    audio->weights = (uint16_t *)(audio->hann + (config->window + 1) / 2 + 1);
    audio->starts = audio->weights + bins;
    make_hann(audio->hann, config->window);
    return fb_audio_plan_bands(config, audio->weights, audio->starts, &first_bin, &bins);
}

/* Makes room for the next hop. Pieces no longer than a hop do not overlap with where they go. */
static void advance(fb_audio *audio) {
    uint32_t hop = audio->config.hop, kept = audio->config.window - hop, at, n;
    for (at = 0; at < kept; at += n) {
        n = kept - at < hop ? kept - at : hop;
        memcpy(audio->samples + at, audio->samples + at + hop, n * sizeof *audio->samples);
    }
    audio->filled = (uint16_t)kept;
}

fb_status fb_audio_push(fb_audio *audio, const int16_t *samples, size_t count, size_t *used, int8_t *row) {
    size_t missing;
    if (!audio || !used || !row || (!samples && count)) return FB_ERR_ARGUMENT;
    missing = (size_t)audio->config.window - audio->filled;
    *used = count < missing ? count : missing;
    if (*used) memcpy(audio->samples + audio->filled, samples, *used * sizeof *samples);
    audio->filled = (uint16_t)(audio->filled + *used);
    if (count < missing) return FB_MORE;
    fb_audio_bands(audio, fb_audio_spectrum(audio), row);
    advance(audio);
    return FB_OK;
}

void fb_audio_reset(fb_audio *audio) { audio->filled = 0; }
