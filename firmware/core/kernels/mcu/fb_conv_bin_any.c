/* Binary convolution of any kernel, stride, padding and channel count, with tables.
 *
 * As fb_conv_bin_3x3, with smaller tables that belong to one tile (fb_bin_tile.h) only: a weight word is four groups of
 * 4 bits, an entry the 4 words of a tile's packed sums.
 *
 *     tables of a word: 4 groups × 16 entries × 4 words, 1 KB
 *
 * Tables of up to `most` words are there at a time. Packed sums are widened to 32 bits after 240 inputs.
 *
 * scratch: tables[most][4][16][4] | x[16][4] | packed[filters][4] | wide[filters][8] if there are more than 240 inputs
 */
#include "../fb_bin_tile.h"

#include <string.h>

enum {
    ENTRY = 4,               /* words */
    TABLES = 4 * 16 * ENTRY, /* words, for a word of weights */
    PACKED = 15,             /* words of weights whose sum fits 16 bits */
    MOST = 9
};

/* The inputs of a word of weights are found by walking through taps and channels in the order of the bits. */
typedef struct walk {
    const fb_layer *layer;
    const int8_t *in;
    int32_t top, left;            /* of the tile's window, maybe outside */
    uint32_t channel, begin, end; /* next one; bits of a tap are channels begin … end − 1 */
    uint32_t ky, kx;
} walk;

static void next_tap(walk *w) {
    bool chunks = w->layer->flags & FB_FLAG_CHUNKS;
    if (++w->kx == w->layer->kernel_w) {
        w->kx = 0;
        if (++w->ky == w->layer->kernel_h && chunks) {
            w->ky = 0;
            w->begin += 16;
            w->end += 16;
        }
    }
    w->channel = w->begin;
}

/* Packed inputs of `count` channels for the present tap. */
FB_INLINE void pack_inside(const int8_t *p, size_t plane, uint32_t *x, uint32_t count, uint32_t stride) {
    for (; count; count--, x += 4, p += plane) {
        x[0] = fb_pack(p[0], p[4 * stride]);
        x[1] = fb_pack(p[stride], p[5 * stride]);
        x[2] = fb_pack(p[2 * stride], p[6 * stride]);
        x[3] = fb_pack(p[3 * stride], p[7 * stride]);
    }
}

static void pack_border(const fb_layer *layer, const int8_t *row, int32_t left, uint32_t *x, uint32_t count) {
    size_t plane = (size_t)layer->in.height * layer->in.width;
    int32_t j, width = layer->in.width, stride = layer->stride_w;
    for (j = 0; j < 4; j++) {
        int32_t a = left + j * stride, b = a + 4 * stride;
        bool inside_a = row && a >= 0 && a < width, inside_b = row && b >= 0 && b < width;
        const int8_t *pa = inside_a ? row + a : &layer->in.zero_point;
        const int8_t *pb = inside_b ? row + b : &layer->in.zero_point;
        size_t step_a = inside_a ? plane : 0, step_b = inside_b ? plane : 0;
        uint32_t *to = x + j, i;
        for (i = count; i; i--, to += 4, pa += step_a, pb += step_b) *to = fb_pack(*pa, *pb);
    }
}

static void pack_tap(const walk *w, uint32_t *x, uint32_t count) {
    const fb_layer *layer = w->layer;
    int32_t y = w->top + (int32_t)w->ky, left = w->left + (int32_t)w->kx, stride = layer->stride_w;
    size_t width = layer->in.width, plane = layer->in.height * width;
    const int8_t *row = NULL;
    if (y >= 0 && y < layer->in.height) row = w->in + w->channel * plane + (size_t)y * width;
    if (row && left >= 0 && left + 7 * stride < layer->in.width && stride <= 2) {
        if (stride == 1) {
            pack_inside(row + left, plane, x, count, 1);
        } else {
            pack_inside(row + left, plane, x, count, 2);
        }
    } else {
        pack_border(layer, row, left, x, count);
    }
}

/* Packed inputs of the next 16 bits; 0 beyond the last one. */
static void pack_word(walk *w, uint32_t *x) {
    uint32_t i, count;
    for (i = 0; i < 16; i += count, x += 4 * count) {
        count = w->end - w->channel;
        if (count > 16 - i) count = 16 - i;
        if (w->ky == w->layer->kernel_h) {
            memset(x, 0, (16 - i) * 4 * sizeof *x);
            return;
        }
        pack_tap(w, x, count);
        w->channel += count;
        if (w->channel == w->end) next_tap(w);
    }
}

/* The 16 sums of 4 inputs, for each of the 4 words of a tile. */
static void fill(uint32_t *t, const uint32_t *x) {
    unsigned j;
    for (j = 0; j < 4; j++, t++, x++) {
        uint32_t a = x[0] + x[4], b = x[0] - x[4], c = x[8] + x[12], d = x[8] - x[12];
        t[0 * ENTRY] = 0 - a - c;
        t[1 * ENTRY] = b - c;
        t[2 * ENTRY] = 0 - b - c;
        t[3 * ENTRY] = a - c;
        t[4 * ENTRY] = d - a;
        t[5 * ENTRY] = d + b;
        t[6 * ENTRY] = d - b;
        t[7 * ENTRY] = d + a;
        t[8 * ENTRY] = 0 - a - d;
        t[9 * ENTRY] = b - d;
        t[10 * ENTRY] = 0 - b - d;
        t[11 * ENTRY] = a - d;
        t[12 * ENTRY] = c - a;
        t[13 * ENTRY] = c + b;
        t[14 * ENTRY] = c - b;
        t[15 * ENTRY] = c + a;
    }
}

#define LOOK_UP(group) \
    do { \
        const uint32_t *entry = t + (word >> 4 * (group) & 15) * ENTRY; \
        FB_KEEP_ORDER(entry); \
        entry += (group) * 16 * ENTRY; \
        a += entry[0]; \
        b += entry[1]; \
        c += entry[2]; \
        d += entry[3]; \
    } while (0)

/* packed = the sums of `count` words of every filter, or += unless they are the `first`. */
static void look_up(const fb_layer *layer, const uint16_t *filter, const uint32_t *tables, uint32_t count,
                    uint32_t *packed, bool first) {
    uint32_t o;
    for (o = layer->out.channels; o; o--, filter += layer->words, packed += 4) {
        uint32_t a = 0, b = 0, c = 0, d = 0;
        const uint16_t *p = filter, *end = filter + count;
        const uint32_t *t = tables;
        do {
            uint32_t word = *p++;
            LOOK_UP(0);
            LOOK_UP(1);
            LOOK_UP(2);
            LOOK_UP(3);
            t += TABLES;
        } while (p != end);
        if (!first) {
            a += packed[0];
            b += packed[1];
            c += packed[2];
            d += packed[3];
        }
        packed[0] = a;
        packed[1] = b;
        packed[2] = c;
        packed[3] = d;
    }
}

static uint32_t scratch_of(const fb_layer *layer, uint32_t most) {
    uint32_t filters = layer->out.channels, words = layer->words;
    uint32_t sums = words > PACKED ? 4 + FB_TILE : 4;
    return (TABLES * (words < most ? words : most) + 16 * 4 + sums * filters) * (uint32_t)sizeof(uint32_t);
}

static void run(const fb_layer *layer, const int8_t *in, int8_t *out, void *scratch, uint32_t most) {
    uint32_t filters = layer->out.channels, words = layer->words, y, column, i, word, count, held;
    uint32_t *tables = scratch, *x = tables + TABLES * (words < most ? words : most), *packed = x + 16 * 4;
    int32_t *wide = words > PACKED ? (int32_t *)(packed + 4 * (size_t)filters) : NULL;
    for (y = 0; y < layer->out.height; y++) {
        for (column = 0; column < layer->out.width; column += FB_TILE) {
            unsigned pixels = layer->out.width - column < FB_TILE ? layer->out.width - column : FB_TILE;
            walk w = {layer, in, 0, 0, 0, 0, 0, 0, 0};
            w.top = (int32_t)(y * layer->stride_h) - layer->pad_top;
            w.left = (int32_t)(column * layer->stride_w) - layer->pad_left;
            w.end = layer->flags & FB_FLAG_CHUNKS ? 16 : layer->in.channels;
            for (word = 0, held = 0; word < words; word += count) {
                count = words - word < most ? words - word : most;
                if (held + count > PACKED) {
                    fb_tile_widen(packed, wide, filters, word == held);
                    held = 0;
                }
                for (i = 0; i < count; i++) {
                    uint32_t *t = tables + TABLES * i, group;
                    pack_word(&w, x);
                    for (group = 0; group < 4; group++) fill(t + 16 * ENTRY * group, x + 16 * group);
                }
                look_up(layer, layer->bits + word, tables, count, packed, held == 0);
                held += count;
            }
            fb_tile_requantize(layer, packed, wide, out + y * layer->out.width + column, pixels);
        }
    }
}

uint32_t fb_conv_bin_any_scratch(const fb_layer *layer) { return scratch_of(layer, MOST); }

void fb_conv_bin_any(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    run(layer, in, out, scratch, MOST);
}

/* The same with the tables of one word at a time: for 16 KB of RAM. */
uint32_t fb_conv_bin_small_scratch(const fb_layer *layer) { return scratch_of(layer, 1); }

void fb_conv_bin_small(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    run(layer, in, out, scratch, 1);
}
