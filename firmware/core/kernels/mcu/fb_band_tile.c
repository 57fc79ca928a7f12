#include "fb_band_tile.h"

#include "../fb_tile_scale.h"

enum { CHANNELS = 16, PAIR = 2 * CHANNELS, SPAN = 17 };

/* Where column k of a row goes. */
#define STRIDE_1(k) ((k) / 2 * PAIR + (k) % 2)
#define STRIDE_2(k) ((k) % 2 ? FB_BAND_X_EVEN + (k) / 4 * PAIR + (k) / 2 % 2 : (k) / 4 * PAIR + (k) / 2 % 2)

/* A row of each band, from column 1 on: column 0 may be outside. */
typedef struct rows {
    const int8_t *upper, *lower;
    size_t upper_step, lower_step; /* from channel to channel */
} rows;

/* All columns but the first and the last one, which may be padding. */
static void pack_stride1(rows r, uint32_t *x) {
    unsigned channels;
    for (channels = CHANNELS; channels; channels--, x += 2) {
        const int8_t *a = r.upper, *b = r.lower;
#define PACK(k) x[STRIDE_1(k)] = fb_pack(a[(k) - 1], b[(k) - 1])
        PACK(1);
        PACK(2);
        PACK(3);
        PACK(4);
        PACK(5);
        PACK(6);
        PACK(7);
        PACK(8);
#undef PACK
        r.upper += r.upper_step;
        r.lower += r.lower_step;
    }
}

static void pack_stride2(rows r, uint32_t *x) {
    unsigned channels;
    for (channels = CHANNELS; channels; channels--, x += 2) {
        const int8_t *a = r.upper, *b = r.lower;
#define PACK(k) x[STRIDE_2(k)] = fb_pack(a[(k) - 1], b[(k) - 1])
        PACK(1);
        PACK(2);
        PACK(3);
        PACK(4);
        PACK(5);
        PACK(6);
        PACK(7);
        PACK(8);
        PACK(9);
        PACK(10);
        PACK(11);
        PACK(12);
        PACK(13);
        PACK(14);
        PACK(15);
#undef PACK
        r.upper += r.upper_step;
        r.lower += r.lower_step;
    }
}

/* A column, of `padding` only if it is outside. */
static void pack_column(rows r, int32_t k, bool outside, uint32_t padding, uint32_t *x) {
    unsigned channels;
    if (outside) {
        for (channels = CHANNELS; channels; channels--, x += 2) *x = padding;
        return;
    }
    for (channels = CHANNELS; channels; channels--, x += 2) {
        *x = fb_pack(r.upper[k - 1], r.lower[k - 1]);
        r.upper += r.upper_step;
        r.lower += r.lower_step;
    }
}

void fb_band_pack(const fb_layer *layer, const int8_t *in, int32_t y, int32_t left, uint32_t *x) {
    const int32_t height = layer->in.height, width = layer->in.width, stride = layer->stride_w;
    const int32_t span = stride == 1 ? 10 : SPAN, below = y + stride * (int32_t)fb_band(layer);
    const size_t plane = (size_t)height * (size_t)width;
    const int8_t zero = layer->in.zero_point;
    const bool upper = y >= 0 && y < height, lower = below >= 0 && below < height;
    const uint32_t padding = fb_pack(zero, zero);
    int8_t outside[SPAN];
    rows r = {outside + 1, outside + 1, 0, 0};
    int32_t k;
    unsigned channel;
    if (!upper || !lower) {
        for (k = 0; k < span; k++) outside[k] = zero;
    }
    if (left >= -1 && left + span <= width + 1) {
        if (upper) {
            r.upper = in + (y * width + left + 1);
            r.upper_step = plane;
        }
        if (lower) {
            r.lower = in + (below * width + left + 1);
            r.lower_step = plane;
        }
        pack_column(r, 0, left < 0, padding, x);
        if (stride == 1) {
            pack_stride1(r, x);
            pack_column(r, span - 1, left + span > width, padding, x + STRIDE_1(9));
        } else {
            pack_stride2(r, x);
            pack_column(r, span - 1, left + span > width, padding, x + STRIDE_2(16));
        }
        return;
    }
    for (channel = 0; channel < CHANNELS; channel++, in += plane, x += 2) { /* wider borders, or fewer pixels */
        for (k = 0; k < span; k++) {
            bool there = left + k >= 0 && left + k < width;
            int32_t a = there && upper ? in[y * width + left + k] : zero;
            int32_t b = there && lower ? in[below * width + left + k] : zero;
            x[stride == 1 ? STRIDE_1(k) : STRIDE_2(k)] = fb_pack(a, b);
        }
    }
}

FB_INLINE void requantize(const fb_layer *layer, const uint32_t *packed, const uint32_t *others, int8_t *out,
                          bool relu) {
    const size_t plane = (size_t)layer->out.height * layer->out.width;
    const int32_t *bias = layer->bias;
    const int16_t *mult = layer->mult, *end = mult + layer->out.channels;
    const int32_t zero_point = layer->out.zero_point;
    const unsigned shift = layer->shift;
    int8_t *below = out + (size_t)fb_band(layer) * layer->out.width;
    for (; mult != end; mult++, bias++, packed += FB_TILE, out += plane, below += plane) {
        int32_t factor = *mult, offset = *bias * factor + fb_half(shift);
#define WORD(j) \
    do { \
        uint32_t word = packed[j]; \
        int32_t low, high; \
        if (others) { \
            uint32_t other = others[j]; \
            low = (fb_low(word) + fb_low(other)) * factor + offset; \
            high = (fb_high(word) + fb_high(other)) * factor + offset; \
        } else { \
            low = fb_low_product(word, factor, offset); \
            high = fb_high_product(word, factor, offset); \
        } \
        out[j] = fb_scale(low, shift, zero_point, relu); \
        below[j] = fb_scale(high, shift, zero_point, relu); \
    } while (0)
        WORD(0);
        WORD(1);
        WORD(2);
        WORD(3);
        WORD(4);
        WORD(5);
        WORD(6);
        WORD(7);
#undef WORD
        if (others) others += FB_TILE;
    }
}

/* Fewer pixels, no lower band, or a ReLU that is not at −128. */
static void requantize_some(const fb_layer *layer, const uint32_t *packed, const uint32_t *others, int8_t *out,
                            unsigned pixels, bool both) {
    const size_t plane = (size_t)layer->out.height * layer->out.width;
    const size_t below = (size_t)fb_band(layer) * layer->out.width;
    uint32_t o, j;
    for (o = 0; o < layer->out.channels; o++, packed += FB_TILE, out += plane) {
        for (j = 0; j < pixels; j++) {
            uint32_t other = others ? others[FB_TILE * o + j] : 0;
            int32_t low = fb_low(packed[j]) + fb_low(other) + layer->bias[o];
            int32_t high = fb_high(packed[j]) + fb_high(other) + layer->bias[o];
            out[j] = fb_requantize(low, layer->mult[o], layer->shift, layer->out.zero_point, layer->low);
            if (!both) continue;
            out[below + j] = fb_requantize(high, layer->mult[o], layer->shift, layer->out.zero_point, layer->low);
        }
    }
}

void fb_band_requantize(const fb_layer *layer, const uint32_t *packed, const uint32_t *others, int8_t *out, uint32_t y,
                        uint32_t column) {
    const uint32_t width = layer->out.width, pixels = width - column < FB_TILE ? width - column : FB_TILE;
    const bool both = y + fb_band(layer) < layer->out.height;
    out += (size_t)y * width + column;
    if (pixels < FB_TILE || !both || layer->low != -128) {
        requantize_some(layer, packed, others, out, pixels, both);
    } else if (others) { /* without a ReLU will do for both: it takes an instruction per pixel more */
        requantize(layer, packed, others, out, false);
    } else if (layer->flags & FB_FLAG_RELU) {
        requantize(layer, packed, NULL, out, true);
    } else {
        requantize(layer, packed, NULL, out, false);
    }
}
