/* Binary dense layer. */
#include "../fb_kernels.h"

uint32_t fb_dense_bin_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

void fb_dense_bin(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const uint16_t *bits = layer->bits;
    int32_t all = 0;
    uint32_t i, o;
    (void)in2;
    (void)scratch;
    for (i = 0; i < layer->inputs; i++) all += in[i];
    for (o = 0; o < layer->out.channels; o++) {
        int32_t positive = 0; /* Σ ±x = 2 · Σ of the positive ones − Σ of all */
        for (i = 0; i < layer->inputs; i += 16) {
            const int8_t *x = in + i;
            uint32_t word;
            for (word = *bits++; word; word >>= 1, x++) {
                if (word & 1) positive += *x;
            }
        }
        out[o] = fb_requantize(2 * positive - all + layer->bias[o], layer->mult[o], layer->shift, layer->out.zero_point,
                               layer->low);
    }
}
