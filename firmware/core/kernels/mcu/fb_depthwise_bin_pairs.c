/* Binary convolution of each channel by itself, two pixels in a 32-bit word. For strides 1 and 2 across.
 *
 * Rows of a channel get their borders in scratch, as bytes of x + 128. A word of four pixels b0 … b3 is two words of two,
 * 16 bits apart: (b0, b2) and (b1, b3). A multiplication by ±1 and an addition then serve two results:
 *
 *     place of the kernel   0         1         2         3                         stride 1: results 0 and 2 see
 *     pixels                (b0, b2)  (b1, b3)  (b2, b4)  (b3, b5)  …               places 0, 1, 2, results 1 and 3 the
 *                           │ first word  │   │ first and second  │               same from 1 on; stride 2: results 0, 1
 *
 * The lower half of such a sum is a signed number of 16 bits; what it lacks or has too much is in the upper half, which
 * is right once the lower one is taken away. Sums of 128 places fit: 128 · 255 < 2^15. That all are 128 too large is part
 * of the bias.
 *
 *     scratch: weights, ±1 as 32 bits | as many rows as the kernel has
 */
#include <string.h>

#include "../fb_kernels_scalar.h"

enum { MOST_PLACES = 128 };

/* Bytes of a row: what the last results see, rounded up to words, and one word more. */
static uint32_t pitch_of(const fb_layer *layer) {
    uint32_t results = (layer->out.width + 3u) & ~3u;
    return ((results * layer->stride_w + layer->kernel_w + 3u) & ~3u) + 4;
}

uint32_t fb_depthwise_bin_pairs_scratch(const fb_layer *layer) {
    if (layer->stride_w > 2 || layer->inputs > MOST_PLACES) return FB_NOT_FOR_THIS;
    return fb_sum(4 * layer->inputs, fb_product(layer->kernel_h, pitch_of(layer)));
}

/* Row number `y` of a channel with its border, in bytes of x + 128. */
static void fill_row(const fb_layer *layer, const int8_t *plane, int32_t y, uint8_t *row) {
    uint32_t width = layer->in.width, pitch = pitch_of(layer), left = layer->pad_left, i;
    uint8_t border = (uint8_t)(layer->in.zero_point + 128);
    const uint8_t *from;
    if (y < 0 || y >= layer->in.height) {
        memset(row, border, pitch);
        return;
    }
    if (width > pitch - left) width = pitch - left; /* no result sees what is cut off */
    from = (const uint8_t *)plane + (size_t)y * layer->in.width;
    memset(row, border, left);
    row += left;
    for (i = 0; i + 4 <= width; i += 4, row += 4, from += 4) {
        uint8_t a = from[0], b = from[1], c = from[2], d = from[3];
        row[0] = a ^ 128;
        row[1] = b ^ 128;
        row[2] = c ^ 128;
        row[3] = d ^ 128;
    }
    for (; i < width; i++) *row++ = *from++ ^ 128;
    memset(row, border, pitch - left - width);
}

/* Both words of two pixels of a word of four. */
static inline uint32_t even(uint32_t four) { return four & 0x00FF00FFu; }
static inline uint32_t odd(uint32_t four) { return four >> 8 & 0x00FF00FFu; }

/* The pixels of a place two further on. */
static inline uint32_t later(uint32_t two, uint32_t next) { return two >> 16 | next << 16; }

/* Sums of one row of the kernel; `second` are those of results 1 and 3. */
FB_INLINE void add_row(const uint32_t *p, const uint32_t *w, uint32_t width, bool both, uint32_t *first,
                       uint32_t *second) {
    uint32_t word = *p++, a = even(word), b = odd(word), sum = *first, sum2 = *second;
    for (;; w += 4, width -= 4) { /* place by place; results 1 and 3 are one behind */
        uint32_t next = *p++, a2 = even(next), b2 = odd(next), c = later(a, a2), d = later(b, b2);
        sum += w[0] * a;
        if (both) sum2 += w[0] * b;
        if (width == 1) break;
        sum += w[1] * b;
        if (both) sum2 += w[1] * c;
        if (width == 2) break;
        sum += w[2] * c;
        if (both) sum2 += w[2] * d;
        if (width == 3) break;
        sum += w[3] * d;
        if (both) sum2 += w[3] * a2;
        if (width == 4) break;
        a = a2;
        b = b2;
    }
    *first = sum;
    *second = sum2;
}

static inline int32_t lower(uint32_t sums) { return (int16_t)sums; }
static inline int32_t upper(uint32_t sums) { return (int32_t)(sums - (uint32_t)lower(sums)) >> 16; }

typedef struct work {
    const fb_layer *layer;
    const uint32_t *weights;
    const uint8_t *rows; /* of the kernel, the first at `slot`, in a ring */
    uint32_t pitch, slot;
    int32_t bias, mult;
} work;

/* One row of results; kernels of 3×3 have a copy of their own. What does not change is in variables: a result that is
 * stored could be any other byte. */
FB_INLINE void one_row(const work *w, uint32_t height, uint32_t width, bool small, bool both, int8_t *out) {
    const fb_layer *layer = w->layer;
    const uint32_t *weights = w->weights;
    const uint8_t *rows = w->rows, *ring = rows + height * w->pitch, *first_row = rows + w->slot * w->pitch;
    const int32_t bias = w->bias, mult = w->mult, zero_point = layer->out.zero_point, low = layer->low;
    const uint32_t pitch = w->pitch, shift = layer->shift, step = both ? 4 : 2;
    const int32_t half = fb_half(shift);
    const uint8_t *second_row = first_row + pitch == ring ? rows : first_row + pitch;
    const uint8_t *three[3] = {first_row, second_row, second_row + pitch == ring ? rows : second_row + pitch};
    int8_t *end = out + layer->out.width;
    uint32_t at = 0, y;
#define STORE(sum) \
    do { \
        int8_t v = fb_scale((int32_t)((sum) + bias) * mult + half, shift, zero_point, false); \
        *out++ = v < low ? (int8_t)low : v; \
    } while (0)
    for (; out != end; at += 4) {
        uint32_t first = 0, second = 0, n = (uint32_t)(end - out);
        const uint8_t *row = first_row;
        if (small) { /* three rows, without a loop */
            add_row((const void *)(three[0] + at), weights, width, both, &first, &second);
            add_row((const void *)(three[1] + at), weights + width, width, both, &first, &second);
            add_row((const void *)(three[2] + at), weights + 2 * width, width, both, &first, &second);
        }
        for (y = small ? height : 0; y < height; y++) {
            add_row((const void *)(row + at), weights + y * width, width, both, &first, &second);
            row += pitch;
            if (row == ring) row = rows;
        }
        if (n >= step && both) {
            STORE(lower(first));
            STORE(lower(second));
            STORE(upper(first));
            STORE(upper(second));
            continue;
        }
        STORE(lower(first));
        if (n > 1) STORE(both ? lower(second) : upper(first));
        if (both && n > 2) STORE(upper(first));
    }
#undef STORE
}

/* Three copies: kernels of 3×3, by stride, and all others, where the stride is asked for as often as it matters. */
static void row_of_3x3(const work *w, int8_t *out) { one_row(w, 3, 3, true, true, out); }
static void row_of_3x3_by_2(const work *w, int8_t *out) { one_row(w, 3, 3, true, false, out); }
static void row_of_any(const work *w, int8_t *out) {
    one_row(w, w->layer->kernel_h, w->layer->kernel_w, false, w->layer->stride_w == 1, out);
}

static void row_of_results(const work *w, int8_t *out) {
    const fb_layer *layer = w->layer;
    if (layer->kernel_h != 3 || layer->kernel_w != 3) {
        row_of_any(w, out);
    } else if (layer->stride_w == 1) {
        row_of_3x3(w, out);
    } else {
        row_of_3x3_by_2(w, out);
    }
}

void fb_depthwise_bin_pairs(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    uint32_t *weights = scratch, c, i;
    uint8_t *rows = (uint8_t *)(weights + layer->inputs);
    work w = {layer, weights, rows, pitch_of(layer), 0, 0, 0};
    (void)in2;
    for (c = 0; c < layer->out.channels; c++, in += (size_t)layer->in.height * layer->in.width) {
        const uint16_t *filter = layer->bits + (size_t)c * layer->words;
        uint32_t filled = 0, slot = 0; /* rows so far, and where the next one goes */
        int32_t sum = 0;
        for (i = 0; i < layer->inputs; i++) {
            bool positive = filter[i / 16] >> i % 16 & 1;
            weights[i] = positive ? 1u : 0xFFFFFFFFu;
            sum += positive ? 1 : -1;
        }
        w.bias = layer->bias[c] - 128 * sum;
        w.mult = layer->mult[c];
        for (i = 0; i < layer->out.height; i++, out += layer->out.width) {
            uint32_t end = i * layer->stride_h + layer->kernel_h;
            for (; filled < end; filled++) {
                fill_row(layer, in, (int32_t)filled - layer->pad_top, rows + slot * w.pitch);
                if (++slot == layer->kernel_h) slot = 0;
            }
            w.slot = slot; /* the oldest row is where the next one will go */
            row_of_results(&w, out);
        }
    }
}
