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

/* Fractional bits of a multiplier in the state: those of int8 layers have enough of their own. */
static unsigned gain_bits(const fb_layer *layer) { return layer->mult ? 16 : 0; }

static uint32_t moved_gain(const pace *p, const fb_layer *layer, uint32_t gain, int32_t g) {
    uint64_t by =
        (uint64_t)move_of(p, size_of(g)) >> FB_GAIN_PER_BIAS; /* a share of it, 20 fractional bits: below 1/8 */
    uint64_t most = layer->mult ? (uint64_t)INT16_MAX << 16 : INT32_MAX, moved;
    by = (gain * by + (1 << 19)) >> 20;
    moved = g > 0 ? gain - by : gain + by;
    return (uint32_t)(moved > most ? most : moved);
}

void fb_start_gains(fb_train *train, const fb_state *at) {
    fb_layer layer;
    unsigned op = train->model.ops, next;
    uint32_t *gain = at->gain;
    if (!train->config.gain) return;
    for (; (next = fb_below(&train->model, &train->config, op, &layer)) != op; op = next) {
        for (unsigned o = 0; o < layer.out.channels; o++) {
            *gain++ = layer.mult ? (uint32_t)(uint16_t)layer.mult[o] << 16 : (uint32_t)layer.mult_int8[o];
        }
    }
}

/* New bits of a filter from its gradients, [channel][tap]; `weight` is the number of the first. */
static void update_filter(fb_train *train, const fb_state *at, const fb_layer *layer, const pace *p,
                          const int32_t *sums, uint16_t *filter, uint32_t weight) {
    unsigned taps = fb_taps(layer), k = train->config.buffer_bits;
    uint32_t step = fb_bit_index(layer, 1, 0); /* from a tap to the next */
    for (uint32_t c = 0; c < fb_depth(layer); c++) {
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

/* The sums of a filter's weights. Narrow ones are widened where the samples' activations were. */
static const int32_t *weight_sums(const fb_train *train, const fb_layer *layer, const uint8_t *sums) {
    int32_t *wide = (int32_t *)(void *)(train->arena + train->pass.work);
    if (!train->config.sums) return (const int32_t *)(const void *)sums;
    fb_grad_widen(sums, layer->inputs, fb_sum_bytes(&train->config), wide);
    return wide;
}

/* What a pass has summed up for one operation. */
void fb_finish_layer(fb_train *train, const fb_state *at, unsigned op, const fb_layer *layer) {
    unsigned first, end;
    const uint8_t *sums = fb_sums_of(train, op, &first, &end);
    uint32_t size = fb_weight_sums_size(&train->config, op, layer);
    fb_amounts before =
        fb_amounts_of(&train->model, &train->config, op); /* where this layer's parts of the state begin */
    bool bits = fb_trains_bits(&train->config, op, layer), update = at->head->phase == FB_UPDATE;
    fb_mean *mean = &at->mean[before.layers];
    pace bit_pace = pace_of(train->rate_bits, mean->bits_mean), bias_pace = pace_of(train->rate_bias, mean->bias_mean);
    pace gain_pace = pace_of(train->rate_bias, train->config.gain ? at->gain_mean[before.layers].mean : 0);
    for (unsigned o = first; o < end; o++) {
        const int32_t *others = (const int32_t *)(const void *)(sums + size);
        if (bits) {
            const int32_t *g = weight_sums(train, layer, sums);
            if (train->on_gradient) train->on_gradient(train->context, op, o, FB_PART_WEIGHTS, g, layer->inputs);
            mean->bits_sum += sum_of_sizes(g, layer->inputs);
            if (update) {
                update_filter(train, at, layer, &bit_pace, g, at->bits + before.words + (size_t)o * layer->words,
                              before.weights + o * layer->inputs);
            }
        }
        if (fb_trains_bias(&train->config, op, layer)) {
            if (train->on_gradient) train->on_gradient(train->context, op, o, FB_PART_BIAS, others, 1);
            mean->bias_sum += size_of(*others);
            if (update) at->bias[before.channels + o] = moved_bias(&bias_pace, layer, o, *others);
            others++;
        }
        if (fb_trains_gain(&train->config, op, layer)) {
            uint32_t *gain = &at->gain[before.channels + o];
            if (train->on_gradient) train->on_gradient(train->context, op, o, FB_PART_GAIN, others, 1);
            at->gain_mean[before.layers].sum += size_of(*others);
            if (update) *gain = moved_gain(&gain_pace, layer, *gain, *others);
        }
        sums += fb_sums_size(&train->config, op, layer);
    }
}

static uint32_t ones(uint32_t v) {
    uint32_t n = 0;
    for (; v; v &= v - 1) n++;
    return n;
}

bool fb_channel_fits(const fb_layer *layer, int64_t bias, uint32_t multiplier) {
    uint64_t size = (uint64_t)(bias < 0 ? -bias : bias);
    uint64_t reach = (uint64_t)layer->inputs * (128u + 2u * size_of(layer->in.zero_point));
    if (layer->bits) {
        uint32_t half = layer->references ? 1u << layer->shift : 1u << layer->shift >> 1;
        return size <= INT32_MAX && (reach + size) * multiplier + half <= INT32_MAX;
    }
    return (uint64_t)layer->inputs * 128 * 128 + size <= INT32_MAX;
}

void fb_set_channel(fb_train *train, const fb_layer *layer, unsigned o, int32_t bias, uint32_t multiplier) {
    uint8_t *params = train->image + layer->factor[1];
    int32_t *biases = (int32_t *)(void *)params;
    biases[o] = bias;
    if (layer->mult) {
        ((int16_t *)(void *)(biases + layer->out.channels))[o] = (int16_t)multiplier;
    } else {
        biases[layer->out.channels + o] = (int32_t)multiplier;
    }
}

/* Write an operation's new bits and biases into the image. A filter that would not fit keeps what it had. */
void fb_apply_layer(fb_train *train, const fb_state *at, unsigned op, const fb_layer *layer) {
    fb_amounts before = fb_amounts_of(&train->model, &train->config, op);
    bool trains_bits = fb_trains_bits(&train->config, op, layer);
    uint16_t *all = (uint16_t *)(void *)(train->image + layer->factor[0]);
    for (unsigned o = 0; o < layer->out.channels; o++) {
        uint16_t *old = all + (size_t)o * layer->words, *fresh = at->bits + before.words + (size_t)o * layer->words;
        int64_t bias = train->config.bias ? at->bias[before.channels + o] : layer->bias[o];
        uint32_t multiplier = layer->mult ? (uint16_t)layer->mult[o] : (uint32_t)layer->mult_int8[o], kept = multiplier;
        int32_t sum = 0; /* by how much Σ w grows */
        uint32_t flips = 0, i;
        for (i = 0; trains_bits && i < layer->words; i++) {
            uint32_t changed = old[i] ^ fresh[i];
            flips += ones(changed);
            sum += 2 * (int32_t)(2 * ones(changed & fresh[i]) - ones(changed));
        }
        bias -= (int64_t)layer->in.zero_point * sum;
        if (train->config.gain) {
            uint32_t half = 1u << gain_bits(layer) >> 1;
            multiplier = (at->gain[before.channels + o] + half) >> gain_bits(layer);
            if (multiplier < 1) multiplier = 1;
            if (multiplier > (layer->mult ? INT16_MAX : (uint32_t)INT32_MAX)) multiplier = kept; /* of a forged state */
        }
        if (!fb_channel_fits(layer, bias, multiplier)) {
            if (trains_bits) memcpy(fresh, old, 2 * (size_t)layer->words);
            if (train->config.gain) at->gain[before.channels + o] = kept << gain_bits(layer);
            continue;
        }
        if (trains_bits) memcpy(old, fresh, 2 * (size_t)layer->words);
        fb_set_channel(train, layer, o, (int32_t)bias, multiplier);
        train->flips += flips;
    }
}
