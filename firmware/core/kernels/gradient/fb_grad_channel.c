/* Gradients of a channel's bias and multiplier: sums over its plane. For multipliers, results are kept of every other row
 * and column, 4 bits each, two in a byte, the first in its lower half. Four values at a time where rows are multiples of 4,
 * unless code must be small.
 */
#include "fb_fours.h"
#include "fb_gradient.h"

#ifdef FB_SMALL_CODE
#define FOURS false
#else
#define FOURS true
#endif

int32_t fb_grad_sum(const int8_t *values, uint32_t n) {
    int32_t sum = 0;
    if (FOURS && fb_fours_aligned(values)) {
        const int8_t *end = values + n / 8 * 8;
        uint32_t all = 0;
        for (; values < end; values += 8) {
            all = fb_add_four(fb_load_four(values), all);
            all = fb_add_four(fb_load_four(values + 4), all);
        }
        sum = (int32_t)(all - 1024 * (n / 8));
        n %= 8;
    }
    for (; n > 0; n--) sum += *values++;
    return sum;
}

void fb_grad_keep(const int8_t *values, uint32_t height, uint32_t width, uint32_t at, uint8_t *kept) {
    bool fours = FOURS && width % 4 == 0 && at % 2 == 0 && fb_fours_aligned(values);
    for (uint32_t y = 0; y < height; y += 2) {
        const int8_t *row = values + y * width;
        if (fours) {
            for (uint32_t x = 0; x < width; x += 4, at += 2) {
                uint32_t two = (fb_load_four(row + x) ^ FB_FOUR_SIGNS) >> 4 & 0x000F000Fu;
                kept[at / 2] = (uint8_t)(two | two >> 12);
            }
            continue;
        }
        for (uint32_t x = 0; x < width; x += 2, at++) {
            uint8_t four = (uint8_t)((row[x] + 128) >> 4);
            kept[at / 2] = (uint8_t)(at % 2 ? kept[at / 2] | four << 4 : four);
        }
    }
}

int32_t fb_grad_gain(const int8_t *h, uint32_t height, uint32_t width, uint32_t at, const uint8_t *kept,
                     int32_t zero_point) {
    bool fours = FOURS && width % 4 == 0 && at % 2 == 0 && fb_fours_aligned(h);
    int32_t sum = 0, products = 0, least = 8 - 128 - zero_point; /* the middle of the lowest sixteenth */
    for (uint32_t y = 0; y < height; y += 2) {
        const int8_t *row = h + y * width;
        if (fours) {
            for (uint32_t x = 0; x < width; x += 4, at += 2) {
                uint32_t word = fb_load_four(row + x), two = kept[at / 2];
                fb_add_even(word, (two | two << 12) & 0x000F000Fu, &products);
                fb_add_even(word, 0x00010001u, &sum);
            }
            continue;
        }
        for (uint32_t x = 0; x < width; x += 2, at++) {
            products += row[x] * (kept[at / 2] >> 4 * (at % 2) & 15);
            sum += row[x];
        }
    }
    return products * 16 + sum * least;
}
