/* What the parts of training share. Private to the core.
 *
 * The state, in this order: fb_head | exponents of gradients, int8 [tensors] | exponents of the gradients of sums, int8
 * [ops] | fb_mean [trained layers] | new biases, int32 [channels of trained layers] | new bits, uint16 as in the image,
 * of trained layers | buffers, k bits per weight, in the order filter, channel, tap, of trained layers. New bits and biases wait
 * there for the end of the step. Layers stand in falling order: the last first, as passes take them. Then, where gains
 * learn, fb_gain_mean [trained layers] | multipliers with 16 more bits, uint32 [channels of trained layers]; and where
 * it recalibrates, fb_base [channels that have references], of layers in rising order.
 *
 * The arena in a pass: counts | sums of gradients | masks and choices, in rising order of operations | work, where the forward pass leaves the inputs
 * of the layers it sums up gradients for, and the backward pass its gradients | the sample, if it is a changed copy |
 * scores. When it recalibrates: fb_moments [channels that have references] | samples of each class, uint32 | work |
 * scores.
 */
#ifndef FB_TRAIN_INTERNAL_H
#define FB_TRAIN_INTERNAL_H

#include "../include/fb_train.h"
#include "../kernels/gradient/fb_gradient.h"
#include "../run/fb_plan.h"

enum fb_phase { FB_CALIBRATE, FB_MEASURE, FB_UPDATE, FB_RECALIBRATE };

#define FB_STATE_MAGIC 0x52544246u /* "FBTR" */
#define FB_CALIBRATION_SAMPLES 16u
#define FB_EXPONENT_MAX 60
#define FB_GAIN_PER_BIAS 5 /* a multiplier moves by 1/32 of itself where a bias moves by a step */
#define FB_LARGEST 4       /* |g| / mean of a weight counts up to this */

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

/* The same of its multipliers' gradients. */
typedef struct fb_gain_mean {
    uint64_t sum;
    uint32_t mean, zero;
} fb_gain_mean;

/* What a channel started with. */
typedef struct fb_base {
    uint32_t multiplier;
    int32_t bias;
} fb_base;

/* Sums of a channel's results and of their squares. */
typedef struct fb_moments {
    int64_t sum;
    uint64_t squares;
} fb_moments;

/* Where the parts of the state are. */
typedef struct fb_state {
    fb_head *head;
    int8_t *exponent, *sum_exponent;
    fb_mean *mean;
    int32_t *bias;
    uint16_t *bits;
    uint8_t *buffer;
    fb_gain_mean *gain_mean;
    uint32_t *gain;
    fb_base *base;
} fb_state;

fb_state fb_state_at(const fb_model *model, const fb_train_config *config, uint8_t *state);

/* Whether a layer's bits or biases are trained. */
bool fb_trains_bits(const fb_train_config *config, unsigned op, const fb_layer *layer);
bool fb_trains_bias(const fb_train_config *config, unsigned op, const fb_layer *layer);
bool fb_trains_gain(const fb_train_config *config, unsigned op, const fb_layer *layer);
static inline bool fb_trains(const fb_train_config *config, unsigned op, const fb_layer *layer) {
    return fb_trains_bits(config, op, layer) || fb_trains_bias(config, op, layer) || fb_trains_gain(config, op, layer);
}

static inline bool fb_weighted(const fb_layer *layer) { return fb_traits_of(layer->kind)->has & FB_WEIGHTS; }

/* Whether a layer's result is cut off, so that its gradient needs a mask. */
static inline bool fb_masked(const fb_layer *layer) { return fb_traits_of(layer->kind)->cut != FB_CUT_NONE; }

/* Whether its gradient goes to the largest of each window, so that the choice must be saved. */
static inline bool fb_chooses(const fb_layer *layer) { return fb_traits_of(layer->kind)->back == FB_BACK_LARGEST; }

/* Whether its gradient is multiplied by a slope for each value, which must be saved: steps of the output per step of the
 * input, with FB_SLOPE_BITS fractional bits, from the results of inputs 4 lower and 4 higher (docs/numerics.md). */
static inline bool fb_sloped(const fb_layer *layer) { return fb_traits_of(layer->kind)->back == FB_BACK_SLOPE; }
#define FB_SLOPE_BITS 3

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

/* Bytes of saved part and work they take with such kernels; UINT32_MAX if they cannot run. */
uint32_t fb_work_size(fb_train *train, fb_choice choice);

/* Keep of a layer's result what the backward pass needs to know of it. */
void fb_save_masks(const fb_train *train, unsigned op, unsigned tensor, const int8_t *values);

/* Offset, in the saved part, of an operation's mask or choices, which is what those before it take; and the size of that
 * part. What operations behind one save is not there yet when it runs, and not there any more when its gradients are
 * computed: work begins earlier then. `until`: bytes that are there while an operation runs; `reach`: operations that can run with `used`. */
uint32_t fb_saved_mask(const fb_train *train, unsigned op);
uint32_t fb_saved_size(const fb_train *train);
uint32_t fb_saved_until(const fb_train *train, unsigned op);
unsigned fb_saved_reach(const fb_train *train, uint32_t used);

/* Offset there, too, of the results that multipliers' gradients need, and their size. */
uint32_t fb_kept_results(const fb_train *train, unsigned op, const fb_layer *layer);
uint32_t fb_kept_size(const fb_layer *layer);

/* Where the sums of the filters of `op` in this pass begin, and which filters they are. */
uint8_t *fb_sums_of(const fb_train *train, unsigned op, unsigned *first, unsigned *end);

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

/* Bytes of a filter's sums: of weights | bias, int32 | multiplier, int32. And of those of its weights alone. */
uint32_t fb_sums_size(const fb_train_config *config, unsigned op, const fb_layer *layer);
uint32_t fb_weight_sums_size(const fb_train_config *config, unsigned op, const fb_layer *layer);
static inline unsigned fb_sum_bytes(const fb_train_config *config) { return 4u >> config->sums; }
fb_status fb_check_config(const fb_model *model, const fb_train_config *config);
bool fb_weights_apart(const fb_model *model); /* weights, parameters and tables overlap nothing: they may change */
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

/* Multipliers with 16 more bits start as the image's. */
void fb_start_gains(fb_train *train, const fb_state *at);

/* fb_train.c */

void fb_seal_image(fb_train *train); /* its CRC, after a change */

/* fb_train_plan.c */

uint32_t fb_scores_size(const fb_model *model);
fb_status fb_plan_pass(fb_train *train); /* the pass that starts where the state says */

/* fb_moments.c */

/* Whether a layer is recalibrated, and channels of such layers before `stop`. */
bool fb_recalibrates(const fb_train_config *config, unsigned op, const fb_layer *layer);
uint32_t fb_referenced_channels(const fb_model *model, const fb_train_config *config, unsigned stop);

/* The layer whose results are summed up: another than `layer` if true, with half the resolution and without ReLU. */
bool fb_watched(const fb_layer *layer, fb_layer *watched);

/* A sample forwards, summing up moments, in `size` bytes of work; and the bytes that it needs. */
fb_status fb_watch(fb_train *train, uint8_t *work, uint32_t size, const int8_t *input, int8_t *scores);
uint32_t fb_recalibrating_work(const fb_train *train, bool fast);

/* fb_recalibrate.c */

void fb_start_base(const fb_train *train, const fb_state *at);

/* Passes of a step that recalibrates: a layer's turn comes when those before it are done, or it would answer to what they
 * did before. */
unsigned fb_turns(const fb_model *model, const fb_train_config *config);

/* Recalibrate the layers whose turn it is; true if they are the last. */
bool fb_recalibrate(fb_train *train, const fb_state *at);

/* fb_augment.c */

/* The sample that the step sees in place of `input`: mirrored or shifted, by chance, into `copy`. */
const int8_t *fb_augmented(const fb_train *train, const int8_t *input, int8_t *copy);
uint32_t fb_copy_size(const fb_train *train);

/* fb_update.c */

/* Whether the sums of a channel with this bias and multiplier fit 32 bits: what fb_model_open asks of an image. */
bool fb_channel_fits(const fb_layer *layer, int64_t bias, uint32_t multiplier);
void fb_set_channel(fb_train *train, const fb_layer *layer, unsigned o, int32_t bias, uint32_t multiplier);

/* What a pass has summed up for one operation: its means, and in a step that updates, its new bits and biases. */
void fb_finish_layer(fb_train *train, const fb_state *at, unsigned op, const fb_layer *layer);

/* Write an operation's new bits and biases into the image. A filter that would not fit keeps what it had. */
void fb_apply_layer(fb_train *train, const fb_state *at, unsigned op, const fb_layer *layer);

#endif
