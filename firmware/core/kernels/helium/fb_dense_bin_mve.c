/* Binary dense layer on Helium (MVE): a word of 16 weights is the predicate of 16 inputs. */
#include "../fb_kernels_mve.h"

#if defined(FB_MVE) || defined(FB_PLAN_BOARDS)

uint32_t fb_dense_bin_mve_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}
#endif

#ifdef FB_MVE
#include <arm_mve.h>

void fb_dense_bin_mve(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const uint16_t *bits = layer->bits;
    const int8_t *x = in;
    int32_t all = 0;
    uint32_t left, o;
    (void)in2;
    (void)scratch;
    for (left = layer->inputs; left >= 16; left -= 16, x += 16) all = vaddvaq_s8(all, vldrbq_s8(x));
    if (left) all = vaddvaq_s8(all, vldrbq_z_s8(x, vctp8q(left)));
    for (o = 0; o < layer->out.channels; o++) {
        const uint16_t *end = bits + layer->words;
        int32_t positive = 0; /* Σ ±x = 2 · Σ of the positive ones − Σ of all */
        for (x = in; bits < end; x += 16) positive = vaddvaq_s8(positive, vldrbq_z_s8(x, *bits++));
        out[o] = fb_requantize(2 * positive - all + layer->bias[o], layer->mult[o], layer->shift, layer->out.zero_point,
                               layer->low);
    }
}

#endif
