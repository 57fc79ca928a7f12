/* int8 dense layer on Helium (MVE): 16 products per instruction. */
#include "../fb_kernels_mve.h"
#include "../fb_long.h"

#if defined(FB_MVE) || defined(FB_PLAN_BOARDS)

uint32_t fb_dense_int8_mve_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}
#endif

#ifdef FB_MVE
#include <arm_mve.h>

void fb_dense_int8_mve(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const int8_t *w = layer->weights;
    uint32_t o;
    (void)in2;
    (void)scratch;
    for (o = 0; o < layer->out.channels; o++) {
        const int8_t *x = in;
        int32_t sum = layer->bias[o];
        uint32_t left = layer->inputs;
        for (; left >= 16; left -= 16, x += 16, w += 16) sum = vmladavaq_s8(sum, vldrbq_s8(x), vldrbq_s8(w));
        if (left) {
            const mve_pred16_t p = vctp8q(left);
            sum = vmladavaq_s8(sum, vldrbq_z_s8(x, p), vldrbq_z_s8(w, p));
            w += left;
        }
        out[o] = fb_requantize_long(sum, layer->mult_int8[o], layer->shift, layer->out.zero_point, layer->low);
    }
}

#endif
