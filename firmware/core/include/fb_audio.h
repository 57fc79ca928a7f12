/* The audio front end: 16 kHz samples in, a row of int8 features (log mel energies) per hop out, in integers.
 *
 *     static const fb_audio_config config = FB_AUDIO_KEYWORDS;
 *     static uint8_t memory[3072] __attribute__((aligned(8)));           // at least fb_audio_size(&config)
 *     static fb_audio audio;
 *     int8_t row[40];                                                    // config.bands
 *
 *     fb_status status = fb_audio_open(&audio, &config, memory, sizeof memory);
 *     ...
 *     while (count) {                                                    // whatever the microphone has: 1 sample, 4000
 *         size_t used;
 *         if (fb_audio_push(&audio, samples, count, &used, row) == FB_OK) take(row);
 *         samples += used;
 *         count -= used;
 *     }
 *
 * A row is computed when its last sample arrives: a Hann window over the last `window` samples, a real FFT, triangular
 * bands on the mel scale, log2 of their energies. No float, no malloc, no state but the caller's; several streams need
 * an fb_audio and memory each. Every step and rounding is in docs/audio.md, and flipbit.runtime.audio.features is the
 * same in NumPy, bit for bit: nets are trained on the features they will see.
 *
 * Tables: a quarter sine and a logarithm (644 bytes) are constants in flash, as they serve every configuration. The
 * window and the weights of bands depend on the configuration and are computed into the memory by fb_audio_open: in
 * flash they would need a program that generates them for each configuration.
 */
#ifndef FB_AUDIO_H
#define FB_AUDIO_H

#include "flipbit.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FB_AUDIO_RATE 16000 /* samples per second; resample what comes at another rate */

#define FB_AUDIO_WINDOW_LEAST 32
#define FB_AUDIO_FFT_LEAST 64
#define FB_AUDIO_FFT_MOST 1024
#define FB_AUDIO_BANDS_MOST 64
#define FB_AUDIO_FLOOR_MOST 48

/* What to compute. A net expects the features it was trained with: the same value in every field. */
typedef struct fb_audio_config {
    /* Samples under the Hann window: 32 to `fft`. 480 (30 ms) is usual for speech: a longer window resolves pitch and
     * low bands better, a shorter one resolves plosives better and costs 3 bytes of RAM per sample less. */
    uint16_t window;

    /* Samples from one row to the next: 1 to `window`. 320 (20 ms) is usual for keywords. Instructions per second are in
     * inverse proportion to it, and so are the rows that a net has to look at. */
    uint16_t hop;

    /* Points of the FFT: a power of two, `window` to 1024, at least 64. What the window leaves over is filled with
     * zeros. Costs 2 bytes of RAM per point, and about twice the instructions for twice the points. A larger one than
     * necessary only helps where bands would be narrower than its bins (FB_ERR_SHAPE). */
    uint16_t fft;

    /* Features per row: 1 to 64; 40 is usual. Costs little here, but the input of a net grows with it. */
    uint16_t bands;

    /* Where the first band starts and the last one ends, in Hz: 0 to 8000, `low_hz` below `high_hz`. 20 and 7600 are
     * usual; telephones and cheap microphones have little above 4000. The spectrum outside costs nothing. */
    uint16_t low_hz, high_hz;

    /* The band energy that becomes the lowest feature (−128), as its log2: 0 to 48. Samples count as integers, so that
     * a sine of amplitude A in the middle of a band has about log2((A · window / 4)²): 43.8 for the loudest sine in 480
     * samples, while noise of one step (RMS) has about 9. 8 for microphones at usual gain. Higher for a stream with a
     * noisy room or a high gain: steps below it are cut off. */
    uint8_t floor;

    /* Features per doubling of the energy (3 dB), in sixteenths: 1 to 255. 128, 8 per doubling, covers 96 dB, the range
     * of the samples: nothing is cut off but what is far from speech. 204 covers 60 dB in finer steps. */
    uint8_t gain;
} fb_audio_config;

/* For spoken keywords: 30 ms every 20 ms, 40 bands within 20 … 7600 Hz. A second is 49 rows. */
#define FB_AUDIO_KEYWORDS {480, 320, 512, 40, 20, 7600, 8, 128}

/* An open front end. Fields are for reading. */
typedef struct fb_audio {
    fb_audio_config config;
    uint16_t filled;    /* samples that wait for their row */
    uint16_t first_bin; /* of the FFT that counts */
    uint32_t *spectrum; /* fft / 2 complex numbers, int16 each: real part in the lower half */
    int16_t *samples;   /* of the window */
    int16_t *hann;      /* the window's first half, 1/32768 */
    uint16_t *weights;  /* of each bin in the band that rises there, 1/32768 */
    uint16_t *starts;   /* bands + 2: the bin at which a band starts to rise, the one behind the last */
} fb_audio;

/* FB_OK, or why fb_audio_open would refuse a configuration:
 *
 *   FB_ERR_ARGUMENT  a field is outside its limits, or a null pointer
 *   FB_ERR_SHAPE     a band is so narrow that no bin of the FFT falls into it: fewer bands or a larger FFT
 *
 * Takes a logarithm and a division per bin of the FFT, as do the next two. */
fb_status fb_audio_check(const fb_audio_config *config);

/* Bytes of memory that fb_audio_open needs; 0 if it would refuse the configuration. 3,036 for FB_AUDIO_KEYWORDS. */
size_t fb_audio_size(const fb_audio_config *config);

/* Begin a stream. `memory` is aligned to FB_ALIGN and must stay; its content does not matter.
 *
 *   FB_ERR_ARGUMENT, FB_ERR_SHAPE  as above
 *   FB_ERR_ALIGN                   the memory is not aligned
 *   FB_ERR_ARENA                   it is smaller than fb_audio_size says */
fb_status fb_audio_open(fb_audio *audio, const fb_audio_config *config, void *memory, size_t size);

/* Take samples up to the end of a row; `used` tells how many. The rest is for the next call.
 *
 *   FB_OK            `row` has new features, config.bands of them
 *   FB_MORE          all samples were taken and the row is not complete; `row` is as it was
 *   FB_ERR_ARGUMENT  a null pointer; nothing was taken
 *
 * All of a row's work is done in the call that completes it. */
fb_status fb_audio_push(fb_audio *audio, const int16_t *samples, size_t count, size_t *used, int8_t *row);

/* Forget the samples that wait, as at the start of another recording. */
void fb_audio_reset(fb_audio *audio);

#ifdef __cplusplus
}
#endif
#endif
