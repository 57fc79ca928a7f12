/* Kernels of the backward pass. Private to the core.
 *
 * A gradient is an int8 tensor g with an exponent e that is fixed for a step: real gradient = g / 2^e, up to a factor
 * that all gradients of a sample share. h is the gradient of a layer's sums, before requantization.
 */
#ifndef FB_GRADIENT_H
#define FB_GRADIENT_H

#include "../fb_kernels.h"

/* Add the gradients of `filters` filters' weights to `sums`: [channel][tap], the next filter's `stride` further. `h`
 * are the filters' planes, `in` the layer's input. What one sample adds is rounded to 2^shift. Faster with `room` bytes
 * of scratch; fb_grad_weights_scratch says how many. */
void fb_grad_weights(const fb_layer *layer, const int8_t *h, const int8_t *in, unsigned shift, int32_t *sums,
                     uint32_t stride, uint32_t filters, void *scratch, uint32_t room);
uint32_t fb_grad_weights_scratch(const fb_layer *layer);

/* The gradient of a layer's input from that of its sums: out = Σ w · h / 2^shift, rounded and saturated. With more room
 * (bytes) of scratch it runs the forward kernels on transposed bits. The sum and half of 2^shift stay within 31 bits for
 * layers that fb_check_config accepts. */
void fb_grad_input(const fb_layer *layer, const int8_t *h, int8_t *out, unsigned shift, void *scratch, uint32_t room);

/* Bytes of scratch with which fb_grad_input is fastest; it needs none. */
uint32_t fb_grad_input_scratch(const fb_layer *layer);

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
    int32_t one; /* others: all planes by this one */
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

/* Softmax and cross-entropy of 1 to FB_TRAIN_OUTPUTS int8 scores: gradient = (probability − [i is the label]) · 127. Returns the loss in
 * nats, 16 fractional bits. `scale_bits` are the bits of the scores' float32 scale. */
uint32_t fb_softmax_gradient(const int8_t *scores, uint32_t count, uint32_t scale_bits, uint32_t label,
                             int8_t *gradient);

/* For functions whose frames must not be part of their callers'. */
#if defined(__GNUC__)
#define FB_NOINLINE __attribute__((noinline))
#else
#define FB_NOINLINE
#endif

/* Whether weight (tap, channel) of a binary filter is +1; and its opposite. */
static inline uint32_t fb_bit_index(const fb_layer *layer, uint32_t tap, uint32_t channel) {
    if (layer->flags & FB_FLAG_CHUNKS) return (channel / 16 * 9 + tap) * 16 + channel % 16;
    return tap * layer->in.channels + channel;
}
static inline bool fb_bit(const uint16_t *filter, uint32_t index) { return filter[index / 16] >> index % 16 & 1; }

#endif
