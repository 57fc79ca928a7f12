/* Convolution of bits by binary weights on Helium (MVE): tables of how many of 5 or 6 inputs differ from each combination
 * of weights, 16 pixels at a time.
 *
 * A tile of the output is `rows` × `columns` pixels. The inputs it needs lie as lanes of bytes, in rows of `segment`:
 * strides split them in phases, so that neighbours in the output are neighbours there, and a tap of the kernel is a
 * shift by some lanes.
 *
 *     lane = ((phase_y · phases_x + phase_x) · rows_in + row) · segment + column
 *                                                          input (row · stride + phase_y, column · stride + phase_x)
 *
 *     table[32 + 32 + 64 combinations][PITCH lanes]                       of 16 channels (a chunk)
 *
 * A filter adds up three look-ups per tap, in up to six vectors of lanes; the few lanes between two rows are computed
 * and not used. A byte holds the sums of 15 taps. Padding of 0 differs from no weight, and is not counted among the inputs
 * either: with n inputs inside, the sum is n − 2 · differing.
 *
 * scratch: tables | sums[filters][lanes] | taps | lanes' words | lanes inside | bytes | n | weights, where channels do
 * not come in sixteens
 */
#include "../fb_kernels_mve.h"
#include "../fb_tap_words.h"

#if defined(FB_MVE) || defined(FB_PLAN_BOARDS)

enum {
    VECTOR = 16,
    VECTORS = 6,   /* of a tile's output at most */
    PITCH = 256,   /* lanes of an entry: a store can step over them */
    ENTRIES = 128, /* of a chunk */
    TAPS = 15,     /* whose sum fits a byte */
    SPLITS = 16    /* of a row that are tried */
};

typedef struct cut {
    uint32_t in_width, out_height, out_width; /* a 1×1 convolution of stride 1 has no rows: all pixels are one */
    uint32_t taps, chunks, phases_y, phases_x;
    uint32_t rows, columns;    /* of a tile's output */
    uint32_t rows_in, segment; /* of a phase's input */
    uint32_t vectors, lanes;   /* of a tile's output; of its input, whole vectors */
    bool loose;                /* weights are taken apart */
} cut;

static uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Splits rows in equal parts, and takes as many rows as there is room for; false if no tile is small enough. */
static bool cut_tiles(const fb_layer *layer, cut *c) {
    const uint32_t below = (layer->kernel_h - 1u) / layer->stride_h, right = (layer->kernel_w - 1u) / layer->stride_w;
    uint32_t part = divide_up(c->out_width, VECTORS * VECTOR), last = part + SPLITS, cost = UINT32_MAX;
    for (; part < last; part++) {
        const uint32_t columns = divide_up(c->out_width, part), segment = columns + right;
        uint32_t rows;
        for (rows = 1; rows <= c->out_height; rows++) {
            const uint32_t vectors = divide_up((rows - 1) * segment + columns, VECTOR);
            const uint32_t lanes = c->phases_y * c->phases_x * (rows + below) * segment;
            /* Instructions, roughly. */
            const uint32_t look_up = layer->out.channels * (54 * vectors + 45), fill = 20 * lanes;
            const uint32_t takes = fb_product(part * divide_up(c->out_height, rows), look_up + fill);
            if (vectors > VECTORS || lanes > PITCH) break;
            if (takes >= cost) continue;
            cost = takes;
            c->rows = rows;
            c->columns = columns;
            c->rows_in = rows + below;
            c->segment = segment;
            c->vectors = vectors;
            c->lanes = divide_up(lanes, VECTOR) * VECTOR;
        }
    }
    return cost != UINT32_MAX;
}

static bool cut_layer(const fb_layer *layer, cut *c) {
    c->in_width = layer->in.width;
    c->out_height = layer->out.height;
    c->out_width = layer->out.width;
    if (layer->inputs > UINT16_MAX) return false; /* sums */
    if (layer->inputs == layer->in.channels && layer->stride_h == 1 && layer->stride_w == 1) {
        c->in_width = c->out_width = c->out_width * c->out_height;
        c->out_height = 1;
        if (c->in_width > INT16_MAX) return false;
    }
    if ((uint32_t)layer->in.width + 255 > INT16_MAX) return false;
    c->taps = (uint32_t)layer->kernel_h * layer->kernel_w;
    c->chunks = fb_words(layer->in.channels);
    c->phases_y = least(layer->stride_h, layer->kernel_h);
    c->phases_x = least(layer->stride_w, layer->kernel_w);
    c->loose = fb_taps_share_words(layer);
    return cut_tiles(layer, c);
}

uint32_t fb_conv_bits_mve_scratch(const fb_layer *layer) {
    cut c;
    uint32_t size;
    if (!cut_layer(layer, &c)) return FB_NOT_FOR_THIS;
    size = ENTRIES * PITCH + VECTORS * VECTOR; /* shifted vectors end behind the last entry */
    size = fb_sum(size, fb_product(c.vectors * VECTOR * (uint32_t)sizeof(uint16_t), layer->out.channels));
    size = fb_sum(size, c.taps * (uint32_t)sizeof(uint32_t) + c.lanes * 3 + VECTOR);
    size = fb_sum(size, (c.columns + VECTOR) * (uint32_t)sizeof(int32_t));
    if (c.loose)
        size = fb_sum(size, fb_product(fb_tap_words_of(layer) * (uint32_t)sizeof(uint16_t), layer->out.channels));
    return size;
}
#endif

#ifdef FB_MVE
#include <arm_mve.h>
#include <string.h>

/* Where things are while it runs. */
typedef struct work {
    const fb_layer *layer;
    cut cut;
    const uint16_t *in;
    uint8_t *tables;
    uint16_t *sums;
    uint32_t *taps;  /* addresses of entry 0 */
    uint16_t *words; /* [lanes] */
    uint8_t *inside; /* [lanes]: 1 in lanes that count */
    uint8_t *bytes;  /* [VECTOR] */
    int32_t *n;      /* [columns] */
    uint16_t *loose; /* [filters][taps][chunks] */
} work;

static void lay_out(work *w, void *scratch) {
    const cut *c = &w->cut;
    uint8_t *p = scratch;
    w->tables = p;
    w->taps = (uint32_t *)(void *)(p += ENTRIES * PITCH + VECTORS * VECTOR);
    w->n = (int32_t *)(void *)(p += c->taps * sizeof(uint32_t));
    w->sums = (uint16_t *)(void *)(p += (c->columns + VECTOR) * sizeof(int32_t));
    w->words = (uint16_t *)(void *)(p += c->vectors * VECTOR * sizeof(uint16_t) * w->layer->out.channels);
    w->inside = p += c->lanes * sizeof(uint16_t);
    w->bytes = p += c->lanes;
    w->loose = (uint16_t *)(void *)(p + VECTOR);
}

static void place_taps(const work *w) {
    const fb_layer *layer = w->layer;
    const cut *c = &w->cut;
    uint32_t y, x, *tap = w->taps;
    for (y = 0; y < layer->kernel_h; y++) {
        for (x = 0; x < layer->kernel_w; x++) {
            uint32_t phase = y % layer->stride_h * c->phases_x + x % layer->stride_w;
            uint32_t row = phase * c->rows_in + y / layer->stride_h;
            *tap++ = (uint32_t)(uintptr_t)(w->tables + row * c->segment + x / layer->stride_w);
        }
    }
}

/* The lanes of a tile whose first input is (top, left), which may be outside: words of a chunk; which of them count, with
 * chunk 0. */
static void put_lanes(const work *w, uint32_t chunk, int32_t top, int32_t left) {
    const fb_layer *layer = w->layer;
    const cut *c = &w->cut;
    const uint32_t width = c->in_width, segment = c->segment, plane = (uint32_t)layer->in.height * layer->in.width;
    const uint32_t height = plane / width, channels = least(layer->in.channels - chunk * 16u, 16);
    const bool ones = layer->flags & FB_FLAG_ONES;
    const uint16x8_t outside = vdupq_n_u16(ones ? (uint16_t)((1u << channels) - 1) : 0);
    const uint16x8_t across = vmulq_n_u16(vidupq_n_u16(0, 1), layer->stride_w);
    const uint16_t *in = w->in + (size_t)chunk * plane;
    uint16_t *to = w->words;
    uint8_t *inside = w->inside;
    uint32_t phase_y, phase_x, row, x;
    for (phase_y = 0; phase_y < c->phases_y; phase_y++) {
        for (phase_x = 0; phase_x < c->phases_x; phase_x++) {
            for (row = 0; row < c->rows_in; row++, to += segment, inside += segment) {
                const uint32_t y = (uint32_t)top + row * layer->stride_h + phase_y;
                const uint32_t first = (uint32_t)left + phase_x;
                const uint16_t *from = in + (y < height ? y * width : 0);
                for (x = 0; x < segment; x += 8) {
                    const uint16x8_t at = vaddq_n_u16(across, (uint16_t)(first + x * layer->stride_w));
                    const mve_pred16_t there = y < height ? vcmphiq_u16(vdupq_n_u16((uint16_t)width), at) : 0;
                    const mve_pred16_t wanted = vctp16q(segment - x);
                    vstrhq_p_u16(to + x,
                                 vpselq_u16(vldrhq_gather_shifted_offset_z_u16(from, at, there), outside, there),
                                 wanted);
                    if (chunk == 0) {
                        vstrbq_p_u16(inside + x, vpselq_u16(vdupq_n_u16(1), vdupq_n_u16(ones), there), wanted);
                    }
                }
            }
        }
    }
}

/* Counting up flips bit k from 0 to 1 and those below from 1 to 0. */
#define NEXT(k) \
    __asm__ volatile("vadd.i8 %q0, %q0, %q2\n\tvstrw.32 %q0, [%1], %3" \
                     : "+w"(sum), "+r"(to) \
                     : "w"(step##k), "i"(PITCH) \
                     : "memory");
#define NEXT_2 NEXT(0)
#define NEXT_4 NEXT_2 NEXT(1) NEXT_2
#define NEXT_8 NEXT_4 NEXT(2) NEXT_4
#define NEXT_16 NEXT_8 NEXT(3) NEXT_8
#define NEXT_32 NEXT_16 NEXT(4) NEXT_16
#define NEXT_64 NEXT_32 NEXT(5) NEXT_32

/* Entries of the channels whose bits are the lowest 5 or 6 of each byte. */
FB_INLINE void fill_group(uint8_t *to, uint8x16_t bits, uint8x16_t inside, bool six) {
    uint8x16_t step0, step1, step2, step3, step4, step5, flips, sum, d;
    step0 = step1 = step2 = step3 = step4 = step5 = flips = sum = vdupq_n_u8(0);
#define INPUT(k) \
    d = vandq_u8(bits, vdupq_n_u8(1)); \
    bits = vshrq_n_u8(bits, 1); \
    sum = vaddq_u8(sum, d);               /* differ from weights of −1 */ \
    d = vsubq_u8(inside, vaddq_u8(d, d)); /* more if it is +1 */ \
    step##k = vsubq_u8(d, flips); \
    flips = vaddq_u8(flips, d);
    INPUT(0)
    INPUT(1)
    INPUT(2)
    INPUT(3)
    INPUT(4)
    if (six) {
        INPUT(5)
    }
    vst1q_u8(to, sum);
    to += PITCH;
    if (six) {
        NEXT_64
    } else {
        NEXT_32
    }
}

static void fill_tables(const work *w) {
    uint32_t lane;
    for (lane = 0; lane < w->cut.lanes; lane += VECTOR) {
        const uint8x16x2_t word = vld2q_u8((const uint8_t *)(w->words + lane));
        const uint8x16_t inside = vld1q_u8(w->inside + lane), low = word.val[0], high = word.val[1];
        uint8_t *to = w->tables + lane;
        fill_group(to, low, inside, false);
        fill_group(to + 32 * PITCH, vsliq_n_u8(vshrq_n_u8(low, 5), high, 3), inside, false);
        fill_group(to + 64 * PITCH, vshrq_n_u8(high, 2), inside, true);
    }
}

#define ADD_1 "vldrb.8 q6, [%[at]]\n\tvadd.i8 q0, q0, q6\n\t"
#define ADD_2 ADD_1 "vldrb.8 q7, [%[at], #16]\n\tvadd.i8 q1, q1, q7\n\t"
#define ADD_3 ADD_2 "vldrb.8 q6, [%[at], #32]\n\tvadd.i8 q2, q2, q6\n\t"
#define ADD_4 ADD_3 "vldrb.8 q7, [%[at], #48]\n\tvadd.i8 q3, q3, q7\n\t"
#define ADD_5 ADD_4 "vldrb.8 q6, [%[at], #64]\n\tvadd.i8 q4, q4, q6\n\t"
#define ADD_6 ADD_5 "vldrb.8 q7, [%[at], #80]\n\tvadd.i8 q5, q5, q7\n\t"
/* To 16 bits. */
#define KEEP(i) \
    "vstrb.8 q" #i ", [%[bytes]]\n\t" \
    "vldrh.u16 q7, [%[sums]]\n\t" \
    "vldrb.u16 q6, [%[bytes]]\n\t" \
    "vadd.i16 q7, q7, q6\n\t" \
    "vstrh.16 q7, [%[sums]], #16\n\t" \
    "vldrh.u16 q7, [%[sums]]\n\t" \
    "vldrb.u16 q6, [%[bytes], #8]\n\t" \
    "vadd.i16 q7, q7, q6\n\t" \
    "vstrh.16 q7, [%[sums]], #16\n\t"
#define KEEP_1 KEEP(0)
#define KEEP_2 KEEP_1 KEEP(1)
#define KEEP_3 KEEP_2 KEEP(2)
#define KEEP_4 KEEP_3 KEEP(3)
#define KEEP_5 KEEP_4 KEEP(4)
#define KEEP_6 KEEP_5 KEEP(5)
#define LOOK(first, size, add) \
    "ubfx %[at], %[word], #" first ", #" size "\n\t" \
    "mla %[at], %[at], %[lanes], %[entry]\n\t" add
#define LOOK_UP(add, keep) \
    __asm__ volatile("vmov.i8 q0, #0\n\t" \
                     "vmov q1, q0\n\t" \
                     "vmov q2, q0\n\t" \
                     "vmov q3, q0\n\t" \
                     "vmov q4, q0\n\t" \
                     "vmov q5, q0\n\t" \
                     "dls lr, %[count]\n\t" \
                     "1:\n\t" \
                     "ldrh %[word], [%[weights]]\n\t" \
                     "ldr %[entry], [%[taps]], #4\n\t" \
                     "add %[weights], %[step]\n\t"                                      /* */ \
                     LOOK("0", "5", add) "add %[entry], %[entry], %[lanes], lsl #5\n\t" /* */ \
                     LOOK("5", "5", add) "add %[entry], %[entry], %[lanes], lsl #5\n\t" /* */ \
                     LOOK("10", "6", add) "le lr, 1b\n\t" keep \
                     : [weights] "+r"(weights), [taps] "+r"(tap), [sums] "+r"(sums), [word] "=&r"(word), \
                       [entry] "=&r"(entry), [at] "=&r"(at) \
                     : [count] "r"(count), [step] "r"(step), [lanes] "r"(PITCH), [bytes] "l"(w->bytes) \
                     : "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory")

/* Adds `count` taps of all filters. A filter's words of two taps are `step` bytes apart, of two filters `next`. */
#define ADD_FILTERS(n) \
    static __attribute__((noinline)) void add_filters_##n(const work *w, const uint16_t *filter, uint32_t step, \
                                                          uint32_t next, const uint32_t *taps, uint32_t count) { \
        uint16_t *sums = w->sums; \
        uint32_t o; \
        for (o = w->layer->out.channels; o; o--, filter += next) { \
            const uint16_t *weights = filter; \
            const uint32_t *tap = taps; \
            uint32_t word, entry, at; \
            LOOK_UP(ADD_##n, KEEP_##n); \
        } \
    }
ADD_FILTERS(1)
ADD_FILTERS(2)
ADD_FILTERS(3)
ADD_FILTERS(4)
ADD_FILTERS(5)
ADD_FILTERS(6)

typedef void add_function(const work *w, const uint16_t *filter, uint32_t step, uint32_t next, const uint32_t *taps,
                          uint32_t count);
static add_function *const add_filters[VECTORS] = {add_filters_1, add_filters_2, add_filters_3,
                                                   add_filters_4, add_filters_5, add_filters_6};

static void add_chunk(const work *w, uint32_t chunk) {
    const fb_layer *layer = w->layer;
    const cut *c = &w->cut;
    const bool chunked = layer->flags & FB_FLAG_CHUNKS;
    const uint32_t step = chunked ? 1 : c->chunks, next = c->loose ? c->taps * c->chunks : layer->words;
    const uint16_t *filter = (c->loose ? w->loose : layer->bits) + (chunked ? chunk * 9 : chunk);
    uint32_t tap;
    for (tap = 0; tap < c->taps; tap += TAPS) {
        add_filters[c->vectors - 1](w, filter + tap * step, step * (uint32_t)sizeof(uint16_t), next, w->taps + tap,
                                    least(c->taps - tap, TAPS));
    }
}

/* `count` pixels of a row. */
static inline void put_row(const fb_layer *layer, const uint16_t *sums, const int32_t *n, uint32_t filter, int8_t *out,
                           uint32_t count) {
    const int32_t mult = layer->mult[filter], bias = layer->bias[filter] * mult, shift = -(int32_t)layer->shift;
    const int32x4_t mults = vdupq_n_s32(mult), low = vdupq_n_s32(layer->low), high = vdupq_n_s32(127);
    const int32_t zero_point = layer->out.zero_point;
#define FOUR \
    int32x4_t v = vmlaq_n_s32(vld1q_s32(n), vreinterpretq_s32_u32(vldrhq_u32(sums)), -2); \
    v = vmlasq_n_s32(v, mults, bias); \
    v = vrshlq_n_s32(vaddq_s32(v, vshrq_n_s32(v, 31)), shift); /* ties away from zero */ \
    v = vminq_s32(vmaxq_s32(vaddq_n_s32(v, zero_point), low), high);
    for (; count >= 4; count -= 4, n += 4, sums += 4, out += 4) {
        FOUR vstrbq_s32(out, v);
    }
    if (count) {
        FOUR vstrbq_p_s32(out, v, vctp32q(count));
    }
#undef FOUR
}

/* The results of a tile whose first pixel is (y, x). */
static void put_results(const work *w, int8_t *out, uint32_t y, uint32_t x) {
    const fb_layer *layer = w->layer;
    const cut *c = &w->cut;
    const size_t plane = (size_t)layer->out.height * layer->out.width;
    const uint32_t columns = least(c->columns, c->out_width - x), rows = least(c->rows, c->out_height - y);
    uint32_t row, i, o;
    for (row = 0; row < rows; row++) {
        const int32_t top = (int32_t)((y + row) * layer->stride_h) - layer->pad_top;
        const uint32_t down = c->taps > 1 ? fb_inside(top, layer->kernel_h, layer->in.height) : 1;
        const uint16_t *sums = w->sums + row * c->segment;
        int8_t *to = out + (y + row) * c->out_width + x;
        for (i = 0; i < columns; i++) {
            const int32_t left = (int32_t)((x + i) * layer->stride_w) - layer->pad_left;
            const uint32_t taps =
                layer->flags & FB_FLAG_ONES ? c->taps : down * fb_inside(left, layer->kernel_w, c->in_width);
            w->n[i] = (int32_t)(taps * layer->in.channels);
        }
        for (o = 0; o < layer->out.channels; o++, to += plane, sums += c->vectors * VECTOR) {
            put_row(layer, sums, w->n, o, to, columns);
        }
    }
}

void fb_conv_bits_mve(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    uint32_t y, x, chunk;
    work w;
    (void)in2;
    w.layer = layer;
    w.in = (const uint16_t *)(const void *)in;
    cut_layer(layer, &w.cut);
    lay_out(&w, scratch);
    place_taps(&w);
    memset(w.words, 0, w.cut.lanes * sizeof *w.words); /* lanes that nobody reads */
    memset(w.inside, 0, w.cut.lanes);
    if (w.cut.loose) fb_tap_words(layer, w.loose);
    for (y = 0; y < w.cut.out_height; y += w.cut.rows) {
        for (x = 0; x < w.cut.out_width; x += w.cut.columns) {
            const int32_t top = (int32_t)(y * layer->stride_h) - layer->pad_top;
            const int32_t left = (int32_t)(x * layer->stride_w) - layer->pad_left;
            memset(w.sums, 0, w.cut.vectors * VECTOR * sizeof *w.sums * layer->out.channels);
            for (chunk = 0; chunk < w.cut.chunks; chunk++) {
                put_lanes(&w, chunk, top, left);
                fill_tables(&w);
                add_chunk(&w, chunk);
            }
            put_results(&w, out, y, x);
        }
    }
}

#endif
