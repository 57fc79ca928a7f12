/* Tables of how many of 16 packed bits differ from each combination of weights, for four pixels in a word. Private to the
 * convolutions of bits: fb_conv_bits_3x3.c describes them.
 */
#ifndef FB_BITS_TABLE_H
#define FB_BITS_TABLE_H

#include "../fb_bin_tile.h"

/* Entries 0 … 31 of one column: how many of 5 channels differ from the bits of the entry's number. */
#define FB_STEP(entry, sign, input) \
    sum = sign##_(sum, d##input); \
    t[(entry) * step] = sum; \
    FB_KEEP_ORDER(sum);
#define FB_MOVE(sign, count)
#define add_(a, b) ((a) + (b))
#define sub_(a, b) ((a) - (b))

static FB_NOINLINE void fb_fill_entries(uint32_t *t, uint32_t step, const uint32_t *x, uint32_t inside, uint32_t sum) {
    uint32_t d0 = x[0], d1 = x[1], d2 = x[2], d3 = x[3], d4 = x[4];
    sum += d0 + d1 + d2 + d3 + d4; /* differ from weights of −1 */
    t[0] = sum;
    d0 = inside - 2 * d0; /* more if it is +1 */
    d1 = inside - 2 * d1;
    d2 = inside - 2 * d2;
    d3 = inside - 2 * d3;
    d4 = inside - 2 * d4;
    FB_GRAY(FB_STEP, FB_MOVE)
}

/* One column of a table, of channels whose bits are `low` (eight, a byte per lane) and `high`; `inside` is 1 in the lanes
 * that count. */
static inline void fb_fill_column(uint32_t *t, uint32_t step, uint32_t low, uint32_t high, uint32_t inside) {
    uint32_t x[16];
    unsigned c;
    for (c = 0; c < 8; c++, low >>= 1, high >>= 1) {
        x[c] = low & 0x01010101u;
        x[c + 8] = high & 0x01010101u;
    }
    fb_fill_entries(t, step, x, inside, 0);
    fb_fill_entries(t + 32 * step, step, x + 5, inside, 0);
    fb_fill_entries(t + 64 * step, step, x + 10, inside, x[15]);
    fb_fill_entries(t + 96 * step, step, x + 10, inside, inside - x[15]);
}

#endif
