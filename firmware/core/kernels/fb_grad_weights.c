/* Gradients of filters' weights: for each input channel and place of the kernel, the products of what came in there and
 * the gradients of the sums it went into, added up over all pixels.
 *
 *     sum[c][ky][kx] += Σ over output pixels p of  h[p] · (x[c][p · stride + (ky, kx) − pad] − zero point)
 *
 * Places outside the image hold the zero point and add nothing. As Σ h·(x − z) = Σ h·x − z · Σ h, the inner loops
 * multiply bytes. With room for it, x gets a border of zero points and h zeros between its pixels, so that both have
 * rows of the same length and a sum is one long dot product:
 *
 *     x  z z z z z z      h  . . . . 0 0     row of h = row of x with its border
 *        z . . . . z         . . . . 0 0
 *        z . . . . z
 *        z z z z z z      scratch: x, all channels | h, one filter
 */
#include <string.h>

#include "../fb_gradient.h"

/* On x86 the compiler makes a version for AVX2 as well and the loader chooses. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define FB_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define FB_CLONES
#endif

FB_CLONES static int32_t dot(const int8_t *a, const int8_t *b, int32_t n) {
    int32_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Three places of a kernel's row at once: h is loaded once. */
FB_CLONES static void dot_3(const int8_t *h, const int8_t *x, int32_t n, int32_t *sums) {
    int32_t a = 0, b = 0, c = 0;
    for (int32_t i = 0; i < n; i++) {
        a += h[i] * x[i];
        b += h[i] * x[i + 1];
        c += h[i] * x[i + 2];
    }
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
}

static int32_t dot_strided(const int8_t *h, const int8_t *x, int32_t n, int32_t stride) {
    int32_t sum = 0;
    if (stride == 1) return dot(h, x, n);
    for (int32_t i = 0; i < n; i++) sum += h[i] * x[i * stride];
    return sum;
}

static int32_t rounded(int32_t v, unsigned shift) { return shift ? ((v >> (shift - 1)) + 1) >> 1 : v; }

/* Sizes with borders: of x, and of what h reaches. */
typedef struct borders {
    uint32_t width, height, length;
} borders;

static borders borders_of(const fb_layer *layer) {
    borders b;
    b.width = (layer->out.width - 1u) * layer->stride_w + layer->kernel_w;
    b.height = (layer->out.height - 1u) * layer->stride_h + layer->kernel_h;
    b.length = (layer->out.height - 1u) * layer->stride_h * b.width + (layer->out.width - 1u) * layer->stride_w + 1;
    return b;
}

uint32_t fb_grad_weights_scratch(const fb_layer *layer) {
    borders b = borders_of(layer);
    uint32_t plane = fb_product(b.width, b.height);
    return fb_sum(fb_aligned(fb_product(plane, layer->in.channels)), fb_aligned(b.length));
}

static void with_border(const fb_layer *layer, const borders *b, const int8_t *in, int8_t *x) {
    int32_t right = layer->in.width, from = layer->pad_left, row, y;
    memset(x, layer->in.zero_point, (size_t)b->width * b->height * layer->in.channels);
    if (right > (int32_t)b->width - from) right = (int32_t)b->width - from;
    for (uint32_t c = 0; c < layer->in.channels; c++, in += (size_t)layer->in.height * layer->in.width) {
        for (y = 0; y < layer->in.height; y++) {
            row = y + layer->pad_top;
            if (row >= (int32_t)b->height || right <= 0) break;
            memcpy(x + (size_t)row * b->width + from, in + (size_t)y * layer->in.width, (size_t)right);
        }
        x += (size_t)b->width * b->height;
    }
}

static int32_t spread_out(const fb_layer *layer, const borders *b, const int8_t *h, int8_t *to) {
    int32_t all = 0;
    memset(to, 0, b->length);
    for (uint32_t y = 0; y < layer->out.height; y++) {
        int8_t *row = to + (size_t)y * layer->stride_h * b->width;
        for (uint32_t x = 0; x < layer->out.width; x++, row += layer->stride_w) {
            *row = *h++;
            all += *row;
        }
    }
    return all;
}

static void one_filter(const fb_layer *layer, const borders *b, const int8_t *h, int32_t all, const int8_t *x,
                       unsigned shift, int32_t *sums) {
    int32_t zeros = layer->in.zero_point * all, n = (int32_t)b->length, found[3];
    for (uint32_t c = 0; c < layer->in.channels; c++, x += (size_t)b->width * b->height) {
        for (uint32_t ky = 0; ky < layer->kernel_h; ky++) {
            const int8_t *row = x + ky * b->width;
            uint32_t kx = 0;
            for (; kx + 3 <= layer->kernel_w; kx += 3, sums += 3) {
                dot_3(h, row + kx, n, found);
                for (unsigned i = 0; i < 3; i++) sums[i] += rounded(found[i] - zeros, shift);
            }
            for (; kx < layer->kernel_w; kx++) *sums++ += rounded(dot(h, row + kx, n) - zeros, shift);
        }
    }
}

/* Without scratch: row by row, only where the kernel is inside the image. */

/* Output places 0 … count − 1 whose input place · stride + offset lies within 0 … size − 1. */
static void valid(int32_t offset, int32_t stride, int32_t size, int32_t count, int32_t *from, int32_t *to) {
    *from = offset < 0 ? (-offset + stride - 1) / stride : 0;
    *to = size - offset > 0 ? (size - offset - 1) / stride + 1 : 0;
    if (*to > count) *to = count;
    if (*from > *to) *from = *to;
}

static void one_tap(const fb_layer *layer, const int8_t *h, const int8_t *in, int32_t ky, int32_t kx, unsigned shift,
                    int32_t *sum) {
    int32_t y0, y1, x0, x1, y, x, all = 0, oy = ky - layer->pad_top, ox = kx - layer->pad_left;
    valid(oy, layer->stride_h, layer->in.height, layer->out.height, &y0, &y1);
    valid(ox, layer->stride_w, layer->in.width, layer->out.width, &x0, &x1);
    for (y = y0; y < y1; y++) {
        for (x = x0; x < x1; x++) all += h[y * layer->out.width + x];
    }
    for (uint32_t c = 0; c < layer->in.channels; c++, in += (size_t)layer->in.height * layer->in.width) {
        int32_t total = -layer->in.zero_point * all;
        for (y = y0; y < y1; y++) {
            const int8_t *row = in + (y * layer->stride_h + oy) * layer->in.width + x0 * layer->stride_w + ox;
            total += dot_strided(h + y * layer->out.width + x0, row, x1 - x0, layer->stride_w);
        }
        *sum += rounded(total, shift);
        sum += layer->kernel_h * layer->kernel_w;
    }
}

void fb_grad_weights(const fb_layer *layer, const int8_t *h, const int8_t *in, unsigned shift, int32_t *sums,
                     uint32_t stride, uint32_t filters, void *scratch, uint32_t room) {
    borders b = borders_of(layer);
    uint32_t plane = (uint32_t)layer->out.height * layer->out.width;
    int8_t *x = scratch, *spread = x + fb_aligned(fb_product(fb_product(b.width, b.height), layer->in.channels));
    bool fits = fb_grad_weights_scratch(layer) <= room;
    if (fits) with_border(layer, &b, in, x);
    for (uint32_t o = 0; o < filters; o++, h += plane, sums += stride) {
        if (fits) {
            int32_t all = spread_out(layer, &b, h, spread);
            one_filter(layer, &b, spread, all, x, shift, sums);
            continue;
        }
        for (int32_t ky = 0; ky < layer->kernel_h; ky++) {
            for (int32_t kx = 0; kx < layer->kernel_w; kx++) {
                one_tap(layer, h, in, ky, kx, shift, sums + ky * layer->kernel_w + kx);
            }
        }
    }
}
