/* int8 3×3 convolution of each channel by itself, horizontal strides 1 and 2: two pixels at a time.
 *
 * Rows of a channel are widened to 16 bits, padding included, in a ring of three: each row once. Two values lie in a
 * word, and SMLAD multiplies both (Cortex-M4, M7, M33):
 *
 *     stride 1    x0 x1 | x2 x3           pixels  w0·x0 + w1·x1 + w2·x2,  w0·x1 + w1·x2 + w2·x3
 *     stride 2    x0 x1 | x2 x3 | x4      pixels  w0·x0 + w1·x1 + w2·x2,  w0·x2 + w1·x3 + w2·x4
 *
 * scratch: ring[3][columns]
 */
#include "../fb_long.h"

#include <string.h>

static uint32_t columns_of(const fb_layer *layer) { /* of two pixels more than there may be; even */
    return (layer->out.width + 1u) / 2 * 2 * layer->stride_w + 2;
}

uint32_t fb_depthwise_int8_3x3_scratch(const fb_layer *layer) {
    if (layer->kernel_h != 3 || layer->kernel_w != 3 || layer->stride_w > 2 || layer->shift < 33) {
        return FB_NOT_FOR_THIS;
    }
    return 3 * columns_of(layer) * (uint32_t)sizeof(int16_t);
}

/* A channel's weights, and what its sums become. */
typedef struct channel {
    uint32_t w01[3], w12[3]; /* of each row: the first two, the last two */
    int32_t bias, mult, zero_point, low;
    unsigned shift; /* without 32 */
} channel;

/* acc + the products of both halves; of one half of x and one of w. */
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && defined(__GNUC__)
#define PRODUCT(name, instruction, c_code) \
    FB_INLINE int32_t name(uint32_t x, uint32_t w, int32_t acc) { \
        int32_t r; \
        __asm__(instruction " %0, %1, %2, %3" : "=r"(r) : "r"(x), "r"(w), "r"(acc)); \
        return r; \
    }
#else
#define PRODUCT(name, instruction, c_code) \
    FB_INLINE int32_t name(uint32_t x, uint32_t w, int32_t acc) { return acc + (c_code); }
#endif
#define LOW(word) ((int32_t)(int16_t)(word))
#define HIGH(word) ((int32_t)(word) >> 16)
PRODUCT(both, "smlad", LOW(x) * LOW(w) + HIGH(x) * HIGH(w))
PRODUCT(low_high, "smlabt", LOW(x) * HIGH(w))
PRODUCT(high_low, "smlatb", HIGH(x) * LOW(w))

static uint32_t word_at(const int16_t *p) { /* of an even column: aligned */
    uint32_t word;
#if defined(__GNUC__)
    memcpy(&word, __builtin_assume_aligned(p, 4), sizeof word);
#else
    memcpy(&word, p, sizeof word);
#endif
    return word;
}

/* columns [−pad_left …) of row y, which may be outside. */
static void widen(const fb_layer *layer, const int8_t *plane, int32_t y, int16_t *to) {
    const int32_t columns = (int32_t)columns_of(layer), width = layer->in.width, left = layer->pad_left;
    const int8_t *row = plane + (y < 0 ? 0 : y) * width;
    int32_t x = 0, end = columns < width + left ? columns : width + left;
    if (y < 0 || y >= layer->in.height) end = 0;
    for (; x < left && x < columns; x++) to[x] = layer->in.zero_point;
    for (; x < end; x++) to[x] = row[x - left];
    for (; x < columns; x++) to[x] = layer->in.zero_point;
}

FB_INLINE void sum_row(const channel *c, const int16_t *const *rows, int8_t *out, uint32_t width, unsigned stride) {
    const int16_t *a = rows[0], *b = rows[1], *d = rows[2];
    uint32_t x;
    for (x = 0; x < width; x += 2, a += 2 * stride, b += 2 * stride, d += 2 * stride) {
        int32_t first = c->bias, second = first;
#define ROW(p, i) \
    do { \
        uint32_t left = word_at(p), right = word_at((p) + 2); \
        first = both(left, c->w01[i], first); \
        first = low_high(right, c->w12[i], first); \
        if (stride == 1) { \
            second = high_low(left, c->w01[i], second); \
            second = both(right, c->w12[i], second); \
        } else { \
            second = both(right, c->w01[i], second); \
            second = low_high(word_at((p) + 4), c->w12[i], second); \
        } \
    } while (0)
        ROW(a, 0);
        ROW(b, 1);
        ROW(d, 2);
        out[x] = fb_requantize_upper(first, c->mult, c->shift, c->zero_point, c->low);
        if (x + 1 < width) out[x + 1] = fb_requantize_upper(second, c->mult, c->shift, c->zero_point, c->low);
    }
}

static void load_channel(const fb_layer *layer, uint32_t index, channel *c) {
    const int8_t *w = layer->weights + 9 * (size_t)index;
    unsigned i;
    for (i = 0; i < 3; i++, w += 3) {
        c->w01[i] = (uint16_t)w[0] | (uint32_t)w[1] << 16;
        c->w12[i] = (uint16_t)w[1] | (uint32_t)w[2] << 16;
    }
    c->bias = layer->bias[index];
    c->mult = layer->mult_int8[index];
    c->zero_point = layer->out.zero_point;
    c->low = layer->low;
    c->shift = layer->shift - 32u;
}

void fb_depthwise_int8_3x3(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const uint32_t columns = columns_of(layer), width = layer->out.width;
    uint32_t index, y, i;
    (void)in2;
    for (index = 0; index < layer->out.channels; index++, in += (size_t)layer->in.height * layer->in.width) {
        int32_t next = -(int32_t)layer->pad_top; /* row to widen */
        channel c;
        load_channel(layer, index, &c);
        for (y = 0; y < layer->out.height; y++, out += width) {
            const int32_t top = (int32_t)(y * layer->stride_h) - layer->pad_top;
            const int16_t *rows[3];
            int16_t *ring = scratch;
            if (next < top) next = top;
            for (; next < top + 3; next++) {
                widen(layer, in, next, ring + (uint32_t)(next + layer->pad_top) % 3 * columns);
            }
            for (i = 0; i < 3; i++) rows[i] = ring + (y * layer->stride_h + i) % 3 * columns;
            if (layer->stride_w == 1) {
                sum_row(&c, rows, out, width, 1);
            } else {
                sum_row(&c, rows, out, width, 2);
            }
        }
    }
}
