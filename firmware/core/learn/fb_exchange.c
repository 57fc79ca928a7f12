/* What devices exchange that learn together: plans, sums, flips.
 *
 * A plan: net u32 | configuration u32 | image u32 (CRCs) | step u32 | phase, op, filter, samples u16 | the pass: high_op,
 * low_op, first_filter, end_filter u16 | exponents int8 [tensors], then [operations]. Little-endian. */
#include "../include/fb_exchange.h"

#include <string.h>

#include "fb_train_internal.h"

enum { NET = 0, CONFIG = 4, IMAGE = 8, STEP = 12, PHASE = 16, OP = 18, FILTER = 20, SAMPLES = 22 };
enum { HIGH_OP = 24, LOW_OP = 26, FIRST_FILTER = 28, END_FILTER = 30, EXPONENTS = 32 };

/* One number, said twice. */
typedef char fb_exchange_scaling_is_right[FB_EXCHANGE_SCALING == FB_CALIBRATION_SAMPLES ? 1 : -1];

static fb_head *head_of(const fb_train *train) { return (fb_head *)(void *)train->state; }

static uint32_t exponents(const fb_train *train) { return (uint32_t)train->model.tensors + train->model.ops; }

static void put_16(uint8_t *to, unsigned v) {
    to[0] = (uint8_t)v;
    to[1] = (uint8_t)(v >> 8);
}

static void put_32(uint8_t *to, uint32_t v) {
    put_16(to, v & 0xFFFF);
    put_16(to + 2, v >> 16);
}

size_t fb_exchange_plan_size(const fb_train *train) { return EXPONENTS + (size_t)exponents(train); }

/* The pass, as the end of a plan's fixed part. A pass that recalibrates has none: it takes all layers. */
static void put_pass(const fb_train *train, uint8_t *plan) {
    memset(plan + HIGH_OP, 0, EXPONENTS - HIGH_OP);
    if (head_of(train)->phase == FB_RECALIBRATE) return;
    put_16(plan + HIGH_OP, train->pass.high_op);
    put_16(plan + LOW_OP, train->pass.low_op);
    put_16(plan + FIRST_FILTER, train->pass.first_filter);
    put_16(plan + END_FILTER, train->pass.end_filter);
}

fb_status fb_exchange_plan(const fb_train *train, uint8_t *plan) {
    const fb_head *head;
    if (!train || !plan) return FB_ERR_ARGUMENT;
    if (train->samples == 0) return FB_ERR_ORDER;
    head = head_of(train);
    put_32(plan + NET, head->net);
    put_32(plan + CONFIG, head->config);
    put_32(plan + IMAGE, train->model.crc);
    put_32(plan + STEP, head->step);
    put_16(plan + PHASE, head->phase);
    put_16(plan + OP, head->op);
    put_16(plan + FILTER, head->filter);
    put_16(plan + SAMPLES, train->samples);
    put_pass(train, plan);
    memcpy(plan + EXPONENTS, fb_state_at(&train->model, &train->config, train->state).exponent, exponents(train));
    return FB_OK;
}

/* Give the state what a plan says of it. */
static void adopt(fb_train *train, const uint8_t *plan) {
    fb_head *head = head_of(train);
    head->step = fb_u32(plan + STEP);
    head->phase = (uint16_t)fb_u16(plan + PHASE);
    head->op = (uint16_t)fb_u16(plan + OP);
    head->filter = (uint16_t)fb_u16(plan + FILTER);
    head->samples = (uint16_t)fb_u16(plan + SAMPLES);
    memcpy(fb_state_at(&train->model, &train->config, train->state).exponent, plan + EXPONENTS, exponents(train));
}

fb_status fb_exchange_follow(fb_train *train, const uint8_t *plan, size_t size, uint32_t first) {
    uint8_t pass[EXPONENTS];
    fb_state at;
    fb_status status;
    uint32_t samples;
    if (!train || !plan) return FB_ERR_ARGUMENT;
    if (size != fb_exchange_plan_size(train)) return FB_ERR_STATE;
    if (fb_u32(plan + NET) != head_of(train)->net || fb_u32(plan + CONFIG) != head_of(train)->config ||
        fb_u32(plan + IMAGE) != train->model.crc) {
        return FB_ERR_STATE;
    }
    samples = fb_u16(plan + SAMPLES);
    if (first >= samples) return FB_ERR_ARGUMENT;
    adopt(train, plan);
    at = fb_state_at(&train->model, &train->config, train->state);
    train->samples = 0;
    if (!fb_state_sound(train, &at)) {
        at.head->magic = 0; /* of a forged plan: fb_train_open starts anew */
        return FB_ERR_STATE;
    }
    status = fb_train_begin(train, samples, train->rate_bits, train->rate_bias); /* a leader goes on */
    if (status != FB_OK) return status;
    put_pass(train, pass);
    if (memcmp(pass + HIGH_OP, plan + HIGH_OP, EXPONENTS - HIGH_OP) != 0) {
        train->samples = 0;
        return FB_ERR_ARENA;
    }
    train->seen = first;
    return FB_OK;
}

bool fb_exchange_scales(const fb_train *train) { return head_of(train)->phase == FB_CALIBRATE; }

bool fb_exchange_recalibrates(const fb_train *train) { return head_of(train)->phase == FB_RECALIBRATE; }

uint32_t *fb_exchange_sums(const fb_train *train, uint32_t *words, uint32_t *counts) {
    bool moments = head_of(train)->phase == FB_RECALIBRATE;
    *words = (moments ? train->pass.work : train->pass.saved) / 4;
    *counts = (moments ? train->pass.saved : train->pass.sums) / 4;
    return (uint32_t *)(void *)train->arena;
}

fb_status fb_exchange_gather(fb_train *train, const uint32_t *sums, uint32_t words, uint32_t samples) {
    uint32_t mine, counts, *to, i = 0;
    if (!train || train->samples == 0 || samples > train->samples - train->seen) return FB_ERR_ARGUMENT;
    to = fb_exchange_sums(train, &mine, &counts);
    if (sums && words != mine) return FB_ERR_ARGUMENT;
    train->seen += samples;
    if (!sums) return FB_OK;
    if (head_of(train)->phase == FB_RECALIBRATE) {
        for (; i < counts; i += 2) {
            uint64_t sum = ((uint64_t)to[i + 1] << 32 | to[i]) + ((uint64_t)sums[i + 1] << 32 | sums[i]);
            to[i] = (uint32_t)sum;
            to[i + 1] = (uint32_t)(sum >> 32);
        }
    }
    for (; i < words; i++) to[i] += sums[i];
    return FB_OK;
}

static uint32_t trained_words(const fb_train *train) {
    return train->config.bits ? fb_amounts_of(&train->model, &train->config, UINT32_MAX).words : 0;
}

const uint16_t *fb_exchange_bits(const fb_train *train, uint32_t *words) {
    *words = trained_words(train);
    return *words ? fb_state_at(&train->model, &train->config, train->state).bits : NULL;
}

static void toggle(const fb_state *at, const uint32_t *places, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        at->bits[places[i] / 16] = (uint16_t)(at->bits[places[i] / 16] ^ 1u << places[i] % 16);
    }
}

/* Biases that wait for the end of a step are what the image has: only its bits change. */
static void keep_biases(const fb_train *train, const fb_state *at, unsigned op, const fb_layer *layer) {
    if (!train->config.bias) return;
    memcpy(at->bias + fb_amounts_of(&train->model, &train->config, op).channels, layer->bias,
           4 * (size_t)layer->out.channels);
}

fb_status fb_exchange_flip(fb_train *train, const uint32_t *places, uint32_t count) {
    fb_state at;
    fb_layer layer;
    unsigned op, next;
    uint32_t bits;
    if (!train || (!places && count)) return FB_ERR_ARGUMENT;
    if (train->samples || head_of(train)->samples) return FB_ERR_ORDER;
    bits = trained_words(train) * 16;
    for (uint32_t i = 0; i < count; i++) {
        if (places[i] >= bits) return FB_ERR_ARGUMENT;
    }
    at = fb_state_at(&train->model, &train->config, train->state);
    toggle(&at, places, count);
    if (!fb_state_sound(train, &at)) { /* a place between filters, where there is no weight */
        toggle(&at, places, count);
        return FB_ERR_ARGUMENT;
    }
    train->flips = 0;
    for (op = train->model.ops; (next = fb_below(&train->model, &train->config, op, &layer)) != op; op = next) {
        keep_biases(train, &at, next, &layer);
        fb_apply_layer(train, &at, next, &layer);
    }
    fb_seal_image(train);
    at.head->crc = fb_state_crc(train);
    return FB_OK;
}
