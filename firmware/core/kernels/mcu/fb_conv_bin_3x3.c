/* Binary 3×3 convolution of stride 1 or 2, of 16 input channels (a chunk) or twice as many, with half tables.
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
 * The tables of three rows are a ring: going down a column of tiles, each row's tables are built once. Filters have links
 * for each place where the ring can start. More than 32 filters are computed in parts, so that links take less RAM. With
 * two chunks, the packed sums of the first one wait for the other's.
 *
 * Links pay only where they are used for many tiles: fb_conv_bin_3x3_full has the other layers.
 *
 * scratch: links[filters][30][3] | zeros[8] | tables[3][stride] | x | packed[filters][8] | waiting[rows][filters][8]
 */
#include "fb_band_tile.h"
#include "fb_half_table.h"

enum {
    CHUNK = 16,
    RING = 3,
    PART = 32,     /* filters at most */
    WAITING = 8192 /* bytes of sums at most, of more than one row */
};

/* How many chunks, and how many tiles with the same links, make it faster than full tables: counted with the nets of
 * models/, others on RV32. */
enum { THUMB1_CHUNKS = 1, THUMB1_TILES = 16, THUMB2_CHUNKS = 2, THUMB2_TILES = 4, OTHER_CHUNKS = 1, OTHER_TILES = 8 };
#if defined(FB_PLAN_BOARDS)
#define THUMB1 (fb_plan_core == FB_PLAN_THUMB1)
#define THUMB2 (fb_plan_core > FB_PLAN_THUMB1)
#elif defined(FB_HALF_THUMB1)
#define THUMB1 true
#define THUMB2 false
#else
#define THUMB1 false
#if defined(__thumb2__) && defined(__GNUC__)
#define THUMB2 true
#else
#define THUMB2 false
#endif
#endif

/* Words of an entry, of inputs of a tile and of a filter's sums, and links of a filter: FB_HALF_ENTRY …, when planning for
 * boards too. */
static uint32_t entry_of(void) { return THUMB1 ? 8 : 10; }
static uint32_t x_of(void) { return THUMB1 ? CHUNK * FB_COLUMNS : FB_BAND_X; }
static uint32_t run_of(void) { return THUMB1 ? 4 : 8; }
static uint32_t links_of(void) { return THUMB1 ? 32 : 30; }

/* Rows of tiles in a column of the output. */
static uint32_t height_of(const fb_layer *layer) { return THUMB1 ? layer->out.height : fb_band(layer); }

static uint32_t parts_of(const fb_layer *layer) { return (layer->out.channels + PART - 1u) / PART; }

/* Filters computed together. */
static uint32_t filters_of(const fb_layer *layer) {
    uint32_t parts = parts_of(layer);
    return (layer->out.channels + parts - 1) / parts;
}

/* Rows of tiles before the next chunk: as even parts of a column as possible. */
static uint32_t rows_of(const fb_layer *layer) {
    uint32_t height = height_of(layer), most, blocks;
    if (layer->in.channels == CHUNK) return height; /* nothing waits */
    most = WAITING / (FB_TILE * sizeof(uint32_t)) / filters_of(layer);
    blocks = (height + most - 1) / most;
    return (height + blocks - 1) / blocks;
}

/* Whether links are used often enough. */
static bool pays(const fb_layer *layer) {
    const uint32_t chunks = THUMB1 ? THUMB1_CHUNKS : THUMB2 ? THUMB2_CHUNKS : OTHER_CHUNKS;
    const uint32_t least = THUMB1 ? THUMB1_TILES : THUMB2 ? THUMB2_TILES : OTHER_TILES;
    uint32_t tiles = rows_of(layer);
    if (layer->in.channels == CHUNK) tiles *= (layer->out.width + FB_TILE - 1u) / FB_TILE;
    return layer->in.channels <= chunks * CHUNK && tiles >= least * parts_of(layer);
}

uint32_t fb_conv_bin_3x3_scratch(const fb_layer *layer) {
    uint32_t filters = filters_of(layer), words;
    if (!(layer->flags & FB_FLAG_CHUNKS) || layer->stride_h != layer->stride_w || layer->stride_h > 2 || !pays(layer)) {
        return FB_NOT_FOR_THIS;
    }
    words = FB_TILE + RING * layer->stride_w * 64u * entry_of() + x_of() + run_of() * filters;
    if (layer->in.channels != CHUNK) words += FB_TILE * filters * rows_of(layer);
    return words * (uint32_t)sizeof(uint32_t) + RING * links_of() * filters * FB_POINTER_SIZE;
}

typedef struct job {
    const fb_layer *layer; /* of some filters */
    const int8_t *in;
    int8_t *out;
    uintptr_t *links;
    const uint16_t *linked; /* the filters that have links */
    uint32_t *zeros, *tables, *x, *packed, *waiting;
} job;

#ifdef FB_HALF_THUMB1

static void build(const job *j, const int8_t *in, int32_t y, int32_t left, uint32_t *table) {
    fb_tile_pack(j->layer, in, y, left, j->x, CHUNK);
    fb_half_fill(table, j->x, j->layer->stride_w == 1 ? 6 : 5);
    if (j->layer->stride_w == 2) fb_half_fill(table + FB_HALF_TABLE, j->x + 6, 4);
}

static void requantize(const job *j, const uint32_t *waiting, uint32_t y, uint32_t column) {
    const uint32_t width = j->layer->out.width;
    (void)waiting; /* there is one chunk */
    fb_tile_requantize(j->layer, j->packed, NULL, j->out + (size_t)y * width + column,
                       width - column < FB_TILE ? width - column : FB_TILE);
}

#else

static void build(const job *j, const int8_t *in, int32_t y, int32_t left, uint32_t *table) {
    fb_band_pack(j->layer, in, y, left, j->x);
    fb_half_fill(table, j->x, j->layer->stride_w == 1 ? 10 : 9);
    if (j->layer->stride_w == 2) fb_half_fill(table + FB_HALF_TABLE, j->x + FB_BAND_X_EVEN, 8);
}

static void requantize(const job *j, const uint32_t *waiting, uint32_t y, uint32_t column) {
    fb_band_requantize(j->layer, j->packed, waiting, j->out, y, column);
}

#endif

/* Sums of a chunk for `rows` tiles one below the other; the last chunk makes results of them. */
static void add_chunk(job *j, uint32_t chunk, uint32_t column, uint32_t top, uint32_t rows) {
    const fb_layer *layer = j->layer;
    const uint32_t filters = layer->out.channels, stride = layer->stride_w, chunks = layer->in.channels / CHUNK;
    const int32_t left = (int32_t)(column * stride) - layer->pad_left;
    const int8_t *in = j->in + (size_t)chunk * CHUNK * layer->in.height * layer->in.width;
    const uint16_t *filter = layer->bits + 9 * (size_t)chunk;
    int32_t y = (int32_t)(top * stride) - layer->pad_top, end = y + 3; /* rows of the input: next one to build, end */
    uint32_t slot = 0, phase = 0, r;
    uint32_t *waiting = j->waiting;
    if (j->linked != filter) fb_half_link(j->links, filter, layer->words, filters, j->tables, stride, j->zeros);
    j->linked = filter;
    for (r = 0; r < rows; r++, end += (int32_t)stride, waiting += FB_TILE * filters) {
        for (; y < end; y++) {
            build(j, in, y, left, j->tables + slot * stride * FB_HALF_TABLE);
            slot = slot + 1 == RING ? 0 : slot + 1;
        }
        if (chunk + 1 < chunks) {
            fb_half_look_up(j->links, phase, waiting, filters);
        } else {
            fb_half_look_up(j->links, phase, j->packed, filters);
            requantize(j, chunk ? waiting : NULL, top + r, column);
        }
        phase = phase + stride < RING ? phase + stride : phase + stride - RING;
    }
}

void fb_conv_bin_3x3(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const uint32_t chunks = layer->in.channels / CHUNK, filters = filters_of(layer), height = height_of(layer);
    const uint32_t block = rows_of(layer);
    fb_layer some = *layer;
    uint32_t column, top, chunk, first, i;
    job j = {&some, in, out, scratch, NULL, NULL, NULL, NULL, NULL, NULL};
    (void)in2;
    j.zeros = (uint32_t *)(j.links + RING * (size_t)FB_HALF_LINKS * filters);
    j.tables = j.zeros + FB_TILE;
    j.x = j.tables + RING * (size_t)layer->stride_w * FB_HALF_TABLE;
    j.packed = j.x + x_of();
    j.waiting = j.packed + FB_HALF_RUN * (size_t)filters;
    for (i = 0; i < FB_TILE; i++) j.zeros[i] = 0;
    for (first = 0; first < layer->out.channels; first += filters) {
        const uint32_t rest = layer->out.channels - first;
        some.out.channels = (uint16_t)(rest < filters ? rest : filters);
        some.bits = layer->bits + (size_t)first * layer->words;
        some.bias = layer->bias + first;
        some.mult = layer->mult + first;
        j.out = out + (size_t)first * layer->out.height * layer->out.width;
        for (column = 0; column < layer->out.width; column += FB_TILE) {
            for (top = 0; top < height; top += block) {
                const uint32_t rows = height - top < block ? height - top : block;
                for (chunk = 0; chunk < chunks; chunk++) add_chunk(&j, chunk, column, top, rows);
            }
        }
    }
}
