/* Tiles: what the table kernels of binary layers share, those of gradients too. Private to them.
 *
 * A tile is 8 output pixels of a row. While up to 255 inputs are summed up, |sum| ≤ 128 · 255 fits 16 bits, and two
 * pixels share a word ("packed"); plain 32-bit additions then add both:
 *
 *     word j = pixel j + (pixel j+4 << 16)          j = 0 … 3
 *
 * A negative lower pixel borrows from the upper one; adding 0x8000 before the shift gives it back.
 *
 * The columns of a row of the input are packed in the same way, so that a tap's inputs are 4 words in a row:
 *
 *     stride 1    x−1  x  x+1  x+2  x+3  x+4                           6 words, from the column where the tile starts
 *     stride 2    x  x+2  x+4  x+6  x+8 | 0 | x+1  x+3  x+5  x+7       even columns, odd columns
 *
 * A table holds the sums ±x0 ±x1 … of some channels, for each of these words: an entry has room for 8 of them.
 */
#ifndef FB_BIN_TILE_H
#define FB_BIN_TILE_H

#include "fb_kernels.h"

enum { FB_TILE = 8, FB_COLUMNS = 10, FB_ENTRY_WORDS = 8 };

/* Functions in assembly. */
#if defined(__GNUC__)
#define FB_NAKED __attribute__((naked, noinline))
#define FB_UNUSED __attribute__((unused))
#endif

/* Keeps a compiler from moving loads, stores and the computation of `value` across: to save a cycle it spills ten. */
#if defined(__GNUC__)
#define FB_KEEP_ORDER(value) __asm__ volatile("" : "+r"(value) : : "memory")
#else
#define FB_KEEP_ORDER(value) (void)(value)
#endif

/* Two values in one word. */
static inline uint32_t fb_pack(int32_t low, int32_t high) { return (uint32_t)low + ((uint32_t)high << 16); }
static inline int32_t fb_low(uint32_t word) { return (int16_t)word; }
static inline int32_t fb_high(uint32_t word) { return (int32_t)(word + 0x8000u) >> 16; }

/* A Gray code as the order of the entries makes each differ from the one before by one input: STEP(entry, sign, input)
 * adds or subtracts it twice, and stores. MOVE(sign, count) goes to other 4 entries. */
/* clang-format off */
#define FB_GRAY_16(STEP, MOVE) \
    STEP(1, add, 0) STEP(3, add, 1) STEP(2, sub, 0) \
    MOVE(add, 1) STEP(6, add, 2) STEP(7, add, 0) STEP(5, sub, 1) STEP(4, sub, 0) \
    MOVE(add, 2) STEP(12, add, 3) STEP(13, add, 0) STEP(15, add, 1) STEP(14, sub, 0) \
    MOVE(sub, 1) STEP(10, sub, 2) STEP(11, add, 0) STEP(9, sub, 1) STEP(8, sub, 0)
#define FB_GRAY(STEP, MOVE) \
    FB_GRAY_16(STEP, MOVE) \
    MOVE(add, 4) STEP(24, add, 4) STEP(25, add, 0) STEP(27, add, 1) STEP(26, sub, 0) \
    MOVE(add, 1) STEP(30, add, 2) STEP(31, add, 0) STEP(29, sub, 1) STEP(28, sub, 0) \
    MOVE(sub, 2) STEP(20, sub, 3) STEP(21, add, 0) STEP(23, add, 1) STEP(22, sub, 0) \
    MOVE(sub, 1) STEP(18, sub, 2) STEP(19, add, 0) STEP(17, sub, 1) STEP(16, sub, 0)
/* clang-format on */

/* x[channels][FB_COLUMNS] = packed columns of row `y` from column `left` on; both may be outside the image. `in` is the
 * first channel's plane. Strides 1 and 2 only. */
void fb_tile_pack(const fb_layer *layer, const int8_t *in, int32_t y, int32_t left, uint32_t *x, unsigned channels);

/* Entries 0 … 31 of a table, for some columns: the sums of 5 channels, bit i of the entry's number is the sign of
 * channel i. May fill a column more than is asked for. */
void fb_tile_fill(uint32_t *t, const uint32_t *x, unsigned columns);

/* Entries 0 … 127 for 16 channels: 32 of channels 0 … 4, 32 of channels 5 … 9, 64 of channels 10 … 15. */
void fb_tile_fill16(uint32_t *t, const uint32_t *x, unsigned columns);

/* packed[filters][4], up to `end`: sums of entries. The list has `size` bytes of addresses for each filter: a
 * positive multiple of three. */
void fb_tile_sum(const uint32_t *const *list, uint32_t size, uint32_t *packed, uint32_t *end);

/* wide[filter][8] = packed[filter][4], or += unless it is the `first`. */
void fb_tile_widen(const uint32_t *packed, int32_t *wide, uint32_t filters, bool first);

/* Results of `pixels` (1 … 8) pixels of every filter, from the packed sums plus the wide ones, if not NULL. */
void fb_tile_requantize(const fb_layer *layer, const uint32_t *packed, const int32_t *wide, int8_t *out,
                        unsigned pixels);

#endif
