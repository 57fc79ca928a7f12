/* What is trained, and the state that is kept between passes. */
#include <string.h>

#include "fb_train_internal.h"

bool fb_trains_bits(const fb_train_config *config, unsigned op, const fb_layer *layer) {
    unsigned need = FB_FLAG_BINARY | FB_FLAG_TRAINABLE;
    return config->bits && op >= config->first_op && op <= config->last_op && fb_weighted(layer) &&
           (layer->flags & need) == need;
}

bool fb_trains_bias(const fb_train_config *config, unsigned op, const fb_layer *layer) {
    return config->bias && op >= config->first_op && op <= config->last_op && fb_weighted(layer);
}

bool fb_trains_gain(const fb_train_config *config, unsigned op, const fb_layer *layer) {
    return config->gain && op >= config->first_op && op <= config->last_op && fb_weighted(layer);
}

/* The trained operation below `op`, decoded; `op` itself if none is left. */
unsigned fb_below(const fb_model *model, const fb_train_config *config, unsigned op, fb_layer *layer) {
    for (unsigned i = op; i-- > 0;) {
        fb_layer_decode(model, i, layer);
        if (fb_trains(config, i, layer)) return i;
    }
    return op;
}

uint32_t fb_weight_sums_size(const fb_train_config *config, unsigned op, const fb_layer *layer) {
    return fb_trains_bits(config, op, layer) ? fb_grad_sums_size(layer->inputs, fb_sum_bytes(config)) : 0;
}

uint32_t fb_sums_size(const fb_train_config *config, unsigned op, const fb_layer *layer) {
    uint32_t others = 4u * fb_trains_bias(config, op, layer) + 4u * fb_trains_gain(config, op, layer);
    return fb_sum(fb_weight_sums_size(config, op, layer), others);
}

fb_amounts fb_amounts_of(const fb_model *model, const fb_train_config *config, unsigned stop) {
    fb_amounts a = {0, 0, 0, 0, 0, 0, false};
    fb_layer layer;
    unsigned op = model->ops;
    for (;;) {
        unsigned next = fb_below(model, config, op, &layer);
        if (next == op || (stop != UINT32_MAX && next <= stop)) return a;
        op = next;
        if (!a.any) a.highest = op;
        a.any = true;
        a.lowest = op;
        a.layers++;
        a.channels += layer.out.channels;
        if (!fb_trains_bits(config, op, &layer)) continue;
        a.words = fb_sum(a.words, fb_product(layer.words, layer.out.channels));
        a.weights = fb_sum(a.weights, fb_product(layer.inputs, layer.out.channels));
    }
}

/* Offsets of the parts of the state. */
typedef struct offsets {
    uint32_t exponent, mean, bias, bits, buffer, gain_mean, gain, base, size;
} offsets;

static offsets offsets_of(const fb_model *model, const fb_train_config *config) {
    fb_amounts a = fb_amounts_of(model, config, UINT32_MAX);
    offsets at;
    at.exponent = fb_aligned((uint32_t)sizeof(fb_head));
    at.mean = fb_aligned(at.exponent + model->tensors + model->ops);
    at.bias = at.mean + (uint32_t)sizeof(fb_mean) * a.layers;
    at.bits = at.bias + (config->bias ? 4 * a.channels : 0);
    at.buffer = fb_sum(at.bits, fb_product(2, a.words));
    at.gain_mean = fb_aligned(fb_sum(at.buffer, a.weights / 8 * config->buffer_bits + config->buffer_bits));
    at.gain = fb_sum(at.gain_mean, config->gain ? fb_product(sizeof(fb_gain_mean), a.layers) : 0);
    at.base = fb_aligned(fb_sum(at.gain, config->gain ? fb_product(4, a.channels) : 0));
    at.size = fb_product(sizeof(fb_base), fb_referenced_channels(model, config, model->ops));
    at.size = fb_aligned(fb_sum(at.base, at.size));
    if (a.words > UINT32_MAX / 32 || a.weights > UINT32_MAX / 32) at.size = UINT32_MAX;
    return at;
}

fb_state fb_state_at(const fb_model *model, const fb_train_config *config, uint8_t *state) {
    offsets o = offsets_of(model, config);
    fb_state at;
    at.head = (fb_head *)(void *)state;
    at.exponent = (int8_t *)state + o.exponent;
    at.sum_exponent = at.exponent + model->tensors;
    at.mean = (fb_mean *)(void *)(state + o.mean);
    at.bias = (int32_t *)(void *)(state + o.bias);
    at.bits = (uint16_t *)(void *)(state + o.bits);
    at.buffer = state + o.buffer;
    at.gain_mean = (fb_gain_mean *)(void *)(state + o.gain_mean);
    at.gain = (uint32_t *)(void *)(state + o.gain);
    at.base = (fb_base *)(void *)(state + o.base);
    return at;
}

/* Whether Σ w · h of any input value, and half of 2^30, fit 31 bits: |h| ≤ 128, and |w| ≤ 128 or 1. Kernels of binary
 * weights may sum up twice the positive ones first. */
static bool input_gradient_fits(const fb_layer *layer) {
    uint32_t down = (layer->kernel_h - 1u) / layer->stride_h + 1, across = (layer->kernel_w - 1u) / layer->stride_w + 1;
    uint64_t products = (uint64_t)(down < layer->out.height ? down : layer->out.height) *
                        (across < layer->out.width ? across : layer->out.width);
    if (layer->kind != FB_DEPTHWISE) products *= layer->out.channels;
    return products * (layer->bits ? 2 * 128 : 128 * 128) + (1u << 29) <= INT32_MAX;
}

fb_status fb_check_config(const fb_model *model, const fb_train_config *config) {
    fb_amounts trained;
    if (!model || !config || model->tensors > FB_TRAIN_TENSORS) return FB_ERR_ARGUMENT;
    if (!fb_config_known(config)) return FB_ERR_ARGUMENT;
    for (unsigned op = 0; op < model->ops; op++) {
        fb_layer layer;
        fb_layer_decode(model, op, &layer);
        if (fb_chooses(&layer) && fb_taps(&layer) > 256) return FB_ERR_ARGUMENT; /* a choice is a byte */
        if ((uint32_t)layer.out.width * layer.out.height > FB_TRAIN_PIXELS) return FB_ERR_OVERFLOW;
        if (fb_weighted(&layer) && !input_gradient_fits(&layer)) return FB_ERR_OVERFLOW;
    }
    if (fb_model_tensor(model, model->output).size > FB_TRAIN_OUTPUTS) return FB_ERR_OVERFLOW;
    trained = fb_amounts_of(model, config, UINT32_MAX);
    if (config->recalibrate ? !fb_referenced_channels(model, config, model->ops) : !trained.any) return FB_ERR_ARGUMENT;
    for (unsigned op = trained.lowest; trained.any && op < model->ops; op++) {
        if (fb_traits_of(fb_op_record(model, op)[FB_OP_KIND])->back == FB_BACK_NONE) return FB_ERR_KIND;
    }
    return fb_state_bytes(model, config) == UINT32_MAX ? FB_ERR_OVERFLOW : FB_OK;
}

fb_status fb_train_check(const fb_model *model, const fb_train_config *config) {
    fb_status status = fb_check_config(model, config);
    return status == FB_OK && !fb_weights_apart(model) ? FB_ERR_OFFSET : status;
}

/* Bytes [start, end) of an operation's weights or table, or its parameters. */
typedef struct span {
    uint32_t start, end;
} span;

static span span_of(const fb_layer *layer, bool parameters) {
    uint32_t each = layer->bits ? 2 * layer->words : layer->inputs;
    span s = {layer->factor[parameters], 0};
    if (!fb_weighted(layer)) { /* a table, which has no parameters */
        if (!parameters) s.end = s.start + FB_TABLE_SIZE;
        return s;
    }
    s.end = s.start + (parameters ? fb_params_size(layer) : each * layer->out.channels);
    return s;
}

static bool overlap(span a, span b) { return a.start < b.end && b.start < a.end; }

bool fb_weights_apart(const fb_model *model) {
    const uint8_t *header = model->image;
    span metadata = {fb_u32(header + FB_HEADER_METADATA), 0};
    metadata.end = metadata.start + fb_u32(header + FB_HEADER_METADATA_LENGTH);
    for (unsigned i = 0; i < 2u * model->ops; i++) {
        fb_layer layer;
        span a, b;
        fb_layer_decode(model, i / 2, &layer);
        if (!layer.bits && !layer.weights) continue;
        a = span_of(&layer, i % 2);
        if (overlap(a, metadata)) return false;
        for (unsigned k = 0; k < i; k++) {
            fb_layer_decode(model, k / 2, &layer);
            if (!layer.bits && !layer.weights) continue;
            b = span_of(&layer, k % 2);
            if (overlap(a, b)) return false;
        }
    }
    return true;
}

uint32_t fb_state_bytes(const fb_model *model, const fb_train_config *config) { return offsets_of(model, config).size; }

size_t fb_train_state_size(const fb_model *model, const fb_train_config *config) {
    return fb_check_config(model, config) == FB_OK ? fb_state_bytes(model, config) : 0;
}

uint32_t fb_net_crc(const fb_model *model) {
    size_t tables = FB_TENSOR_SIZE * (size_t)model->tensors + FB_OP_SIZE * (size_t)model->ops;
    return fb_crc32(0, model->image + FB_HEADER_SIZE, tables);
}

uint32_t fb_state_crc(const fb_train *train) { return fb_crc32(0, train->state + 8, train->state_size - 8); }

static bool in_range(const int8_t *exponents, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (exponents[i] > FB_EXPONENT_MAX || exponents[i] < -FB_EXPONENT_MAX - 1) return false;
    }
    return true;
}

/* Bits behind the last weight of each filter are 0, as in an image. */
static bool unused_bits_clear(const fb_layer *layer, const uint16_t *bits) {
    for (uint32_t o = 1; layer->inputs % 16 && o <= layer->out.channels; o++) {
        if (bits[(size_t)o * layer->words - 1] >> layer->inputs % 16) return false;
    }
    return true;
}

bool fb_state_sound(const fb_train *train, const fb_state *at) {
    const fb_model *model = &train->model;
    const uint16_t *bits = at->bits;
    bool found = false;
    if (at->head->phase > FB_RECALIBRATE || at->head->random == 0) return false;
    for (uint32_t i = fb_referenced_channels(model, &train->config, model->ops); i-- > 0;) {
        if (at->base[i].multiplier < 1 || at->base[i].multiplier > INT32_MAX) return false;
    }
    if (at->head->phase == FB_RECALIBRATE) {
        bool turn = at->head->op < fb_turns(model, &train->config) && at->head->filter == 0;
        if (!train->config.recalibrate || !turn) return false;
    }
    if (!in_range(at->exponent, (uint32_t)model->tensors + model->ops)) return false;
    for (unsigned op = model->ops; op-- > 0;) {
        fb_layer layer;
        fb_layer_decode(model, op, &layer);
        if ((at->head->phase == FB_MEASURE || at->head->phase == FB_UPDATE) && fb_weighted(&layer) &&
            at->exponent[layer.input] >= at->sum_exponent[op]) {
            return false; /* see settle_exponents */
        }
        if (!fb_trains(&train->config, op, &layer)) continue;
        if (op == at->head->op) found = at->head->filter < layer.out.channels;
        if (!fb_trains_bits(&train->config, op, &layer)) continue;
        if (!unused_bits_clear(&layer, bits)) return false;
        bits += (size_t)layer.words * layer.out.channels;
    }
    return found || at->head->phase == FB_RECALIBRATE;
}

uint32_t fb_train_steps(const fb_train *train) { return ((const fb_head *)(const void *)train->state)->step; }

uint32_t fb_buffer_get(const uint8_t *buffer, unsigned k, uint32_t i) {
    uint32_t bit = i * k, two = (uint32_t)buffer[bit / 8] | (bit % 8 + k > 8 ? (uint32_t)buffer[bit / 8 + 1] << 8 : 0);
    return two >> bit % 8 & ((1u << k) - 1);
}

void fb_buffer_set(uint8_t *buffer, unsigned k, uint32_t i, uint32_t value) {
    uint32_t bit = i * k, mask = ((1u << k) - 1) << bit % 8;
    value <<= bit % 8;
    buffer[bit / 8] = (uint8_t)((buffer[bit / 8] & ~mask) | value);
    if (mask >> 8) buffer[bit / 8 + 1] = (uint8_t)((buffer[bit / 8 + 1] & ~(mask >> 8)) | value >> 8);
}

/* New bits start as the image's, buffers at the configured distance from flipping. */
void fb_start_bits(fb_train *train, const fb_state *at) {
    fb_layer layer;
    unsigned op = train->model.ops, next, k = train->config.buffer_bits;
    uint16_t *bits = at->bits;
    uint32_t weight = 0;
    for (; (next = fb_below(&train->model, &train->config, op, &layer)) != op; op = next) {
        if (!fb_trains_bits(&train->config, next, &layer)) continue;
        memcpy(bits, layer.bits, 2 * (size_t)layer.words * layer.out.channels);
        for (uint32_t o = 0; k && o < layer.out.channels; o++) {
            for (uint32_t i = 0; i < layer.inputs; i++, weight++) {
                uint32_t index = fb_bit_index(&layer, i % fb_taps(&layer), i / fb_taps(&layer));
                bool positive = fb_bit(layer.bits + (size_t)o * layer.words, index);
                uint32_t start = train->config.start;
                fb_buffer_set(at->buffer, k, weight, positive ? start : (1u << k) - 1 - start);
            }
        }
        bits += (size_t)layer.words * layer.out.channels;
    }
}
