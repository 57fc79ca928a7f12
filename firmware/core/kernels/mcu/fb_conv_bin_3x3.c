/* Binary 3×3 convolution of stride 1 or 2, 16 input channels (a chunk) at a time, with half tables.
 *
 * A weight is ±1, so that a group of n inputs has only 2^n sums, half of them the others with the opposite sign. Half of
 * them are computed once for a tile of output pixels (fb_half_table.h), and every filter looks its own up, to add or to
 * subtract. A tile is 8 pixels of each half of the output (fb_band_tile.h); on Thumb-1, which has few registers, 8 pixels
 * of a row (fb_bin_tile.h).
 *
 * A table belongs to a row of the input. Its entries have a word for each column, so that the three taps of a row read
 * words from 0, 1 and 2 on of the same entry. At stride 2 odd and even columns have a table each:
 *
 *     stride 1    x−1  x  x+1  …  x+8                              tap kx starts at word kx
 *     stride 2    x−1  x+1  x+3  …  x+15 | x  x+2  …  x+14         taps at word 0, 0 of the second table, 1
 *
 * The tables of three rows are a ring: going down a column of tiles, each row's tables are built once. Filters have a list
 * of links for each place where the ring can start. With more than one chunk, some rows wait as 32-bit sums for the
 * others; more than 32 filters are computed in parts, so that lists and sums take less RAM.
 *
 * scratch: links[3][filters] | zeros | tables[3][stride] | x | packed[filters][8] | sums[rows][filters][8 packed or 16]
 */
#include "fb_band_tile.h"
#include "fb_half_table.h"

enum {
    CHUNK = 16,
    RING = 3,
    PART = 32,    /* filters at most */
    WIDE = 8192,  /* bytes of sums at most, of more than one row */
    LONGEST = 30, /* links of a filter where bands are tiles, and tables larger */
    LARGEST = 64 * 10
};

/* With registers for half a tile only, links take longer than they save where each chunk needs its own. */
#if defined(FB_PLAN_BOARDS)
#define THUMB1 (fb_plan_core == FB_PLAN_THUMB1)
#elif defined(FB_HALF_THUMB1)
#define THUMB1 true
#else
#define THUMB1 false
#endif

/* Filters computed together, of `parts` parts. */
static uint32_t parts_of(const fb_layer *layer) { return (layer->out.channels + PART - 1u) / PART; }
static uint32_t filters_of(const fb_layer *layer) {
    uint32_t parts = parts_of(layer);
    return (layer->out.channels + parts - 1) / parts;
}

/* Words of a filter's sums that wait, for a row of both bands: packed ones, if there is a second chunk only. */
static uint32_t waiting_of(const fb_layer *layer) { return layer->in.channels == 2 * CHUNK ? FB_TILE : 2 * FB_TILE; }

/* Rows of both bands whose sums wait: as even parts of a band as possible. */
static uint32_t rows_of(const fb_layer *layer) {
    uint32_t band = fb_band(layer), most, blocks;
    if (layer->in.channels == CHUNK) return band; /* nothing waits */
    most = WIDE / (waiting_of(layer) * (uint32_t)sizeof(int32_t)) / filters_of(layer);
    if (!most) most = 1;
    blocks = (band + most - 1) / most;
    return (band + blocks - 1) / blocks;
}

uint32_t fb_conv_bin_3x3_scratch(const fb_layer *layer) {
    uint32_t filters = filters_of(layer), words;
    if (!(layer->flags & FB_FLAG_CHUNKS) || layer->stride_h != layer->stride_w || layer->stride_h > 2 ||
        (THUMB1 && layer->in.channels != CHUNK)) {
        return FB_NOT_FOR_THIS;
    }
    words = RING * layer->stride_w * (uint32_t)LARGEST + FB_TILE + FB_BAND_X + FB_TILE * filters;
    if (layer->in.channels != CHUNK) words += waiting_of(layer) * filters * rows_of(layer);
    return words * (uint32_t)sizeof(uint32_t) + RING * LONGEST * filters * FB_POINTER_SIZE;
}

typedef struct job {
    const fb_layer *layer; /* of some filters */
    const int8_t *in;
    int8_t *out;
    uintptr_t *links;
    const uint16_t *linked;
    uint32_t *zeros, *tables, *x, *packed, *sums;
} job;

#ifdef FB_HALF_THUMB1

static uint32_t height_of(const fb_layer *layer) { return layer->out.height; }

static void build(const job *j, const int8_t *in, int32_t y, int32_t left, uint32_t *table) {
    fb_tile_pack(j->layer, in, y, left, j->x, CHUNK);
    fb_half_fill(table, j->x, j->layer->stride_w == 1 ? 6 : 5);
    if (j->layer->stride_w == 2) fb_half_fill(table + FB_HALF_TABLE, j->x + 6, 4);
}

static void look_up(const job *j, uint32_t phase, uint32_t chunk, uint32_t *sums, uint32_t y, uint32_t column) {
    const uint32_t width = j->layer->out.width;
    (void)chunk;
    (void)sums;
    fb_half_look_up(j->links, phase, j->packed, j->layer->out.channels);
    fb_tile_requantize(j->layer, j->packed, NULL, j->out + (size_t)y * width + column,
                       width - column < FB_TILE ? width - column : FB_TILE);
}

#else

static uint32_t height_of(const fb_layer *layer) { return fb_band(layer); }

static void build(const job *j, const int8_t *in, int32_t y, int32_t left, uint32_t *table) {
    fb_band_pack(j->layer, in, y, left, j->x);
    fb_half_fill(table, j->x, j->layer->stride_w == 1 ? 10 : 9);
    if (j->layer->stride_w == 2) fb_half_fill(table + FB_HALF_TABLE, j->x + FB_BAND_X_EVEN, 8);
}

/* Adds a chunk's sums to those that wait, or makes results of them. */
static void look_up(const job *j, uint32_t phase, uint32_t chunk, uint32_t *sums, uint32_t y, uint32_t column) {
    const uint32_t filters = j->layer->out.channels, chunks = j->layer->in.channels / CHUNK;
    if (chunks == 2 && chunk == 0) {
        fb_half_look_up(j->links, phase, sums, filters);
        return;
    }
    fb_half_look_up(j->links, phase, j->packed, filters);
    if (chunk == chunks - 1) {
        fb_band_requantize(j->layer, j->packed, chunks == 1 ? NULL : sums, j->out, y, column);
    } else {
        fb_band_widen(j->packed, (int32_t *)sums, filters, chunk == 0);
    }
}

#endif

/* Adds a chunk to `rows` tiles one below the other; the last chunk makes results of them. */
static void add_chunk(job *j, uint32_t chunk, uint32_t column, uint32_t top, uint32_t rows) {
    const fb_layer *layer = j->layer;
    const uint32_t filters = layer->out.channels, stride = layer->stride_w;
    const int32_t left = (int32_t)(column * stride) - layer->pad_left;
    const int8_t *in = j->in + (size_t)chunk * CHUNK * layer->in.height * layer->in.width;
    const uint16_t *filter = layer->bits + 9 * (size_t)chunk;
    int32_t y = (int32_t)(top * stride) - layer->pad_top, end = y + 3; /* rows of the input: next one to build, end */
    uint32_t slot = 0, phase = 0, r;
    uint32_t *sums = j->sums;
    if (j->linked != filter) {
        fb_half_link(j->links, filter, layer->words, filters, j->tables, stride, j->zeros);
        j->linked = filter;
    }
    for (r = 0; r < rows; r++, end += (int32_t)stride, sums += waiting_of(layer) * filters) {
        for (; y < end; y++) {
            build(j, in, y, left, j->tables + slot * stride * FB_HALF_TABLE);
            slot = slot + 1 == RING ? 0 : slot + 1;
        }
        look_up(j, phase, chunk, sums, top + r, column);
        phase = phase + stride < RING ? phase + stride : phase + stride - RING;
    }
}

void fb_conv_bin_3x3(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const uint32_t chunks = layer->in.channels / CHUNK, filters = filters_of(layer), height = height_of(layer);
    const uint32_t block = layer->in.channels == CHUNK ? height : rows_of(layer);
    fb_layer some = *layer;
    uint32_t column, top, chunk, first, i;
    job j = {&some, in, out, scratch, NULL, NULL, NULL, NULL, NULL, NULL};
    (void)in2;
    j.zeros = (uint32_t *)(j.links + RING * (size_t)FB_HALF_LINKS * filters);
    j.tables = j.zeros + FB_TILE;
    j.x = j.tables + RING * (size_t)layer->stride_w * FB_HALF_TABLE;
    j.packed = j.x + FB_BAND_X;
    j.sums = j.packed + FB_HALF_RUN * (size_t)filters;
    for (i = 0; i < FB_TILE; i++) j.zeros[i] = 0;
    for (first = 0; first < layer->out.channels; first += filters) {
        const size_t plane = (size_t)layer->out.height * layer->out.width;
        some.out.channels = (uint16_t)(layer->out.channels - first < filters ? layer->out.channels - first : filters);
        some.bits = layer->bits + (size_t)first * layer->words;
        some.bias = layer->bias + first;
        some.mult = layer->mult + first;
        j.out = out + first * plane;
        for (column = 0; column < layer->out.width; column += FB_TILE) {
            for (top = 0; top < height; top += block) {
                const uint32_t rows = height - top < block ? height - top : block;
                for (chunk = 0; chunk < chunks; chunk++) add_chunk(&j, chunk, column, top, rows);
            }
        }
    }
}
