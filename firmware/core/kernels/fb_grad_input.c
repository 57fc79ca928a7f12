/* Gradient of a convolution's input: the convolution of h with the kernel turned by 180° and input and output channels
 * swapped. For binary weights that is again a binary convolution, so that the table kernels compute it:
 *
 *     scratch: bits, transposed | zero biases | multipliers of 1 | h with zeros between (stride > 1) | the kernel's own
 */
#include <string.h>

#include "../fb_gradient.h"
#include "../fb_plan.h"

/* Straight from the definition, for every layer. */
static int32_t one(const fb_layer *layer, const int8_t *h, int32_t c, int32_t y, int32_t x) {
    int32_t sum = 0, ky, kx;
    size_t plane = (size_t)layer->out.height * layer->out.width;
    for (ky = 0; ky < layer->kernel_h; ky++) {
        int32_t oy = y + layer->pad_top - ky;
        if (oy < 0 || oy % layer->stride_h || oy / layer->stride_h >= layer->out.height) continue;
        for (kx = 0; kx < layer->kernel_w; kx++) {
            int32_t ox = x + layer->pad_left - kx;
            uint32_t tap = (uint32_t)(ky * layer->kernel_w + kx), o;
            const int8_t *p;
            if (ox < 0 || ox % layer->stride_w || ox / layer->stride_w >= layer->out.width) continue;
            p = h + (size_t)(oy / layer->stride_h) * layer->out.width + (size_t)(ox / layer->stride_w);
            if (layer->bits) {
                uint32_t bit = fb_bit_index(layer, tap, (uint32_t)c);
                const uint16_t *filter = layer->bits;
                for (o = 0; o < layer->out.channels; o++, p += plane, filter += layer->words) {
                    sum += fb_bit(filter, bit) ? *p : -*p;
                }
            } else {
                const int8_t *w = layer->weights + tap * layer->in.channels + (uint32_t)c;
                for (o = 0; o < layer->out.channels; o++, p += plane, w += layer->inputs) sum += *p * *w;
            }
        }
    }
    return sum;
}

static void plainly(const fb_layer *layer, const int8_t *h, int8_t *out, unsigned shift) {
    for (int32_t c = 0; c < layer->in.channels; c++) {
        for (int32_t y = 0; y < layer->in.height; y++) {
            for (int32_t x = 0; x < layer->in.width; x++) {
                *out++ = fb_requantize(one(layer, h, c, y, x), 1, shift, 0, -128);
            }
        }
    }
}

/* The layer that computes the gradient as a convolution of stride 1; false if there is no such layer. */
static bool transposed(const fb_layer *layer, unsigned shift, fb_layer *back) {
    int32_t bottom, right;
    if (!layer->bits) return false;
    memset(back, 0, sizeof *back);
    back->kind = FB_CONV;
    back->flags = FB_FLAG_BINARY;
    back->kernel_h = layer->kernel_h;
    back->kernel_w = layer->kernel_w;
    back->stride_h = back->stride_w = 1;
    back->pad_top = (uint8_t)(layer->kernel_h - 1 - layer->pad_top);
    back->pad_left = (uint8_t)(layer->kernel_w - 1 - layer->pad_left);
    back->shift = (uint8_t)shift;
    back->low = -128;
    back->in = layer->out;
    back->in.zero_point = 0;
    if ((layer->out.height - 1u) * layer->stride_h + 1 > UINT16_MAX) return false;
    if ((layer->out.width - 1u) * layer->stride_w + 1 > UINT16_MAX) return false;
    back->in.height = (uint16_t)((layer->out.height - 1) * layer->stride_h + 1);
    back->in.width = (uint16_t)((layer->out.width - 1) * layer->stride_w + 1);
    back->in.size = fb_product((uint32_t)back->in.height * back->in.width, back->in.channels);
    back->in2 = back->in;
    back->out = layer->in;
    back->out.zero_point = 0;
    back->inputs = fb_product((uint32_t)layer->kernel_h * layer->kernel_w, layer->out.channels);
    back->words = back->inputs / 16 + (back->inputs % 16 != 0);
    if (layer->kernel_h == 3 && layer->kernel_w == 3 && layer->out.channels % 16 == 0) back->flags |= FB_FLAG_CHUNKS;
    bottom = layer->in.height - 1 + layer->kernel_h - back->pad_top - back->in.height;
    right = layer->in.width - 1 + layer->kernel_w - back->pad_left - back->in.width;
    return bottom >= 0 && bottom < layer->kernel_h && right >= 0 && right < layer->kernel_w;
}

/* Sizes of the parts of scratch before the kernel's own. */
typedef struct parts {
    uint32_t bits, bias, mult, spread, all;
} parts;

static parts parts_of(const fb_layer *layer, const fb_layer *back) {
    parts p;
    p.bits = fb_aligned(fb_product(2 * back->words, back->out.channels));
    p.bias = fb_aligned(4u * back->out.channels);
    p.mult = fb_aligned(2u * back->out.channels);
    p.spread = layer->stride_h > 1 || layer->stride_w > 1 ? fb_aligned(back->in.size) : 0;
    p.all = fb_sum(fb_sum(p.bits, p.bias), fb_sum(p.mult, p.spread));
    return p;
}

uint32_t fb_grad_input_scratch(const fb_layer *layer) {
    fb_layer back;
    uint32_t scratch = 0;
    if (!transposed(layer, 1, &back)) return 0;
    fb_choose(&back, FB_NOT_FOR_THIS, &scratch);
    return fb_sum(parts_of(layer, &back).all, fb_aligned(scratch));
}

static void transpose(const fb_layer *layer, const fb_layer *back, uint16_t *bits) {
    uint32_t taps = (uint32_t)layer->kernel_h * layer->kernel_w, o, c, tap;
    memset(bits, 0, 2 * (size_t)back->words * back->out.channels);
    for (o = 0; o < layer->out.channels; o++) {
        const uint16_t *filter = layer->bits + (size_t)o * layer->words;
        for (tap = 0; tap < taps; tap++) {
            uint32_t there = fb_bit_index(back, taps - 1 - tap, o);
            uint16_t mask = (uint16_t)(1u << there % 16), *word = bits + there / 16;
            for (c = 0; c < layer->in.channels; c++, word += back->words) {
                if (fb_bit(filter, fb_bit_index(layer, tap, c))) *word |= mask;
            }
        }
    }
}

static void spread(const fb_layer *layer, const fb_layer *back, const int8_t *h, int8_t *out) {
    uint32_t rows = (uint32_t)layer->out.channels * layer->out.height, row, x;
    memset(out, 0, back->in.size);
    for (row = 0; row < rows; row++) {
        uint32_t c = row / layer->out.height, y = row % layer->out.height;
        int8_t *to = out + ((size_t)c * back->in.height + (size_t)y * layer->stride_h) * back->in.width;
        for (x = 0; x < layer->out.width; x++, to += layer->stride_w) *to = *h++;
    }
}

void fb_grad_input(const fb_layer *layer, const int8_t *h, int8_t *out, unsigned shift, void *scratch, uint32_t room) {
    fb_layer back;
    parts p = {0, 0, 0, 0, 0};
    const fb_kernel *kernel = NULL;
    uint32_t own;
    uint8_t *at = scratch;
    if (transposed(layer, shift, &back)) {
        p = parts_of(layer, &back);
        if (p.all <= room) kernel = fb_choose(&back, room - p.all, &own);
    }
    if (!kernel) {
        plainly(layer, h, out, shift);
        return;
    }
    transpose(layer, &back, (void *)at);
    back.bits = (const void *)at;
    memset(at + p.bits, 0, p.bias);
    back.bias = (const void *)(at + p.bits);
    for (uint32_t c = 0; c < back.out.channels; c++) ((int16_t *)(void *)(at + p.bits + p.bias))[c] = 1;
    back.mult = (const void *)(at + p.bits + p.bias);
    at += p.bits + p.bias + p.mult;
    if (p.spread) {
        spread(layer, &back, h, (int8_t *)at);
        h = (const int8_t *)at;
        at += p.spread;
    }
    kernel->run(&back, h, h, out, at);
}
