/* Steps and passes. */
#include <string.h>

#include "fb_train_internal.h"

static void start_at_top(fb_train *train, fb_head *head) {
    head->op = (uint16_t)fb_amounts_of(&train->model, &train->config, UINT32_MAX).highest;
    head->filter = 0;
}

fb_status fb_train_open(fb_train *train, void *image, size_t image_size, void *state, size_t state_size, void *arena,
                        size_t arena_size, const fb_train_config *config) {
    fb_model model;
    fb_status status;
    fb_state at;
    if (!train || !state || !arena || !config) return FB_ERR_ARGUMENT;
    if ((uintptr_t)state % FB_ALIGN || (uintptr_t)arena % FB_ALIGN) return FB_ERR_ALIGN;
    status = fb_model_open(&model, image, image_size);
    if (status == FB_OK) status = fb_train_check(&model, config);
    if (status != FB_OK) return status;
    memset(train, 0, sizeof *train);
    train->model = model;
    train->config = *config;
    train->image = image;
    train->state = state;
    train->arena = arena;
    train->arena_size = (arena_size > UINT32_MAX ? UINT32_MAX : (uint32_t)arena_size) & ~(uint32_t)(FB_ALIGN - 1);
    train->state_size = fb_state_bytes(&model, config);
    if (train->state_size > state_size) return FB_ERR_STATE;
    at = fb_state_at(&model, config, state);
    if (at.head->magic == 0) {
        memset(state, 0, train->state_size);
        at.head->magic = FB_STATE_MAGIC;
        at.head->config = fb_config_crc(config);
        at.head->net = fb_net_crc(&model);
        at.head->random = config->seed * 2654435761u | 1; /* not 0, which xorshift never leaves */
        at.head->phase = config->recalibrate ? FB_RECALIBRATE : FB_CALIBRATE;
        memset(at.exponent, FB_EXPONENT_MAX, (size_t)model.tensors + model.ops);
        fb_start_bits(train, &at);
        fb_start_base(train, &at);
        fb_start_gains(train, &at);
        if (!config->recalibrate) start_at_top(train, at.head);
        at.head->crc = fb_state_crc(train);
    }
    if (at.head->magic != FB_STATE_MAGIC || at.head->crc != fb_state_crc(train)) return FB_ERR_STATE;
    if (at.head->config != fb_config_crc(config) || at.head->net != fb_net_crc(&model)) return FB_ERR_STATE;
    return fb_state_sound(train, &at) ? FB_OK : FB_ERR_STATE;
}

fb_status fb_train_begin(fb_train *train, uint32_t samples, uint32_t rate_bits, uint32_t rate_bias) {
    fb_head *head;
    if (!train || samples == 0 || samples > UINT16_MAX || rate_bits > FB_RATE_MAX || rate_bias > FB_RATE_MAX) {
        return FB_ERR_ARGUMENT;
    }
    head = (fb_head *)(void *)train->state;
    if (head->samples && head->samples != samples && head->phase != FB_RECALIBRATE) {
        return FB_ERR_ARGUMENT; /* in the middle of another step */
    }
    head->samples = (uint16_t)samples;
    head->crc = fb_state_crc(train);
    train->samples = samples;
    train->rate_bits = rate_bits;
    train->rate_bias = rate_bias;
    train->passes = 0;
    return fb_plan_pass(train);
}

fb_status fb_train_sample(fb_train *train, const int8_t *input, unsigned label, fb_train_result *result) {
    const fb_head *head;
    fb_tensor out;
    uint8_t *work;
    int8_t *scores;
    uint32_t size;
    fb_status status;
    if (!train || !input || train->samples == 0) return FB_ERR_ARGUMENT;
    head = (const fb_head *)(const void *)train->state;
    out = fb_model_tensor(&train->model, train->model.output);
    if (label >= out.size || train->seen >= train->samples) return FB_ERR_ARGUMENT;
    train->seen++;
    if (head->phase == FB_CALIBRATE && train->seen > FB_CALIBRATION_SAMPLES) return FB_OK;
    work = train->arena + train->pass.work;
    size = ((train->arena_size - train->pass.work) & ~(uint32_t)(FB_ALIGN - 1)) - fb_scores_size(&train->model);
    scores = (int8_t *)(work + size);
    if (head->phase == FB_RECALIBRATE) {
        if (result) result->loss = 0;
        status = fb_watch(train, work, size, input, scores);
        if (status == FB_OK && result) result->predicted = (uint16_t)fb_argmax(scores, out.size);
        return status;
    }
    size -= fb_copy_size(train);
    input = fb_augmented(train, input, (int8_t *)(work + size));
    status = fb_forward(train, work, size, input, scores);
    if (status != FB_OK) return status;
    if (result) result->predicted = (uint16_t)fb_argmax(scores, out.size);
    return fb_backward(train, work, size, input, scores, label, result ? &result->loss : NULL);
}

const int8_t *fb_train_scores(const fb_train *train) {
    uint32_t end = train->pass.work + ((train->arena_size - train->pass.work) & ~(uint32_t)(FB_ALIGN - 1));
    return (const int8_t *)train->arena + end - fb_scores_size(&train->model);
}

void fb_seal_image(fb_train *train) {
    uint32_t crc;
    uint8_t *field = train->image + FB_HEADER_CRC;
    memset(field, 0, 4);
    crc = fb_crc32(0, train->image, train->model.size);
    for (unsigned i = 0; i < 4; i++) field[i] = (uint8_t)(crc >> 8 * i);
    train->model.crc = crc;
}

/* Exponents such that fb_grad_input shifts to the right. */
FB_NOINLINE static void settle_exponents(fb_train *train, const fb_state *at) {
    fb_layer layer;
    for (unsigned op = 0; op < train->model.ops; op++) {
        fb_layer_decode(&train->model, op, &layer);
        if (fb_weighted(&layer) && at->exponent[layer.input] >= at->sum_exponent[op]) {
            at->exponent[layer.input] = (int8_t)(at->sum_exponent[op] - 1);
        }
    }
}

/* Follow the sizes of gradients: fewer cut off, more bits used. */
static void adapt(const fb_train *train, const fb_count *counts, uint32_t size, int8_t *exponent) {
    uint64_t n = (uint64_t)size * train->samples;
    if (counts->saturated > n >> 10) {
        if (*exponent > -FB_EXPONENT_MAX) --*exponent;
    } else if (counts->large < n >> 12 && *exponent < FB_EXPONENT_MAX) {
        ++*exponent;
    }
}

FB_NOINLINE static void adapt_exponents(fb_train *train, const fb_state *at) {
    fb_layer layer;
    for (unsigned t = 0; t < train->model.tensors; t++) {
        if (fb_active(train, t))
            adapt(train, fb_count_of(train, t), fb_model_tensor(&train->model, t).size, &at->exponent[t]);
    }
    for (unsigned op = 0; op < train->model.ops; op++) {
        int8_t *exponent = &at->sum_exponent[op], before = *exponent;
        fb_mean *mean;
        fb_gain_mean *gain;
        uint32_t layers;
        fb_layer_decode(&train->model, op, &layer);
        if (!fb_active(train, layer.output)) continue;
        adapt(train, fb_sum_count_of(train, layer.output), layer.out.size, exponent);
        if (!fb_trains(&train->config, op, &layer)) continue;
        layers = fb_amounts_of(&train->model, &train->config, op).layers;
        mean = &at->mean[layers];
        gain = train->config.gain ? &at->gain_mean[layers] : NULL;
        if (*exponent > before) { /* gradients of the next step will be twice as large */
            mean->bits_mean = mean->bits_mean > UINT32_MAX / 2 ? UINT32_MAX : mean->bits_mean * 2;
            mean->bias_mean = mean->bias_mean > UINT32_MAX / 2 ? UINT32_MAX : mean->bias_mean * 2;
            if (gain) gain->mean = gain->mean > UINT32_MAX / 2 ? UINT32_MAX : gain->mean * 2;
        } else if (*exponent < before) {
            mean->bits_mean /= 2;
            mean->bias_mean /= 2;
            if (gain) gain->mean /= 2;
        }
    }
    settle_exponents(train, at);
}

static void finish_gain(fb_gain_mean *gain, uint32_t channels) {
    uint64_t mean = gain->sum / channels;
    gain->mean = mean > UINT32_MAX ? UINT32_MAX : (uint32_t)mean;
    gain->sum = 0;
}

/* All passes of a step, or of the measurement before the first, are done. */
FB_NOINLINE static void finish_step(fb_train *train, const fb_state *at) {
    fb_layer layer;
    unsigned op = train->model.ops, next;
    bool update = at->head->phase == FB_UPDATE;
    fb_mean *mean = at->mean;
    train->flips = 0;
    for (; (next = fb_below(&train->model, &train->config, op, &layer)) != op; op = next, mean++) {
        uint32_t weights = fb_product(layer.inputs, layer.out.channels);
        uint64_t bits = mean->bits_sum / weights, bias = mean->bias_sum / layer.out.channels;
        mean->bits_mean = bits > UINT32_MAX ? UINT32_MAX : (uint32_t)bits;
        mean->bias_mean = bias > UINT32_MAX ? UINT32_MAX : (uint32_t)bias;
        mean->bits_sum = mean->bias_sum = 0;
        if (train->config.gain) finish_gain(&at->gain_mean[mean - at->mean], layer.out.channels);
        if (update) fb_apply_layer(train, at, next, &layer);
    }
    if (update) {
        fb_seal_image(train);
        adapt_exponents(train, at);
        at->head->step++;
        at->head->samples = 0;
        at->head->flips = train->flips;
    }
    at->head->phase = FB_UPDATE;
    start_at_top(train, at->head);
}

/* All layers have had their turn. */
FB_NOINLINE static void finish_recalibrating(fb_train *train, const fb_state *at) {
    train->flips = 0;
    at->head->step++;
    at->head->samples = 0;
    at->head->flips = 0;
    at->head->op = 0;
    if (at->head->step < train->config.recalibrate) return;
    if (!fb_amounts_of(&train->model, &train->config, UINT32_MAX).any) return; /* nothing else to do */
    fb_start_gains(train, at);
    at->head->phase = FB_CALIBRATE;
    start_at_top(train, at->head);
}

/* What a pass has summed up goes into the state; FB_OK if that was the step's last pass. A function of its own, so that
 * it is off the stack when the next pass is planned. */
FB_NOINLINE static fb_status finish_pass(fb_train *train) {
    fb_state at;
    fb_layer layer;
    fb_status status = FB_MORE;
    at = fb_state_at(&train->model, &train->config, train->state);
    train->passes++;
    if (at.head->phase == FB_RECALIBRATE) {
        bool last = fb_recalibrate(train, &at);
        fb_seal_image(train);
        at.head->op++;
        if (last) {
            finish_recalibrating(train, &at);
            status = FB_OK;
        }
    } else if (at.head->phase == FB_CALIBRATE) {
        settle_exponents(train, &at);
        at.head->phase = FB_MEASURE;
    } else {
        for (unsigned op = train->pass.high_op + 1u; op-- > train->pass.low_op;) {
            fb_layer_decode(&train->model, op, &layer);
            if (fb_trains(&train->config, op, &layer)) fb_finish_layer(train, &at, op, &layer);
        }
        fb_layer_decode(&train->model, train->pass.low_op, &layer);
        at.head->op = train->pass.low_op;
        at.head->filter = train->pass.end_filter;
        if (at.head->filter == layer.out.channels) {
            unsigned next = fb_below(&train->model, &train->config, train->pass.low_op, &layer);
            at.head->filter = 0;
            at.head->op = (uint16_t)next;
            if (next == train->pass.low_op) {
                status = at.head->phase == FB_UPDATE ? FB_OK : FB_MORE;
                finish_step(train, &at);
            }
        }
    }
    at.head->crc = fb_state_crc(train);
    return status;
}

fb_status fb_train_end_pass(fb_train *train) {
    fb_status status;
    if (!train || train->samples == 0 || train->seen != train->samples) return FB_ERR_ARGUMENT;
    if (finish_pass(train) == FB_OK) {
        train->samples = 0;
        return FB_OK;
    }
    status = fb_plan_pass(train);
    return status == FB_OK ? FB_MORE : status;
}
