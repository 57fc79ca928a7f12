/* Multipliers and biases from what the channels' results are like now, so that they are as the references say.
 *
 * Of a channel's sums, before they are multiplied: mean and deviation as the references say they were, with the parameters
 * that learning started with; and as they are now. The two are averaged, weighed by samples: the prior counts as so many,
 * and a batch as fewer than it has if the net sees few classes in it. */
#include <string.h>

#include "fb_train_internal.h"

#define ONE 65536 /* 16 fractional bits */

/* How many classes the net has seen in this batch, of all: ONE if as many of each, 0 if one only. (Σ n)² / Σ n² is the
 * number of classes that there seem to be. */
static uint32_t diversity(const fb_train *train) {
    const uint32_t *classes = (const uint32_t *)(const void *)(train->arena + train->pass.saved);
    uint32_t count = fb_model_tensor(&train->model, train->model.output).size;
    uint64_t n = train->samples, squares = 0;
    if (count == 1) return ONE;
    for (uint32_t i = 0; i < count; i++) squares += (uint64_t)classes[i] * classes[i];
    if (squares == 0) return 0; /* every sample counts one class, unless a state was forged */
    return (uint32_t)(((n * n << 16) / squares - ONE) / (count - 1));
}

/* What the batch weighs against the prior, of ONE. What layers near the input compute depends little on the class: a
 * quarter of the samples counts in any case, and all from a quarter of the classes on. Behind them none counts up to an eighth of
 * the classes, and all from five eighths on. */
static uint32_t weight_of(const fb_train *train, uint32_t seen, bool early) {
    int32_t share = early ? ONE / 4 + 3 * (int32_t)seen : 2 * (int32_t)seen - ONE / 4;
    uint64_t n = (uint64_t)train->samples * (uint32_t)(share < 0 ? 0 : share > ONE ? ONE : share);
    uint64_t all = n + ((uint64_t)train->config.prior << 16);
    return all ? (uint32_t)((n << 16) / all) : 0;
}

/* √v. */
static uint32_t root(uint64_t v) {
    uint64_t r = 0;
    for (uint64_t bit = (uint64_t)1 << 31; bit; bit >>= 1) {
        if ((r + bit) * (r + bit) <= v) r += bit;
    }
    return (uint32_t)r;
}

/* A mean of results, 8 fractional bits, as one of sums, 8 fractional bits. */
static int64_t as_sum(int64_t mean, unsigned shift, uint32_t multiplier) {
    int64_t v = (int64_t)((uint64_t)(mean < 0 ? -mean : mean) << shift) / multiplier, most = (int64_t)1 << 40;
    if (v > most) v = most;
    return mean < 0 ? -v : v;
}

typedef struct channel {
    uint32_t multiplier;
    int32_t bias;
} channel;

/* What a channel should have. `mean` and `square` are of its results now, with 8 and 16 fractional bits; weight: of these, of
 * ONE. */
FB_NOINLINE static channel recalibrated(const fb_layer *layer, channel base, channel now, const uint8_t *reference,
                                        int64_t mean, uint64_t square, uint64_t weight) {
    int64_t wanted = 2 * (int64_t)(int16_t)fb_u16(reference), bias, most = layer->bits ? INT16_MAX : INT32_MAX;
    uint64_t deviation = 2 * (uint64_t)fb_u16(reference + 2), ratio, multiplier;
    uint64_t variance = square > (uint64_t)(mean * mean) ? square - (uint64_t)(mean * mean) : 0;
    channel new;
    if (deviation == 0) return now;
    /* Deviation of sums now, of what it was, 16 fractional bits; squared, averaged with 1, and its root. */
    ratio = ((uint64_t)root(variance) << 16) / deviation; /* below 2^32: √(2^16 + 2^32) */
    if (ratio > 16 * ONE) ratio = 16 * ONE;
    ratio = ratio * base.multiplier / now.multiplier;
    if (ratio > 16 * ONE) ratio = 16 * ONE;
    ratio = ((ONE - weight) * ONE + weight * (ratio * ratio >> 16)) >> 16;
    ratio = root(ratio << 16);
    if (ratio < ONE / 4) ratio = ONE / 4;
    multiplier = (((uint64_t)base.multiplier << 16) + ratio / 2) / ratio;
    if (multiplier > (uint64_t)most) multiplier = (uint64_t)most;
    if (multiplier < 1) multiplier = 1;
    new.multiplier = (uint32_t)multiplier;
    /* Mean of sums, biases left out: then and now. */
    bias = (int64_t)(ONE - weight) * (as_sum(wanted, layer->shift, base.multiplier) - (int64_t)base.bias * 256) +
           (int64_t)weight * (as_sum(mean, layer->shift, now.multiplier) - (int64_t)now.bias * 256);
    bias = as_sum(wanted, layer->shift, new.multiplier) - bias / ONE;
    bias = (bias + 128) >> 8;
    if (bias > INT32_MAX || bias < -INT32_MAX || !fb_channel_fits(layer, bias, new.multiplier)) return now;
    new.bias = (int32_t)bias;
    return new;
}

static channel channel_of(const fb_layer *layer, unsigned o) {
    channel c = {layer->mult ? (uint16_t)layer->mult[o] : (uint32_t)layer->mult_int8[o], layer->bias[o]};
    return c;
}

/* Mean and mean square of a channel's results, with 8 and 16 fractional bits, from sums of `values` of them. */
static void of_moments(const fb_moments *moments, uint64_t values, bool half, int64_t *mean, uint64_t *square) {
    *mean = moments->sum * 256 / (int64_t)values;
    *square = (moments->squares / values << 16) + ((moments->squares % values << 16) / values);
    if (half) {
        *mean *= 2;
        *square *= 4;
    }
}

void fb_start_base(const fb_train *train, const fb_state *at) {
    fb_layer layer;
    uint32_t i = 0;
    for (unsigned op = 0; op < train->model.ops; op++) {
        fb_layer_decode(&train->model, op, &layer);
        if (!fb_recalibrates(&train->config, op, &layer)) continue;
        for (unsigned o = 0; o < layer.out.channels; o++, i++) {
            channel c = channel_of(&layer, o);
            at->base[i].multiplier = c.multiplier;
            at->base[i].bias = c.bias;
        }
    }
}

/* How many layers that are recalibrated lie between the input and each tensor, at most; returns the most of all. */
FB_NOINLINE static unsigned depths(const fb_model *model, const fb_train_config *config, uint8_t *depth) {
    fb_layer layer;
    unsigned most = 0;
    memset(depth, 0, FB_TRAIN_TENSORS);
    for (unsigned op = 0; op < model->ops; op++) {
        unsigned d;
        fb_layer_decode(model, op, &layer);
        d = depth[layer.input];
        if (fb_traits_of(layer.kind)->inputs == 2 && depth[layer.input2] > d) d = depth[layer.input2];
        if (fb_recalibrates(config, op, &layer)) d++;
        depth[layer.output] = (uint8_t)d;
        if (d > most) most = d;
    }
    return most;
}

/* Layers in the first half: what they compute depends little on the class. */
static bool near_input(unsigned turn, unsigned most) { return turn == 1 || turn <= most / 2; }

unsigned fb_turns(const fb_model *model, const fb_train_config *config) {
    uint8_t depth[FB_TRAIN_TENSORS];
    return depths(model, config, depth);
}

bool fb_recalibrate(fb_train *train, const fb_state *at) {
    const fb_moments *moments = (const fb_moments *)(const void *)(train->arena + train->pass.sums);
    const fb_base *base = at->base;
    fb_layer layer, watched;
    uint8_t depth[FB_TRAIN_TENSORS];
    unsigned most = depths(&train->model, &train->config, depth), turn = at->head->op + 1u;
    uint32_t weight = weight_of(train, diversity(train), near_input(turn, most));
    for (unsigned op = 0; op < train->model.ops; op++) {
        uint64_t values;
        bool half;
        fb_layer_decode(&train->model, op, &layer);
        if (!fb_recalibrates(&train->config, op, &layer)) continue;
        if (depth[layer.output] != turn) {
            moments += layer.out.channels;
            base += layer.out.channels;
            continue;
        }
        half = fb_watched(&layer, &watched);
        values = (uint64_t)watched.out.height * watched.out.width * train->samples; /* below 2^32 */
        for (unsigned o = 0; o < layer.out.channels; o++, moments++, base++) {
            channel now = channel_of(&layer, o), then = {base->multiplier, base->bias};
            int64_t mean;
            uint64_t square;
            of_moments(moments, values, half, &mean, &square);
            now =
                recalibrated(&layer, then, now, layer.references + FB_REFERENCE_SIZE * (size_t)o, mean, square, weight);
            fb_set_channel(train, &layer, o, now.bias, now.multiplier);
        }
    }
    return turn == most;
}

/* A difference as a share of `of`, 16 fractional bits, 4 at most. */
static uint32_t share_of(int64_t difference, uint64_t of) {
    uint64_t share = ((uint64_t)(difference < 0 ? -difference : difference) << 16) / of;
    return share > 4 * ONE ? 4 * ONE : (uint32_t)share;
}

uint32_t fb_train_drift(const fb_train *train) {
    const fb_moments *moments = (const fb_moments *)(const void *)(train->arena + train->pass.sums);
    uint8_t depth[FB_TRAIN_TENSORS];
    unsigned most = depths(&train->model, &train->config, depth);
    uint64_t sum = 0, count = 0;
    fb_layer layer, watched;
    if (((const fb_head *)(const void *)train->state)->phase != FB_RECALIBRATE || train->seen == 0) return 0;
    for (unsigned op = 0; op < train->model.ops; op++) {
        bool half;
        uint64_t values;
        fb_layer_decode(&train->model, op, &layer);
        if (!fb_recalibrates(&train->config, op, &layer)) continue;
        half = fb_watched(&layer, &watched);
        values = (uint64_t)watched.out.height * watched.out.width * train->seen;
        for (unsigned o = 0; o < layer.out.channels; o++, moments++) {
            const uint8_t *reference = layer.references + FB_REFERENCE_SIZE * (size_t)o;
            uint64_t deviation = 2 * (uint64_t)fb_u16(reference + 2), square;
            int64_t mean;
            if (deviation == 0 || !near_input(depth[layer.output], most)) continue;
            of_moments(moments, values, half, &mean, &square);
            sum += share_of(mean - 2 * (int64_t)(int16_t)fb_u16(reference), deviation);
            square = square > (uint64_t)(mean * mean) ? square - (uint64_t)(mean * mean) : 0;
            sum += share_of((int64_t)root(square) - (int64_t)deviation, deviation);
            count++;
        }
    }
    return count ? (uint32_t)(sum / count) : 0;
}

bool fb_train_may_recalibrate(const fb_train *train) {
    const fb_head *head = (const fb_head *)(const void *)train->state;
    return head->phase == FB_RECALIBRATE && head->op == 0;
}
