/* Binary 3×3 convolution of stride 1 or 2, 16 input channels (a chunk) at a time, with full tables: for layers whose half
 * tables (fb_conv_bin_3x3) would not pay, and for less RAM.
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
 * scratch: lists[ring][27] or offsets[filters][27] | tables[ring][stride] | x[16][10] | packed[1 or 2][filters][4] |
 * wide[rows][filters][8]
 */
#include "fb_look_up.h"

enum {
    CHUNK = 16,
    ENTRY = FB_ENTRY_WORDS,
    COLUMNS = FB_COLUMNS,
    TABLE = FB_TABLE_WORDS,
    WIDE = 16384, /* bytes of sums at most, of more than one row */
    LEAN = 8192
};

/* 27 offsets per filter say where its entries are in the tables of a row: made once for some rows of output, they save
 * taking weights apart again for each. */
typedef struct places {
    const uint32_t *row; /* tables of the first row of the window */
    const uint32_t *offsets, *end;
    const uint32_t *row1;
    uint32_t *sums;
    const uint32_t *row2;
} places;

/* Packed sums of every filter, for 16 channels of a tile; as fb_look_up. */
#if defined(__thumb2__) && defined(__GNUC__)

/* r4-r7 sums | r8-r11 entry | r2, r11, r12 addresses of entries | r0, r3, lr rows | r1 offsets
 * No address is computed right before it is used: that takes a cycle more. */
FB_NAKED static void look_up_at(const places *p FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r4-r11, lr}\n"
            "ldm r0, {r0-r5}\n" /* row, offsets, end, row1, sums, row2 */
            "mov lr, r5\n"
            "push {r2, r4}\n"
            ".macro tap row, first=0\n"
            "  ldm r1!, {r2, r11, r12}\n"
            "  add r11, \\row\n"
            "  add r2, \\row\n"
            "  add r12, \\row\n"
            "  .if \\first\n"
            "  ldm r11, {r4-r7}\n"
            "  .else\n"
            "  ldm r11, {r8-r11}\n"
            "  add r4, r8\n"
            "  add r5, r9\n"
            "  add r6, r10\n"
            "  add r7, r11\n"
            "  .endif\n"
            "  .irp address, r2, r12\n"
            "  ldm \\address, {r8-r11}\n"
            "  add r4, r8\n"
            "  add r5, r9\n"
            "  add r6, r10\n"
            "  add r7, r11\n"
            "  .endr\n"
            ".endm\n"
            "1:\n"
            "tap r0, 1\n"
            "tap r0\n"
            "tap r0\n"
            ".rept 3\n"
            "  tap r3\n"
            ".endr\n"
            ".rept 3\n"
            "  tap lr\n"
            ".endr\n"
            ".purgem tap\n"
            "ldrd r8, r9, [sp]\n" /* end, sums */
            "cmp r1, r8\n"
            "stm r9!, {r4-r7}\n"
            "str r9, [sp, #4]\n"
            "bne.w 1b\n"
            "add sp, #8\n"
            "pop {r4-r11, pc}\n");
}

#elif defined(__thumb__) && defined(__GNUC__)

/* r8-r11 sums | r0-r3 entry | r4-r6 addresses of entries | r7 offsets | r12 row | lr sums */
FB_NAKED static void look_up_at(const places *p FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r4-r7, lr}\n"
            "mov r4, r8\n"
            "mov r5, r9\n"
            "mov r6, r10\n"
            "mov r7, r11\n"
            "push {r4-r7}\n"
            "ldm r0!, {r1-r6}\n" /* row, offsets, end, row1, sums, row2 */
            "mov r7, r2\n"
            "mov lr, r5\n"
            "push {r1, r3, r4, r6}\n"
            ".macro tap first=0\n"
            "  ldm r7!, {r4-r6}\n"
            "  add r4, r12\n"
            "  add r5, r12\n"
            "  add r6, r12\n"
            "  ldm r4!, {r0-r3}\n"
            "  .if \\first\n"
            "  mov r8, r0\n"
            "  mov r9, r1\n"
            "  mov r10, r2\n"
            "  mov r11, r3\n"
            "  .else\n"
            "  add r8, r0\n"
            "  add r9, r1\n"
            "  add r10, r2\n"
            "  add r11, r3\n"
            "  .endif\n"
            "  .irp address, r5, r6\n"
            "  ldm \\address!, {r0-r3}\n"
            "  add r8, r0\n"
            "  add r9, r1\n"
            "  add r10, r2\n"
            "  add r11, r3\n"
            "  .endr\n"
            ".endm\n"
            "1:\n"
            "ldr r0, [sp]\n"
            "mov r12, r0\n"
            "tap 1\n"
            "tap\n"
            "tap\n"
            ".irp row, 8, 12\n"
            "  ldr r0, [sp, #\\row]\n"
            "  mov r12, r0\n"
            "  .rept 3\n"
            "  tap\n"
            "  .endr\n"
            ".endr\n"
            ".purgem tap\n"
            "mov r4, lr\n"
            "mov r0, r8\n"
            "mov r1, r9\n"
            "mov r2, r10\n"
            "mov r3, r11\n"
            "stm r4!, {r0-r3}\n"
            "mov lr, r4\n"
            "ldr r0, [sp, #4]\n" /* end */
            "cmp r7, r0\n"
            "beq 2f\n"
            "b 1b\n"
            "2:\n"
            "add sp, #16\n"
            "pop {r4-r7}\n"
            "mov r8, r4\n"
            "mov r9, r5\n"
            "mov r10, r6\n"
            "mov r11, r7\n"
            "pop {r4-r7, pc}\n");
}

#endif

/* Thumb code uses offsets. */
#if defined(FB_PLAN_BOARDS)
#define THUMB (fb_plan_core != FB_PLAN_RISCV)
#elif defined(__thumb__) && defined(__GNUC__)
#define THUMB true
#else
#define THUMB false
#endif

/* Whether offsets are used often enough, for `block` rows; `lean` kernels have none. */
static bool has_offsets(uint32_t block, bool lean) { return THUMB && block > 2 && !lean; }

static void build(const fb_layer *layer, const int8_t *in, int32_t y, int32_t left, uint32_t *x, uint32_t *table) {
    fb_tile_pack(layer, in, y, left, x, CHUNK);
    fb_tile_fill16(table, x, layer->stride_w == 1 ? 6 : 5);
    if (layer->stride_w == 2) fb_tile_fill16(table + TABLE, x + 6, 4);
}

/* offsets[filters][27] of a chunk. */
static void make_offsets(const fb_layer *layer, uint32_t chunk, uint32_t *offsets) {
    const uint16_t *filter = layer->bits + 9 * (size_t)chunk;
    const uint32_t middle = layer->stride_w == 1 ? 4 : TABLE * 4, right = layer->stride_w == 1 ? 8 : 4;
    uint32_t o;
    unsigned ky;
#define PUT(word, first) \
    do { \
        *offsets++ = ((word) & 31) * ENTRY * 4 + (first); \
        *offsets++ = ((word) & 31 << 5) + (first) + 32 * ENTRY * 4; /* in place already */ \
        *offsets++ = ((word) >> 10) * ENTRY * 4 + (first) + 64 * ENTRY * 4; \
    } while (0)
    for (o = layer->out.channels; o; o--, filter += layer->words - 9) {
        for (ky = 0; ky < 3; ky++) {
            uint32_t a = *filter++, b = *filter++, c = *filter++;
            PUT(a, 0u);
            PUT(b, middle);
            PUT(c, right);
        }
    }
}

static uint32_t scratch_of(const fb_layer *layer, uint32_t block, bool lean) {
    uint32_t together = fb_rows_together(layer), ring = together + 2, words, lists;
    if (!(layer->flags & FB_FLAG_CHUNKS) || layer->stride_h != layer->stride_w || layer->stride_h > 2) {
        return FB_NOT_FOR_THIS;
    }
    lists = has_offsets(block, lean) ? 27 * 4 * layer->out.channels : ring * 27 * FB_POINTER_SIZE;
    if (layer->in.channels == CHUNK) block = 0;
    words = ring * layer->stride_w * TABLE + CHUNK * COLUMNS + (4 * together + FB_TILE * block) * layer->out.channels;
    return words * (uint32_t)sizeof(uint32_t) + lists;
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
    const uint32_t **lists; /* or */
    uint32_t *offsets;      /* of chunk `has`, if not NULL */
    uint32_t has;
    uint32_t *tables, *x, *packed;
    int32_t *wide;
} job;

/* Sums of the next `rows` rows of tiles, whose tables start with slot `phase` of the ring. */
static void look_up_rows(const job *j, fb_look_ups *l, uint32_t phase, uint32_t rows) {
    uint32_t next = phase + 1 == j->ring ? 0 : phase + 1;
#if defined(__thumb__) && defined(__GNUC__)
    if (j->offsets) {
        uint32_t size = j->layer->stride_w * (uint32_t)TABLE, last = next + 1 == j->ring ? 0 : next + 1;
        places p = {j->tables + phase * size, j->offsets, NULL, j->tables + next * size, j->packed, NULL};
        p.end = j->offsets + 27 * (size_t)j->layer->out.channels;
        p.row2 = j->tables + last * size;
        look_up_at(&p);
        return;
    }
    l->list = j->lists + 27 * phase;
#else
    l->list = j->lists + 27 * phase;
    l->next_list = j->lists + 27 * next;
#endif
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
    if (j->offsets && j->has != chunk) make_offsets(layer, chunk, j->offsets);
    j->has = chunk;
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

static void run(const fb_layer *layer, const int8_t *in, int8_t *out, void *scratch, uint32_t block, bool lean) {
    uint32_t chunks = layer->in.channels / CHUNK, height = layer->out.height, stride = layer->stride_w;
    uint32_t phase, column, top, chunk;
    job j = {layer, in,   out, fb_rows_together(layer), fb_rows_together(layer) + 2, scratch, NULL, chunks, NULL,
             NULL,  NULL, NULL};
    j.tables = (uint32_t *)(j.lists + 27 * j.ring);
    if (has_offsets(block, lean)) {
        j.offsets = scratch;
        j.tables = j.offsets + 27 * (size_t)layer->out.channels;
    }
    j.x = j.tables + j.ring * stride * TABLE;
    j.packed = j.x + CHUNK * COLUMNS;
    j.wide = (int32_t *)(j.packed + 4 * (size_t)j.together * layer->out.channels);
    for (phase = 0; !j.offsets && phase < j.ring; phase++)
        fb_make_list(j.lists + 27 * phase, j.tables, stride, phase, j.ring);
    if (chunks == 1) block = height; /* nothing waits */
    for (column = 0; column < layer->out.width; column += FB_TILE) {
        for (top = 0; top < height; top += block) {
            uint32_t rows = height - top < block ? height - top : block;
            for (chunk = 0; chunk < chunks; chunk++) add_chunk(&j, chunk, column, top, rows);
        }
    }
}

uint32_t fb_conv_bin_3x3_full_scratch(const fb_layer *layer) { return scratch_of(layer, rows_of(layer, WIDE), false); }

void fb_conv_bin_3x3_full(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    run(layer, in, out, scratch, rows_of(layer, WIDE), false);
}

/* The same without offsets, and with sums of fewer rows: less RAM. */
uint32_t fb_conv_bin_3x3_lean_scratch(const fb_layer *layer) { return scratch_of(layer, rows_of(layer, LEAN), true); }

void fb_conv_bin_3x3_lean(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    run(layer, in, out, scratch, rows_of(layer, LEAN), true);
}

/* The same with sums of one row at a time: less RAM still, and tables that are built three times. */
uint32_t fb_conv_bin_3x3_row_scratch(const fb_layer *layer) {
    return layer->in.channels == CHUNK ? FB_NOT_FOR_THIS : scratch_of(layer, 1, true);
}

void fb_conv_bin_3x3_row(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    run(layer, in, out, scratch, 1, true);
}
