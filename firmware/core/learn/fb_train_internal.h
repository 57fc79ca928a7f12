/* What the parts of training share. Private to the core.
 *
 * The state, in this order: fb_head | exponents of gradients, int8 [tensors] | exponents of the gradients of sums, int8
 * [ops] | fb_mean [trained layers] | new biases, int32 [channels of trained layers] | new bits, uint16 as in the image,
 * of trained layers | buffers, k bits per weight, in the order filter, channel, tap, of trained layers. New bits and biases wait
 * there for the end of the step. Layers stand in falling order: the last first, as passes take them.
 *
 * The arena in a pass: counts | sums of gradients | masks and choices | work, where the forward pass leaves the inputs
 * of the layers it sums up gradients for, and the backward pass its gradients | scores.
 */
#ifndef FB_TRAIN_INTERNAL_H
#define FB_TRAIN_INTERNAL_H

#include "../include/fb_train.h"
#include "../kernels/gradient/fb_gradient.h"
#include "../run/fb_blocks.h"

enum fb_phase { FB_CALIBRATE, FB_MEASURE, FB_UPDATE };

#define FB_STATE_MAGIC 0x52544246u /* "FBTR" */
#define FB_CALIBRATION_SAMPLES 16u
#define FB_EXPONENT_MAX 60
#define FB_LARGEST 4 /* |g| / mean of a weight counts up to this */

typedef struct fb_head {
    uint32_t magic;
    uint32_t crc;    /* of the state behind this field; kept by fb_train_end_pass */
    uint32_t config; /* CRC of the configuration */
    uint32_t net;    /* CRC of the image's tables: what does not change by learning */
    uint32_t random; /* the generator */
    uint32_t step;
    uint16_t phase, op, filter, samples; /* where the next pass starts, and the step's batch */
    uint32_t flips;                      /* in this step so far */
} fb_head;

/* Sums of |g| of a layer in this step, and their mean in the step before. */
typedef struct fb_mean {
    uint64_t bits_sum, bias_sum;
    uint32_t bits_mean, bias_mean;
} fb_mean;

/* Where the parts of the state are. */
typedef struct fb_state {
    fb_head *head;
    int8_t *exponent, *sum_exponent;
    fb_mean *mean;
    int32_t *bias;
    uint16_t *bits;
    uint8_t *buffer;
} fb_state;

fb_state fb_state_at(const fb_model *model, const fb_train_config *config, uint8_t *state);

/* Whether a layer's bits or biases are trained. */
bool fb_trains_bits(const fb_train_config *config, unsigned op, const fb_layer *layer);
bool fb_trains_bias(const fb_train_config *config, unsigned op, const fb_layer *layer);
static inline bool fb_trains(const fb_train_config *config, unsigned op, const fb_layer *layer) {
    return fb_trains_bits(config, op, layer) || fb_trains_bias(config, op, layer);
}

static inline bool fb_weighted(const fb_layer *layer) { return fb_traits_of(layer->kind)->has & FB_WEIGHTS; }

/* Whether a layer's result is cut off, so that its gradient needs a mask. */
static inline bool fb_masked(const fb_layer *layer) { return fb_traits_of(layer->kind)->cut != FB_CUT_NONE; }

/* Whether its gradient goes to the largest of each window, so that the choice must be saved. */
static inline bool fb_chooses(const fb_layer *layer) { return fb_traits_of(layer->kind)->back == FB_BACK_LARGEST; }

/* Mark the tensors whose gradients the pass needs, those that depend on what is trained, and the ones it keeps. */
void fb_mark_tensors(fb_train *train);
static inline bool fb_active(const fb_train *train, unsigned tensor) {
    return train->pass.active[tensor / 8] >> tensor % 8 & 1;
}

/* The arena's first part: a count for each active tensor's gradients, and one for those of the sums it comes from. */
fb_count *fb_count_of(const fb_train *train, unsigned tensor);
fb_count *fb_sum_count_of(const fb_train *train, unsigned tensor);
uint32_t fb_counts_size(const fb_train *train);

/* A sample forwards, then backwards from the label down to the pass's last layer, in `size` bytes of work. */
fb_status fb_forward(fb_train *train, uint8_t *work, uint32_t size, const int8_t *input, int8_t *scores);
fb_status fb_backward(fb_train *train, uint8_t *work, uint32_t size, const int8_t *input, const int8_t *scores,
                      unsigned label, uint32_t *loss);

/* Bytes of work they take, with the fastest kernels or with those that need least; UINT32_MAX if they cannot run. */
uint32_t fb_work_size(fb_train *train, bool fast);

/* Keep of a layer's result what the backward pass needs to know of it. */
void fb_save_masks(const fb_train *train, unsigned op, unsigned tensor, const int8_t *values);

/* Offset, in the saved part, of an operation's mask or choices, and the size of that part. */
uint32_t fb_saved_mask(const fb_train *train, unsigned op);
uint32_t fb_saved_size(const fb_train *train);

/* First sum of the filters of `op` in this pass, and how many filters. */
uint32_t fb_sums_of(const fb_train *train, unsigned op, unsigned *first, unsigned *end);

/* fb_train_config.c */

bool fb_config_known(const fb_train_config *config); /* its rule, and the values that need no net to be checked */
uint32_t fb_config_crc(const fb_train_config *config);

/* fb_train_state.c */

static inline unsigned fb_taps(const fb_layer *layer) { return (unsigned)layer->kernel_h * layer->kernel_w; }

/* Sizes of what is trained: all of it, or only the operations above `stop` (UINT32_MAX: all). */
typedef struct fb_amounts {
    uint32_t layers, channels, words, weights, lowest, highest;
    bool any;
} fb_amounts;
fb_amounts fb_amounts_of(const fb_model *model, const fb_train_config *config, unsigned stop);

/* The trained operation below `op`, decoded; `op` itself if none is left. */
unsigned fb_below(const fb_model *model, const fb_train_config *config, unsigned op, fb_layer *layer);

uint32_t fb_sums_per_filter(const fb_train_config *config, unsigned op, const fb_layer *layer);
fb_status fb_check_config(const fb_model *model, const fb_train_config *config);
bool fb_weights_apart(const fb_model *model); /* weights and parameters overlap nothing: they may change */
uint32_t fb_state_bytes(const fb_model *model, const fb_train_config *config); /* UINT32_MAX: too many */
uint32_t fb_net_crc(const fb_model *model);
uint32_t fb_state_crc(const fb_train *train);

/* Whether a state is one that training leaves, as far as passes rely on it: a CRC shows damage, not intent. */
bool fb_state_sound(const fb_train *train, const fb_state *at);

/* The k bits of weight i. */
uint32_t fb_buffer_get(const uint8_t *buffer, unsigned k, uint32_t i);
void fb_buffer_set(uint8_t *buffer, unsigned k, uint32_t i, uint32_t value);

/* New bits start as the image's, buffers at the configured distance from flipping. */
void fb_start_bits(fb_train *train, const fb_state *at);

/* fb_train_plan.c */

uint32_t fb_scores_size(const fb_model *model);
fb_status fb_plan_pass(fb_train *train); /* the pass that starts where the state says */

/* fb_update.c */

/* What a pass has summed up for one operation: its means, and in a step that updates, its new bits and biases. */
void fb_finish_layer(fb_train *train, const fb_state *at, unsigned op, const fb_layer *layer);

/* Write an operation's new bits and biases into the image. A filter that would not fit keeps what it had. */
void fb_apply_layer(fb_train *train, const fb_state *at, unsigned op, const fb_layer *layer);

#endif
