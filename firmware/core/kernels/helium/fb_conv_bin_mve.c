/* Binary convolution on Helium (MVE): tables of partial sums, 8 pixels at a time.
 *
 * With weights of ±1 the sum of n inputs takes 2^n values, and only 2^(n−1) up to its sign. They are computed once per
 * tile of pixels; an output channel then adds up what it looks up, times ±1. With 3×3 kernels look-ups count 0.049
 * instructions per multiplication, all of the layer 0.08 to 0.11 in resnet8. An int8 dot product (VMLADAVA) does 16
 * with one instruction: 0.0625, and its loads to come.
 *
 * A tile is 8 columns and 4 or 8 rows of outputs. The inputs it needs lie as lanes of int16, in segments of 10: 8
 * pixels and the 2 that a 3-wide kernel reads beyond. Strides split inputs in phases, so that neighbours in the output
 * are neighbours in a segment:
 *
 *     lane = (phase_x · rows + row) · 10 + column      input (row · stride + phase_y, column · stride + phase_x)
 *
 *     table[phase_y][entry][120 lanes]     Σ ±x of a group of up to 6 channels, bit i of the entry's index is the
 *                                          sign of channel i; the last channel has −
 *
 * A tap of the kernel is a shift by some lanes. 16 channels are three groups of 5, 5 and 6: 64 entries. Addresses of
 * entries with tap and sign are made once per layer or tile from the filters, three look-ups at a time:
 *
 *     list[filter][taps · groups / 3]      {address × 3, ±1 × 3}
 *
 * A pass adds 4 rows × 8 columns in 4 registers of 16-bit lanes, which hold the sum of up to 255 inputs; more channels
 * are done in chunks. Their sums are added in 32 bits, or in 16 bits with saturation where that gives the same output.
 */
#include "../fb_kernels_mve.h"

#if defined(FB_MVE) || defined(FB_PLAN_BOARDS)

enum {
    LANES = 120, /* of an entry; the largest multiple of 8 whose bytes a store can step over (254) */
    SEGMENT = 10,
    COLUMNS = 8, /* of a tile */
    ROWS = 4,    /* of a pass */
    PIXELS = ROWS * COLUMNS,
    GROUP = 6,      /* channels at most */
    LEAN_GROUP = 4, /* with half the entries */
    CHUNK = 16,     /* channels at most */
    FILTERS = 64,   /* at a time: bounds lists and sums */
    LEAN_FILTERS = 16,
    LISTS = 16 * 1024, /* bytes of lists that are kept for all chunks */
    LEAN_LISTS = 20 * 1024
};

/* Three look-ups. */
typedef struct triple {
    uint32_t address[3];
    int32_t sign[3];
} triple;

/* How a layer is cut; sizes in bytes. */
typedef struct cut {
    uint32_t taps, phases_y, phases_x;
    uint32_t passes;        /* of a tile */
    uint32_t chunk, chunks; /* channels of a chunk */
    uint32_t group;         /* channels of a group, at most */
    uint32_t entries;       /* of a chunk's groups, at most */
    uint32_t triples;       /* of a filter in a chunk */
    uint32_t filters;       /* at a time */
    uint32_t lists;         /* kept: 1, or one per chunk */
    uint32_t lanes_size, taps_size, table_size, list_size, scale_size, sum_size, all_sums_size;
} cut;

/* Requantization in 16 bits: round((sum + bias) · multiplier / 2^15). */
typedef struct scale {
    int16_t start; /* of sums: the bias if it is in them from the start, else 0 */
    int16_t bias, multiplier;
} scale;

/* Where things are while it runs. */
typedef struct work {
    const fb_layer *layer;
    cut cut;
    uint16_t *lane_y, *lane_x; /* [phases_y][LANES]: input row and column, from the tile's first */
    uint16_t *offset;          /* [phases_y][LANES]: of the input, from the tile's first */
    uint16_t *inside;          /* [phases_y][LANES / 8]: predicates, which lanes are in the image */
    uint32_t *tap_address;     /* [taps]: of entry 0 */
    int16_t *tables;
    triple *lists;
    scale *scales;     /* [filters] */
    int16_t *sums;     /* [filters][PIXELS]: of a pass and a chunk */
    int32_t *all_sums; /* [passes][filters][PIXELS]: of chunks so far; int16 if narrow */
    bool narrow;       /* 16 bits do */
} work;

static uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }
static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Channels are split in groups as equal as can be, smaller ones first. */
static uint32_t groups_of(uint32_t channels, uint32_t most) { return divide_up(channels, most); }
static uint32_t group_size(uint32_t channels, uint32_t most, uint32_t group) {
    uint32_t groups = groups_of(channels, most);
    return channels / groups + (group >= groups - channels % groups);
}
static uint32_t entries_of(uint32_t channels, uint32_t most) {
    uint32_t g, entries = 0;
    for (g = 0; g < groups_of(channels, most); g++) entries += 1u << (group_size(channels, most, g) - 1);
    return entries;
}

/* Rows of segments of a phase in a tile. */
static uint32_t phase_rows(const fb_layer *layer, const cut *c, uint32_t phase_y) {
    return c->passes * ROWS + (layer->kernel_h - 1 - phase_y) / layer->stride_h;
}

static bool cut_layer(const fb_layer *layer, bool lean, cut *c) {
    uint32_t rows, most;
    c->group = lean ? LEAN_GROUP : GROUP;
    c->taps = (uint32_t)layer->kernel_h * layer->kernel_w;
    if (c->taps > 255 || (layer->kernel_w - 1) / layer->stride_w > SEGMENT - COLUMNS) return false;
    c->phases_y = least(layer->stride_h, layer->kernel_h);
    c->phases_x = least(layer->stride_w, layer->kernel_w);
    for (c->passes = layer->out.height > ROWS ? 2 : 1; c->passes > 0; c->passes--) {
        rows = phase_rows(layer, c, 0);
        if (rows * c->phases_x * SEGMENT <= LANES) break;
    }
    if (c->passes == 0) return false;
    /* Offsets of inputs from a tile's first are 16 bits. */
    if ((uint32_t)layer->in.height + 255 > INT16_MAX || (uint32_t)layer->in.width + 255 > INT16_MAX) return false;
    if ((rows + 1) * layer->stride_h * layer->in.width + SEGMENT * layer->stride_w > UINT16_MAX) return false;
    most = least(255 / c->taps, CHUNK);
    c->chunks = divide_up(layer->in.channels, most);
    c->chunk = divide_up(layer->in.channels, c->chunks);
    c->entries = entries_of(c->chunk, c->group);
    /* The last chunk may be smaller, but its groups larger. */
    most = entries_of(layer->in.channels - (c->chunks - 1) * c->chunk, c->group);
    if (most > c->entries) c->entries = most;
    c->triples = divide_up(c->taps * groups_of(c->chunk, c->group), 3);
    c->filters = least(layer->out.channels, lean ? LEAN_FILTERS : FILTERS);
    c->list_size = c->filters * c->triples * (uint32_t)sizeof(triple);
    c->lists = c->chunks <= (lean ? LEAN_LISTS : LISTS) / c->list_size ? c->chunks : 1;
    c->lanes_size = c->phases_y * (3 * LANES + LANES / 8 + 1) * (uint32_t)sizeof(uint16_t);
    c->taps_size = c->taps * (uint32_t)sizeof(uint32_t);
    c->table_size = c->phases_y * c->entries * LANES * (uint32_t)sizeof(int16_t);
    c->scale_size = c->filters * (uint32_t)sizeof(scale);
    c->sum_size = c->filters * PIXELS * (uint32_t)sizeof(int16_t);
    c->all_sums_size = c->chunks > 1 ? c->passes * c->filters * PIXELS * (uint32_t)sizeof(int32_t) : 0;
    return true;
}

static uint32_t scratch_of(const fb_layer *layer, bool lean) {
    cut c;
    if (!cut_layer(layer, lean, &c)) return FB_NOT_FOR_THIS;
    return c.lanes_size + c.taps_size + c.table_size + c.lists * c.list_size + c.scale_size + c.sum_size +
           c.all_sums_size;
}

uint32_t fb_conv_bin_mve_scratch(const fb_layer *layer) { return scratch_of(layer, false); }

/* Half the tables, which are made again for every 16 filters. */
uint32_t fb_conv_bin_mve_lean_scratch(const fb_layer *layer) { return scratch_of(layer, true); }
#endif

#ifdef FB_MVE
#include <arm_mve.h>

static void lay_out(work *w, void *scratch) {
    uint8_t *p = scratch;
    const cut *c = &w->cut;
    w->tables = (int16_t *)(void *)p;
    w->lists = (triple *)(void *)(p += c->table_size);
    w->all_sums = (int32_t *)(void *)(p += c->lists * c->list_size);
    w->sums = (int16_t *)(void *)(p += c->all_sums_size);
    w->tap_address = (uint32_t *)(void *)(p += c->sum_size);
    w->scales = (scale *)(void *)(p += c->taps_size);
    w->lane_y = (uint16_t *)(void *)(p + c->scale_size);
    w->lane_x = w->lane_y + c->phases_y * LANES;
    w->offset = w->lane_x + c->phases_y * LANES;
    w->inside = w->offset + c->phases_y * LANES;
}

/* Where each lane's input is, from the tile's first. Lanes that nobody reads are somewhere, too. */
static void place_lanes(const work *w) {
    const fb_layer *layer = w->layer;
    uint16x8_t columns = vmulq_n_u16(vidupq_n_u16(0, 1), layer->stride_w);
    uint32_t phase_y, phase_x, row;
    for (phase_y = 0; phase_y < w->cut.phases_y; phase_y++) {
        uint16_t *y = w->lane_y + phase_y * LANES, *x = w->lane_x + phase_y * LANES;
        uint32_t rows = phase_rows(layer, &w->cut, phase_y);
        for (phase_x = 0; phase_x < w->cut.phases_x; phase_x++) {
            uint16x8_t first = vaddq_n_u16(columns, (uint16_t)phase_x);
            uint16x8_t third = vaddq_n_u16(first, (uint16_t)(2 * layer->stride_w));
            for (row = 0; row < rows; row++, y += SEGMENT, x += SEGMENT) {
                uint16x8_t at = vdupq_n_u16((uint16_t)(row * layer->stride_h + phase_y));
                vstrhq_u16(y, at);
                vstrhq_u16(y + 2, at);
                vstrhq_u16(x, first);
                vstrhq_u16(x + 2, third);
            }
        }
        for (; x < w->lane_x + (phase_y + 1) * LANES; x++, y++) *x = *y = 0;
    }
}

static void place_taps(const work *w) {
    const fb_layer *layer = w->layer;
    uint32_t y, x, *address = w->tap_address;
    for (y = 0; y < layer->kernel_h; y++) {
        uint32_t phase_y = y % layer->stride_h, rows = phase_rows(layer, &w->cut, phase_y);
        for (x = 0; x < layer->kernel_w; x++) {
            uint32_t row = x % layer->stride_w * rows + y / layer->stride_h;
            uint32_t lane = phase_y * w->cut.entries * LANES + row * SEGMENT + x / layer->stride_w;
            *address++ = (uint32_t)(uintptr_t)(w->tables + lane);
        }
    }
}

/* Offsets and predicates of a tile whose first input is (top, left), which may be outside the image. */
static void place_tile(const work *w, int32_t top, int32_t left) {
    const uint16x8_t height = vdupq_n_u16(w->layer->in.height), width = vdupq_n_u16(w->layer->in.width);
    const uint16_t *lane_y = w->lane_y, *lane_x = w->lane_x, *end = lane_y + w->cut.phases_y * LANES;
    const uint16_t row = w->layer->in.width;
    uint16_t *offset = w->offset, *inside = w->inside;
    for (; lane_y < end; lane_y += 8, lane_x += 8, offset += 8) {
        const uint16x8_t y = vldrhq_u16(lane_y), x = vldrhq_u16(lane_x);
        const mve_pred16_t p = vcmphiq_u16(height, vaddq_n_u16(y, (uint16_t)top));
        *inside++ = vcmphiq_m_u16(width, vaddq_n_u16(x, (uint16_t)left), p);
        vstrhq_u16(offset, vmlaq_n_u16(x, y, row));
    }
}

/* The next entry: counting up flips the sign of bit k from − to + and of those below from + to −. */
#define NEXT(k) \
    __asm__ volatile("vmla.s16 %q0, %q2, %3\n\tvstrh.16 %q0, [%1], #240" \
                     : "+w"(sum), "+r"(to) \
                     : "w"(step##k), "r"(2) \
                     : "memory")
#define NEXT_2 NEXT(0)
#define NEXT_4 \
    NEXT_2; \
    NEXT(1); \
    NEXT_2
#define NEXT_8 \
    NEXT_4; \
    NEXT(2); \
    NEXT_4
#define NEXT_16 \
    NEXT_8; \
    NEXT(3); \
    NEXT_8
#define NEXT_32 \
    NEXT_16; \
    NEXT(4); \
    NEXT_16

/* Entries of a group of `size` channels from `in`, for `lanes` lanes. */
static inline __attribute__((always_inline)) void fill_group(const work *w, int16_t *table, const int8_t *in,
                                                             const uint16_t *offset, const uint16_t *inside,
                                                             uint32_t lanes, const uint32_t size) {
    const size_t plane = (size_t)w->layer->in.height * w->layer->in.width;
    const int16x8_t zero_point = vdupq_n_s16(w->layer->in.zero_point);
    for (; lanes > 0; lanes -= lanes < 8 ? lanes : 8, table += 8, offset += 8, inside++) {
        const uint16x8_t at = vldrhq_u16(offset);
        const mve_pred16_t p = *inside;
        const int8_t *from = in;
        int16_t *to = table;
        int16x8_t step0 = zero_point, step1 = step0, step2 = step0, step3 = step0, step4 = step0, x, sum;
#define INPUT() \
    x = vpselq_s16(vldrbq_gather_offset_z_s16(from, at, p), zero_point, p); \
    from += plane
        INPUT();
        step0 = sum = x;
        /* step k = x[k] − (x[0] + … + x[k − 1]) */
#define INPUT_TO(k) \
    INPUT(); \
    step##k = vsubq_s16(x, sum); \
    sum = vaddq_s16(sum, x)
        if (size > 2) {
            INPUT_TO(1);
        }
        if (size > 3) {
            INPUT_TO(2);
        }
        if (size > 4) {
            INPUT_TO(3);
        }
        if (size > 5) {
            INPUT_TO(4);
        }
        if (size > 1) {
            INPUT();
            sum = vaddq_s16(sum, x);
        }
        sum = vnegq_s16(sum);
        vstrhq_s16(to, sum);
        to += LANES;
        if (size == 2) {
            NEXT_2;
        } else if (size == 3) {
            NEXT_4;
        } else if (size == 4) {
            NEXT_8;
        } else if (size == 5) {
            NEXT_16;
        } else if (size == 6) {
            NEXT_32;
        }
    }
}

/* The tables of `channels` channels; `in` is the tile's first input in the first of them. */
static void fill_tables(const work *w, const int8_t *in, uint32_t channels) {
    const size_t plane = (size_t)w->layer->in.height * w->layer->in.width;
    int16_t *tables = w->tables;
    uint32_t phase_y, g;
    for (phase_y = 0; phase_y < w->cut.phases_y; phase_y++, tables += w->cut.entries * LANES) {
        const uint32_t lanes = phase_rows(w->layer, &w->cut, phase_y) * w->cut.phases_x * SEGMENT;
        const uint16_t *offset = w->offset + phase_y * LANES, *inside = w->inside + phase_y * (LANES / 8);
        const int8_t *from = in;
        int16_t *to = tables;
        for (g = 0; g < groups_of(channels, w->cut.group); g++) {
            const uint32_t size = group_size(channels, w->cut.group, g);
            switch (size) {
            case 1: fill_group(w, to, from, offset, inside, lanes, 1); break;
            case 2: fill_group(w, to, from, offset, inside, lanes, 2); break;
            case 3: fill_group(w, to, from, offset, inside, lanes, 3); break;
            case 4: fill_group(w, to, from, offset, inside, lanes, 4); break;
            case 5: fill_group(w, to, from, offset, inside, lanes, 5); break;
            default: fill_group(w, to, from, offset, inside, lanes, 6);
            }
            from += size * plane;
            to += LANES << (size - 1);
        }
    }
}

/* `size` bits of a filter from bit `at`. */
static uint32_t bits_at(const uint16_t *filter, uint32_t at, uint32_t size) {
    uint32_t word = filter[at / 16];
    if (at % 16 + size > 16) word |= (uint32_t)filter[at / 16 + 1] << 16;
    return word >> at % 16 & ((1u << size) - 1);
}

/* The look-ups of a filter for `channels` channels from `channel`. */
static void list_filter(const work *w, triple *list, const uint16_t *filter, uint32_t channel, uint32_t channels) {
    const uint32_t groups = groups_of(channels, w->cut.group), smaller = channels / groups,
                   larger = groups - channels % groups;
    const bool chunked = w->layer->flags & FB_FLAG_CHUNKS;
    const uint32_t step = chunked ? 16 : w->layer->in.channels;
    const triple *end = list + w->cut.triples;
    uint32_t first = chunked ? channel * 9 : channel, tap, g, n = 0;
    for (tap = 0; tap < w->cut.taps; tap++, first += step) {
        uint32_t at = first, address = w->tap_address[tap];
        for (g = 0; g < groups; g++) {
            const uint32_t size = smaller + (g >= larger);
            uint32_t index = bits_at(filter, at, size);
            const bool negative = index >> (size - 1);
            if (negative) index ^= (1u << size) - 1;
            list->address[n] = address + index * LANES * 2;
            list->sign[n] = negative ? -1 : 1;
            at += size;
            address += (LANES * 2u) << (size - 1);
            if (++n == 3) {
                n = 0;
                list++;
            }
        }
    }
    for (; list < end; list++, n = 0) { /* nothing, where lists are longer */
        for (; n < 3; n++) {
            list->address[n] = w->tap_address[0];
            list->sign[n] = 0;
        }
    }
}

/* The same for 4 filters and whole words of 16 channels: `filter` is the first's word of tap 0, and words of taps are
 * `step` apart. */
static void list_four(const work *w, triple *list, const uint16_t *filter, uint32_t step) {
    const uint32x4_t filters = vmulq_n_u32(vidupq_n_u32(0, 1), w->layer->words);
    const uint32x4_t entry = vdupq_n_u32(LANES * 2);
    const uint32_t *tap = w->tap_address, *end = tap + w->cut.taps;
    uint32x4_t to = vmulq_n_u32(vidupq_n_u32(0, 1), w->cut.triples * (uint32_t)sizeof(triple));
    to = vaddq_n_u32(to, (uint32_t)(uintptr_t)list);
    for (; tap < end; filter += step) {
        const uint32x4_t word = vldrhq_gather_shifted_offset_u32(filter, filters);
        uint32_t address = *tap++;
#define LIST(g, first, size) \
    do { \
        uint32x4_t bits = vshlq_n_u32(word, 32 - (first) - (size)); \
        uint32x4_t negative = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(bits), 31)); \
        bits = vshrq_n_u32(veorq_u32(bits, negative), 32 - (size)); \
        vstrwq_scatter_base_u32(to, 4 * (g), vmlasq_n_u32(bits, entry, address)); \
        vstrwq_scatter_base_u32(to, 4 * (g) + 12, vorrq_n_u32(negative, 1)); \
        address += (LANES * 2u) << ((size) - 1); \
    } while (0)
        LIST(0, 0, 5);
        LIST(1, 5, 5);
        LIST(2, 10, 6);
        to = vaddq_n_u32(to, sizeof(triple));
    }
}

/* The same for groups of 4, of which four tap after tap fill triples, where the last one is full. */
static void list_four_lean(const work *w, triple *list, const uint16_t *filter, uint32_t step) {
    const uint32x4_t filters = vmulq_n_u32(vidupq_n_u32(0, 1), w->layer->words);
    const uint32x4_t entry = vdupq_n_u32(LANES * 2);
    const uint32_t *tap = w->tap_address, *end = tap + w->cut.taps;
    uint32x4_t to = vmulq_n_u32(vidupq_n_u32(0, 1), w->cut.triples * (uint32_t)sizeof(triple));
    uint32_t n = 0;
    to = vaddq_n_u32(to, (uint32_t)(uintptr_t)list);
    for (; tap < end; filter += step) {
        const uint32x4_t word = vldrhq_gather_shifted_offset_u32(filter, filters);
        uint32_t address = *tap++;
        for (int32_t first = 28; first >= 16; first -= LEAN_GROUP, address += (LANES * 2u) << (LEAN_GROUP - 1)) {
            uint32x4_t bits = vshlq_r_u32(word, first);
            uint32x4_t negative = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(bits), 31));
            bits = vshrq_n_u32(veorq_u32(bits, negative), 32 - LEAN_GROUP);
            vstrwq_scatter_base_u32(to, 0, vmlasq_n_u32(bits, entry, address));
            vstrwq_scatter_base_u32(to, 12, vorrq_n_u32(negative, 1));
            n = n == 2 ? 0 : n + 1;
            to = vaddq_n_u32(to, n == 0 ? sizeof(triple) - 8 : 4);
        }
    }
}

static void list_chunk(const work *w, triple *list, uint32_t first, uint32_t filters, uint32_t chunk) {
    const fb_layer *layer = w->layer;
    uint32_t channel = chunk * w->cut.chunk, channels = least(w->cut.chunk, layer->in.channels - channel), o = 0;
    const uint16_t *filter = layer->bits + (size_t)first * layer->words;
    const bool lean = w->cut.group == LEAN_GROUP;
    if (w->cut.chunk == 16 && layer->in.channels % 16 == 0 && !(lean && w->cut.taps % 3)) {
        bool chunked = layer->flags & FB_FLAG_CHUNKS;
        const uint16_t *word = filter + (chunked ? chunk * 9 : chunk);
        for (; o + 4 <= filters; o += 4, word += 4 * layer->words, list += 4 * w->cut.triples) {
            if (lean) {
                list_four_lean(w, list, word, chunked ? 1 : w->cut.chunks);
            } else {
                list_four(w, list, word, chunked ? 1 : w->cut.chunks);
            }
        }
    }
    for (; o < filters; o++, list += w->cut.triples) list_filter(w, list, filter + o * layer->words, channel, channels);
}

/* Adds what a filter's list looks up to 4 rows of 8 pixels, which lie 20 bytes apart; all filters, one after another.
 */
#define LOOK(address, sign) \
    "vldrh.u16 q4, [" address ", %[row0]]\n\t" \
    "vldrh.u16 q5, [" address ", %[row1]]\n\t" \
    "vmla.s16 q0, q4, " sign "\n\t" \
    "vldrh.u16 q6, [" address ", %[row2]]\n\t" \
    "vmla.s16 q1, q5, " sign "\n\t" \
    "vldrh.u16 q7, [" address ", %[row3]]\n\t" \
    "vmla.s16 q2, q6, " sign "\n\t" \
    "vmla.s16 q3, q7, " sign "\n\t"
#define LOOK_3 "ldm %[list]!, {r1-r6}\n\t" LOOK("r1", "r4") LOOK("r2", "r5") LOOK("r3", "r6")
#define LOOK_UP(body, offset) \
    __asm__ volatile( \
        "1:\n\t" \
        "ldrsh r1, [%[start]], %[step]\n\t" \
        "vdup.16 q0, r1\n\t" \
        "vmov q1, q0\n\t" \
        "vmov q2, q0\n\t" \
        "vmov q3, q0\n\t" \
        "dls lr, %[count]\n\t" \
        "2:\n\t" body "le lr, 2b\n\t" \
        "vstrh.16 q0, [%[sums]], #16\n\t" \
        "vstrh.16 q1, [%[sums]], #16\n\t" \
        "vstrh.16 q2, [%[sums]], #16\n\t" \
        "vstrh.16 q3, [%[sums]], #16\n\t" \
        "cmp %[sums], %[end]\n\t" \
        "bne.w 1b" \
        : [list] "+r"(list), [sums] "+r"(sums), [start] "+r"(start) \
        : [count] "r"(count), [end] "r"(end), [step] "i"(sizeof(scale)), [row0] "i"(offset), \
          [row1] "i"((offset) + 2 * SEGMENT), [row2] "i"((offset) + 4 * SEGMENT), [row3] "i"((offset) + 6 * SEGMENT) \
        : "r1", "r2", "r3", "r4", "r5", "r6", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory")

/* The sums of one pass (the first or the second of a tile) and chunk: sums[filters][PIXELS]. */
static void look_up(const work *w, const triple *list, uint32_t filters, bool second, int16_t *sums) {
    const int16_t *start = &w->scales->start, *end = sums + filters * PIXELS;
    uint32_t count = w->cut.triples;
    if (count % 3 == 0) { /* as with 3×3 kernels: three triples a round */
        count /= 3;
        if (second) {
            LOOK_UP(LOOK_3 LOOK_3 LOOK_3, 2 * SEGMENT * ROWS);
        } else {
            LOOK_UP(LOOK_3 LOOK_3 LOOK_3, 0);
        }
    } else if (second) {
        LOOK_UP(LOOK_3, 2 * SEGMENT * ROWS);
    } else {
        LOOK_UP(LOOK_3, 0);
    }
}

/* The scale of a filter for requantization in 16 bits, and whether that gives the same results. The multiplier must be
 * a whole multiple of 2^-15. The sum of one chunk must fit with its bias. Two chunks and the bias are added with
 * saturation: what is lost then must be beyond what an output can hold. */
static bool scale_filter(const work *w, uint32_t filter, scale *s) {
    const fb_layer *layer = w->layer;
    const int32_t bias = layer->bias[filter], room = INT16_MAX - (bias < 0 ? -bias : bias), shift = layer->shift;
    int32_t m = layer->mult[filter];
    if (shift <= 15) {
        m <<= 15 - shift;
    } else {
        if (m & ((1 << (shift - 15)) - 1)) return false;
        m >>= shift - 15;
    }
    if (m > INT16_MAX || room < 0) return false;
    if (w->cut.chunks == 1) {
        if (128 * (int32_t)(w->cut.taps * w->cut.chunk) > room) return false;
    } else {
        const int32_t kept = (room * m + (1 << 14)) >> 15;
        if (layer->out.zero_point + kept < 127 || layer->out.zero_point - kept > layer->low) return false;
    }
    s->start = w->cut.chunks == 1 ? (int16_t)bias : 0;
    s->bias = (int16_t)bias;
    s->multiplier = (int16_t)m;
    return true;
}

/* Whether 16 bits do for all filters; else sums start from 0. */
static bool scale_filters(const work *w, uint32_t first, uint32_t filters) {
    bool narrow = w->cut.chunks <= 2;
    uint32_t o;
    for (o = 0; o < filters && narrow; o++) narrow = scale_filter(w, first + o, w->scales + o);
    for (o = 0; o < filters && !narrow; o++) w->scales[o].start = 0;
    return narrow;
}

/* Where a pass goes in the output. */
typedef struct target {
    int8_t *out;         /* first pixel, first filter */
    size_t plane;        /* of a filter */
    size_t row[ROWS];    /* offsets; rows below the image go where the last one will be written over them */
    mve_pred16_t inside; /* columns */
} target;

/* What requantization needs of a layer. */
typedef struct range {
    bool half_up; /* with a fused ReLU: what is below zero does not matter, nor how it is rounded */
    int16_t zero_point;
    int16x8_t low, high;
} range;

static inline range range_of(const fb_layer *layer) {
    range r;
    r.half_up = layer->low == layer->out.zero_point;
    r.zero_point = layer->out.zero_point;
    r.low = vdupq_n_s16(layer->low);
    r.high = vdupq_n_s16(127);
    return r;
}

static inline int16x8_t clamp(int16x8_t y, const range *r) {
    return vminq_s16(vmaxq_s16(vqaddq_n_s16(y, r->zero_point), r->low), r->high);
}

/* The last row first. Together, as the compiler would set the predicate for each of them. */
static inline void store_rows(const target *t, int8_t *out, int16x8_t y0, int16x8_t y1, int16x8_t y2, int16x8_t y3) {
    __asm__ volatile(
        "vmsr p0, %[inside]\n\t"
        "vpstttt\n\t"
        "vstrbt.16 %q[y3], [%[to3]]\n\t"
        "vstrbt.16 %q[y2], [%[to2]]\n\t"
        "vstrbt.16 %q[y1], [%[to1]]\n\t"
        "vstrbt.16 %q[y0], [%[to0]]"
        :
        : [inside] "r"((uint32_t)t->inside), [to0] "l"(out), [to1] "l"(out + t->row[1]), [to2] "l"(out + t->row[2]),
          [to3] "l"(out + t->row[3]), [y0] "w"(y0), [y1] "w"(y1), [y2] "w"(y2), [y3] "w"(y3)
        : "p0", "memory");
}

/* round(sum · multiplier / 2^15), ties away from zero: of the magnitude, then with the sign. */
static inline int16x8_t scale_row(int16x8_t sum, int16_t multiplier) {
    const int16x8_t sign = vshrq_n_s16(sum, 15);
    return vsubq_s16(veorq_s16(vqrdmulhq_n_s16(vqabsq_s16(sum), multiplier), sign), sign);
}

/* Requantize in 16 bits. `more` are the sums of the first chunk; with NULL there is but one, and the bias is in it. */
static void finish_narrow(const work *w, uint32_t filters, const int16_t *more, const target *t) {
    const range r = range_of(w->layer);
    const int16_t *sums = w->sums, *end = sums + filters * PIXELS;
    const scale *s = w->scales;
    int8_t *out = t->out;
    for (; sums < end; sums += PIXELS, out += t->plane) {
        const int16_t bias = s->bias, multiplier = s++->multiplier;
        int16x8_t y0 = vldrhq_s16(sums), y1 = vldrhq_s16(sums + 8);
        int16x8_t y2 = vldrhq_s16(sums + 16), y3 = vldrhq_s16(sums + 24);
        if (more) {
            y0 = vqaddq_n_s16(vqaddq_s16(y0, vldrhq_s16(more)), bias);
            y1 = vqaddq_n_s16(vqaddq_s16(y1, vldrhq_s16(more + 8)), bias);
            y2 = vqaddq_n_s16(vqaddq_s16(y2, vldrhq_s16(more + 16)), bias);
            y3 = vqaddq_n_s16(vqaddq_s16(y3, vldrhq_s16(more + 24)), bias);
            more += PIXELS;
        }
        if (r.half_up) {
            y0 = vqrdmulhq_n_s16(y0, multiplier);
            y1 = vqrdmulhq_n_s16(y1, multiplier);
            y2 = vqrdmulhq_n_s16(y2, multiplier);
            y3 = vqrdmulhq_n_s16(y3, multiplier);
        } else {
            y0 = scale_row(y0, multiplier);
            y1 = scale_row(y1, multiplier);
            y2 = scale_row(y2, multiplier);
            y3 = scale_row(y3, multiplier);
        }
        store_rows(t, out, clamp(y0, &r), clamp(y1, &r), clamp(y2, &r), clamp(y3, &r));
    }
}

/* Add a chunk's sums in 32 bits: even and odd pixels of a row apart. */
static void add_wide(const work *w, uint32_t filters, int32_t *all, bool first) {
    const int16_t *sums = w->sums, *end = sums + filters * PIXELS;
    for (; sums < end; sums += 16, all += 16) {
        const int16x8_t a = vldrhq_s16(sums), b = vldrhq_s16(sums + 8);
        int32x4_t a0 = vmovlbq_s16(a), a1 = vmovltq_s16(a), b0 = vmovlbq_s16(b), b1 = vmovltq_s16(b);
        if (!first) {
            a0 = vaddq_s32(a0, vldrwq_s32(all));
            a1 = vaddq_s32(a1, vldrwq_s32(all + 4));
            b0 = vaddq_s32(b0, vldrwq_s32(all + 8));
            b1 = vaddq_s32(b1, vldrwq_s32(all + 12));
        }
        vstrwq_s32(all, a0);
        vstrwq_s32(all + 4, a1);
        vstrwq_s32(all + 8, b0);
        vstrwq_s32(all + 12, b1);
    }
}

static inline int32x4_t scale_wide(int32x4_t sum, int32x4_t multiplier, int32_t bias, int32_t shift, bool half_up) {
    sum = vmlasq_n_s32(sum, multiplier, bias);
    if (!half_up) sum = vaddq_s32(sum, vshrq_n_s32(sum, 31)); /* ties away from zero */
    return vrshlq_n_s32(sum, shift);
}

/* Requantize in 32 bits; `all` are the sums of the other chunks, or NULL. */
static void finish_wide(const work *w, uint32_t filter, uint32_t filters, const int32_t *all, const target *t) {
    const fb_layer *layer = w->layer;
    const range r = range_of(layer);
    const int32_t shift = -(int32_t)layer->shift;
    const int16_t *sums = w->sums;
    int8_t *out = t->out;
    uint32_t o;
    for (o = filter; o < filter + filters; o++, out += t->plane) {
        const int32x4_t multiplier = vdupq_n_s32(layer->mult[o]);
        const int32_t bias = layer->bias[o] * layer->mult[o];
        int16x8_t y0, y1, y2, y3;
#define SCALE_ROW(y) \
    do { \
        const int16x8_t sum = vldrhq_s16(sums); \
        int32x4_t even = vmovlbq_s16(sum), odd = vmovltq_s16(sum); \
        if (all) { \
            even = vaddq_s32(even, vldrwq_s32(all)); \
            odd = vaddq_s32(odd, vldrwq_s32(all + 4)); \
            all += 8; \
        } \
        (y) = vqmovnbq_s32(sum, scale_wide(even, multiplier, bias, shift, r.half_up)); \
        (y) = clamp(vqmovntq_s32(y, scale_wide(odd, multiplier, bias, shift, r.half_up)), &r); \
        sums += 8; \
    } while (0)
        SCALE_ROW(y0);
        SCALE_ROW(y1);
        SCALE_ROW(y2);
        SCALE_ROW(y3);
        store_rows(t, out, y0, y1, y2, y3);
    }
}

/* One pass over one chunk's tables. */
static void run_pass(const work *w, const triple *list, uint32_t filter, uint32_t filters, uint32_t chunk, bool second,
                     const target *t) {
    const bool first = chunk == 0, last = chunk + 1 == w->cut.chunks;
    const uint32_t at = second ? filters * PIXELS : 0;
    int16_t *narrow_sums = (int16_t *)(void *)w->all_sums + at;
    int32_t *wide_sums = w->all_sums + at;
    if (w->narrow && !last) {
        look_up(w, list, filters, second, narrow_sums);
        return;
    }
    look_up(w, list, filters, second, w->sums);
    if (w->narrow) {
        finish_narrow(w, filters, first ? NULL : narrow_sums, t);
    } else if (last) {
        finish_wide(w, filter, filters, first ? NULL : wide_sums, t);
    } else {
        add_wide(w, filters, wide_sums, first);
    }
}

static void run_tile(const work *w, const int8_t *in, int8_t *out, uint32_t filter, uint32_t filters, uint32_t y,
                     uint32_t x) {
    const fb_layer *layer = w->layer;
    const size_t plane = (size_t)layer->in.height * layer->in.width, width = layer->out.width;
    const int32_t top = (int32_t)(y * layer->stride_h) - layer->pad_top;
    const int32_t left = (int32_t)(x * layer->stride_w) - layer->pad_left;
    const uint32_t passes = w->cut.passes > 1 && layer->out.height - y > ROWS ? 2 : 1;
    uint32_t chunk, pass, r;
    target t[2];
    for (pass = 0; pass < passes; pass++) {
        const size_t rows = layer->out.height - y - pass * ROWS;
        t[pass].plane = layer->out.height * width;
        t[pass].out = out + filter * t[pass].plane + (y + pass * ROWS) * width + x;
        for (r = 0; r < ROWS; r++) t[pass].row[r] = (r < rows ? r : rows - 1) * width;
        t[pass].inside = vctp16q(layer->out.width - x);
    }
    place_tile(w, top, left);
    in = (const int8_t *)((uintptr_t)in + (uintptr_t)(top * layer->in.width + left)); /* may be before the image */
    for (chunk = 0; chunk < w->cut.chunks; chunk++) {
        const uint32_t channel = chunk * w->cut.chunk;
        triple *list = w->lists;
        if (w->cut.lists > 1) {
            list += chunk * filters * w->cut.triples;
        } else if (w->cut.chunks > 1) {
            list_chunk(w, list, filter, filters, chunk);
        }
        fill_tables(w, in + channel * plane, least(w->cut.chunk, layer->in.channels - channel));
        for (pass = 0; pass < passes; pass++) run_pass(w, list, filter, filters, chunk, pass > 0, &t[pass]);
    }
}

static void run(const fb_layer *layer, bool lean, const int8_t *in, int8_t *out, void *scratch) {
    uint32_t filter, filters, chunk, x, y;
    work w;
    w.layer = layer;
    cut_layer(layer, lean, &w.cut);
    lay_out(&w, scratch);
    place_lanes(&w);
    place_taps(&w);
    for (filter = 0; filter < layer->out.channels; filter += filters) {
        filters = least(w.cut.filters, layer->out.channels - filter);
        w.narrow = scale_filters(&w, filter, filters);
        if (w.cut.lists == w.cut.chunks) {
            for (chunk = 0; chunk < w.cut.chunks; chunk++) {
                list_chunk(&w, w.lists + chunk * filters * w.cut.triples, filter, filters, chunk);
            }
        }
        for (x = 0; x < layer->out.width; x += COLUMNS) {
            for (y = 0; y < layer->out.height; y += w.cut.passes * ROWS) run_tile(&w, in, out, filter, filters, y, x);
        }
    }
}

void fb_conv_bin_mve(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    run(layer, false, in, out, scratch);
}

void fb_conv_bin_mve_lean(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    run(layer, true, in, out, scratch);
}

#endif
