/* 3×3 convolution of bits, stride 1 or 2, 16 input channels (a chunk) at a time, with tables.
 *
 * As fb_conv_bin_3x3, whose tables and look-ups these are; what is looked up is how many of a group of inputs differ from
 * the weights. For 16 channels and 9 taps that is at most 144, so that four pixels share a word:
 *
 *     word j = pixel j of lane 0 + (of lane 1 << 8) + (of lane 2 << 16) + (of lane 3 << 24)          j = 0 … 3
 *
 * A lane is a run of 4 pixels of a row. The lanes of a tile are four runs side by side where the image is wide, or lie in
 * two or four bands of rows, one above the other, where it is narrow:
 *
 *     | 0 | 1 | 2 | 3 |      | 0 | 1 |      | 0 |
 *                            | 2 | 3 |      | 1 |   …
 *
 * Padding of 0 differs from no weight, and is not counted among the inputs either: n is the number of inputs inside.
 *
 *     sum = n − 2 · differing
 *
 * scratch: lists[ring][27] | tables[ring][stride] | packed[1 or 2][filters][4] | counts[rows][filters][8], 16 bits each
 */
#include "../fb_tap_words.h"
#include "fb_bits_table.h"
#include "fb_look_up.h"

enum {
    CHUNK = 16,
    LANES = 4,
    RUN = 4,                  /* pixels of a lane */
    COLUMNS = 9,              /* at most */
    COUNTS = LANES * RUN / 2, /* words of a filter, two counts each */
    WIDE = 8192               /* bytes of counts at most, of more than one row */
};

typedef struct job {
    const fb_layer *layer;
    const uint16_t *in;
    int8_t *out;
    uint32_t together, ring, across, band; /* lanes side by side; rows of a band */
    const uint32_t **lists;
    uint32_t *tables, *packed, *counts;
} job;

static uint32_t across_of(const fb_layer *layer) { return layer->out.width > 8 ? 4 : layer->out.width > 4 ? 2 : 1; }

static uint32_t band_of(const fb_layer *layer) {
    uint32_t bands = LANES / across_of(layer);
    return (layer->out.height + bands - 1) / bands;
}

/* The tables of row `y` of the first band, and of its fellows; `in` is the chunk's plane. */
static void build(const job *j, const uint16_t *in, int32_t y, int32_t column, uint32_t *table) {
    const fb_layer *layer = j->layer;
    int32_t width = layer->in.width, stride = layer->stride_w, lane, k;
    int32_t columns = stride == 1 ? 6 : 9;
    uint32_t low[COLUMNS] = {0}, high[COLUMNS] = {0}, inside[COLUMNS] = {0};
    bool ones = layer->flags & FB_FLAG_ONES;
    for (lane = 0; lane < LANES; lane++) {
        int32_t row = y + lane / (int32_t)j->across * (int32_t)j->band * stride;
        int32_t x = (column + lane % (int32_t)j->across * RUN) * stride - layer->pad_left;
        bool there = row >= 0 && row < layer->in.height;
        const uint16_t *words = in + (there ? row * width : 0);
        unsigned shift = 8 * (unsigned)lane;
        for (k = 0; k < columns; k++, x++) {
            uint32_t word = ones ? 0xFFFF : 0, counts = ones;
            if (there && x >= 0 && x < width) {
                word = words[x];
                counts = 1;
            }
            low[k] |= (word & 255) << shift;
            high[k] |= word >> 8 << shift;
            inside[k] |= counts << shift;
        }
    }
    for (k = 0; k < columns; k++) {
        uint32_t *t = stride == 1 ? table + k : table + (k & 1) * FB_TABLE_WORDS + k / 2;
        fb_fill_column(t, FB_ENTRY_WORDS, low[k], high[k], inside[k]);
    }
}

static uint32_t rows_of(const fb_layer *layer) {
    uint32_t rows = WIDE / (COUNTS * sizeof(uint32_t)) / layer->out.channels, band = band_of(layer);
    if (rows > band) rows = band;
    return rows ? rows : 1;
}

static void widen(const uint32_t *packed, uint32_t *counts, uint32_t filters, bool first) {
    for (filters *= RUN; filters; filters--, counts += 2) {
        uint32_t word = *packed++, even = word & 0x00FF00FFu, odd = word >> 8 & 0x00FF00FFu;
        if (!first) {
            even += counts[0];
            odd += counts[1];
        }
        counts[0] = even;
        counts[1] = odd;
    }
}

FB_INLINE void results(const fb_layer *layer, const uint32_t *counts, const int32_t *n, int8_t *out, unsigned lane,
                       unsigned pixels, bool relu, bool clip) {
    size_t plane = (size_t)layer->out.height * layer->out.width;
    const int32_t *bias = layer->bias;
    const int16_t *mult = layer->mult;
    int32_t zero_point = layer->out.zero_point, low = layer->low;
    unsigned shift = layer->shift, upper = lane / 2 * 16, o;
    counts += lane % 2;
#define RESULT(i) \
    do { \
        int32_t sum = n[i] + b - 2 * (int32_t)(counts[2 * (i)] >> upper & 0xFFFF); \
        int8_t v = fb_scale(sum * m + fb_half(shift), shift, zero_point, relu); \
        out[i] = clip && v < low ? (int8_t)low : v; \
    } while (0)
    for (o = layer->out.channels; o; o--, counts += COUNTS, out += plane) {
        int32_t b = *bias++, m = *mult++;
        if (pixels == RUN) {
            RESULT(0);
            RESULT(1);
            RESULT(2);
            RESULT(3);
        } else {
            for (unsigned i = 0; i < pixels; i++) RESULT(i);
        }
    }
#undef RESULT
}

/* The results of a tile's row `r` of each band. */
static void requantize(const job *j, const uint32_t *counts, uint32_t r, uint32_t column) {
    const fb_layer *layer = j->layer;
    int32_t n[RUN], i;
    unsigned lane;
    for (lane = 0; lane < LANES; lane++) {
        uint32_t y = r + lane / j->across * j->band, x = column + lane % j->across * RUN, pixels;
        uint32_t down = fb_inside((int32_t)(y * layer->stride_h) - layer->pad_top, 3, layer->in.height);
        int8_t *out = j->out + (size_t)y * layer->out.width + x;
        if (y >= layer->out.height || x >= layer->out.width) continue;
        pixels = layer->out.width - x < RUN ? layer->out.width - x : RUN;
        for (i = 0; i < RUN; i++) {
            int32_t left = ((int32_t)x + i) * layer->stride_w - layer->pad_left;
            n[i] = (int32_t)(layer->in.channels *
                             (layer->flags & FB_FLAG_ONES ? 9 : down * fb_inside(left, 3, layer->in.width)));
        }
        if (layer->low != -128) {
            results(layer, counts, n, out, lane, pixels, false, true);
        } else if (layer->flags & FB_FLAG_RELU) {
            results(layer, counts, n, out, lane, pixels, true, false);
        } else {
            results(layer, counts, n, out, lane, pixels, false, false);
        }
    }
}

/* Adds a chunk to `rows` tiles one below the other; the last chunk makes results of them. */
static void add_chunk(const job *j, uint32_t chunk, uint32_t column, uint32_t top, uint32_t rows) {
    const fb_layer *layer = j->layer;
    uint32_t filters = layer->out.channels, stride = layer->stride_w;
    uint32_t slot = 0, phase = 0, r, i, count;
    int32_t y = (int32_t)(top * stride) - layer->pad_top, end = y + 3; /* rows of the input: next one to build, end */
    const uint16_t *in = j->in + (size_t)chunk * layer->in.height * layer->in.width;
    uint32_t *counts = j->counts;
    fb_look_ups l;
    l.filter = layer->bits + 9 * (size_t)chunk;
    l.end = l.filter + (size_t)filters * layer->words;
    l.step = 2 * layer->words;
    l.sums = j->packed;
    l.sums2 = j->packed + 4 * (size_t)filters;
    for (r = 0; r < rows; r += count) {
        count = rows - r < j->together ? 1 : j->together;
        for (end += (int32_t)((count - 1) * stride); y < end; y++) {
            build(j, in, y, (int32_t)column, j->tables + slot * stride * FB_TABLE_WORDS);
            slot = slot + 1 == j->ring ? 0 : slot + 1;
        }
        end += (int32_t)stride;
        l.list = j->lists + 27 * phase;
        l.next_list = j->lists + 27 * (phase + 1 == j->ring ? 0 : phase + 1);
        fb_look_up(&l, count);
        phase += stride * count;
        if (phase >= j->ring) phase -= j->ring;
        for (i = 0; i < count; i++, counts += COUNTS * filters) {
            widen(j->packed + 4 * (size_t)filters * i, counts, filters, chunk == 0);
            if ((chunk + 1) * CHUNK == layer->in.channels) requantize(j, counts, top + r + i, column);
        }
    }
}

uint32_t fb_conv_bits_3x3_scratch(const fb_layer *layer) {
    uint32_t together = fb_rows_together(layer), ring = together + 2, words;
    if (!(layer->flags & FB_FLAG_CHUNKS) || layer->stride_h != layer->stride_w || layer->stride_h > 2 ||
        layer->inputs > 0xFFFF) {
        return FB_NOT_FOR_THIS;
    }
    words = ring * layer->stride_w * FB_TABLE_WORDS;
    words = fb_sum(words, fb_product(4 * together + COUNTS * rows_of(layer), layer->out.channels));
    return fb_sum(fb_product(words, (uint32_t)sizeof(uint32_t)), ring * 27 * FB_POINTER_SIZE);
}

void fb_conv_bits_3x3(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    job j = {layer,
             (const uint16_t *)(const void *)in,
             out,
             fb_rows_together(layer),
             fb_rows_together(layer) + 2,
             across_of(layer),
             band_of(layer),
             scratch,
             NULL,
             NULL,
             NULL};
    uint32_t block = rows_of(layer), stride = layer->stride_w, phase, column, top, chunk;
    (void)in2;
    j.tables = (uint32_t *)(j.lists + 27 * j.ring);
    j.packed = j.tables + j.ring * stride * FB_TABLE_WORDS;
    j.counts = j.packed + 4 * (size_t)j.together * layer->out.channels;
    for (phase = 0; phase < j.ring; phase++) fb_make_list(j.lists + 27 * phase, j.tables, stride, phase, j.ring);
    for (column = 0; column < layer->out.width; column += RUN * j.across) {
        for (top = 0; top < j.band; top += block) {
            uint32_t rows = j.band - top < block ? j.band - top : block;
            for (chunk = 0; chunk < layer->in.channels / CHUNK; chunk++) add_chunk(&j, chunk, column, top, rows);
        }
    }
}
