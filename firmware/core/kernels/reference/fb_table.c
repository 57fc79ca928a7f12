/* A function of one value, looked up: 256 results. May write over its input. */
#include "../fb_kernels.h"

uint32_t fb_table_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

/* Four values a turn: fewer instructions than one at a time. */
void fb_table(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const int8_t *zero = layer->weights + 128; /* the result of 0 */
    const int8_t *last = in + layer->out.size, *end = in + (layer->out.size & ~(uint32_t)3);
    (void)in2;
    (void)scratch;
    for (; in != end; in += 4, out += 4) {
        int8_t a = zero[in[0]], b = zero[in[1]], c = zero[in[2]], d = zero[in[3]];
        out[0] = a;
        out[1] = b;
        out[2] = c;
        out[3] = d;
    }
    for (; in != last; in++, out++) *out = zero[*in];
}
