/* Gradient of the input of a binary 3×3 convolution with a stride of 2, with tables (../fb_bin_tile.h).
 *
 * An input pixel has met one or two rows and one or two columns of the kernel, by whether its place is even: four
 * convolutions of h. They look up their sums in the same tables, those of a row of h, which are built once:
 *
 *     padding 0     even rows: row 0 of the kernel, and row 2 with the row of h above     odd rows: row 1
 *     padding 1     odd rows: the same                                                    even rows: row 1
 *
 * and the same for columns. What a row of h gives the next row of pixels is carried on as packed sums, which that row's
 * list holds as if they were an entry of a table. 4 · 64 gradients of 127 at most fit 16 bits.
 *
 *     scratch: lists of addresses, below | zeros[4] | tables[chunks] | x[16][FB_COLUMNS] | packed[6][channels][4]
 */
#include <string.h>

#include "../fb_bin_tile.h"
#include "../fb_kernels_mve.h"
#include "fb_fours.h"
#include "fb_gradient.h"

/* Where there are no vectors, which are faster. */
#if defined(FB_PLAN_BOARDS)
#define THERE (fb_plan_core != FB_PLAN_HELIUM && !fb_plan_small_code)
#elif !defined(FB_SMALL_CODE) && ((defined(__thumb__) && !defined(FB_MVE)) || defined(__riscv))
#define THERE true
#define RUNS
#else
#define THERE false
#endif

enum { CHUNK = 16, TABLE = 128 * FB_ENTRY_WORDS, MOST_FILTERS = 64 };

/* Rows of pixels and columns that meet two rows or columns of the kernel, or one; and what is carried on. */
enum part { TWO_TWO, TWO_ONE, ONE_TWO, ONE_ONE, CARRY_TWO, CARRY_ONE, PARTS };

static uint32_t list_bytes(const fb_layer *layer) {
    return FB_POINTER_SIZE * layer->in.channels * (27 * (uint32_t)layer->out.channels / CHUNK + 6);
}

/* Words behind the lists. */
static uint32_t behind_lists(const fb_layer *layer) {
    return 4 + TABLE * (uint32_t)layer->out.channels / CHUNK + CHUNK * FB_COLUMNS + 4 * PARTS * layer->in.channels;
}

static bool fits(const fb_layer *layer) {
    const fb_tensor *in = &layer->in, *out = &layer->out;
    return layer->bits && layer->kind == FB_CONV && layer->kernel_h == 3 && layer->kernel_w == 3 &&
           layer->stride_h == 2 && layer->stride_w == 2 && layer->pad_top <= 1 && layer->pad_left == layer->pad_top &&
           out->channels % CHUNK == 0 && out->channels <= MOST_FILTERS && out->width % FB_TILE == 0 &&
           in->width == 2 * out->width && in->height == 2 * out->height && in->channels <= 256;
}

uint32_t fb_grad_strided_scratch(const fb_layer *layer) {
    if (!THERE || !fits(layer)) return FB_NOT_FOR_THIS;
    return fb_aligned(list_bytes(layer)) + behind_lists(layer) * (uint32_t)sizeof(uint32_t);
}

#ifdef RUNS

/* Addresses in a pixel's list: three per word of weights; those that take up a carry have it and two zeros. */
static uint32_t addresses(enum part part, uint32_t chunks) {
    uint32_t taps = part == TWO_TWO || part == ONE_TWO || part == CARRY_TWO ? 2 : 1;
    return 3 * taps * chunks + (part <= TWO_ONE ? 3 : 0);
}

/* Where all that is. */
typedef struct job {
    const fb_layer *layer;
    const uint32_t **list[PARTS];
    uint32_t *zeros, *tables, *x, *packed[PARTS];
    uint32_t chunks, channels;
} job;

/* Bits of 16 filters, a chunk, for 16 input channels or fewer. */
static void words_of(const fb_layer *layer, uint32_t tap, uint32_t chunk, uint32_t channel, uint16_t *rows) {
    const uint16_t *filter = layer->bits + (size_t)chunk * CHUNK * layer->words;
    if (layer->in.channels % 16 == 0) {
        filter += fb_bit_index(layer, tap, channel) / 16;
        for (unsigned i = 0; i < CHUNK; i++, filter += layer->words) rows[i] = *filter;
        fb_turn_16(rows);
        return;
    }
    for (unsigned c = 0; c < 16 && channel + c < layer->in.channels; c++) {
        uint32_t index = fb_bit_index(layer, tap, channel + c);
        rows[c] = 0;
        for (unsigned i = 0; i < CHUNK; i++) {
            rows[c] = (uint16_t)(rows[c] | fb_bit(filter + i * layer->words, index) << i);
        }
    }
}

/* Addresses number `at`, … of every channel's list: of one tap and chunk. */
static void put_tap(const job *j, enum part part, uint32_t at, uint32_t tap, uint32_t chunk) {
    const fb_layer *layer = j->layer;
    const uint32_t *table = j->tables + chunk * TABLE + (tap % 3 == 0 || (tap % 3 == 1 && layer->pad_left == 0));
    uint32_t size = addresses(part, j->chunks);
    const uint32_t **list = j->list[part] + at;
    for (uint32_t channel = 0; channel < j->channels; channel += 16) {
        uint16_t rows[16];
        words_of(layer, tap, chunk, channel, rows);
        for (unsigned c = 0; c < 16 && channel + c < j->channels; c++, list += size) {
            list[0] = table + (rows[c] & 31) * FB_ENTRY_WORDS;
            list[1] = table + (32 + (rows[c] >> 5 & 31)) * FB_ENTRY_WORDS;
            list[2] = table + (64 + (rows[c] >> 10)) * FB_ENTRY_WORDS;
        }
    }
}

static void make_lists(const job *j) {
    for (unsigned part = 0; part < PARTS; part++) {
        unsigned ky = part / 2; /* row of the kernel */
        uint32_t at = 0, size = addresses((enum part)part, j->chunks);
        for (uint32_t chunk = 0; chunk < j->chunks; chunk++) {
            if (part % 2 == 0) {
                put_tap(j, (enum part)part, at, 3 * ky, chunk);
                put_tap(j, (enum part)part, at + 3, 3 * ky + 2, chunk);
                at += 6;
            } else {
                put_tap(j, (enum part)part, at, 3 * ky + 1, chunk);
                at += 3;
            }
        }
        for (uint32_t c = 0; at < size && c < j->channels; c++) {
            const uint32_t **list = j->list[part] + c * size + at;
            list[0] = j->packed[CARRY_TWO + part] + 4 * c;
            list[1] = list[2] = j->zeros;
        }
    }
}

static void add_up(const job *j, enum part part) {
    uint32_t *packed = j->packed[part];
    fb_tile_sum(j->list[part], addresses(part, j->chunks) * (uint32_t)sizeof(uint32_t *), packed,
                packed + 4 * (size_t)j->channels);
}

/* 16 pixels of every channel: even and odd ones. */
static void write_row(const job *j, const uint32_t *even, const uint32_t *odd, unsigned shift, int8_t *out) {
    size_t plane = (size_t)j->layer->in.height * j->layer->in.width;
    const uint32_t *end = even + 4 * (size_t)j->channels;
    for (; even < end; even += 4, odd += 4, out += plane) {
        for (unsigned i = 0; i < 4; i++) {
            out[2 * i] = (int8_t)fb_scaled(fb_low(even[i]), shift);
            out[2 * i + 1] = (int8_t)fb_scaled(fb_low(odd[i]), shift);
            out[2 * i + 8] = (int8_t)fb_scaled(fb_high(even[i]), shift);
            out[2 * i + 9] = (int8_t)fb_scaled(fb_high(odd[i]), shift);
        }
    }
}

static void write_part(const job *j, enum part two, enum part one, unsigned shift, int8_t *out) {
    add_up(j, two);
    add_up(j, one);
    if (j->layer->pad_left) {
        write_row(j, j->packed[one], j->packed[two], shift, out);
    } else {
        write_row(j, j->packed[two], j->packed[one], shift, out);
    }
}

void fb_grad_strided(const fb_layer *layer, const int8_t *h, int8_t *out, unsigned shift, void *scratch) {
    int32_t height = layer->out.height, pad = layer->pad_top;
    uint32_t part, chunk, column, *words;
    size_t plane = (size_t)layer->out.height * layer->out.width;
    const uint32_t **list = scratch;
    fb_layer tile; /* what fb_tile_pack asks of a layer whose input is h */
    job j;
    memset(&tile, 0, sizeof tile);
    tile.kernel_w = 3;
    tile.stride_w = 1;
    tile.in = layer->out;
    tile.in.zero_point = 0;
    j.layer = layer;
    j.chunks = layer->out.channels / CHUNK;
    j.channels = layer->in.channels;
    words = (uint32_t *)(void *)((uint8_t *)scratch + fb_aligned(list_bytes(layer)));
    j.zeros = words;
    j.tables = words + 4;
    j.x = j.tables + TABLE * j.chunks;
    words = j.x + CHUNK * FB_COLUMNS;
    for (part = 0; part < PARTS; part++) {
        j.list[part] = list;
        list += addresses((enum part)part, j.chunks) * j.channels;
        j.packed[part] = words;
        words += 4 * j.channels;
    }
    memset(j.zeros, 0, 4 * sizeof *j.zeros);
    make_lists(&j);
    for (column = 0; column < layer->out.width; column += FB_TILE) {
        memset(j.packed[CARRY_TWO], 0, 2 * 4 * sizeof(uint32_t) * j.channels); /* and CARRY_ONE */
        for (int32_t y = 0; y < height + pad; y++) {
            int8_t *to = out + 2 * column;
            for (chunk = 0; chunk < j.chunks; chunk++) {
                fb_tile_pack(&tile, h + chunk * CHUNK * plane, y, (int32_t)column - 1 + pad, j.x, CHUNK);
                fb_tile_fill16(j.tables + chunk * TABLE, j.x, 6);
            }
            if (2 * y >= pad) write_part(&j, TWO_TWO, TWO_ONE, shift, to + (2 * y - pad) * layer->in.width);
            if (y == height) break;
            write_part(&j, ONE_TWO, ONE_ONE, shift, to + (2 * y + 1 - pad) * layer->in.width);
            add_up(&j, CARRY_TWO);
            add_up(&j, CARRY_ONE);
        }
    }
}

#else

void fb_grad_strided(const fb_layer *layer, const int8_t *h, int8_t *out, unsigned shift, void *scratch) {
    (void)layer, (void)h, (void)out, (void)shift, (void)scratch;
}

#endif
