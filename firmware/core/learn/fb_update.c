/* The rules by which bits, buffers and biases move. */
#include <string.h>

#include "fb_train_internal.h"

static uint32_t random_20(fb_head *head) {
    uint32_t x = head->random;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    head->random = x;
    return x >> 12;
}

static uint32_t size_of(int32_t v) { return v < 0 ? 0u - (uint32_t)v : (uint32_t)v; }

/* rate · |g| / mean with 20 fractional bits; |g| / mean counts up to FB_LARGEST: a step bounds what a few steep
 * weights, or a gradient that has grown since its mean was taken, can do. */
typedef struct pace {
    uint32_t rate, mean; /* mean / 2^shift, at most 4095 */
    unsigned shift;
} pace;

static pace pace_of(uint32_t rate, uint32_t mean) {
    pace p = {rate, mean, 0};
    for (; p.mean > 4095; p.shift++) p.mean >>= 1;
    return p;
}

static uint32_t move_of(const pace *p, uint32_t g) {
    uint32_t ratio;
    g >>= p->shift;
    ratio = p->mean == 0 ? 0 : g / FB_LARGEST >= p->mean ? FB_LARGEST * 256 : g * 256 / p->mean;
    return (p->rate >> 8) * ratio + ((p->rate & 255) * ratio >> 8);
}

/* Whether the bit flips: never uphill, where it is at the edge already. */
static bool flips(fb_head *head, const pace *p, bool positive, int32_t g) {
    uint32_t move;
    if ((g > 0) != positive) return false;
    move = move_of(p, size_of(g));
    return move != 0 && random_20(head) < move;
}

/* The same with a buffer of k bits, that of weight number `weight`. */
static bool flips_buffered(fb_head *head, const pace *p, bool positive, int32_t g, uint8_t *buffer, unsigned k,
                           uint32_t weight) {
    int32_t half = (int32_t)1 << k, level = (int32_t)fb_buffer_get(buffer, k, weight) - (positive ? 0 : half), whole;
    uint32_t move = move_of(p, size_of(g)) << k; /* levels; below 2^30 */
    if (move == 0) return false;
    whole = (int32_t)(move >> 20) + (random_20(head) < (move & 0xFFFFF));
    level = g > 0 ? level - whole : level + whole;
    if (level < -half) level = -half;
    if (level > half - 1) level = half - 1;
    fb_buffer_set(buffer, k, weight, (uint32_t)level & (uint32_t)(half - 1));
    return (level >= 0) != positive;
}

static int32_t moved_bias(const pace *p, const fb_layer *layer, unsigned o, int32_t g) {
    uint32_t move = move_of(p, size_of(g)); /* steps of the output */
    uint32_t multiplier = layer->mult ? (uint32_t)layer->mult[o] : (uint32_t)layer->mult_int8[o];
    int64_t by = layer->shift > 30 ? (int64_t)(((uint64_t)move << (layer->shift - 16)) / (multiplier / 65536 + 1))
                                   : (int64_t)(((uint64_t)move << layer->shift) / multiplier);
    by = (by + (1 << 19)) >> 20;
    by = g > 0 ? layer->bias[o] - by : layer->bias[o] + by;
    return by > INT32_MAX ? INT32_MAX : by < -INT32_MAX ? -INT32_MAX : (int32_t)by;
}

/* New bits of a filter from its gradients, [channel][tap]; `weight` is the number of the first. */
static void update_filter(fb_train *train, const fb_state *at, const fb_layer *layer, const pace *p,
                          const int32_t *sums, uint16_t *filter, uint32_t weight) {
    unsigned taps = fb_taps(layer), k = train->config.buffer_bits;
    uint32_t step = fb_bit_index(layer, 1, 0); /* from a tap to the next */
    for (uint32_t c = 0; c < layer->in.channels; c++) {
        uint32_t index = fb_bit_index(layer, 0, c);
        for (unsigned tap = 0; tap < taps; tap++, index += step, weight++, sums++) {
            bool positive = fb_bit(filter, index);
            if (k ? flips_buffered(at->head, p, positive, *sums, at->buffer, k, weight)
                  : flips(at->head, p, positive, *sums)) {
                filter[index / 16] = (uint16_t)(filter[index / 16] ^ 1u << index % 16);
            }
        }
    }
}

static uint64_t sum_of_sizes(const int32_t *values, uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += size_of(values[i]);
    return sum;
}

/* What a pass has summed up for one operation. */
void fb_finish_layer(fb_train *train, const fb_state *at, unsigned op, const fb_layer *layer) {
    unsigned first, end;
    int32_t *sums = (int32_t *)(void *)(train->arena + train->pass.sums) + fb_sums_of(train, op, &first, &end);
    fb_amounts before =
        fb_amounts_of(&train->model, &train->config, op); /* where this layer's parts of the state begin */
    bool bits = fb_trains_bits(&train->config, op, layer), update = at->head->phase == FB_UPDATE;
    fb_mean *mean = &at->mean[before.layers];
    pace bit_pace = pace_of(train->rate_bits, mean->bits_mean), bias_pace = pace_of(train->rate_bias, mean->bias_mean);
    for (unsigned o = first; o < end; o++) {
        if (bits) {
            if (train->on_gradient) train->on_gradient(train->context, op, o, false, sums, layer->inputs);
            mean->bits_sum += sum_of_sizes(sums, layer->inputs);
            if (update) {
                update_filter(train, at, layer, &bit_pace, sums, at->bits + before.words + (size_t)o * layer->words,
                              before.weights + o * layer->inputs);
            }
            sums += layer->inputs;
        }
        if (fb_trains_bias(&train->config, op, layer)) {
            if (train->on_gradient) train->on_gradient(train->context, op, o, true, sums, 1);
            mean->bias_sum += size_of(*sums);
            if (update) at->bias[before.channels + o] = moved_bias(&bias_pace, layer, o, *sums);
            sums++;
        }
    }
}

static uint32_t ones(uint32_t v) {
    uint32_t n = 0;
    for (; v; v &= v - 1) n++;
    return n;
}

/* Whether the sums of a filter with this bias still fit 32 bits: what fb_model_open asks of an image. */
static bool bias_fits(const fb_layer *layer, unsigned o, int64_t bias) {
    uint64_t size = (uint64_t)(bias < 0 ? -bias : bias);
    uint64_t reach = (uint64_t)layer->inputs * (128u + 2u * size_of(layer->in.zero_point));
    if (layer->bits) return (reach + size) * (uint16_t)layer->mult[o] + (1u << layer->shift >> 1) <= INT32_MAX;
    return (uint64_t)layer->inputs * 128 * 128 + size <= INT32_MAX;
}

/* Write an operation's new bits and biases into the image. A filter that would not fit keeps what it had. */
void fb_apply_layer(fb_train *train, const fb_state *at, unsigned op, const fb_layer *layer) {
    fb_amounts before = fb_amounts_of(&train->model, &train->config, op);
    bool trains_bits = fb_trains_bits(&train->config, op, layer);
    int32_t *biases = (int32_t *)(void *)(train->image + ((const uint8_t *)layer->bias - train->model.image));
    uint16_t *all = (uint16_t *)(void *)(train->image + layer->factor[0]);
    for (unsigned o = 0; o < layer->out.channels; o++) {
        uint16_t *old = all + (size_t)o * layer->words, *fresh = at->bits + before.words + (size_t)o * layer->words;
        int64_t bias = train->config.bias ? at->bias[before.channels + o] : biases[o];
        int32_t sum = 0; /* by how much Σ w grows */
        uint32_t flips = 0, i;
        for (i = 0; trains_bits && i < layer->words; i++) {
            uint32_t changed = old[i] ^ fresh[i];
            flips += ones(changed);
            sum += 2 * (int32_t)(2 * ones(changed & fresh[i]) - ones(changed));
        }
        bias -= (int64_t)layer->in.zero_point * sum;
        if (!bias_fits(layer, o, bias)) {
            if (trains_bits) memcpy(fresh, old, 2 * (size_t)layer->words);
            continue;
        }
        if (trains_bits) memcpy(old, fresh, 2 * (size_t)layer->words);
        biases[o] = (int32_t)bias;
        train->flips += flips;
    }
}
