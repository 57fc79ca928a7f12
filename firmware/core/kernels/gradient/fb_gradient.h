/* Kernels of the backward pass. Private to the core.
 *
 * A gradient is an int8 tensor g with an exponent e that is fixed for a step: real gradient = g / 2^e, up to a factor
 * that all gradients of a sample share. h is the gradient of a layer's sums, before requantization: −127 … 127.
 */
#ifndef FB_GRADIENT_H
#define FB_GRADIENT_H

#include "../fb_kernels.h"

/* Where gradients of weights are summed up, a filter's as [channel][tap]: in 32 bits, or in fewer, with a shared exponent
 * and stochastically rounded (fb_grad_narrow.c). */
typedef struct fb_grad_sums {
    uint8_t *at;      /* a multiple of 4 */
    uint32_t stride;  /* bytes from a filter to the next, a multiple of 4 */
    uint32_t weights; /* of a filter */
    uint32_t key;     /* narrow sums: another one for each step, sample and layer */
    uint16_t first;   /* and the number of the first filter */
    uint8_t bytes;    /* of a sum: 4, 2 or 1 */
} fb_grad_sums;

/* Bytes of a filter's sums, a multiple of 4. Zeros are sums of 0. */
uint32_t fb_grad_sums_size(uint32_t weights, unsigned bytes);

/* Add to narrow sums number i … i + n − 1 of a filter. A sample must add to all in order. */
void fb_grad_add_narrow(const fb_grad_sums *to, uint32_t filter, uint32_t i, const int32_t *values, uint32_t n);

/* A filter's narrow sums in 32 bits. */
void fb_grad_widen(const void *sums, uint32_t weights, unsigned bytes, int32_t *wide);

/* A key from another one and a number. */
uint32_t fb_grad_key(uint32_t key, uint32_t number);

/* Add the gradients of `filters` filters' weights. `h` are the filters' planes, `in` the layer's input. What one sample
 * adds is rounded to 2^shift first. Faster with `room` bytes of scratch; fb_grad_weights_scratch says how many. */
void fb_grad_weights(const fb_layer *layer, const int8_t *h, const int8_t *in, unsigned shift, const fb_grad_sums *sums,
                     uint32_t filters, void *scratch, uint32_t room);
uint32_t fb_grad_weights_scratch(const fb_layer *layer);

/* The gradient of a layer's input from that of its sums: out = Σ w · h / 2^shift, rounded and saturated. With more room
 * (bytes) of scratch it runs the forward kernels on transposed bits. The sum and half of 2^shift stay within 31 bits for
 * layers that fb_check_config accepts. */
void fb_grad_input(const fb_layer *layer, const int8_t *h, int8_t *out, unsigned shift, void *scratch, uint32_t room);

/* Bytes of scratch with which fb_grad_input runs such kernels; it needs none. */
uint32_t fb_grad_input_scratch(const fb_layer *layer, fb_choice choice);

/* What it does with some strides of 2; scratch is FB_NOT_FOR_THIS for other layers. Gradients are −127 … 127. */
uint32_t fb_grad_strided_scratch(const fb_layer *layer);
void fb_grad_strided(const fb_layer *layer, const int8_t *h, int8_t *out, unsigned shift, void *scratch);

/* Turn a matrix of 16 × 16 bits. */
void fb_turn_16(uint16_t *rows);

/* How many gradients are large (64 and more), and how many saturated (127). They only steer exponents: after 2^32 of a batch they
 * begin at 0 again, which costs a step of scale and nothing else. */
typedef struct fb_count {
    uint32_t large, saturated;
} fb_count;

/* What gradients are multiplied by, each plane of a tensor by a factor of its own, at most 2^31 / 255: what an image may
 * multiply an activation by (fb_open.c). 128 times that and half of 2^30 fit 31 bits. */
typedef struct fb_factors {
    const int32_t *wide; /* int8 layers: the 15 leading bits are used */
    const int16_t *narrow;
    int32_t one;        /* others: all planes by this one */
    const int8_t *each; /* or each value by one of its own */
} fb_factors;

/* to = from · factor / 2^shift to the nearest, where the mask (a bit for each value; NULL: everywhere) lets it pass, and 0
 * elsewhere; added to what is there if `join`. Cut off at ±127 and counted. `to` may be `from`. */
void fb_grad_scale(const int8_t *from, int8_t *to, const fb_tensor *shape, const fb_factors *factors, int32_t shift,
                   const uint8_t *mask, bool join, fb_count *counts);

/* Whether this would cut off more than `most`. */
bool fb_grad_cuts_off(const int8_t *from, const int8_t *to, const fb_tensor *shape, const fb_factors *factors,
                      int32_t shift, const uint8_t *mask, bool join, uint32_t most);

/* Add to the counts. */
void fb_grad_count(fb_count *counts, const int8_t *values, uint32_t n);

/* Halve gradients, rounding as above. */
void fb_grad_halve(int8_t *values, uint32_t n);

/* The mask of a layer that cuts off its results: a bit is 1 where low < value < high. */
void fb_grad_mask(const int8_t *values, uint32_t n, int32_t low, int32_t high, uint8_t *mask);

/* Sum of n ≤ FB_TRAIN_PIXELS values. */
int32_t fb_grad_sum(const int8_t *values, uint32_t n);

/* Keep a channel's results for the gradient of its multiplier, as numbers at, at + 1, … of what is kept; and that gradient:
 * Σ h · (result − zero point). */
void fb_grad_keep(const int8_t *values, uint32_t height, uint32_t width, uint32_t at, uint8_t *kept);
int32_t fb_grad_gain(const int8_t *h, uint32_t height, uint32_t width, uint32_t at, const uint8_t *kept,
                     int32_t zero_point);

/* Softmax and cross-entropy of 1 to FB_TRAIN_OUTPUTS int8 scores: gradient = (probability − [i is the label]) · 127. Returns the loss in
 * nats, 16 fractional bits. `scale_bits` are the bits of the scores' float32 scale. */
uint32_t fb_softmax_gradient(const int8_t *scores, uint32_t count, uint32_t scale_bits, uint32_t label,
                             int8_t *gradient);

/* Whether weight (tap, channel) of a binary filter is +1; and its opposite. */
static inline uint32_t fb_bit_index(const fb_layer *layer, uint32_t tap, uint32_t channel) {
    if (layer->flags & FB_FLAG_CHUNKS) return (channel / 16 * 9 + tap) * 16 + channel % 16;
    return tap * fb_depth(layer) + channel;
}
static inline bool fb_bit(const uint16_t *filter, uint32_t index) { return filter[index / 16] >> index % 16 & 1; }

#endif
