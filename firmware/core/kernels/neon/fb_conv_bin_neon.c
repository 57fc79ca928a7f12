/* Binary convolution with NEON, by tables: any kernel, stride, padding and number of channels.
 *
 * Four inputs with weights of ±1 have only 16 sums. These are made once for a tile of pixels and then looked up by
 * every filter: one load and one addition for 4 channels × 8 pixels.
 *
 * 1. The input is copied once with its padding around it, columns sorted by their remainder ("phase") when divided by
 *    the stride, so that output columns meet consecutive bytes:
 *
 *        padded: int8_t [channel][row][phase][column]
 *
 * 2. For a tile of `rows` × `columns` outputs and 16 input channels (a chunk; a filter's word), the tables:
 *
 *        table: int16_t [bits of four weights][which four of the 16][input row][phase][column]
 *
 *    A filter's tap reads an entry at its row and column, so each table serves all taps.
 * 3. Sums have 16 bits within a chunk (at most 255 inputs of up to 128), and 32 bits between chunks:
 *
 *        sums: int32_t [filter][row][column]
 *
 *     scratch: | padded | table | sums | filters |        sums if 16 bits are not enough, filters if repacked
 */
#include "fb_neon.h"

#ifdef __ARM_NEON

enum { CHUNK = 16, NIBBLES = 4, ENTRIES = 16, LIMIT = 255, MOST = 256 * 1024 * 1024 };

typedef struct geometry {
    uint32_t columns, rows; /* outputs of a tile */
    uint32_t phases;
    uint32_t lanes; /* columns of a table's row in a phase, a multiple of 8 */
    uint32_t depth; /* input rows of a tile */
    uint32_t entry; /* lanes of an entry: depth × phases × lanes */
    uint32_t chunks, taps;
    uint32_t width;                      /* columns of a padded row in a phase */
    uint32_t height;                     /* padded rows */
    bool repack;                         /* filters are not in words of 16 channels */
    uint64_t table, sums, filters, size; /* places in scratch, bytes */
} geometry;

/* Tiles are as wide as the image or 16, and as high as registers and the first-level cache (32 KB) allow. */
static void tile_of(const fb_layer *layer, uint32_t *rows, uint32_t *columns) {
    *columns = layer->out.width > 8 ? 16 : 8;
    *rows = *columns == 8 ? 8 : 4;
    if (layer->stride_h > 1) *rows /= 2;
}

static uint32_t up_to(uint32_t n, uint32_t step) { return (n + step - 1) / step * step; }

static geometry geometry_of(const fb_layer *layer) {
    geometry g;
    bool narrow = layer->kernel_h * layer->kernel_w * CHUNK <= LIMIT;
    tile_of(layer, &g.rows, &g.columns);
    g.taps = (uint32_t)layer->kernel_h * layer->kernel_w;
    g.phases = layer->kernel_w < layer->stride_w ? layer->kernel_w : layer->stride_w;
    g.lanes = up_to(g.columns + (uint32_t)(layer->kernel_w - 1) / layer->stride_w, 8);
    g.depth = (g.rows - 1) * layer->stride_h + layer->kernel_h;
    g.entry = g.depth * g.phases * g.lanes;
    g.chunks = up_to(layer->in.channels, CHUNK) / CHUNK;
    g.width = up_to(layer->out.width, g.columns) - g.columns + g.lanes;
    g.height = (up_to(layer->out.height, g.rows) - 1) * layer->stride_h + layer->kernel_h;
    g.repack = layer->in.channels % CHUNK != 0;
    g.table = ((uint64_t)layer->in.channels * g.height * g.phases * g.width + 15) / 16 * 16;
    g.sums = g.table + (uint64_t)g.entry * NIBBLES * ENTRIES * 2;
    g.filters = g.sums + (g.chunks > 1 || !narrow ? (uint64_t)layer->out.channels * g.rows * g.columns * 4 : 0);
    g.size = g.filters + (g.repack ? (uint64_t)layer->out.channels * g.chunks * g.taps * 2 : 0) + 16;
    return g;
}

uint32_t fb_conv_bin_neon_scratch(const fb_layer *layer) {
    geometry g = geometry_of(layer);
    return layer->kernel_w * CHUNK > LIMIT || g.size > MOST ? FB_NOT_FOR_THIS : (uint32_t)g.size;
}

/* One row of the input, its columns spread over the phases. */
static void pad_row(const fb_layer *layer, const geometry *g, const int8_t *in, int8_t *to) {
    uint32_t left = layer->pad_left, n = layer->in.width, x = 0;
    if (layer->stride_w == 1) { /* vectors may overlap; a row is at least as long as what is read of it */
        to += left;
        if (n >= 16) {
            for (; x + 16 <= n; x += 16) vst1q_s8(to + x, vld1q_s8(in + x));
            vst1q_s8(to + n - 16, vld1q_s8(in + n - 16));
        } else if (n >= 8) {
            vst1_s8(to, vld1_s8(in));
            vst1_s8(to + n - 8, vld1_s8(in + n - 8));
        } else {
            for (; x < n; x++) to[x] = in[x];
        }
        return;
    }
    if (layer->stride_w == 2) { /* even columns of the image, odd ones */
        int8_t *even = to + (left % 2) * g->width + left / 2;
        int8_t *odd = to + ((left + 1) % 2) * g->width + (left + 1) / 2;
        for (; x + 16 <= n && (x + 15 + left) / 2 < g->width; x += 16) { /* a last column may not be seen */
            int8x8x2_t v = vld2_s8(in + x);
            if (g->phases == 2 || left % 2 == 0) vst1_s8(even + x / 2, v.val[0]);
            if (g->phases == 2 || left % 2 == 1) vst1_s8(odd + x / 2, v.val[1]);
        }
    }
    for (; x < n; x++) {
        uint32_t phase = (x + left) % layer->stride_w, column = (x + left) / layer->stride_w;
        if (phase < g->phases && column < g->width) to[phase * g->width + column] = in[x];
    }
}

static void pad(const fb_layer *layer, const geometry *g, const int8_t *in, int8_t *padded) {
    size_t line = (size_t)g->phases * g->width;
    uint32_t c, y, n = g->height - layer->pad_top; /* rows of the image that are seen */
    if (g->height < layer->pad_top) n = 0;
    if (n > layer->in.height) n = layer->in.height;
    memset(padded, layer->in.zero_point, (size_t)layer->in.channels * g->height * line);
    for (c = 0; c < layer->in.channels; c++, padded += g->height * line) {
        const int8_t *row = in + (size_t)c * layer->in.height * layer->in.width;
        for (y = 0; y < n; y++, row += layer->in.width) {
            pad_row(layer, g, row, padded + (y + layer->pad_top) * line);
        }
    }
}

/* Filters whose channels are no multiple of 16: words [filter][chunk][tap]; bits left over are 0. */
static void repack(const fb_layer *layer, const geometry *g, uint16_t *to) {
    uint32_t o, chunk, tap;
    for (o = 0; o < layer->out.channels; o++) {
        const uint16_t *filter = layer->bits + (size_t)o * layer->words;
        for (chunk = 0; chunk < g->chunks; chunk++) {
            uint32_t left = layer->in.channels - chunk * CHUNK;
            uint32_t mask = left < CHUNK ? (1u << left) - 1 : 0xFFFFu;
            for (tap = 0; tap < g->taps; tap++) {
                uint32_t bit = tap * layer->in.channels + chunk * CHUNK, word = filter[bit / 16];
                if (bit / 16 + 1 < layer->words) word |= (uint32_t)filter[bit / 16 + 1] << 16;
                *to++ = (uint16_t)(word >> bit % 16 & mask);
            }
        }
    }
}

/* The 16 sums ±a ±b ±c ±d; bit 0 of an entry's number is the sign of a, 1 is +. */
static inline void sums_of_four(int16x8_t a, int16x8_t b, int16x8_t c, int16x8_t d, int16_t *to, size_t entry) {
    int16x8_t two[4], v = vnegq_s16(vaddq_s16(vaddq_s16(a, b), vaddq_s16(c, d)));
    two[0] = vaddq_s16(a, a);
    two[1] = vaddq_s16(b, b);
    two[2] = vaddq_s16(c, c);
    two[3] = vaddq_s16(d, d);
    vst1q_s16(to, v); /* in the order of a Gray code: one sign changes at a time */
#define NEXT(number, change, bit) \
    v = change(v, two[bit]); \
    vst1q_s16(to + (number) * entry, v);
    NEXT(1, vaddq_s16, 0)
    NEXT(3, vaddq_s16, 1)
    NEXT(2, vsubq_s16, 0)
    NEXT(6, vaddq_s16, 2)
    NEXT(7, vaddq_s16, 0)
    NEXT(5, vsubq_s16, 1)
    NEXT(4, vsubq_s16, 0)
    NEXT(12, vaddq_s16, 3)
    NEXT(13, vaddq_s16, 0)
    NEXT(15, vaddq_s16, 1)
    NEXT(14, vsubq_s16, 0)
    NEXT(10, vsubq_s16, 2)
    NEXT(11, vaddq_s16, 0)
    NEXT(9, vsubq_s16, 1)
    NEXT(8, vsubq_s16, 0)
}

/* A tile in one chunk, and all filters. */
typedef struct tile {
    const fb_layer *layer;
    const int8_t *padded; /* the tile's first pixel in the chunk's first channel */
    size_t line, plane;   /* from row to row and from channel to channel there */
    uint32_t width, channels;
    int16_t *table;
    const uint16_t *words; /* of the first filter, in this chunk */
    size_t filter, tap;    /* from filter to filter and from tap to tap, in words */
    int32_t *sums;
    bool first, last;       /* chunk */
    int8_t *out;            /* of the first filter */
    uint32_t rows, columns; /* of the tile that are in the image */
} tile;

#define INLINE static inline __attribute__((always_inline))

/* Sizes that are constants in kernels made for one kind of layer; the compiler then unrolls loops over them, keeps sums
 * in registers and addresses tables by constant offsets. */
typedef struct shape {
    uint32_t vectors, rows; /* of 8 columns; of outputs */
    uint32_t kernel_h, kernel_w, stride_h, stride_w;
    uint32_t phases, lanes, line; /* lanes of a phase, of a row */
    uint32_t depth, entry;        /* rows of an entry, its lanes */
    bool fixed;                   /* all of these are constants */
} shape;

INLINE shape shape_of(bool fixed, uint32_t vectors, uint32_t rows, uint32_t kernel_h, uint32_t kernel_w,
                      uint32_t stride_h, uint32_t stride_w) {
    shape s = {vectors, rows, kernel_h, kernel_w, stride_h, stride_w, 0, 0, 0, 0, 0, fixed};
    s.phases = kernel_w < stride_w ? kernel_w : stride_w;
    s.lanes = (vectors * 8 + (kernel_w - 1) / stride_w + 7) / 8 * 8;
    s.line = s.phases * s.lanes;
    s.depth = (rows - 1) * stride_h + kernel_h;
    s.entry = s.depth * s.line;
    return s;
}

INLINE void fill_table(const tile *t, const shape s) {
    size_t plane = t->plane;
    uint32_t nibble, row, phase, lane;
    for (nibble = 0; nibble < NIBBLES && nibble * 4 < t->channels; nibble++) {
        uint32_t left = t->channels - nibble * 4;
        for (row = 0; row < s.depth; row++) {
            const int8_t *from = t->padded + nibble * 4 * plane + row * t->line;
            int16_t *to = t->table + nibble * s.entry + row * s.line;
            if (row % s.stride_h >= s.kernel_h) continue; /* no tap meets it */
            for (phase = 0; phase < s.phases; phase++, from += t->width) {
                for (lane = 0; lane < s.lanes; lane += 8, to += 8) {
                    const int8_t *x = from + lane;
                    int8x8_t a = vld1_s8(x), b = vdup_n_s8(0), c = b, d = b;
                    if (left > 1) b = vld1_s8(x + plane);
                    if (left > 2) c = vld1_s8(x + 2 * plane);
                    if (left > 3) d = vld1_s8(x + 3 * plane);
                    sums_of_four(vmovl_s8(a), vmovl_s8(b), vmovl_s8(c), vmovl_s8(d), to, NIBBLES * s.entry);
                }
            }
        }
    }
}

/* 8 results of a row, or as many as there are. */
static inline void store(int8x8_t v, int8_t *out, uint32_t count) {
    int8_t bytes[8];
    if (count >= 8) {
        vst1_s8(out, v);
    } else {
        vst1_s8(bytes, v);
        memcpy(out, bytes, count);
    }
}

/* Sums of 16 bits join those of 32, which start with the bias. */
INLINE void widen(const int16x8_t *sum, const shape s, const bool fresh, int32_t bias, int32_t *sums) {
    const int32x4_t start = vdupq_n_s32(bias);
    uint32_t i;
#pragma GCC unroll 8
    for (i = 0; i < s.rows * s.vectors; i++, sums += 8) {
        vst1q_s32(sums, vaddw_s16(fresh ? start : vld1q_s32(sums), vget_low_s16(sum[i])));
        vst1q_s32(sums + 4, vaddw_s16(fresh ? start : vld1q_s32(sums + 4), vget_high_s16(sum[i])));
    }
}

/* The same, and then the results of filter `o`; `full` if all of the tile is in the image. */
INLINE void finish(const tile *t, const int16x8_t *sum, const shape s, const bool fresh, const bool full, uint32_t o,
                   const int32_t *sums) {
    const fb_layer *layer = t->layer;
    const uint32_t rows = t->rows, columns = t->columns, width = layer->out.width;
    const int32x4_t minus_shift = vdupq_n_s32(-(int32_t)layer->shift), start = vdupq_n_s32(layer->bias[o]);
    const int32x4_t multiplier = vdupq_n_s32(layer->mult[o]);
    const int16x8_t zero_point = vdupq_n_s16(layer->out.zero_point);
    const int8x8_t low = vdup_n_s8(layer->low);
    int8_t *out = t->out + (size_t)o * layer->out.height * width;
    uint32_t r, v;
#pragma GCC unroll 8
    for (r = 0; r < s.rows; r++, out += width) {
#pragma GCC unroll 2
        for (v = 0; v < s.vectors; v++, sum++, sums += 8) {
            int32x4_t a = vaddw_s16(fresh ? start : vld1q_s32(sums), vget_low_s16(*sum));
            int32x4_t b = vaddw_s16(fresh ? start : vld1q_s32(sums + 4), vget_high_s16(*sum));
            a = fb_neon_round(vmulq_s32(a, multiplier), minus_shift);
            b = fb_neon_round(vmulq_s32(b, multiplier), minus_shift);
            if (full || (r < rows && v * 8 < columns)) {
                store(fb_neon_int8(a, b, zero_point, low), out + 8 * v, full ? 8 : columns - 8 * v);
            }
        }
    }
}

/* Two neighbouring vectors, at a constant distance from `p`. GCC 12 seldom finds the load of a pair by itself, and with
 * it a look-up is a quarter shorter. */
INLINE int16x8x2_t load_pair(const uint8_t *p, const size_t distance) {
    int16x8x2_t pair;
#if defined(__aarch64__) && defined(__OPTIMIZE__)
    __asm__("ldp %q0, %q1, [%2, %3]"
            : "=w"(pair.val[0]), "=w"(pair.val[1])
            : "r"(p), "i"(distance), "m"(*(const uint8_t (*)[1024])p));
#else
    pair.val[0] = vld1q_s16((const void *)(p + distance));
    pair.val[1] = vld1q_s16((const void *)(p + distance + 16));
#endif
    return pair;
}

/* Add the entry at `p` + `distance`. */
INLINE void look_up(int16x8_t *sum, const shape s, const uint8_t *p, const size_t distance) {
    uint32_t r;
#pragma GCC unroll 8
    for (r = 0; r < s.rows; r++) {
        const size_t at = distance + 2 * r * s.stride_h * s.line;
        if (s.vectors == 1) {
            sum[r] = vaddq_s16(sum[r], vld1q_s16((const void *)(p + at)));
        } else {
            const size_t near = s.fixed && at <= 1008 ? at : 0; /* 1008 is the most LDP takes */
            int16x8x2_t pair = load_pair(p + (at - near), near);
            sum[2 * r] = vaddq_s16(sum[2 * r], pair.val[0]);
            sum[2 * r + 1] = vaddq_s16(sum[2 * r + 1], pair.val[1]);
        }
    }
}

INLINE void filters_of(const tile *t, const shape s, const bool whole) {
    const bool narrow = s.kernel_h * s.kernel_w * CHUNK <= LIMIT; /* a chunk's sum fits 16 bits */
    const bool first = t->first, last = t->last, full = t->rows >= s.rows && t->columns >= 8 * s.vectors;
    const uint32_t nibbles = whole ? NIBBLES : (t->channels + 3) / 4, count = t->layer->out.channels;
    const size_t filter = t->filter, tap = t->tap;
    const uint16_t *words = t->words;
    const uint8_t *table = (const uint8_t *)t->table;
    size_t stride = 2 * NIBBLES * s.entry;
    int32_t *sums = t->sums;
    uint32_t o, ky, kx, n, r;
    __asm__("" : "+r"(stride)); /* multiplying by an unknown number is one instruction, by a constant three */
    for (o = 0; o < count; o++, words += filter, sums += s.rows * s.vectors * 8) {
        const uint16_t *word = words;
        bool fresh = first;
        int16x8_t sum[8];
        for (r = 0; r < s.rows * s.vectors; r++) sum[r] = vdupq_n_s16(0);
        for (ky = 0; ky < s.kernel_h; ky++) {
            if (!narrow && ky) {
                widen(sum, s, fresh, t->layer->bias[o], sums);
                fresh = false;
                for (r = 0; r < s.rows * s.vectors; r++) sum[r] = vdupq_n_s16(0);
            }
#pragma GCC unroll 1
            for (kx = 0; kx < s.kernel_w; kx++, word += tap) {
                const uint8_t *at = table + 2 * (ky * s.line + kx % s.stride_w * s.lanes + kx / s.stride_w);
                const size_t bits = *word, next = 2 * s.entry;
                if (whole) {
                    look_up(sum, s, at + (bits & 15) * stride, 0);
                    look_up(sum, s, at + (bits >> 4 & 15) * stride, next);
                    look_up(sum, s, at + (bits >> 8 & 15) * stride, 2 * next);
                    look_up(sum, s, at + (bits >> 12) * stride, 3 * next);
                } else {
                    for (n = 0; n < nibbles; n++) look_up(sum, s, at + n * next + (bits >> 4 * n & 15) * stride, 0);
                }
            }
        }
        if (!last) {
            if (fresh) {
                widen(sum, s, true, t->layer->bias[o], sums);
            } else {
                widen(sum, s, false, 0, sums);
            }
        } else if (full && fresh) {
            finish(t, sum, s, true, true, o, sums);
        } else if (full) {
            finish(t, sum, s, false, true, o, sums);
        } else {
            finish(t, sum, s, fresh, false, o, sums);
        }
    }
}

/* The tables of a tile and what all filters find there. */
INLINE void tile_of_shape(const tile *t, const shape s) {
    fill_table(t, s);
    if (t->channels >= CHUNK) {
        filters_of(t, s, true);
    } else {
        filters_of(t, s, false);
    }
}

static void wide_3x3(const tile *t) { tile_of_shape(t, shape_of(true, 2, 4, 3, 3, 1, 1)); }
static void narrow_3x3(const tile *t) { tile_of_shape(t, shape_of(true, 1, 8, 3, 3, 1, 1)); }
static void wide_3x3_stride2(const tile *t) { tile_of_shape(t, shape_of(true, 2, 2, 3, 3, 2, 2)); }
static void narrow_3x3_stride2(const tile *t) { tile_of_shape(t, shape_of(true, 1, 4, 3, 3, 2, 2)); }

/* Any kernel; strides that are not 1 have half the rows, as tile_of says. */
#define ANY(name, vectors, rows) \
    static void name(const tile *t) { \
        const fb_layer *l = t->layer; \
        tile_of_shape(t, shape_of(false, vectors, rows, l->kernel_h, l->kernel_w, l->stride_h, l->stride_w)); \
    }
ANY(wide_any, 2, 4)
ANY(narrow_any, 1, 8)
ANY(wide_any_strided, 2, 2)
ANY(narrow_any_strided, 1, 4)

typedef void filters_function(const tile *t);

static filters_function *filters_for(const fb_layer *layer, const geometry *g) {
    bool wide = g->columns == 16, strided = layer->stride_h > 1;
    if (layer->kernel_h == 3 && layer->kernel_w == 3 && layer->stride_h == layer->stride_w && layer->stride_h <= 2) {
        if (strided) return wide ? wide_3x3_stride2 : narrow_3x3_stride2;
        return wide ? wide_3x3 : narrow_3x3;
    }
    if (strided) return wide ? wide_any_strided : narrow_any_strided;
    return wide ? wide_any : narrow_any;
}

void fb_conv_bin_neon(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    geometry g = geometry_of(layer);
    filters_function *filters = filters_for(layer, &g);
    uint8_t *base = (uint8_t *)(((uintptr_t)scratch + 15) & ~(uintptr_t)15);
    int8_t *padded = (int8_t *)base;
    uint16_t *packed = (void *)(base + g.filters);
    bool by_chunk = g.repack || (layer->flags & FB_FLAG_CHUNKS);
    size_t line = (size_t)g.phases * g.width, plane = g.height * line, next;
    uint32_t y, x, chunk;
    tile t;
    (void)in2;
    pad(layer, &g, in, padded);
    if (g.repack) repack(layer, &g, packed);
    t.layer = layer;
    t.line = line;
    t.plane = plane;
    t.width = g.width;
    t.table = (void *)(base + g.table);
    t.sums = (void *)(base + g.sums);
    t.filter = (size_t)g.chunks * g.taps;
    t.tap = by_chunk ? 1 : g.chunks;
    next = by_chunk ? g.taps : 1;
    for (y = 0; y < layer->out.height; y += g.rows) {
        for (x = 0; x < layer->out.width; x += g.columns) {
            t.rows = layer->out.height - y;
            t.columns = layer->out.width - x;
            t.out = out + (size_t)y * layer->out.width + x;
            for (chunk = 0; chunk < g.chunks; chunk++) {
                t.channels = layer->in.channels - chunk * CHUNK;
                t.padded = padded + chunk * CHUNK * plane + (size_t)y * layer->stride_h * line + x;
                t.words = (g.repack ? packed : layer->bits) + chunk * next;
                t.first = chunk == 0;
                t.last = chunk == g.chunks - 1;
                filters(&t);
            }
        }
    }
}

#endif
