/* Softmax in fixed point: exp(−d · scale) = 2^(−d · scale · log2 e), by a table of 2^(−i/64). */
#include "fb_gradient.h"

/* 2^15 · 2^(−i/64) */
static const uint16_t powers[64] = {
    32768, 32415, 32066, 31720, 31379, 31041, 30706, 30376, 30048, 29725, 29405, 29088, 28774, 28464, 28158, 27855,
    27554, 27258, 26964, 26674, 26386, 26102, 25821, 25543, 25268, 24995, 24726, 24460, 24196, 23936, 23678, 23423,
    23170, 22921, 22674, 22430, 22188, 21949, 21713, 21479, 21247, 21019, 20792, 20568, 20347, 20127, 19911, 19696,
    19484, 19274, 19066, 18861, 18658, 18457, 18258, 18061, 17867, 17674, 17484, 17296, 17109, 16925, 16743, 16562,
};

/* scale · log2 e with 16 fractional bits, at most 2^22: a step of one score is then nothing or everything. */
static uint32_t exponent_of(uint32_t scale_bits) {
    uint32_t mantissa = (scale_bits & 0x7FFFFF) | 0x800000;           /* 24 bits, 23 of them fractional */
    int32_t power = (int32_t)(scale_bits >> 23 & 255) - 127;          /* scale = mantissa / 2^23 · 2^power */
    uint32_t product = (uint32_t)((uint64_t)mantissa * 94548u >> 23); /* 94548 = 2^16 · log2 e */
    if (power >= 5) return 1u << 22;
    if (power <= -18) return 0;
    return power >= 0 ? product << power : product >> -power;
}

/* log2 of v > 0 with 16 fractional bits; off by at most 0.008. */
static uint32_t log2_of(uint32_t v) {
    uint32_t whole = 31, rest;
    while (!(v >> whole)) whole--;
    rest = whole >= 16 ? v >> (whole - 16) & 0xFFFF : v << (16 - whole) & 0xFFFF;
    /* log2(1 + m) = m + 0.344 · m · (1 − m) */
    return (whole << 16) + rest + (uint32_t)((uint64_t)rest * (65536 - rest) * 22544 >> 32);
}

uint32_t fb_softmax_gradient(const int8_t *scores, uint32_t count, uint32_t scale_bits, uint32_t label,
                             int8_t *gradient) {
    /* The largest score has a power of 2^15, so the sum is at least that; and at most 2^31, as there are at most
     * FB_TRAIN_OUTPUTS scores. */
    uint32_t unit = exponent_of(scale_bits), sum = 0, i, below = 0;
    int32_t most = -128;
    for (i = 0; i < count; i++) {
        if (scores[i] > most) most = scores[i];
    }
    for (int pass = 0; pass < 2; pass++) {
        for (i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)(most - scores[i]) * unit; /* 255 · 2^22 < 2^30 */
            uint32_t power = bits >> 16 > 15 ? 0 : (uint32_t)powers[bits >> 10 & 63] >> (bits >> 16);
            if (pass == 0) {
                sum += power;
                if (i == label) below = bits;
            } else {
                int32_t share = (int32_t)((power * 127 + sum / 2) / sum); /* 2^15 · 127 < 2^22 */
                gradient[i] = (int8_t)(share - (i == label ? 127 : 0));
            }
        }
    }
    /* loss = ln 2 · (log2(sum / 2^15) + below) */
    return (uint32_t)((uint64_t)(log2_of(sum) - (15u << 16) + below) * 45426u >> 16);
}
