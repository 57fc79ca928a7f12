/* Gradients, value by value: scaled into the exponent of another tensor, counted, halved; and masks.
 *
 * A mask has a bit for each value of a tensor, the first in the lowest bit of the first byte. Planes follow each other
 * in it without gaps.
 */
#include "fb_gradient.h"

/* v · factor / 2^shift to the nearest; |v| ≤ 128, factor as fb_factors says. */
static int32_t rescale(int32_t v, int32_t factor, int32_t shift) {
    int32_t product = v * factor;
    if (shift > 30) return 0;
    if (shift > 0) return (product + ((int32_t)1 << (shift - 1)) + (product >> 31)) >> shift;
    if (product > 127 || product < -127 || shift < -16) return product > 0 ? 128 : product < 0 ? -128 : 0;
    return product * ((int32_t)1 << -shift);
}

static int32_t factor_of(const fb_factors *f, uint32_t plane) {
    return f->narrow ? f->narrow[plane] : f->wide ? f->wide[plane] >> 16 : f->one;
}

static inline int32_t magnitude(int32_t v) { return v < 0 ? -v : v; }

/* Values i … end − 1, which share a byte of the mask. `usual`: a shift of 1 … 30. */
FB_INLINE void scale_some(const int8_t *from, int8_t *to, uint32_t n, uint32_t bits, int32_t factor, int32_t shift,
                          bool usual, bool join, fb_count *counts) {
    int32_t half = usual ? (int32_t)1 << (shift - 1) : 0;
    for (uint32_t i = 0; i < n; i++, bits >>= 1) {
        int32_t v = 0;
        if (bits & 1) {
            int32_t product = from[i] * factor;
            v = usual ? (product + half + (product >> 31)) >> shift : rescale(from[i], factor, shift);
        }
        if (join) v += to[i];
        if (magnitude(v) >= 64) { /* seldom */
            counts->large++;
            if (magnitude(v) >= 127) {
                counts->saturated++;
                v = v > 0 ? 127 : -127;
            }
        }
        to[i] = (int8_t)v;
    }
}

FB_INLINE void scale_all(const int8_t *from, int8_t *to, const fb_tensor *shape, const fb_factors *factors,
                         int32_t shift, const uint8_t *mask, bool usual, bool join, fb_count *counts) {
    uint32_t plane = (uint32_t)shape->height * shape->width, i = 0;
    fb_count found = {0, 0};
    for (uint32_t o = 0; o < shape->channels; o++) {
        int32_t factor = factor_of(factors, o);
        for (uint32_t end = i + plane, n; i < end; i += n) {
            n = 8 - i % 8 < end - i ? 8 - i % 8 : end - i;
            scale_some(from + i, to + i, n, mask ? (uint32_t)mask[i / 8] >> i % 8 : 255, factor, shift, usual, join,
                       &found);
        }
    }
    counts->large += found.large;
    counts->saturated += found.saturated;
}

void fb_grad_scale(const int8_t *from, int8_t *to, const fb_tensor *shape, const fb_factors *factors, int32_t shift,
                   const uint8_t *mask, bool join, fb_count *counts) {
    if (shift < 1 || shift > 30) {
        scale_all(from, to, shape, factors, shift, mask, false, join, counts);
    } else if (join) {
        scale_all(from, to, shape, factors, shift, mask, true, true, counts);
    } else {
        scale_all(from, to, shape, factors, shift, mask, true, false, counts);
    }
}

bool fb_grad_cuts_off(const int8_t *from, const int8_t *to, const fb_tensor *shape, const fb_factors *factors,
                      int32_t shift, const uint8_t *mask, bool join, uint32_t most) {
    uint32_t plane = (uint32_t)shape->height * shape->width, i = 0, cut = 0;
    for (uint32_t o = 0; o < shape->channels; o++) {
        int32_t factor = factor_of(factors, o);
        for (uint32_t end = i + plane; i < end; i++) {
            bool pass = !mask || (mask[i / 8] >> i % 8 & 1);
            int32_t v = pass ? rescale(from[i], factor, shift) : 0;
            if (join) v += to[i];
            if (magnitude(v) > 127 && ++cut > most) return true;
        }
    }
    return false;
}

void fb_grad_count(fb_count *counts, const int8_t *values, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        int32_t v = magnitude(values[i]);
        if (v < 64) continue;
        counts->large++;
        counts->saturated += v >= 127;
    }
}

void fb_grad_halve(int8_t *values, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) values[i] = (int8_t)rescale(values[i], 1, 1);
}

void fb_grad_mask(const int8_t *values, uint32_t n, int32_t low, int32_t high, uint8_t *mask) {
    uint32_t between = (uint32_t)(high - low - 1); /* so many values pass, from low + 1 on */
    for (; n > 0; mask++) {
        uint32_t bits = 0, bit = 1;
        for (; bit < 256 && n > 0; bit <<= 1, n--) {
            if ((uint32_t)(*values++ - low - 1) < between) bits |= bit;
        }
        *mask = (uint8_t)bits;
    }
}
