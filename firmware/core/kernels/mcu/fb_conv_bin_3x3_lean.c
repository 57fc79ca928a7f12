/* Binary 3×3 convolution with less RAM than fb_conv_bin_3x3, of stride 1 or 2, 16 input channels (a chunk) at a time, with tables.
 *
 * A weight is ±1, so that a group of n inputs has only 2^n sums. They are computed once for a tile of 8 output pixels
 * (fb_bin_tile.h), and every filter only looks them up. The 16 bits of a weight word are three groups:
 *
 *     bits 0 … 4     entries   0 …  31 of a table          a table: 128 entries of 8 words, 4 KB
 *     bits 5 … 9     entries  32 …  63
 *     bits 10 … 15   entries  64 … 127
 *
 * A table belongs to a row of the input. At stride 1 an entry holds 6 words, the columns from the left neighbour of
 * pixel 0 to the right neighbour of pixel 3 (and in the upper lanes of pixels 4 and 7): the three taps of a row read 4
 * words each, from word 0, 1 and 2 of the same entry. At stride 2 even and odd columns have a table each:
 *
 *     stride 1    x−1  x  x+1  x+2  x+3  x+4                       tap kx starts at word kx
 *     stride 2    x  x+2  x+4  x+6  x+8 | x+1  x+3  x+5  x+7       taps at word 0, 0 of the odd table, 1
 *
 * The tables of three rows (four where two rows of output are computed together) are a ring: going down a column of
 * tiles, each row's tables are built once. With more than one chunk, some rows wait as 32-bit sums for the others.
 *
 * scratch: lists[ring][27] | tables[ring][stride] | x[16][10] | packed[1 or 2][filters][4] |
 * wide[rows][filters][8]
 */
#include "fb_look_up.h"

enum {
    CHUNK = 16,
    ENTRY = FB_ENTRY_WORDS,
    COLUMNS = FB_COLUMNS,
    TABLE = FB_TABLE_WORDS,
    WIDE = 8192 /* bytes of sums at most, of more than one row */
};

static void build(const fb_layer *layer, const int8_t *in, int32_t y, int32_t left, uint32_t *x, uint32_t *table) {
    fb_tile_pack(layer, in, y, left, x, CHUNK);
    fb_tile_fill16(table, x, layer->stride_w == 1 ? 6 : 5);
    if (layer->stride_w == 2) fb_tile_fill16(table + TABLE, x + 6, 4);
}

static uint32_t scratch_of(const fb_layer *layer, uint32_t block) {
    uint32_t together = fb_rows_together(layer), ring = together + 2, words;
    if (!(layer->flags & FB_FLAG_CHUNKS) || layer->stride_h != layer->stride_w || layer->stride_h > 2) {
        return FB_NOT_FOR_THIS;
    }
    if (layer->in.channels == CHUNK) block = 0;
    words = ring * layer->stride_w * TABLE + CHUNK * COLUMNS + (4 * together + FB_TILE * block) * layer->out.channels;
    return words * (uint32_t)sizeof(uint32_t) + ring * 27 * FB_POINTER_SIZE;
}

static uint32_t rows_of(const fb_layer *layer, uint32_t room) {
    uint32_t rows = room / (FB_TILE * sizeof(int32_t)) / layer->out.channels;
    if (layer->in.channels == CHUNK) return layer->out.height; /* nothing waits */
    if (rows > layer->out.height) rows = layer->out.height;
    return rows ? rows : 1;
}

typedef struct job {
    const fb_layer *layer;
    const int8_t *in;
    int8_t *out;
    uint32_t together, ring;
    const uint32_t **lists;
    uint32_t *tables, *x, *packed;
    int32_t *wide;
} job;

/* Sums of the next `rows` rows of tiles, whose tables start with slot `phase` of the ring. */
static void look_up_rows(const job *j, fb_look_ups *l, uint32_t phase, uint32_t rows) {
    uint32_t next = phase + 1 == j->ring ? 0 : phase + 1;
    l->list = j->lists + 27 * phase;
    l->next_list = j->lists + 27 * next;
    fb_look_up(l, rows);
}

/* Adds a chunk to `rows` tiles one below the other; the last chunk makes results of them. */
static void add_chunk(job *j, uint32_t chunk, uint32_t column, uint32_t top, uint32_t rows) {
    const fb_layer *layer = j->layer;
    uint32_t filters = layer->out.channels, stride = layer->stride_w, width = layer->out.width;
    uint32_t chunks = layer->in.channels / CHUNK, slot = 0, phase = 0, r, i, count;
    int32_t left = (int32_t)(column * stride) - layer->pad_left;
    int32_t y = (int32_t)(top * stride) - layer->pad_top, end = y + 3; /* rows of the input: next one to build, end */
    const int8_t *in = j->in + (size_t)chunk * CHUNK * layer->in.height * layer->in.width;
    int8_t *out = j->out + top * width + column;
    int32_t *wide = j->wide;
    unsigned pixels = width - column < FB_TILE ? width - column : FB_TILE;
    fb_look_ups l;
    l.filter = layer->bits + 9 * (size_t)chunk;
    l.end = l.filter + (size_t)filters * layer->words;
    l.step = 2 * layer->words;
    l.sums = j->packed;
    l.sums2 = j->packed + 4 * (size_t)filters;
    for (r = 0; r < rows; r += count) {
        count = rows - r < j->together ? 1 : j->together;
        for (end += (int32_t)((count - 1) * stride); y < end; y++) {
            build(layer, in, y, left, j->x, j->tables + slot * stride * TABLE);
            slot = slot + 1 == j->ring ? 0 : slot + 1;
        }
        end += (int32_t)stride;
        look_up_rows(j, &l, phase, count);
        phase += stride * count;
        if (phase >= j->ring) phase -= j->ring;
        for (i = 0; i < count; i++, out += width, wide += FB_TILE * filters) {
            const uint32_t *packed = j->packed + 4 * (size_t)filters * i;
            if (chunk == chunks - 1) {
                fb_tile_requantize(layer, packed, chunks == 1 ? NULL : wide, out, pixels);
            } else {
                fb_tile_widen(packed, wide, filters, chunk == 0);
            }
        }
    }
}

static void run(const fb_layer *layer, const int8_t *in, int8_t *out, void *scratch, uint32_t block) {
    uint32_t chunks = layer->in.channels / CHUNK, height = layer->out.height, stride = layer->stride_w;
    uint32_t phase, column, top, chunk;
    job j = {layer, in, out, fb_rows_together(layer), fb_rows_together(layer) + 2, scratch, NULL, NULL, NULL, NULL};
    j.tables = (uint32_t *)(j.lists + 27 * j.ring);
    j.x = j.tables + j.ring * stride * TABLE;
    j.packed = j.x + CHUNK * COLUMNS;
    j.wide = (int32_t *)(j.packed + 4 * (size_t)j.together * layer->out.channels);
    for (phase = 0; phase < j.ring; phase++)
        fb_make_list(j.lists + 27 * phase, j.tables, stride, phase, j.ring);
    if (chunks == 1) block = height; /* nothing waits */
    for (column = 0; column < layer->out.width; column += FB_TILE) {
        for (top = 0; top < height; top += block) {
            uint32_t rows = height - top < block ? height - top : block;
            for (chunk = 0; chunk < chunks; chunk++) add_chunk(&j, chunk, column, top, rows);
        }
    }
}

uint32_t fb_conv_bin_3x3_lean_scratch(const fb_layer *layer) { return scratch_of(layer, rows_of(layer, WIDE)); }

void fb_conv_bin_3x3_lean(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    run(layer, in, out, scratch, rows_of(layer, WIDE));
}

/* The same with sums of one row at a time: less RAM still, and tables that are built three times. */
uint32_t fb_conv_bin_3x3_row_scratch(const fb_layer *layer) {
    return layer->in.channels == CHUNK ? FB_NOT_FOR_THIS : scratch_of(layer, 1);
}

void fb_conv_bin_3x3_row(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    run(layer, in, out, scratch, 1);
}
