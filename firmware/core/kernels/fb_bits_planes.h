/* Convolution of bits for CPUs that look up 16 bytes at once (VPSHUFB, TBL): what fb_conv_bits_avx2 and fb_conv_bits_neon
 * share. Private to them.
 *
 * Four input channels of a pixel are a byte, an index of 0 … 15; four weights choose the table that says how many of
 * these differ. An index beyond 127 gives 0: padding of 0, which differs from no weight.
 *
 *     planes[channels / 4][phases_y][phases_x][rows][pitch]    of bytes; strides split inputs in phases, so that
 *                                                              neighbours in the output are neighbours there
 *
 * Rows follow each other without a gap, and a tap of the kernel is a shift. A block is FB_LANES bytes of the output's
 * rows one behind the other; the few between two rows are computed and not used.
 *
 * scratch: shifts[look-ups] | n[lanes] | sums[FB_LANES] | weights[filters][look-ups] | planes
 */
#ifndef FB_BITS_PLANES_H
#define FB_BITS_PLANES_H

#include "fb_tap_words.h"

enum { FB_LANES = 128, FB_BITS_MOST = 63 /* look-ups whose sum fits a byte */, FB_OUTSIDE_BYTE = 0x80 };

/* Adds what `count` look-ups find, FB_BITS_MOST at most, to FB_LANES sums. */
typedef void fb_bits_add(const uint8_t *planes, const uint32_t *shifts, const uint8_t *weights, uint32_t count,
                         uint16_t *sums);
/* Results of `count` pixels of a filter; n: their inputs inside. */
typedef void fb_bits_finish(const fb_layer *layer, uint32_t filter, const uint16_t *sums, const uint16_t *n,
                            int8_t *out, uint32_t count);

typedef struct fb_bits_cut {
    uint32_t phases_y, phases_x, rows, pitch, plane; /* plane: bytes of all phases */
    uint32_t groups, look_ups;                       /* of four channels; of a filter */
    uint32_t lanes;                                  /* of the output */
} fb_bits_cut;

static inline fb_bits_cut fb_bits_cut_of(const fb_layer *layer) {
    fb_bits_cut c;
    c.phases_y = layer->stride_h < layer->kernel_h ? layer->stride_h : layer->kernel_h;
    c.phases_x = layer->stride_w < layer->kernel_w ? layer->stride_w : layer->kernel_w;
    c.rows = layer->out.height + (layer->kernel_h - 1u) / layer->stride_h;
    c.pitch = layer->out.width + (layer->kernel_w - 1u) / layer->stride_w;
    c.plane = fb_product(c.phases_y * c.phases_x, fb_product(c.rows, c.pitch));
    c.groups = (layer->in.channels + 3u) / 4;
    c.look_ups = c.groups * layer->kernel_h * layer->kernel_w;
    c.lanes = fb_sum(fb_product(layer->out.height - 1u, c.pitch), layer->out.width);
    return c;
}

static inline uint32_t fb_bits_scratch(const fb_layer *layer) {
    fb_bits_cut c;
    uint32_t size;
    if (layer->inputs > 0xFFFF) return FB_NOT_FOR_THIS; /* sums */
    c = fb_bits_cut_of(layer);
    size = fb_sum(c.look_ups * (uint32_t)sizeof(uint32_t), fb_product(c.lanes, (uint32_t)sizeof(uint16_t)));
    size = fb_sum(size, fb_product(layer->out.channels, c.look_ups));
    size = fb_sum(size, fb_product(c.plane, c.groups));
    return fb_sum(size, FB_LANES * (uint32_t)sizeof(uint16_t) + FB_LANES); /* blocks end behind the planes */
}

static inline void fb_bits_put_weights(const fb_layer *layer, const fb_bits_cut *c, uint32_t *shifts, uint8_t *to) {
    const uint32_t channels = layer->in.channels;
    const uint16_t *filter = layer->bits;
    uint32_t o, y, x, group;
    for (y = 0; y < layer->kernel_h; y++) {
        for (x = 0; x < layer->kernel_w; x++) {
            const uint32_t phase = y % layer->stride_h * c->phases_x + x % layer->stride_w;
            const uint32_t row = phase * c->rows + y / layer->stride_h;
            for (group = 0; group < c->groups; group++) {
                *shifts++ = group * c->plane + row * c->pitch + x / layer->stride_w;
            }
        }
    }
    for (o = 0; o < layer->out.channels && channels % 16 == 0; o++, filter += layer->words) { /* whole words */
        const bool chunked = layer->flags & FB_FLAG_CHUNKS;
        const uint32_t chunks = channels / 16, taps = (uint32_t)layer->kernel_h * layer->kernel_w;
        for (y = 0; y < taps; y++) {
            const uint16_t *words = filter + (chunked ? y : y * chunks);
            for (x = 0; x < chunks; x++, words += chunked ? 9 : 1, to += 4) {
                const uint32_t word = *words;
                to[0] = word & 15;
                to[1] = word >> 4 & 15;
                to[2] = word >> 8 & 15;
                to[3] = (uint8_t)(word >> 12);
            }
        }
    }
    for (o = 0; o < layer->out.channels && channels % 16 != 0; o++, filter += layer->words) {
        for (y = 0; y < c->look_ups; y++) {
            const uint32_t tap = y / c->groups, channel = y % c->groups * 4;
            const uint32_t count = channels - channel < 4 ? channels - channel : 4;
            const uint32_t at = tap * channels + channel;
            uint32_t word = filter[at / 16];
            if (at % 16 + count > 16) word |= (uint32_t)filter[at / 16 + 1] << 16;
            *to++ = (uint8_t)(word >> at % 16 & ((1u << count) - 1));
        }
    }
}

static inline void fb_bits_put_planes(const fb_layer *layer, const fb_bits_cut *c, const uint16_t *in,
                                      uint8_t *planes) {
    const int32_t height = layer->in.height, width = layer->in.width;
    const bool ones = layer->flags & FB_FLAG_ONES;
    uint32_t group, phase_y, phase_x, row, column, i;
    for (group = 0; group < c->groups; group += 4, in += (size_t)height * (size_t)width) {
        const uint32_t count = c->groups - group < 4 ? c->groups - group : 4, left = layer->in.channels - group * 4u;
        const uint32_t padding = left < 16 ? (1u << left) - 1 : 0xFFFF;
        uint8_t *to = planes + (size_t)group * c->plane;
        for (phase_y = 0; phase_y < c->phases_y; phase_y++) {
            for (phase_x = 0; phase_x < c->phases_x; phase_x++) {
                for (row = 0; row < c->rows; row++) {
                    const int32_t y = (int32_t)(row * layer->stride_h + phase_y) - layer->pad_top;
                    int32_t x = (int32_t)phase_x - layer->pad_left;
                    const bool there = y >= 0 && y < height;
                    const uint16_t *words = in + (there ? y * width : 0);
                    for (column = 0; column < c->pitch; column++, x += layer->stride_w, to++) {
                        const bool inside = there && x >= 0 && x < width;
                        const uint32_t word = inside ? words[x] : padding;
                        for (i = 0; i < count; i++) {
                            to[(size_t)i * c->plane] = (uint8_t)(inside || ones ? word >> 4 * i & 15 : FB_OUTSIDE_BYTE);
                        }
                    }
                }
            }
        }
    }
}

FB_INLINE void fb_bits_run(const fb_layer *layer, const int8_t *in, int8_t *out, void *scratch, fb_bits_add *add,
                           fb_bits_finish *finish) {
    const fb_bits_cut c = fb_bits_cut_of(layer);
    const size_t plane = (size_t)layer->out.height * layer->out.width;
    uint32_t *shifts = scratch, lane, o, i, x, y;
    uint16_t *n = (uint16_t *)(shifts + c.look_ups), *sums = n + c.lanes;
    uint8_t *weights = (uint8_t *)(sums + FB_LANES), *planes = weights + (size_t)layer->out.channels * c.look_ups;
    fb_bits_put_weights(layer, &c, shifts, weights);
    fb_bits_put_planes(layer, &c, (const uint16_t *)(const void *)in, planes);
    for (lane = 0; lane < c.lanes; lane++) {
        uint32_t taps = (uint32_t)layer->kernel_h * layer->kernel_w;
        if (!(layer->flags & FB_FLAG_ONES)) {
            taps = fb_inside((int32_t)(lane / c.pitch * layer->stride_h) - layer->pad_top, layer->kernel_h,
                             layer->in.height) *
                   fb_inside((int32_t)(lane % c.pitch * layer->stride_w) - layer->pad_left, layer->kernel_w,
                             layer->in.width);
        }
        n[lane] = (uint16_t)(taps * layer->in.channels);
    }
    for (lane = 0; lane < c.lanes; lane += FB_LANES) {
        const uint32_t end = c.lanes - lane < FB_LANES ? c.lanes : lane + FB_LANES;
        for (o = 0; o < layer->out.channels; o++) {
            const uint8_t *w = weights + (size_t)o * c.look_ups;
            memset(sums, 0, FB_LANES * sizeof *sums);
            for (i = 0; i < c.look_ups; i += FB_BITS_MOST) {
                const uint32_t left = c.look_ups - i;
                add(planes + lane, shifts + i, w + i, left < FB_BITS_MOST ? left : FB_BITS_MOST, sums);
            }
            for (i = lane; i < end; i += c.pitch - x) {
                uint32_t count;
                y = i / c.pitch;
                x = i % c.pitch;
                if (x >= layer->out.width) continue;
                count = layer->out.width - x < end - i ? layer->out.width - x : end - i;
                finish(layer, o, sums + (i - lane), n + i, out + o * plane + (size_t)y * layer->out.width + x, count);
            }
        }
    }
}

#endif
