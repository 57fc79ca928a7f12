/* Convolution of bits of any kernel, stride and number of channels: 16 pixels that follow each other in the output, 16
 * input channels of a tap at a time.
 *
 * Tables as in fb_conv_bits_3x3, but of one tap each: four pixels share a word, an entry has four words. Padding of 0
 * differs from no weight, and is not counted among the inputs either: with n inputs inside, the sum is n − 2 · differing.
 *
 * scratch: table[128][4] | packed[filters][4] | counts[filters][8], 16 bits each | weights, where taps share words
 */
#include "../fb_tap_words.h"
#include "fb_bits_table.h"

#include <string.h>

enum {
    RUN = 4, /* words of an entry, pixels of a word */
    TABLE = 128 * RUN,
    COUNTS = 2 * RUN, /* words of a filter */
    WORDS = 15        /* whose sums fit bytes */
};

uint32_t fb_conv_bits_any_scratch(const fb_layer *layer) {
    uint32_t size = fb_product((RUN + COUNTS) * (uint32_t)sizeof(uint32_t), layer->out.channels);
    if (layer->inputs > 0xFFFF) return FB_NOT_FOR_THIS; /* counts */
    if (fb_taps_share_words(layer)) {
        size = fb_sum(size, fb_product(fb_tap_words_of(layer) * (uint32_t)sizeof(uint16_t), layer->out.channels));
    }
    return fb_sum(size, TABLE * (uint32_t)sizeof(uint32_t));
}

typedef struct job {
    const fb_layer *layer;
    const uint16_t *in;
    int32_t top[RUN * RUN], left[RUN * RUN]; /* of each pixel's window */
    uint32_t pixels, columns;                /* words of four pixels */
    uint32_t *table, *packed, *counts;
} job;

/* The table of a tap and 16 channels, whose plane is `in`. */
static void fill(const job *j, const uint16_t *in, int32_t down, int32_t across, uint32_t channels) {
    const fb_layer *layer = j->layer;
    const int32_t height = layer->in.height, width = layer->in.width;
    const uint32_t ones = layer->flags & FB_FLAG_ONES ? 1 : 0, padding = ones ? (1u << channels) - 1 : 0;
    uint32_t column, lane, i = 0;
    for (column = 0; column < j->columns; column++) {
        uint32_t low = 0, high = 0, inside = 0;
        for (lane = 0; lane < 32 && i < j->pixels; lane += 8, i++) {
            const int32_t y = j->top[i] + down, x = j->left[i] + across;
            uint32_t word = padding, counts = ones;
            if (y >= 0 && y < height && x >= 0 && x < width) {
                word = in[y * width + x];
                counts = 1;
            }
            low |= (word & 255) << lane;
            high |= word >> 8 << lane;
            inside |= counts << lane;
        }
        fb_fill_column(j->table + column, RUN, low, high, inside);
    }
}

/* What the filters look up; their words lie `step` apart. */
FB_INLINE void look_up(const job *j, const uint16_t *w, uint32_t step, uint32_t columns) {
    const uint32_t *table = j->table;
    uint32_t *packed = j->packed, *end = packed + (size_t)RUN * j->layer->out.channels;
    for (; packed != end; packed += RUN, w += step) {
        const uint32_t word = *w;
        const uint32_t *a = table + (word & 31) * RUN, *b = table + (32 + (word >> 5 & 31)) * RUN;
        const uint32_t *c = table + (64 + (word >> 10)) * RUN;
        packed[0] += a[0] + b[0] + c[0];
        if (columns > 1) packed[1] += a[1] + b[1] + c[1];
        if (columns > 2) packed[2] += a[2] + b[2] + c[2];
        if (columns > 3) packed[3] += a[3] + b[3] + c[3];
    }
}

/* Bytes to 16 bits; then they start again. */
static void widen(const job *j) {
    uint32_t *packed = j->packed, *counts = j->counts, left = RUN * (uint32_t)j->layer->out.channels;
    for (; left; left--, counts += 2) {
        const uint32_t word = *packed;
        counts[0] += word & 0x00FF00FFu;
        counts[1] += word >> 8 & 0x00FF00FFu;
        *packed++ = 0;
    }
}

static void add_taps(const job *j, const uint16_t *weights, uint32_t words) {
    const fb_layer *layer = j->layer;
    const size_t plane = (size_t)layer->in.height * layer->in.width;
    const bool chunked = layer->flags & FB_FLAG_CHUNKS;
    const uint32_t chunks = fb_words(layer->in.channels);
    uint32_t y, x, chunk, tap = 0, full = 0;
    for (y = 0; y < layer->kernel_h; y++) {
        for (x = 0; x < layer->kernel_w; x++, tap++) {
            for (chunk = 0; chunk < chunks; chunk++) {
                const uint16_t *w = weights + (chunked ? chunk * 9 + tap : tap * chunks + chunk);
                const uint32_t channels = layer->in.channels - 16 * chunk;
                fill(j, j->in + chunk * plane, (int32_t)y, (int32_t)x, channels < 16 ? channels : 16);
                switch (j->columns) {
                case 1: look_up(j, w, words, 1); break;
                case 2: look_up(j, w, words, 2); break;
                case 3: look_up(j, w, words, 3); break;
                default: look_up(j, w, words, RUN);
                }
                if (++full < WORDS) continue;
                widen(j);
                full = 0;
            }
        }
    }
    widen(j);
}

FB_INLINE void requantize(const job *j, const int32_t *n, int8_t *out, bool clip) {
    const fb_layer *layer = j->layer;
    const size_t plane = (size_t)layer->out.height * layer->out.width;
    const int32_t zero_point = layer->out.zero_point, low = layer->low;
    const unsigned shift = layer->shift;
    const uint32_t *counts = j->counts;
    uint32_t o, i, k;
    for (o = 0; o < layer->out.channels; o++, counts += COUNTS, out += plane) {
        const int32_t bias = layer->bias[o], mult = layer->mult[o];
        const uint32_t *word = counts;
        for (i = 0; i < j->pixels; i += 4, word += 2) {
            const uint32_t left = j->pixels - i;
#define RESULT(k, count) \
    do { \
        int8_t v = \
            fb_scale((n[i + (k)] + bias - 2 * (int32_t)(count)) * mult + fb_half(shift), shift, zero_point, false); \
        out[i + (k)] = clip && v < low ? (int8_t)low : v; \
    } while (0)
            if (left >= 4) {
                RESULT(0, word[0] & 0xFFFF);
                RESULT(1, word[1] & 0xFFFF);
                RESULT(2, word[0] >> 16);
                RESULT(3, word[1] >> 16);
            } else {
                for (k = 0; k < left; k++) RESULT(k, k & 2 ? word[k & 1] >> 16 : word[k & 1] & 0xFFFF);
            }
#undef RESULT
        }
    }
}

static void put_results(const job *j, int8_t *out) {
    const fb_layer *layer = j->layer;
    int32_t n[RUN * RUN];
    uint32_t i;
    for (i = 0; i < j->pixels; i++) {
        uint32_t taps = (uint32_t)layer->kernel_h * layer->kernel_w;
        if (!(layer->flags & FB_FLAG_ONES)) {
            taps = fb_inside(j->top[i], layer->kernel_h, layer->in.height) *
                   fb_inside(j->left[i], layer->kernel_w, layer->in.width);
        }
        n[i] = (int32_t)(taps * layer->in.channels);
    }
    if (layer->low == -128) {
        requantize(j, n, out, false);
    } else {
        requantize(j, n, out, true);
    }
}

void fb_conv_bits_any(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const uint32_t plane = (uint32_t)layer->out.height * layer->out.width, filters = layer->out.channels;
    const uint16_t *weights = layer->bits;
    uint32_t words = layer->words, pixel, i, y = 0, x = 0;
    job j;
    (void)in2;
    j.layer = layer;
    j.in = (const uint16_t *)(const void *)in;
    j.table = scratch;
    j.packed = j.table + TABLE;
    j.counts = j.packed + (size_t)RUN * filters;
    if (fb_taps_share_words(layer)) {
        uint16_t *to = (uint16_t *)(void *)(j.counts + (size_t)COUNTS * filters);
        fb_tap_words(layer, to);
        weights = to;
        words = fb_tap_words_of(layer);
    }
    for (pixel = 0; pixel < plane; pixel += j.pixels) {
        j.pixels = plane - pixel < RUN * RUN ? plane - pixel : RUN * RUN;
        j.columns = (j.pixels + RUN - 1) / RUN;
        for (i = 0; i < j.pixels; i++) {
            j.top[i] = (int32_t)(y * layer->stride_h) - layer->pad_top;
            j.left[i] = (int32_t)(x * layer->stride_w) - layer->pad_left;
            if (++x < layer->out.width) continue;
            x = 0;
            y++;
        }
        memset(j.packed, 0, (RUN + COUNTS) * sizeof *j.packed * filters);
        add_taps(&j, weights, words);
        put_results(&j, out + pixel);
    }
}
