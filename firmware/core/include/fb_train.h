/* flipbit: learning on the device. Integers only; a weight keeps its bit and at most a few more.
 *
 *     fb_train_config config = {.seed = 1, .bits = true, .bias = true, .last_op = 0xFFFF};
 *     fb_train_open(&train, image, image_size, state, state_size, arena, arena_size, &config);
 *     for (step = 0; step < steps; step++) {
 *         fb_train_begin(&train, samples, rate_bits, rate_bias);
 *         do {
 *             for (i = 0; i < samples; i++) fb_train_sample(&train, input[i], label[i], &result);
 *             status = fb_train_end_pass(&train);
 *         } while (status == FB_MORE);
 *     }
 *
 * A step makes one update from the gradient of a *virtual batch* of any size. Gradients are summed for as many
 * filters as fit in the arena; when that is not all of them, the step takes several passes over the same samples
 * (status FB_MORE). The resulting bits are the same however many passes it took: more RAM only saves time. Sums
 * of 16 or 8 bits give other bits than those of 32, but again the same in any arena.
 *
 * What is kept between samples lies in three places. The image, which must be writable memory: its bits, biases and CRC
 * change at the end of a step, so that at any time it is a valid image. The state, position-independent: a checkpoint
 * is the image and the state, taken between passes; training that goes on from there ends with the same bits as
 * training that was never stopped. The arena: sums of gradients and activations, needed within a pass only.
 *
 * How a weight learns. g is its gradient over the batch, mean the mean of |g| over its layer in the previous step; |g| / mean
 * counts up to 4.
 *   no buffer  a bit flips with probability rate · |g| / mean, if that is downhill: the paper's SR.
 *   k bits     a level between −2^k and 2^k − 1 moves by 2^k · rate · |g| / mean, stochastically rounded; its sign is the
 *              bit.
 * Biases move by rate · g / mean steps of the layer's output. The first step needs a mean: it goes through the samples
 * once more, without an update (and once through the first few, to find the scales of gradients). Use one batch size per
 * run: the previous step's mean assumes it.
 */
#ifndef FB_TRAIN_H
#define FB_TRAIN_H

#include "flipbit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rates are fixed-point numbers with 20 fractional bits. */
#define FB_RATE(x) ((uint32_t)((x) * 1048576.0 + 0.5))
#define FB_RATE_MAX (1u << 20)

/* Bounds beyond the format's, with which sums of gradients fit 32 bits. A net that exceeds one runs but is not trained:
 * FB_ERR_OVERFLOW. So is a layer whose input's gradient sums up too much: 98,303 products of int8 weights, or 6.2 million
 * of binary ones, for one input value (its filters times the places of a kernel that meet it). */
#define FB_TRAIN_PIXELS 65536u  /* of a channel of a tensor that an operation makes */
#define FB_TRAIN_OUTPUTS 65536u /* values of the net's output */

#define FB_BUFFER_BITS_MAX 8

/* Nets with more tensors cannot be trained. */
#define FB_TRAIN_TENSORS 256

/* Rules by which bits are updated. Others are refused: FB_ERR_ARGUMENT. */
enum { FB_RULE_STOCHASTIC = 0 /* the one above */ };

/* Bits in which gradients of weights are summed up. Fewer take less RAM, so that a step takes fewer passes; they share
 * an exponent per filter and are rounded stochastically. */
enum { FB_SUMS_32 = 0, FB_SUMS_16 = 1, FB_SUMS_8 = 2 };

/* What may happen to a sample before the net learns from it. */
enum {
    FB_AUGMENT_SHIFT = 15, /* moved by at most so many pixels, down and across */
    FB_AUGMENT_MIRROR = 16 /* left and right change places, half of the time */
};

typedef struct fb_train_config {
    uint32_t seed;       /* of the generator */
    uint8_t rule;        /* FB_RULE_… */
    uint8_t buffer_bits; /* k, 0 … FB_BUFFER_BITS_MAX beside each trained bit */
    uint8_t start;       /* levels beyond the first at which buffers start, 0 … 2^k − 1: how certain the bits are */
    bool bits;           /* flip bits of binary layers */
    bool bias;           /* move biases of all layers that have weights */
    bool gain;           /* move their multipliers */
    uint8_t sums;        /* FB_SUMS_…; others than FB_SUMS_32 only with `bits` */
    uint8_t recalibrate; /* so many steps at the start do so, 1 is enough; all, if nothing else learns */
    uint8_t augment;     /* FB_AUGMENT_…, in steps that learn */
    uint16_t prior;      /* samples that the parameters count as when recalibrating */
    uint16_t first_op;   /* train operations first_op … last_op only; 0 and 0xFFFF: all */
    uint16_t last_op;
} fb_train_config;

/* A configuration as bytes, wherever one is kept, sent or compared: in checkpoints, frames and the state's CRC.
 *
 *     seed u32 | rule u8 | buffer_bits u8 | start u8 | learns u8: 1 bits, 2 biases, 4 gains, 8 · sums | first_op u16 | last_op u16 |
 *     recalibrate u8 | augment u8 | prior u16
 *
 * Little-endian. Equal configurations have equal bytes. */
#define FB_TRAIN_CONFIG_SIZE 16u
void fb_train_config_pack(const fb_train_config *config, uint8_t *packed);

/* FB_ERR_ARGUMENT if the bytes are of no configuration of this version: an unknown rule or flag, a buffer that is too
 * deep, a start beyond it, or bytes that must be 0. `config` is unchanged then. */
fb_status fb_train_config_unpack(fb_train_config *config, const uint8_t *packed);

/* The outcome of a sample: for progress, and for testing without training. */
typedef struct fb_train_result {
    uint16_t predicted; /* class */
    uint32_t loss;      /* cross-entropy in nats, 16 fractional bits */
} fb_train_result;

/* Called at the end of a pass with the summed gradient of each filter: [channel][tap], then with count 1 of its bias, then
 * of its multiplier. */
enum { FB_PART_WEIGHTS, FB_PART_BIAS, FB_PART_GAIN };
typedef void fb_gradient_function(void *context, unsigned op, unsigned filter, unsigned part, const int32_t *gradient,
                                  uint32_t count);

typedef struct fb_train {
    fb_model model;
    fb_train_config config;
    uint8_t *image, *state, *arena;
    uint32_t state_size, arena_size;
    uint32_t samples, seen;                   /* of the virtual batch; in this pass */
    uint32_t rate_bits, rate_bias;            /* of this step */
    uint32_t passes;                          /* since fb_train_begin */
    uint32_t flips;                           /* of the last step */
    struct {                                  /* what this pass sums up: */
        uint16_t high_op, low_op;             /* these operations, from the last to the first */
        uint16_t first_filter;                /* of high_op */
        uint16_t end_filter;                  /* of low_op, exclusive */
        uint32_t sums, saved, work;           /* offsets in the arena */
        uint8_t active[FB_TRAIN_TENSORS / 8]; /* tensors whose gradients it needs */
        uint8_t keep[FB_TRAIN_TENSORS / 8];   /* tensors it needs of the forward pass: inputs of its layers */
    } pass;
    fb_gradient_function *on_gradient; /* may be NULL */
    void *context;
} fb_train;

/* Whether a net can be trained with this configuration.
 *
 *   FB_ERR_ARGUMENT  nothing to train, no such operation, an unknown rule, a buffer that is too deep, a maximum over more
 *                    than 256 pixels, more than FB_TRAIN_TENSORS tensors
 *   FB_ERR_OVERFLOW  a bound above is exceeded, or the state needs more than 4 GB
 *   FB_ERR_OFFSET    weights or parameters of an operation overlap another's, or the metadata: they cannot change alone
 */
fb_status fb_train_check(const fb_model *model, const fb_train_config *config);

/* Bytes of state and the least bytes of arena; 0 if the net cannot be trained with this configuration (fb_train_check, or
 * FB_ERR_LIVE). With `fast`, bytes of arena for one pass per step and the fastest kernels. */
size_t fb_train_state_size(const fb_model *model, const fb_train_config *config);
size_t fb_train_arena_size(const fb_model *model, const fb_train_config *config, bool fast);

/* Start training: from scratch if the state's first four bytes are 0, else continue from it. FB_ERR_STATE if it belongs to
 * another net or configuration, or is damaged. `image` must stay in place. state and arena are aligned to FB_ALIGN. */
fb_status fb_train_open(fb_train *train, void *image, size_t image_size, void *state, size_t state_size, void *arena,
                        size_t arena_size, const fb_train_config *config);

/* Begin a step, or the rest of one that a checkpoint was taken in. `samples` is the size of the virtual batch, at most
 * 65535; of a step that recalibrates, each pass may have another. A rate is at most FB_RATE_MAX. */
fb_status fb_train_begin(fb_train *train, uint32_t samples, uint32_t rate_bits, uint32_t rate_bias);

/* One sample; `label` is the index of an output. */
fb_status fb_train_sample(fb_train *train, const int8_t *input, unsigned label, fb_train_result *result);

/* After all samples of a pass: FB_MORE if the step needs another pass over them, FB_OK if it is done. A checkpoint of
 * image and state may be taken now. */
fb_status fb_train_end_pass(fb_train *train);

/* In a step that recalibrates, after samples of a pass: how far what they make of the layers near the input is from the
 * references, 16 fractional bits. Per channel, the difference of means and that of deviations, as shares of the
 * reference's deviation, each 4 at most; the mean of all. 0 in other steps. fb_train_begin drops a pass. */
uint32_t fb_train_drift(const fb_train *train);

/* The outputs of the last sample, until the next call; valid while a step is open. */
const int8_t *fb_train_scores(const fb_train *train);

/* Whether the next pass is the first of a step that recalibrates. */
bool fb_train_may_recalibrate(const fb_train *train);

/* Steps done since the start. */
uint32_t fb_train_steps(const fb_train *train);

#ifdef __cplusplus
}
#endif
#endif
