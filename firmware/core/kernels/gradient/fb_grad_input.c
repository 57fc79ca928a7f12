/* Gradient of a convolution's input: the convolution of h with the kernel turned by 180° and input and output channels
 * swapped. For binary weights that is again a binary convolution, so that the table kernels compute it. With a stride of
 * 2, only every other place of the kernel has met a given pixel: four convolutions without stride, with parts of the
 * kernel, give the pixels in even and odd rows and columns (place 1 of a 3×3 kernel without padding at the left meets
 * odd columns, places 0 and 2 meet even ones). For 3×3 kernels fb_grad_strided.c does all four at once.
 *
 *     scratch: bits, transposed | zero biases | multipliers of 1 | result, if there is a stride | the kernel's own
 */
#include <string.h>

#include "../../run/fb_plan.h"
#include "fb_gradient.h"

/* Straight from the definition, for every layer. Filters first to end − 1 see channel c. */
static int32_t one(const fb_layer *layer, const int8_t *h, int32_t c, int32_t y, int32_t x) {
    int32_t sum = 0, ky, kx;
    size_t plane = (size_t)layer->out.height * layer->out.width;
    bool own = layer->kind == FB_DEPTHWISE;
    uint32_t first = own ? (uint32_t)c : 0, end = own ? first + 1 : layer->out.channels, depth = fb_depth(layer);
    uint32_t channel = own ? 0 : (uint32_t)c;
    h += first * plane;
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
                uint32_t bit = fb_bit_index(layer, tap, channel);
                const uint16_t *filter = layer->bits + (size_t)first * layer->words;
                for (o = first; o < end; o++, p += plane, filter += layer->words) {
                    sum += fb_bit(filter, bit) ? *p : -*p;
                }
            } else {
                const int8_t *w = layer->weights + (size_t)first * layer->inputs + tap * depth + channel;
                for (o = first; o < end; o++, p += plane, w += layer->inputs) sum += *p * *w;
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

/* A phase along one axis: pixels phase, phase + stride, …, and the places of the kernel that have met them. */
typedef struct side {
    uint32_t size;         /* so many pixels; others have no gradient */
    uint32_t first, count; /* places: first, first + stride, … */
    uint32_t pad;          /* of the convolution that computes them */
} side;

/* False if that is no convolution of ours. */
static bool side_of(uint32_t phase, uint32_t stride, uint32_t kernel, uint32_t pad, uint32_t in, uint32_t out,
                    side *s) {
    uint32_t before = (phase + pad) / stride;
    s->first = (phase + pad) % stride;
    s->count = kernel > s->first ? (kernel - s->first + stride - 1) / stride : 0;
    s->size = in > phase ? (in - phase + stride - 1) / stride : 0;
    if (s->count == 0 || s->size == 0) {
        s->size = 0;
        return true;
    }
    if (before >= s->count) return false;
    s->pad = s->count - 1 - before;
    if (s->size > out + s->pad) s->size = out + s->pad;
    return s->size + before >= out; /* all of h is reached */
}

/* The layer that computes a phase. */
static void layer_of(const fb_layer *layer, const side *down, const side *across, unsigned shift, fb_layer *back) {
    memset(back, 0, sizeof *back);
    back->kind = FB_CONV;
    back->flags = FB_FLAG_BINARY;
    back->kernel_h = (uint8_t)down->count;
    back->kernel_w = (uint8_t)across->count;
    back->stride_h = back->stride_w = 1;
    back->pad_top = (uint8_t)down->pad;
    back->pad_left = (uint8_t)across->pad;
    back->shift = (uint8_t)shift;
    back->low = -128;
    back->in = layer->out;
    back->in.zero_point = 0;
    back->in2 = back->in;
    back->out = layer->in;
    back->out.zero_point = 0;
    back->out.height = (uint16_t)down->size;
    back->out.width = (uint16_t)across->size;
    back->out.size = down->size * across->size * layer->in.channels;
    back->inputs = fb_product(down->count * across->count, layer->out.channels);
    back->words = back->inputs / 16 + (back->inputs % 16 != 0);
    if (down->count == 3 && across->count == 3 && layer->out.channels % 16 == 0) back->flags |= FB_FLAG_CHUNKS;
}

static bool strided(const fb_layer *layer) { return layer->stride_h > 1 || layer->stride_w > 1; }

/* Sizes of the parts of scratch before the kernel's own. */
typedef struct parts {
    uint32_t bits, bias, mult, result, all;
} parts;

static parts parts_of(const fb_layer *layer, const fb_layer *back) {
    parts p;
    p.bits = fb_aligned(fb_product(2 * back->words, back->out.channels));
    p.bias = fb_aligned(4u * back->out.channels);
    p.mult = fb_aligned(2u * back->out.channels);
    p.result = strided(layer) ? fb_aligned(back->out.size) : 0;
    p.all = fb_sum(fb_sum(p.bits, p.bias), fb_sum(p.mult, p.result));
    return p;
}

/* Both sides of the phase that begins at (y, x); false if it cannot be computed so. */
static bool sides_of(const fb_layer *layer, uint32_t y, uint32_t x, side *down, side *across) {
    return layer->bits && layer->kind != FB_DEPTHWISE &&
           side_of(y, layer->stride_h, layer->kernel_h, layer->pad_top, layer->in.height, layer->out.height, down) &&
           side_of(x, layer->stride_w, layer->kernel_w, layer->pad_left, layer->in.width, layer->out.width, across);
}

uint32_t fb_grad_input_scratch(const fb_layer *layer, fb_choice choice) {
    uint32_t most = fb_grad_strided_scratch(layer);
    if (choice == FB_LEAST) return 0;
    if (most != FB_NOT_FOR_THIS && choice == FB_FASTEST) return most;
    most = 0;
    for (uint32_t y = 0; y < layer->stride_h; y++) {
        for (uint32_t x = 0; x < layer->stride_w; x++) {
            side down, across;
            fb_layer back;
            uint32_t own, all;
            if (!sides_of(layer, y, x, &down, &across)) return 0;
            if (down.size == 0 || across.size == 0) continue;
            layer_of(layer, &down, &across, 1, &back);
            own = fb_scratch_of(&back, choice);
            all = fb_sum(parts_of(layer, &back).all, fb_aligned(own));
            if (all > most) most = all;
        }
    }
    return most;
}

#ifdef FB_SMALL_CODE
/* Exchange its quarters, then those of each quarter, and so on. */
void fb_turn_16(uint16_t *rows) {
    uint32_t mask = 0xFF, by = 8;
    for (; by > 0; by /= 2, mask ^= mask << by) {
        for (uint32_t i = 0; i < 16; i = (i + by + 1) & ~by) {
            uint32_t swap = ((uint32_t)rows[i] >> by ^ rows[i + by]) & mask;
            rows[i + by] = (uint16_t)(rows[i + by] ^ swap);
            rows[i] = (uint16_t)(rows[i] ^ swap << by);
        }
    }
}
#else
/* The same without a loop: rows 8 apart share a word, in which the quarters are in place. */
#define LOAD(i) \
    uint32_t row##i = ((uint32_t)rows[i] & 0xFF) | ((uint32_t)rows[i + 8] & 0xFF) << 8 | \
                      ((uint32_t)rows[i] & 0xFF00) << 8 | ((uint32_t)rows[i + 8] & 0xFF00) << 16
#define SWAP(i, j, by, mask) \
    do { \
        uint32_t swap = (row##i >> by ^ row##j) & mask; \
        row##j ^= swap; \
        row##i ^= swap << by; \
    } while (0)
#define STORE(i) \
    do { \
        rows[i] = (uint16_t)row##i; \
        rows[i + 8] = (uint16_t)(row##i >> 16); \
    } while (0)
void fb_turn_16(uint16_t *rows) {
    LOAD(0);
    LOAD(1);
    LOAD(2);
    LOAD(3);
    LOAD(4);
    LOAD(5);
    LOAD(6);
    LOAD(7);
    SWAP(0, 4, 4, 0x0F0F0F0Fu);
    SWAP(1, 5, 4, 0x0F0F0F0Fu);
    SWAP(2, 6, 4, 0x0F0F0F0Fu);
    SWAP(3, 7, 4, 0x0F0F0F0Fu);
    SWAP(0, 2, 2, 0x33333333u);
    SWAP(1, 3, 2, 0x33333333u);
    SWAP(4, 6, 2, 0x33333333u);
    SWAP(5, 7, 2, 0x33333333u);
    SWAP(0, 1, 1, 0x55555555u);
    SWAP(2, 3, 1, 0x55555555u);
    SWAP(4, 5, 1, 0x55555555u);
    SWAP(6, 7, 1, 0x55555555u);
    STORE(0);
    STORE(1);
    STORE(2);
    STORE(3);
    STORE(4);
    STORE(5);
    STORE(6);
    STORE(7);
}
#undef LOAD
#undef SWAP
#undef STORE
#endif

/* Bits of one place: where input and output channels are multiples of 16, both layouts hold words of 16 channels. */
static void transpose_words(const fb_layer *layer, uint32_t tap, const fb_layer *back, uint32_t there, uint16_t *bits) {
    for (uint32_t o = 0; o < layer->out.channels; o += 16) {
        for (uint32_t c = 0, i; c < layer->in.channels; c += 16) {
            const uint16_t *from = layer->bits + (size_t)o * layer->words + fb_bit_index(layer, tap, c) / 16;
            uint16_t *to = bits + (size_t)c * back->words + fb_bit_index(back, there, o) / 16, rows[16];
            for (i = 0; i < 16; i++, from += layer->words) rows[i] = *from;
            fb_turn_16(rows);
            for (i = 0; i < 16; i++, to += back->words) *to = rows[i];
        }
    }
}

static void transpose_bits(const fb_layer *layer, uint32_t tap, const fb_layer *back, uint32_t there, uint16_t *bits) {
    for (uint32_t o = 0; o < layer->out.channels; o++) {
        const uint16_t *filter = layer->bits + (size_t)o * layer->words;
        uint32_t index = fb_bit_index(back, there, o);
        uint16_t mask = (uint16_t)(1u << index % 16), *word = bits + index / 16;
        for (uint32_t c = 0; c < layer->in.channels; c++, word += back->words) {
            if (fb_bit(filter, fb_bit_index(layer, tap, c))) *word |= mask;
        }
    }
}

static void transpose(const fb_layer *layer, const side *down, const side *across, const fb_layer *back,
                      uint16_t *bits) {
    bool words = layer->in.channels % 16 == 0 && layer->out.channels % 16 == 0;
    memset(bits, 0, 2 * (size_t)back->words * back->out.channels);
    for (uint32_t y = 0; y < down->count; y++) {
        for (uint32_t x = 0; x < across->count; x++) {
            uint32_t ky = down->first + y * layer->stride_h, kx = across->first + x * layer->stride_w;
            uint32_t tap = ky * layer->kernel_w + kx, there = (down->count - y) * across->count - 1 - x;
            (words ? transpose_words : transpose_bits)(layer, tap, back, there, bits);
        }
    }
}

/* Put a phase's result in its place, beginning at `out`. */
static void spread(const fb_layer *layer, const fb_layer *back, const int8_t *result, int8_t *out) {
    for (uint32_t c = 0; c < layer->in.channels; c++, out += (size_t)layer->in.height * layer->in.width) {
        for (uint32_t y = 0; y < back->out.height; y++) {
            int8_t *to = out + (size_t)y * layer->stride_h * layer->in.width;
            for (uint32_t x = 0; x < back->out.width; x++, to += layer->stride_w) *to = *result++;
        }
    }
}

/* One phase; false if it cannot be computed so. */
static bool phase(const fb_layer *layer, const int8_t *h, int8_t *out, unsigned shift, uint32_t y, uint32_t x,
                  uint8_t *scratch, uint32_t room) {
    side down, across;
    fb_layer back;
    parts p;
    const fb_kernel *kernel;
    uint32_t own;
    int16_t *mult;
    if (!sides_of(layer, y, x, &down, &across)) return false;
    if (down.size == 0 || across.size == 0) return true;
    layer_of(layer, &down, &across, shift, &back);
    p = parts_of(layer, &back);
    kernel = p.all <= room ? fb_choose(&back, room - p.all, &own) : NULL;
    if (!kernel) return false;
    transpose(layer, &down, &across, &back, (void *)scratch);
    back.bits = (const void *)scratch;
    scratch += p.bits;
    memset(scratch, 0, p.bias);
    back.bias = (const void *)scratch;
    scratch += p.bias;
    mult = (void *)scratch;
    for (uint32_t c = 0; c < back.out.channels; c++) mult[c] = 1;
    back.mult = mult;
    scratch += p.mult;
    if (p.result) {
        kernel->run(&back, h, h, (int8_t *)scratch, scratch + p.result);
        spread(layer, &back, (const int8_t *)scratch, out + (size_t)y * layer->in.width + x);
    } else {
        kernel->run(&back, h, h, out, scratch);
    }
    return true;
}

void fb_grad_input(const fb_layer *layer, const int8_t *h, int8_t *out, unsigned shift, void *scratch, uint32_t room) {
    uint32_t need = fb_grad_strided_scratch(layer);
    if (need != FB_NOT_FOR_THIS && need <= room) {
        fb_grad_strided(layer, h, out, shift, scratch);
        return;
    }
    if (strided(layer)) memset(out, 0, layer->in.size);
    for (uint32_t y = 0; y < layer->stride_h; y++) {
        for (uint32_t x = 0; x < layer->stride_w; x++) {
            if (!phase(layer, h, out, shift, y, x, scratch, room)) {
                plainly(layer, h, out, shift);
                return;
            }
        }
    }
}
