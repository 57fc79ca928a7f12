/* Sums of gradients in 16 or 8 bits. A filter's sums share an exponent, a byte behind them:
 *
 *     sum[0] … sum[weights − 1] | exponent | 0 … 3 bytes          in all: sum · 2^exponent
 *
 * What a sample adds is divided by 2^exponent and rounded stochastically, so that on average nothing is lost, however
 * small it is. When a sum would not fit, the exponent grows and all of the filter's sums are divided in the same way. A
 * filter begins with an exponent of 0: it stays as fine as its largest sum allows, and needs no estimate.
 *
 * Random numbers are no sequence but a hash of weight, sample and step, and a filter's weights are added in order: the
 * sums are the same however filters are spread over passes, and channels over scratch.
 */
#include "fb_gradient.h"

#define FB_NEXT 0x9E3779B9u     /* from a weight's number to the next */
#define FB_DIVIDING 0x7F4A7C15u /* other random numbers than those of samples */

/* Adjacent numbers to ones that have nothing in common in their high bits. */
static inline uint32_t hashed(uint32_t x) {
    x ^= x >> 15;
    x *= 0x2C1B3C6Du;
    x ^= x >> 12;
    return x * 0x297A2D39u;
}

uint32_t fb_grad_key(uint32_t key, uint32_t number) { return hashed(hashed(key) + number); }

/* v / 2^by, rounded stochastically. */
static inline int32_t divided(int32_t v, unsigned by, uint32_t random) {
    uint32_t rest = (uint32_t)v & ((1u << by) - 1);
    return (v >> by) + ((random >> 1 >> (31 - by)) < rest);
}

static inline int32_t get(const void *sums, unsigned bytes, uint32_t i) {
    return bytes == 2 ? ((const int16_t *)sums)[i] : ((const int8_t *)sums)[i];
}

static inline void set(void *sums, unsigned bytes, uint32_t i, int32_t value) {
    if (bytes == 2) {
        ((int16_t *)sums)[i] = (int16_t)value;
    } else {
        ((int8_t *)sums)[i] = (int8_t)value;
    }
}

static inline int32_t most(unsigned bytes) { return bytes == 2 ? INT16_MAX : INT8_MAX; }

/* With it, the largest sum is one of 32 bits. */
static inline unsigned last_exponent(unsigned bytes) { return 32 - 8 * bytes; }

static inline uint8_t *exponent_of(void *sums, uint32_t weights, unsigned bytes) {
    return (uint8_t *)sums + (size_t)weights * bytes;
}

/* Divide a filter's sums until `v` is about small enough to be added to number `i`. The exponent then. */
FB_NOINLINE static unsigned divide(void *sums, uint32_t weights, unsigned bytes, uint32_t i, int32_t v, uint32_t key) {
    uint8_t *exponent = exponent_of(sums, weights, bytes);
    unsigned by = 1;
    int32_t limit = most(bytes);
    for (; *exponent + by < last_exponent(bytes); by++) {
        int32_t sum = (get(sums, bytes, i) >> by) + (v >> (*exponent + by));
        if (sum < limit && sum >= -limit) break;
    }
    key = (key + *exponent) ^ FB_DIVIDING;
    for (uint32_t k = 0; k < weights; k++, key += FB_NEXT) {
        int32_t sum = get(sums, bytes, k);
        if (sum) set(sums, bytes, k, divided(sum, by, hashed(key)));
    }
    *exponent = (uint8_t)(*exponent + by);
    return *exponent;
}

/* `bytes` is a constant where this is called: a loop for each width. They are nearly all that narrow sums cost. */
static inline void add(void *sums, uint32_t weights, unsigned bytes, uint32_t i, const int32_t *values, uint32_t n,
                       uint32_t key) {
    unsigned exponent = *exponent_of(sums, weights, bytes);
    int32_t limit = most(bytes);
    for (; n > 0; n--, i++, values++) {
        uint32_t random = hashed(key + i * FB_NEXT);
        int32_t sum = get(sums, bytes, i) + divided(*values, exponent, random);
        while ((uint32_t)(sum + limit) > 2 * (uint32_t)limit && exponent < last_exponent(bytes)) {
            exponent = divide(sums, weights, bytes, i, *values, key);
            sum = get(sums, bytes, i) + divided(*values, exponent, random);
        }
        set(sums, bytes, i, sum > limit ? limit : sum < -limit ? -limit : sum);
    }
}

void fb_grad_add_narrow(const fb_grad_sums *to, uint32_t filter, uint32_t i, const int32_t *values, uint32_t n) {
    uint32_t key = fb_grad_key(to->key, to->first + filter);
    uint8_t *sums = to->at + (size_t)filter * to->stride;
    if (to->bytes == 2) {
        add(sums, to->weights, 2, i, values, n, key);
    } else {
        add(sums, to->weights, 1, i, values, n, key);
    }
}

uint32_t fb_grad_sums_size(uint32_t weights, unsigned bytes) {
    uint32_t size = fb_product(weights, bytes);
    return bytes == 4 ? size : fb_sum(size, 4) & ~(uint32_t)3; /* at least one byte more */
}

void fb_grad_widen(const void *sums, uint32_t weights, unsigned bytes, int32_t *wide) {
    unsigned exponent = ((const uint8_t *)sums)[(size_t)weights * bytes];
    for (uint32_t i = 0; i < weights; i++) wide[i] = get(sums, bytes, i) * ((int32_t)1 << exponent);
}
