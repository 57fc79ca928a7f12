/* Listens to a stream: samples in, a detection out when a class is heard. All integers, no malloc.
 *
 *     static fb_listen listen;
 *     fb_listen_config config = FB_LISTEN_DEFAULT;
 *     status = fb_listen_open(&listen, &model, &config, input, memory, sizeof memory);   // fb_listen_size bytes
 *     ...
 *     while (count) {                                    // whatever the microphone or sensor has
 *         size_t used;
 *         if (fb_listen_push(&listen, samples, count, &used) == FB_OK) {                 // a window is complete
 *             fb_invoke(&model, arena, arena_size, input, output, NULL);
 *             if (fb_listen_decide(&listen, output, &found)) react(found.label);
 *         }
 *         samples += used;
 *         count -= used;
 *     }
 *
 * The front end is the one that the image describes (fb_front_end.h). The input of the net holds the last rows (audio)
 * or samples (signal): when it is full the net runs, then the oldest `stride` of them leave. No row is computed twice.
 *
 *     samples ─► front end ─► | oldest … newest row | ─► net ─► mean of the last scores ─► margin ─► detection
 *
 * A decision: scores of the last `average` windows are added up per class. The best class is detected if its mean
 * score exceeds that of every other class by `threshold` or more, it is not one of those that are ignored, and the last
 * detection is more than `refractory` windows ago.
 */
#ifndef FB_LISTEN_H
#define FB_LISTEN_H

#include "fb_front_end.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FB_LISTEN_AVERAGE_MOST 16
#define FB_LISTEN_CLASSES_MOST 64 /* outputs of a net that listens */

typedef struct fb_listen_config {
    /* Rows (audio) or samples (signal) from one run of the net to the next, at least 1; 0: what the image says. Fewer:
     * quicker and surer detections, more instructions per second. */
    uint16_t stride;

    /* Margin of the best mean score over the second best, in steps of the output (int8): 0 … 255. Steps times the
     * output's scale is the difference of two logits: the logarithm of how much likelier one class is than the other.
     * Higher: fewer false alarms, more misses. */
    uint16_t threshold;

    /* Windows whose scores are averaged: 1 … 16. More: fewer false alarms, later detections. */
    uint16_t average;

    /* Windows after a detection in which nothing is detected: the rest of the same word. */
    uint16_t refractory;

    /* Classes that are never detected, such as silence and unknown words: bit i is class i, of the first 32. */
    uint32_t ignored;
} fb_listen_config;

#define FB_LISTEN_DEFAULT {0, 16, 3, 8, 0}

typedef struct fb_detection {
    uint32_t window; /* which it was, from 0 */
    uint16_t label;  /* class */
    int16_t margin;  /* mean score above the second best, in steps, rounded down */
} fb_detection;

/* An open listener. Fields are for reading. */
typedef struct fb_listen {
    fb_listen_config config; /* with the image's stride in place of 0 */
    fb_front_end front_end;
    fb_audio audio;   /* open if the front end is audio */
    int8_t *input;    /* of the net */
    int8_t *scores;   /* of the last windows: average × classes */
    int8_t *row;      /* of features that are not in the input yet */
    uint16_t classes; /* outputs of the net */
    uint16_t filled;  /* rows or samples in the input */
    uint16_t channel; /* of the next value of a signal */
    uint16_t kept;    /* windows whose scores are kept */
    uint16_t next;    /* where the scores of the next window go */
    uint16_t quiet;   /* windows in which nothing is detected yet */
    uint32_t skip;    /* rows or samples that no window takes: a stride longer than a window */
    uint32_t windows; /* complete so far */
} fb_listen;

/* Bytes of memory that fb_listen_open needs beside the input; 0 if it would refuse. For a keyword net of 12 classes and
 * FB_AUDIO_KEYWORDS: 3,116. */
size_t fb_listen_size(const fb_model *model, const fb_listen_config *config);

/* Begin to listen. `input` has as many bytes as the net's input; `memory` is aligned to FB_ALIGN. Both must stay.
 *
 *   FB_ERR_EMPTY     the image does not say how recordings become its input
 *   FB_ERR_SHAPE     the front end's bands are too narrow, or the net has more than FB_LISTEN_CLASSES_MOST outputs
 *   FB_ERR_ARGUMENT  a null pointer, a field outside its limits
 *   FB_ERR_ALIGN, FB_ERR_ARENA  the memory is not aligned, or smaller than fb_listen_size says */
fb_status fb_listen_open(fb_listen *listen, const fb_model *model, const fb_listen_config *config, int8_t *input,
                         void *memory, size_t size);

/* Take values up to the end of a window; `used` tells how many. Samples of several channels come channel by channel.
 *
 *   FB_OK            a window is complete: run the net on the input, and give its output to fb_listen_decide
 *   FB_MORE          all values were taken and no window is complete
 *   FB_ERR_ARGUMENT  a null pointer; nothing was taken */
fb_status fb_listen_push(fb_listen *listen, const int16_t *values, size_t count, size_t *used);

/* What the net said of the window that is complete: true if it is a detection, which `found` then describes. */
bool fb_listen_decide(fb_listen *listen, const int8_t *output, fb_detection *found);

/* Another recording: forget all samples, scores and windows. */
void fb_listen_reset(fb_listen *listen);

#ifdef __cplusplus
}
#endif
#endif
