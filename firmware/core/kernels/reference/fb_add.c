/* Sum of two tensors, each in its own scale. May write over an input. */
#include "../fb_kernels.h"

uint32_t fb_add_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

/* Four values a turn: half the instructions of one. */
FB_INLINE void add(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, bool relu, bool clip) {
    int32_t a = (int32_t)layer->factor[0], b = (int32_t)layer->factor[1], zero_point = layer->out.zero_point;
    int32_t offset = -layer->in.zero_point * a - layer->in2.zero_point * b + fb_half(layer->shift);
    const int8_t *last = in + layer->out.size;
    const int8_t *end = in + (layer->out.size & ~(uint32_t)3);
    unsigned shift = layer->shift;
    int8_t low = clip ? layer->low : (int8_t)-128;
#define ADD(i) \
    do { \
        int8_t v = fb_scale(in[i] * a + (in2[i] * b + offset), shift, zero_point, relu); \
        out[i] = clip && v < low ? low : v; \
    } while (0)
    for (; in != end; in += 4, in2 += 4, out += 4) {
        ADD(0);
        ADD(1);
        ADD(2);
        ADD(3);
    }
    for (; in != last; in++, in2++, out++) ADD(0);
#undef ADD
}

void fb_add(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)scratch;
    if (layer->low != -128) {
        add(layer, in, in2, out, false, true);
    } else if (layer->flags & FB_FLAG_RELU) {
        add(layer, in, in2, out, true, false);
    } else {
        add(layer, in, in2, out, false, false);
    }
}
