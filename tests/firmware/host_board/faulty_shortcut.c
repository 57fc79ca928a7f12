/* A kernel that is wrong in one value: linked with --wrap=fb_shortcut. */
#include "kernels/fb_kernels.h"

fb_run_function __real_fb_shortcut, __wrap_fb_shortcut;

void __wrap_fb_shortcut(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    __real_fb_shortcut(layer, in, in2, out, scratch);
    out[layer->out.size - 1] ^= 1;
}
