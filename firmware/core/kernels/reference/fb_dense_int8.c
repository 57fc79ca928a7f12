/* int8 dense layer. */
#include "../fb_long.h"

uint32_t fb_dense_int8_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

void fb_dense_int8(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const int8_t *w = layer->weights;
    uint32_t i, o;
    (void)in2;
    (void)scratch;
    for (o = 0; o < layer->out.channels; o++) {
        int32_t sum = layer->bias[o];
        for (i = 0; i < layer->inputs; i++) sum += in[i] * *w++;
        out[o] = fb_requantize_long(sum, layer->mult_int8[o], layer->shift, layer->out.zero_point, layer->low);
    }
}
