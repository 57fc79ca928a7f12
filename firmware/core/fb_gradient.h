/* Kernels of the backward pass. Private to the core.
 *
 * A gradient is an int8 tensor g with an exponent e that is fixed for a step: real gradient = g / 2^e, up to a factor
 * that all gradients of a sample share. h is the gradient of a layer's sums, before requantization.
 */
#ifndef FB_GRADIENT_H
#define FB_GRADIENT_H

#include "fb_kernels.h"

/* Add the gradients of `filters` filters' weights to `sums`: [channel][tap], the next filter's `stride` further. `h`
 * are the filters' planes, `in` the layer's input. What one sample adds is rounded to 2^shift. Faster with `room` bytes
 * of scratch; fb_grad_weights_scratch says how many. */
void fb_grad_weights(const fb_layer *layer, const int8_t *h, const int8_t *in, unsigned shift, int32_t *sums,
                     uint32_t stride, uint32_t filters, void *scratch, uint32_t room);
uint32_t fb_grad_weights_scratch(const fb_layer *layer);

/* The gradient of a layer's input from that of its sums: out = Σ w · h / 2^shift, rounded and saturated. With more room
 * (bytes) of scratch it runs the forward kernels on transposed bits. */
void fb_grad_input(const fb_layer *layer, const int8_t *h, int8_t *out, unsigned shift, void *scratch, uint32_t room);

/* Bytes of scratch with which fb_grad_input is fastest; it needs none. */
uint32_t fb_grad_input_scratch(const fb_layer *layer);

/* Softmax and cross-entropy of int8 scores: gradient = (probability − [i is the label]) · 127. Returns the loss in
 * nats, 16 bits behind the point. `scale_bits` are the bits of the scores' float32 scale. */
uint32_t fb_softmax_gradient(const int8_t *scores, uint32_t count, uint32_t scale_bits, uint32_t label,
                             int8_t *gradient);

/* Whether weight (tap, channel) of a binary filter is +1; and its opposite. */
static inline uint32_t fb_bit_index(const fb_layer *layer, uint32_t tap, uint32_t channel) {
    if (layer->flags & FB_FLAG_CHUNKS) return (channel / 16 * 9 + tap) * 16 + channel % 16;
    return tap * layer->in.channels + channel;
}
static inline bool fb_bit(const uint16_t *filter, uint32_t index) { return filter[index / 16] >> index % 16 & 1; }

#endif
