/* Gradient of a filter's weights: for each input channel and place of the kernel, the products of what came in there
 * and the gradients of the sums it went into, added up over all pixels.
 *
 *     sum[c][ky][kx] += Σ over output pixels p of  h[p] · (x[c][p · stride + (ky, kx) − pad] − zero point)
 *
 * Places outside the image hold the zero point and add nothing. As Σ h·(x − z) = Σ h·x − z · Σ h, the inner loop
 * multiplies bytes.
 */
#include "../fb_gradient.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__) && !defined(FB_NO_CLONES)
__attribute__((target_clones("avx2", "default")))
#endif
static int32_t dot(const int8_t *a, const int8_t *b, int32_t n) {
    int32_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static int32_t dot_strided(const int8_t *h, const int8_t *x, int32_t n, int32_t stride) {
    int32_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += h[i] * x[i * stride];
    return sum;
}

static int32_t sum_of(const int8_t *h, int32_t n) {
    int32_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += h[i];
    return sum;
}

/* Output places 0 … count − 1 whose input place · stride + offset lies within 0 … size − 1. */
static void valid(int32_t offset, int32_t stride, int32_t size, int32_t count, int32_t *from, int32_t *to) {
    *from = offset < 0 ? (-offset + stride - 1) / stride : 0;
    *to = size - offset > 0 ? (size - offset - 1) / stride + 1 : 0;
    if (*to > count) *to = count;
    if (*from > *to) *from = *to;
}

static int32_t rounded(int32_t v, unsigned shift) { return shift ? ((v >> (shift - 1)) + 1) >> 1 : v; }

void fb_grad_weights(const fb_layer *layer, const int8_t *h, const int8_t *in, unsigned shift, int32_t *sums) {
    int32_t in_w = layer->in.width, out_w = layer->out.width;
    size_t plane = (size_t)layer->in.height * layer->in.width;
    for (int32_t ky = 0; ky < layer->kernel_h; ky++) {
        int32_t y0, y1, oy = ky - layer->pad_top;
        valid(oy, layer->stride_h, layer->in.height, layer->out.height, &y0, &y1);
        for (int32_t kx = 0; kx < layer->kernel_w; kx++) {
            int32_t x0, x1, y, all = 0, ox = kx - layer->pad_left;
            const int8_t *image = in;
            int32_t *sum = sums + ky * layer->kernel_w + kx;
            valid(ox, layer->stride_w, in_w, out_w, &x0, &x1);
            for (y = y0; y < y1; y++) all += sum_of(h + y * out_w + x0, x1 - x0);
            for (uint32_t c = 0; c < layer->in.channels; c++, image += plane) {
                int32_t total = 0;
                for (y = y0; y < y1; y++) {
                    const int8_t *row = image + (y * layer->stride_h + oy) * in_w + x0 * layer->stride_w + ox;
                    const int8_t *grad = h + y * out_w + x0;
                    total += layer->stride_w == 1 ? dot(grad, row, x1 - x0)
                                                  : dot_strided(grad, row, x1 - x0, layer->stride_w);
                }
                *sum += rounded(total - layer->in.zero_point * all, shift);
                sum += layer->kernel_h * layer->kernel_w;
            }
        }
    }
}
