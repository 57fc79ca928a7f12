/* The front end of a net, as its image describes it: how recorded samples become the net's input.
 *
 *     fb_front_end front_end;
 *     if (fb_front_end_of(&model, &front_end) == FB_OK && front_end.kind == FB_FRONT_AUDIO) {
 *         status = fb_audio_open(&audio, &front_end.audio, memory, sizeof memory);
 *     }
 *
 * The values that a front end makes are the values of the input tensor, as they are. docs/fbit-format.md has the bytes.
 */
#ifndef FB_FRONT_END_H
#define FB_FRONT_END_H

#include "fb_audio.h"
#include "flipbit.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fb_front_end_kind {
    FB_FRONT_AUDIO = 1, /* 16 kHz sound to rows of features: fb_audio.h */
    FB_FRONT_SIGNAL = 2 /* samples of sensors, scaled to int8: fb_signal_value */
};

#define FB_SIGNAL_SCALES 6 /* channels that can have a scale of their own */

/* int8 = ((sample · multiplier + 2^shift / 2) >> shift) + zero, saturated. */
typedef struct fb_signal_config {
    bool per_channel;                      /* else the first multiplier and zero are those of all channels */
    uint8_t shift;                         /* 1 … 30 */
    int8_t fraction;                       /* samples are int16: round(measured value · 2^fraction). −16 … 30 */
    uint16_t multiplier[FB_SIGNAL_SCALES]; /* 1 … 32767; 0 where unused */
    int8_t zero[FB_SIGNAL_SCALES];
} fb_signal_config;

typedef struct fb_front_end {
    uint8_t kind;            /* fb_front_end_kind */
    uint8_t channels;        /* values per sample; 1 for audio */
    uint16_t length;         /* rows (audio) or samples (signal) that make one input */
    uint16_t hop;            /* rows or samples from one input to the next, at least 1 */
    bool planes;             /* signal: all samples of a channel, then the next channel; else sample by sample */
    uint32_t rate;           /* samples in 1000 seconds (millihertz) */
    fb_audio_config audio;   /* zeros unless kind is FB_FRONT_AUDIO */
    fb_signal_config signal; /* zeros unless kind is FB_FRONT_SIGNAL */
} fb_front_end;

/* The front end of an opened image.
 *
 *   FB_ERR_EMPTY     the image has none: its input is pixels, or was not described
 *   FB_ERR_ARGUMENT  a null pointer
 *
 * Every field is within its limits: fb_model_open has seen to it. What it does not compute is whether each band of an
 * audio front end has a bin of the FFT: fb_audio_open refuses bands that are too narrow. */
fb_status fb_front_end_of(const fb_model *model, fb_front_end *front_end);

/* A sample of a channel as the net takes it. `channel` is below front_end->channels. */
int8_t fb_signal_value(const fb_signal_config *config, unsigned channel, int16_t sample);

#ifdef __cplusplus
}
#endif
#endif
