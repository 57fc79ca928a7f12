/* Convolutions for x86-64: activations in planes, bands of rows, blocks of filters. See fb_conv_x86.h. */
#include "fb_conv_x86.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <emmintrin.h>

enum {
    BAND = 192 * 1024,        /* bytes of planes aimed at: they should stay in the second-level cache */
    MOST = 256 * 1024 * 1024, /* bytes of scratch beyond which a layer is left to other kernels */
    LINE = 64,                /* of the cache */
    SLACK = 32                /* words that a block may read behind the last plane */
};

typedef struct geometry {
    uint32_t groups, taps, terms;
    uint32_t phases;                      /* of rows */
    uint32_t rows;                        /* of the output in a band */
    uint32_t depth;                       /* rows of a phase */
    uint32_t plane;                       /* words of a phase */
    uint32_t width;                       /* of a row with its padding */
    uint32_t filter;                      /* bytes of a filter in scratch */
    uint64_t offsets, row, filters, size; /* places in scratch, bytes */
} geometry;

static geometry geometry_of(const fb_layer *layer, uint32_t filters) {
    geometry g;
    uint64_t line, planes, seen;
    uint32_t more = (uint32_t)(layer->kernel_h - 1) / layer->stride_h; /* rows of a phase beyond those of the output */
    g.groups = ((uint32_t)layer->in.channels + 3) / 4;
    g.taps = (uint32_t)layer->kernel_h * layer->kernel_w;
    g.terms = g.groups * g.taps;
    g.phases = layer->kernel_h < layer->stride_h ? layer->kernel_h : layer->stride_h;
    line = (uint64_t)g.groups * layer->kernel_w * g.phases * layer->out.width * 4;
    g.rows = (uint32_t)(BAND / line > more ? BAND / line - more : 1);
    if (g.rows > layer->out.height) g.rows = layer->out.height;
    g.depth = g.rows + more;
    planes = line * g.depth;
    g.plane = (uint32_t)(g.depth * layer->out.width);
    g.width = (uint32_t)layer->pad_left + layer->in.width;
    seen = (uint64_t)(layer->out.width - 1u) * layer->stride_w + layer->kernel_w;
    if (seen > g.width) g.width = (uint32_t)seen;
    g.filter = (g.terms * 4 + LINE - 1) / LINE * LINE;
    g.offsets = planes + SLACK * 4;
    g.row = g.offsets + (uint64_t)g.terms * 4;
    g.filters = g.row + (uint64_t)g.width * 4;
    g.size = g.filters + (uint64_t)filters * g.filter + LINE;
    return g;
}

uint32_t fb_conv_x86_scratch(const fb_layer *layer, uint32_t filters) {
    geometry g = geometry_of(layer, filters);
    return g.size > MOST ? FB_NOT_FOR_THIS : (uint32_t)g.size;
}

/* `count` pixels of up to four channels as words: byte i of a word is channel i, or 0 where there is none. */
static void interleave(const int8_t *in, size_t plane, uint32_t channels, uint32_t count, uint32_t *to) {
    uint32_t x = 0, c;
    if (channels == 4) {
        const __m128i sign = _mm_set1_epi8(-128);
        for (; x + 8 <= count; x += 8) {
            __m128i a = _mm_loadl_epi64((const __m128i *)(const void *)(in + x));
            __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)(in + plane + x));
            __m128i d = _mm_loadl_epi64((const __m128i *)(const void *)(in + 2 * plane + x));
            __m128i e = _mm_loadl_epi64((const __m128i *)(const void *)(in + 3 * plane + x));
            __m128i ab = _mm_xor_si128(_mm_unpacklo_epi8(a, b), sign);
            __m128i de = _mm_xor_si128(_mm_unpacklo_epi8(d, e), sign);
            _mm_storeu_si128((__m128i *)(void *)(to + x), _mm_unpacklo_epi16(ab, de));
            _mm_storeu_si128((__m128i *)(void *)(to + x + 4), _mm_unpackhi_epi16(ab, de));
        }
    }
    for (; x < count; x++) {
        uint32_t word = 0;
        for (c = 0; c < channels; c++) word |= (uint32_t)(uint8_t)(in[c * plane + x] ^ -128) << (8 * c);
        to[x] = word;
    }
}

/* Every step-th word of a row. Rows are short: a call of memcpy for each would take longer than the copying. */
static inline void take(const uint32_t *row, uint32_t count, uint32_t step, uint32_t *to) {
    uint32_t x = 0;
    if (step == 1) {
        for (; x + 4 <= count; x += 4) {
            __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(row + x));
            _mm_storeu_si128((__m128i *)(void *)(to + x), v);
        }
    } else if (step == 2) {
        for (; x + 4 < count; x += 4) { /* never the last four: a word behind the row would be read */
            __m128 a = _mm_castsi128_ps(_mm_loadu_si128((const __m128i *)(const void *)(row + 2 * x)));
            __m128 b = _mm_castsi128_ps(_mm_loadu_si128((const __m128i *)(const void *)(row + 2 * x + 4)));
            _mm_storeu_si128((__m128i *)(void *)(to + x), _mm_castps_si128(_mm_shuffle_ps(a, b, 0x88)));
        }
    }
    for (; x < count; x++) to[x] = row[x * (size_t)step];
}

/* The planes of the band that starts at output row `first`. */
static void fill_planes(const fb_layer *layer, const geometry *g, const int8_t *in, uint32_t first, uint32_t *row,
                        uint32_t *planes) {
    size_t plane = (size_t)layer->in.height * layer->in.width;
    uint32_t n = layer->out.width, group, r, j, kx, x;
    for (group = 0; group < g->groups; group++, in += 4 * plane) {
        uint32_t channels = layer->in.channels - 4 * group < 4 ? layer->in.channels - 4 * group : 4;
        uint32_t outside = (uint32_t)(uint8_t)(layer->in.zero_point ^ -128) * 0x01010101u >> (32 - 8 * channels);
        uint32_t *to = planes + (size_t)group * layer->kernel_w * g->phases * g->plane;
        bool clean = true; /* the row is all padding */
        for (x = 0; x < g->width; x++) row[x] = outside;
        for (r = 0; r < g->phases; r++) {
            for (j = 0; j < g->depth; j++) {
                int64_t y = (int64_t)(first + j) * layer->stride_h + r - layer->pad_top;
                if (y >= 0 && y < layer->in.height) {
                    interleave(in + (size_t)y * layer->in.width, plane, channels, layer->in.width,
                               row + layer->pad_left);
                    clean = false;
                } else if (!clean) {
                    for (x = 0; x < layer->in.width; x++) row[layer->pad_left + x] = outside;
                    clean = true;
                }
                for (kx = 0; kx < layer->kernel_w; kx++) {
                    take(row + kx, n, layer->stride_w, to + ((size_t)kx * g->phases + r) * g->plane + (size_t)j * n);
                }
            }
        }
    }
}

/* Where the inputs of a filter's words are, in the order of the words. */
static void fill_offsets(const fb_layer *layer, const geometry *g, uint32_t share, uint32_t *offsets) {
    uint32_t start, tap, group;
    if (!(layer->flags & FB_FLAG_CHUNKS)) share = g->groups;
    for (start = 0; start < g->groups; start += share) {
        for (tap = 0; tap < g->taps; tap++) {
            uint32_t ky = tap / layer->kernel_w, kx = tap % layer->kernel_w;
            for (group = start; group < start + share; group++) {
                *offsets++ = ((group * layer->kernel_w + kx) * g->phases + ky % layer->stride_h) * g->plane +
                             ky / layer->stride_h * layer->out.width;
            }
        }
    }
}

/* A filter whose channels are no multiple of 4, weight by weight; the sum of its weights. */
static int32_t pad_filter(const fb_layer *layer, const geometry *g, uint32_t o, int8_t *to) {
    uint32_t bit = 0, tap, c;
    int32_t sum = 0;
    for (tap = 0; tap < g->taps; tap++) {
        for (c = 0; c < 4 * g->groups; c++) {
            int8_t w = 0;
            if (c < layer->in.channels) {
                if (layer->bits) {
                    w = layer->bits[(size_t)o * layer->words + bit / 16] >> bit % 16 & 1 ? 1 : -1;
                } else {
                    w = layer->weights[(size_t)o * layer->inputs + bit];
                }
                bit++;
            }
            sum += w;
            *to++ = w;
        }
    }
    return sum;
}

static int32_t sum_of(const int8_t *w, uint32_t count) {
    int32_t sum = 0;
    uint32_t i;
    for (i = 0; i < count; i++) sum += w[i];
    return sum;
}

void fb_conv_x86_run(const fb_layer *layer, const int8_t *in, int8_t *out, void *scratch, const fb_x86_conv *conv) {
    geometry g = geometry_of(layer, conv->filters);
    uint8_t *base = (uint8_t *)(((uintptr_t)scratch + LINE - 1) & ~(uintptr_t)(LINE - 1));
    uint32_t *planes = (void *)base, *offsets = (void *)(base + g.offsets), *row = (void *)(base + g.row);
    int8_t *filters = (int8_t *)(base + g.filters);
    size_t plane = (size_t)layer->out.height * layer->out.width;
    bool whole = layer->in.channels % 4 == 0;
    fb_x86_block block;
    uint32_t first, o, i;
    block.layer = layer;
    block.planes = planes;
    block.offsets = offsets;
    block.terms = g.terms;
    block.distance = g.filter;
    fill_offsets(layer, &g, conv->share, offsets);
    for (first = 0; first < layer->out.height; first += g.rows) {
        uint32_t rows = layer->out.height - first < g.rows ? layer->out.height - first : g.rows;
        block.pixels = rows * layer->out.width;
        fill_planes(layer, &g, in, first, row, planes);
        for (o = 0; o < layer->out.channels; o += conv->filters) {
            block.filters = layer->out.channels - o < conv->filters ? layer->out.channels - o : conv->filters;
            for (i = 0; i < conv->filters; i++) {
                int8_t *filter = filters + (size_t)i * g.filter;
                uint32_t c = o + i;
                int32_t sum;
                if (c >= layer->out.channels) {
                    block.filter[i] = block.filter[i - 1];
                    block.bias[i] = block.bias[i - 1];
                    block.multiplier[i] = block.multiplier[i - 1];
                    block.out[i] = block.out[i - 1];
                    continue;
                }
                block.filter[i] = filter;
                if (!whole) {
                    sum = pad_filter(layer, &g, c, filter);
                } else if (layer->bits) {
                    sum = conv->expand(layer, layer->bits + (size_t)c * layer->words, filter);
                } else {
                    block.filter[i] = layer->weights + (size_t)c * layer->inputs;
                    sum = sum_of(block.filter[i], layer->inputs);
                }
                block.bias[i] = (int32_t)((uint32_t)layer->bias[c] - 128u * (uint32_t)sum);
                block.multiplier[i] = layer->bits ? layer->mult[c] : layer->mult_int8[c];
                block.out[i] = out + c * plane + (size_t)first * layer->out.width;
            }
            conv->block(&block);
        }
    }
}

#endif
