/* Steps, passes and what is kept between them. */
#include <string.h>

#include "fb_learn.h"
#include "fb_plan.h"

static unsigned taps_of(const fb_layer *layer) { return (unsigned)layer->kernel_h * layer->kernel_w; }

bool fb_trains_bits(const fb_train_config *config, unsigned op, const fb_layer *layer) {
    unsigned need = FB_FLAG_BINARY | FB_FLAG_TRAINABLE;
    return config->bits && op >= config->first_op && op <= config->last_op && fb_weighted(layer) &&
           (layer->flags & need) == need;
}

bool fb_trains_bias(const fb_train_config *config, unsigned op, const fb_layer *layer) {
    return config->bias && op >= config->first_op && op <= config->last_op && fb_weighted(layer);
}

/* The trained operation below `op`, decoded; `op` itself if none is left. */
static unsigned below(const fb_model *model, const fb_train_config *config, unsigned op, fb_layer *layer) {
    for (unsigned i = op; i-- > 0;) {
        fb_layer_decode(model, i, layer);
        if (fb_trains(config, i, layer)) return i;
    }
    return op;
}

static uint32_t sums_per_filter(const fb_train_config *config, unsigned op, const fb_layer *layer) {
    return (fb_trains_bits(config, op, layer) ? layer->inputs : 0) + fb_trains_bias(config, op, layer);
}

/* Sizes of what is trained: all of it, or only the operations above `stop`. */
typedef struct amounts {
    uint32_t channels, words, weights, lowest, highest;
    bool any;
} amounts;

static amounts amounts_of(const fb_model *model, const fb_train_config *config, unsigned stop) {
    amounts a = {0, 0, 0, 0, 0, false};
    fb_layer layer;
    unsigned op = model->ops;
    for (;;) {
        unsigned next = below(model, config, op, &layer);
        if (next == op || (stop != UINT32_MAX && next <= stop)) return a;
        op = next;
        if (!a.any) a.highest = op;
        a.any = true;
        a.lowest = op;
        a.channels += layer.out.channels;
        if (!fb_trains_bits(config, op, &layer)) continue;
        a.words = fb_sum(a.words, fb_product(layer.words, layer.out.channels));
        a.weights = fb_sum(a.weights, fb_product(layer.inputs, layer.out.channels));
    }
}

/* Offsets of the parts of the state. */
typedef struct offsets {
    uint32_t exponent, mean, bias, bits, buffer, size;
} offsets;

static offsets offsets_of(const fb_model *model, const fb_train_config *config) {
    amounts a = amounts_of(model, config, UINT32_MAX);
    offsets at;
    at.exponent = fb_aligned((uint32_t)sizeof(fb_head));
    at.mean = fb_aligned(at.exponent + model->tensors + model->ops);
    at.bias = at.mean + (uint32_t)sizeof(fb_mean) * model->ops;
    at.bits = at.bias + (config->bias ? 4 * a.channels : 0);
    at.buffer = fb_sum(at.bits, fb_product(2, a.words));
    at.size = fb_aligned(fb_sum(at.buffer, a.weights / 8 * config->buffer_bits + config->buffer_bits));
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
    return at;
}

static fb_status check_config(const fb_model *model, const fb_train_config *config) {
    if (!model || !config || model->tensors > FB_TRAIN_TENSORS) return FB_ERR_ARGUMENT;
    if (config->buffer_bits > FB_BUFFER_BITS_MAX || config->start >> config->buffer_bits) return FB_ERR_ARGUMENT;
    return amounts_of(model, config, UINT32_MAX).any ? FB_OK : FB_ERR_ARGUMENT;
}

size_t fb_train_state_size(const fb_model *model, const fb_train_config *config) {
    uint32_t size;
    if (check_config(model, config) != FB_OK) return 0;
    size = offsets_of(model, config).size;
    return size == UINT32_MAX ? 0 : size;
}

/* What is saved in the forward pass: from the last operation down to the pass's lowest, the masks of active layers and
 * the choices of max pooling. */

/* Offset of the mask or choices of `wanted`; the size of all if there is no such operation. */
static uint32_t saved_offset(const fb_train *train, unsigned wanted) {
    uint32_t at = 0;
    fb_layer layer;
    for (unsigned op = train->model.ops; op-- > train->pass.low_op;) {
        if (op == wanted) return at;
        fb_layer_decode(&train->model, op, &layer);
        if (!fb_active(train, layer.output)) continue;
        if (fb_masked(&layer)) at = fb_sum(at, fb_aligned(layer.out.size / 8 + 1));
        if (layer.kind == FB_MAX_POOL) at = fb_sum(at, fb_aligned(layer.out.size));
    }
    return at;
}

uint32_t fb_saved_mask(const fb_train *train, unsigned op) { return saved_offset(train, op); }

uint32_t fb_saved_size(const fb_train *train) { return saved_offset(train, UINT32_MAX); }

/* Where a layer's result is not cut off. */
static void save_mask(const fb_layer *layer, const int8_t *values, uint8_t *mask) {
    bool relu = layer->kind == FB_RELU;
    int32_t low = relu ? layer->out.zero_point : layer->low, high = relu ? 128 : 127;
    for (uint32_t i = 0; i < layer->out.size; i++) {
        bool pass = values[i] > low && values[i] < high;
        if (i % 8 == 0) mask[i / 8] = 0;
        mask[i / 8] = (uint8_t)(mask[i / 8] | (uint32_t)pass << i % 8);
    }
}

/* For each window, the place of its largest value, the first among equals. */
static void save_choices(const fb_layer *layer, const int8_t *in, uint8_t *choices) {
    int32_t h = layer->in.height, w = layer->in.width;
    for (uint32_t c = 0; c < layer->in.channels; c++, in += (size_t)h * (size_t)w) {
        for (int32_t y = 0; y < layer->out.height; y++) {
            for (int32_t x = 0; x < layer->out.width; x++) {
                int32_t top = y * layer->stride_h - layer->pad_top, left = x * layer->stride_w - layer->pad_left;
                int32_t most = -129, best = 0;
                for (int32_t i = 0; i < (int32_t)taps_of(layer); i++) {
                    int32_t yy = top + i / layer->kernel_w, xx = left + i % layer->kernel_w;
                    if (yy < 0 || yy >= h || xx < 0 || xx >= w || in[yy * w + xx] <= most) continue;
                    most = in[yy * w + xx];
                    best = i;
                }
                *choices++ = (uint8_t)best;
            }
        }
    }
}

void fb_save_masks(const fb_train *train, unsigned op, unsigned tensor, const int8_t *values) {
    uint8_t *saved = train->arena + train->pass.saved;
    fb_layer layer;
    fb_layer_decode(&train->model, op, &layer);
    if (op >= train->pass.low_op && fb_active(train, tensor) && fb_masked(&layer)) {
        save_mask(&layer, values, saved + fb_saved_mask(train, op));
    }
    for (unsigned i = op + 1; i < train->model.ops; i++) {
        fb_layer_decode(&train->model, i, &layer);
        if (layer.kind != FB_MAX_POOL || layer.input != tensor || !fb_active(train, layer.output)) continue;
        if (i >= train->pass.low_op) save_choices(&layer, values, saved + fb_saved_mask(train, i));
    }
}

/* Planning. */

uint32_t fb_sums_of(const fb_train *train, unsigned op, unsigned *first, unsigned *end) {
    fb_layer layer;
    uint32_t at = 0;
    unsigned i = train->pass.high_op;
    for (;;) {
        uint32_t each;
        fb_layer_decode(&train->model, i, &layer);
        each = fb_trains(&train->config, i, &layer) ? sums_per_filter(&train->config, i, &layer) : 0;
        *first = i == train->pass.high_op ? train->pass.first_filter : 0;
        *end = i == train->pass.low_op ? train->pass.end_filter : layer.out.channels;
        if (i <= op) break;
        at = fb_sum(at, fb_product(each, *end - *first));
        i--;
    }
    if (!fb_trains(&train->config, op, &layer)) *end = *first;
    return at;
}

static uint32_t scores_size(const fb_model *model) { return fb_aligned(fb_model_tensor(model, model->output).size); }

/* Bytes the pass needs beside the sums. */
static uint32_t need_beside_sums(fb_train *train, bool fast) {
    uint32_t work;
    fb_mark_tensors(train);
    work = fb_sum(fb_aligned(fb_work_size(train, fast)), scores_size(&train->model));
    return fb_sum(fb_front(&train->model), fb_sum(fb_aligned(fb_saved_size(train)), work));
}

/* As many filters as fit, from (op, filter) on. False if not even one does. */
static bool take_filters(fb_train *train, unsigned op, unsigned filter, uint32_t arena, bool fast) {
    fb_layer layer;
    uint32_t taken = 0; /* bytes of sums of whole layers so far */
    bool any = false;
    fb_layer_decode(&train->model, op, &layer);
    train->pass.high_op = (uint16_t)op;
    train->pass.first_filter = (uint16_t)filter;
    for (;;) {
        unsigned from = op == train->pass.high_op ? filter : 0, next;
        uint32_t each = fb_product(4, sums_per_filter(&train->config, op, &layer)), need, room;
        uint16_t low = train->pass.low_op, end = train->pass.end_filter;
        train->pass.low_op = (uint16_t)op;
        need = fb_sum(need_beside_sums(train, fast), taken);
        room = need < arena ? (arena - need) / each : 0;
        if (room > layer.out.channels - from) room = layer.out.channels - from;
        if (room == 0) {
            train->pass.low_op = low;
            train->pass.end_filter = end;
            return any;
        }
        any = true;
        train->pass.end_filter = (uint16_t)(from + room);
        taken = fb_sum(taken, each * room);
        if (train->pass.end_filter < layer.out.channels) return true;
        next = below(&train->model, &train->config, op, &layer);
        if (next == op) return true;
        op = next;
    }
}

static uint32_t filters_in_pass(const fb_train *train) {
    fb_layer layer;
    uint32_t n = 0;
    for (unsigned i = train->pass.low_op; i <= train->pass.high_op; i++) {
        unsigned first, end;
        fb_layer_decode(&train->model, i, &layer);
        fb_sums_of(train, i, &first, &end);
        n += end - first;
    }
    return n;
}

static fb_status lay_out(fb_train *train) {
    unsigned first, end;
    uint32_t sums = fb_sums_of(train, train->pass.low_op, &first, &end);
    fb_layer layer;
    fb_layer_decode(&train->model, train->pass.low_op, &layer);
    sums += (end - first) * sums_per_filter(&train->config, train->pass.low_op, &layer);
    fb_mark_tensors(train);
    train->pass.sums = fb_front(&train->model);
    train->pass.saved = fb_aligned(train->pass.sums + 4 * sums);
    train->pass.work = train->pass.saved + fb_aligned(fb_saved_size(train));
    memset(train->arena, 0, train->pass.saved);
    return FB_OK;
}

/* The calibrating pass sums up nothing and goes down to the lowest layer. */
static void calibrating_pass(fb_train *train) {
    amounts a = amounts_of(&train->model, &train->config, UINT32_MAX);
    train->pass.low_op = (uint16_t)a.lowest;
    train->pass.high_op = (uint16_t)a.lowest;
    train->pass.first_filter = train->pass.end_filter = 0;
}

static fb_status plan_pass(fb_train *train) {
    const fb_head *head = (const fb_head *)(const void *)train->state;
    uint32_t fast = 0;
    train->seen = 0;
    if (head->phase == FB_CALIBRATE) {
        calibrating_pass(train);
        return need_beside_sums(train, false) > train->arena_size ? FB_ERR_ARENA : lay_out(train);
    }
    /* Tables make a pass fast, sums make passes few: without tables, if that gives twice as many filters. */
    if (take_filters(train, head->op, head->filter, train->arena_size, true)) fast = filters_in_pass(train);
    if (!take_filters(train, head->op, head->filter, train->arena_size, false)) return FB_ERR_ARENA;
    if (fast && filters_in_pass(train) < 2 * fast) take_filters(train, head->op, head->filter, train->arena_size, true);
    return lay_out(train);
}

size_t fb_train_arena_size(const fb_model *model, const fb_train_config *config, bool fast) {
    fb_train train;
    fb_layer layer;
    uint32_t most = 0, sums = 0, need;
    unsigned op, next;
    if (check_config(model, config) != FB_OK) return 0;
    memset(&train, 0, sizeof train);
    train.model = *model;
    train.config = *config;
    train.pass.high_op = (uint16_t)below(model, config, model->ops, &layer);
    /* From the last layer down: each alone, or all so far together. Together may be more tensors than FB_MAX_LIVE; then
     * the largest pass that can run is what counts. */
    for (op = model->ops; (next = below(model, config, op, &layer)) != op; op = next) {
        uint32_t each = fb_product(4, sums_per_filter(config, next, &layer));
        train.pass.low_op = (uint16_t)next;
        if (!fast) train.pass.high_op = (uint16_t)next;
        sums = fast ? fb_sum(sums, fb_product(each, layer.out.channels)) : each;
        need = fb_sum(need_beside_sums(&train, fast), sums);
        if (need == UINT32_MAX) return fast ? fb_aligned(most) : 0;
        if (need > most) most = need;
    }
    return fb_aligned(most);
}

/* State. */

static uint32_t config_crc(const fb_train_config *config) {
    uint8_t text[12];
    for (unsigned i = 0; i < 4; i++) text[i] = (uint8_t)(config->seed >> 8 * i);
    text[4] = config->buffer_bits;
    text[5] = config->start;
    text[6] = config->bits;
    text[7] = config->bias;
    text[8] = (uint8_t)config->first_op;
    text[9] = (uint8_t)(config->first_op >> 8);
    text[10] = (uint8_t)config->last_op;
    text[11] = (uint8_t)(config->last_op >> 8);
    return fb_crc32(0, text, sizeof text);
}

static uint32_t net_crc(const fb_model *model) {
    size_t tables = FB_TENSOR_SIZE * (size_t)model->tensors + FB_OP_SIZE * (size_t)model->ops;
    return fb_crc32(0, model->image + FB_HEADER_SIZE, tables);
}

static uint32_t state_crc(const fb_train *train) { return fb_crc32(0, train->state + 8, train->state_size - 8); }

uint32_t fb_train_steps(const fb_train *train) { return ((const fb_head *)(const void *)train->state)->step; }

static uint32_t buffer_get(const uint8_t *buffer, unsigned k, uint32_t i) {
    uint32_t bit = i * k, two = (uint32_t)buffer[bit / 8] | (bit % 8 + k > 8 ? (uint32_t)buffer[bit / 8 + 1] << 8 : 0);
    return two >> bit % 8 & ((1u << k) - 1);
}

static void buffer_set(uint8_t *buffer, unsigned k, uint32_t i, uint32_t value) {
    uint32_t bit = i * k, mask = ((1u << k) - 1) << bit % 8;
    value <<= bit % 8;
    buffer[bit / 8] = (uint8_t)((buffer[bit / 8] & ~mask) | value);
    if (mask >> 8) buffer[bit / 8 + 1] = (uint8_t)((buffer[bit / 8 + 1] & ~(mask >> 8)) | value >> 8);
}

/* New bits start as the image's, buffers at the configured distance from flipping. */
static void start_bits(fb_train *train, const fb_state *at) {
    fb_layer layer;
    unsigned op = train->model.ops, next, k = train->config.buffer_bits;
    uint16_t *bits = at->bits;
    uint32_t weight = 0;
    for (; (next = below(&train->model, &train->config, op, &layer)) != op; op = next) {
        if (!fb_trains_bits(&train->config, next, &layer)) continue;
        memcpy(bits, layer.bits, 2 * (size_t)layer.words * layer.out.channels);
        for (uint32_t o = 0; k && o < layer.out.channels; o++) {
            for (uint32_t i = 0; i < layer.inputs; i++, weight++) {
                uint32_t index = fb_bit_index(&layer, i % taps_of(&layer), i / taps_of(&layer));
                bool positive = fb_bit(layer.bits + (size_t)o * layer.words, index);
                uint32_t start = train->config.start;
                buffer_set(at->buffer, k, weight, positive ? start : (1u << k) - 1 - start);
            }
        }
        bits += (size_t)layer.words * layer.out.channels;
    }
}

static void start_at_top(fb_train *train, fb_head *head) {
    head->op = (uint16_t)amounts_of(&train->model, &train->config, UINT32_MAX).highest;
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
    if (status == FB_OK) status = check_config(&model, config);
    if (status != FB_OK) return status;
    memset(train, 0, sizeof *train);
    train->model = model;
    train->config = *config;
    train->image = image;
    train->state = state;
    train->arena = arena;
    train->arena_size = arena_size > UINT32_MAX ? UINT32_MAX : (uint32_t)arena_size;
    at = fb_state_at(&model, config, state);
    train->state_size = offsets_of(&model, config).size;
    if (train->state_size > state_size) return FB_ERR_STATE;
    if (at.head->magic == 0) {
        memset(state, 0, train->state_size);
        at.head->magic = FB_STATE_MAGIC;
        at.head->config = config_crc(config);
        at.head->net = net_crc(&model);
        at.head->random = config->seed * 2654435761u | 1; /* not 0, which xorshift never leaves */
        at.head->phase = FB_CALIBRATE;
        memset(at.exponent, FB_EXPONENT_MAX, (size_t)model.tensors + model.ops);
        start_bits(train, &at);
        start_at_top(train, at.head);
        at.head->crc = state_crc(train);
    }
    if (at.head->magic != FB_STATE_MAGIC || at.head->crc != state_crc(train)) return FB_ERR_STATE;
    if (at.head->config != config_crc(config) || at.head->net != net_crc(&model)) return FB_ERR_STATE;
    return FB_OK;
}

fb_status fb_train_begin(fb_train *train, uint32_t samples, uint32_t rate_bits, uint32_t rate_bias) {
    fb_head *head;
    if (!train || samples == 0 || samples > UINT16_MAX || rate_bits > FB_RATE_MAX || rate_bias > FB_RATE_MAX) {
        return FB_ERR_ARGUMENT;
    }
    head = (fb_head *)(void *)train->state;
    if (head->samples && head->samples != samples) return FB_ERR_ARGUMENT; /* in the middle of another step */
    head->samples = (uint16_t)samples;
    head->crc = state_crc(train);
    train->samples = samples;
    train->rate_bits = rate_bits;
    train->rate_bias = rate_bias;
    train->passes = 0;
    return plan_pass(train);
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
    size = ((train->arena_size - train->pass.work) & ~(uint32_t)(FB_ALIGN - 1)) - scores_size(&train->model);
    scores = (int8_t *)(work + size);
    status = fb_forward(train, work, size, input, scores);
    if (status != FB_OK) return status;
    if (result) result->predicted = (uint16_t)fb_argmax(scores, out.size);
    return fb_backward(train, work, size, input, scores, label, result ? &result->loss : NULL);
}

/* Updates. */

static uint32_t random_20(fb_head *head) {
    uint32_t x = head->random;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    head->random = x;
    return x >> 12;
}

static uint32_t size_of(int32_t v) { return v < 0 ? 0u - (uint32_t)v : (uint32_t)v; }

/* rate · |g| / mean with 20 bits behind the point; |g| / mean counts up to FB_LARGEST: a step bounds what a few steep
 * weights, or a gradient that has grown since its mean was taken, can do. */
static uint32_t move_of(uint32_t rate, uint32_t g, uint32_t mean) {
    uint32_t ratio;
    while (mean > 4095) {
        mean >>= 1;
        g >>= 1;
    }
    ratio = mean == 0 ? 0 : g / FB_LARGEST >= mean ? FB_LARGEST * 256 : g * 256 / mean;
    return (rate >> 8) * ratio + ((rate & 255) * ratio >> 8);
}

/* One weight with gradient g: whether its new bit is 1. */
static bool updated(fb_train *train, const fb_state *at, bool positive, int32_t g, uint32_t mean, uint32_t weight) {
    unsigned k = train->config.buffer_bits;
    uint32_t move = move_of(train->rate_bits, size_of(g), mean) << k; /* levels; below 2^30 */
    if (k) {
        int32_t half = (int32_t)1 << k, level = (int32_t)buffer_get(at->buffer, k, weight) - (positive ? 0 : half),
                whole;
        if (move == 0) return positive;
        whole = (int32_t)(move >> 20) + (random_20(at->head) < (move & 0xFFFFF));
        level = g > 0 ? level - whole : level + whole;
        if (level < -half) level = -half;
        if (level > half - 1) level = half - 1;
        buffer_set(at->buffer, k, weight, (uint32_t)level & (uint32_t)(half - 1));
        return level >= 0;
    }
    if (move == 0 || (g > 0) != positive) return positive; /* uphill, or at the edge already */
    return random_20(at->head) < move ? !positive : positive;
}

static int32_t moved_bias(const fb_train *train, const fb_layer *layer, unsigned o, int32_t g, uint32_t mean) {
    uint32_t move = move_of(train->rate_bias, size_of(g), mean); /* steps of the output */
    uint32_t multiplier = layer->mult ? (uint32_t)layer->mult[o] : (uint32_t)layer->mult_int8[o];
    int64_t by = layer->shift > 30 ? (int64_t)(((uint64_t)move << (layer->shift - 16)) / (multiplier / 65536 + 1))
                                   : (int64_t)(((uint64_t)move << layer->shift) / multiplier);
    by = (by + (1 << 19)) >> 20;
    by = g > 0 ? layer->bias[o] - by : layer->bias[o] + by;
    return by > INT32_MAX ? INT32_MAX : by < -INT32_MAX ? -INT32_MAX : (int32_t)by;
}

/* What a pass has summed up for one operation. */
static void finish_layer(fb_train *train, const fb_state *at, unsigned op, const fb_layer *layer) {
    unsigned first, end, taps = taps_of(layer);
    int32_t *sums = (int32_t *)(void *)(train->arena + train->pass.sums) + fb_sums_of(train, op, &first, &end);
    amounts before = amounts_of(&train->model, &train->config, op); /* where this layer's parts of the state begin */
    bool bits = fb_trains_bits(&train->config, op, layer), update = at->head->phase == FB_UPDATE;
    fb_mean *mean = &at->mean[op];
    for (unsigned o = first; o < end; o++) {
        if (bits) {
            uint16_t *filter = at->bits + before.words + (size_t)o * layer->words;
            uint32_t weight = before.weights + o * layer->inputs;
            if (train->on_gradient) train->on_gradient(train->context, op, o, false, sums, layer->inputs);
            for (uint32_t i = 0; i < layer->inputs; i++, weight++, sums++) {
                uint32_t index = fb_bit_index(layer, i % taps, i / taps);
                mean->bits_sum += size_of(*sums);
                if (!update) continue;
                if (updated(train, at, fb_bit(filter, index), *sums, mean->bits_mean, weight)) {
                    filter[index / 16] = (uint16_t)(filter[index / 16] | 1u << index % 16);
                } else {
                    filter[index / 16] = (uint16_t)(filter[index / 16] & ~(1u << index % 16));
                }
            }
        }
        if (fb_trains_bias(&train->config, op, layer)) {
            if (train->on_gradient) train->on_gradient(train->context, op, o, true, sums, 1);
            mean->bias_sum += size_of(*sums);
            if (update) at->bias[before.channels + o] = moved_bias(train, layer, o, *sums, mean->bias_mean);
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
static void apply_layer(fb_train *train, const fb_state *at, unsigned op, const fb_layer *layer) {
    amounts before = amounts_of(&train->model, &train->config, op);
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

static void seal_image(fb_train *train) {
    uint32_t crc;
    memset(train->image + 12, 0, 4);
    crc = fb_crc32(0, train->image, train->model.size);
    for (unsigned i = 0; i < 4; i++) train->image[12 + i] = (uint8_t)(crc >> 8 * i);
    train->model.crc = crc;
}

/* Exponents such that fb_grad_input shifts to the right. */
static void settle_exponents(fb_train *train, const fb_state *at) {
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

static void adapt_exponents(fb_train *train, const fb_state *at) {
    fb_layer layer;
    for (unsigned t = 0; t < train->model.tensors; t++) {
        if (fb_active(train, t))
            adapt(train, fb_counts(train) + t, fb_model_tensor(&train->model, t).size, &at->exponent[t]);
    }
    for (unsigned op = 0; op < train->model.ops; op++) {
        int8_t *exponent = &at->sum_exponent[op], before = *exponent;
        fb_mean *mean = &at->mean[op];
        fb_layer_decode(&train->model, op, &layer);
        if (!fb_active(train, layer.output)) continue;
        adapt(train, fb_counts(train) + train->model.tensors + op, layer.out.size, exponent);
        if (*exponent > before) { /* gradients of the next step will be twice as large */
            mean->bits_mean = mean->bits_mean > UINT32_MAX / 2 ? UINT32_MAX : mean->bits_mean * 2;
            mean->bias_mean = mean->bias_mean > UINT32_MAX / 2 ? UINT32_MAX : mean->bias_mean * 2;
        } else if (*exponent < before) {
            mean->bits_mean /= 2;
            mean->bias_mean /= 2;
        }
    }
    settle_exponents(train, at);
}

/* All passes of a step, or of the measurement before the first, are done. */
static void finish_step(fb_train *train, const fb_state *at) {
    fb_layer layer;
    unsigned op = train->model.ops, next;
    bool update = at->head->phase == FB_UPDATE;
    train->flips = 0;
    for (; (next = below(&train->model, &train->config, op, &layer)) != op; op = next) {
        fb_mean *mean = &at->mean[next];
        uint32_t weights = fb_product(layer.inputs, layer.out.channels);
        uint64_t bits = mean->bits_sum / weights, bias = mean->bias_sum / layer.out.channels;
        mean->bits_mean = bits > UINT32_MAX ? UINT32_MAX : (uint32_t)bits;
        mean->bias_mean = bias > UINT32_MAX ? UINT32_MAX : (uint32_t)bias;
        mean->bits_sum = mean->bias_sum = 0;
        if (update) apply_layer(train, at, next, &layer);
    }
    if (update) {
        seal_image(train);
        adapt_exponents(train, at);
        at->head->step++;
        at->head->samples = 0;
        at->head->flips = train->flips;
    }
    at->head->phase = FB_UPDATE;
    start_at_top(train, at->head);
}

fb_status fb_train_end_pass(fb_train *train) {
    fb_state at;
    fb_layer layer;
    fb_status status = FB_MORE;
    if (!train || train->samples == 0 || train->seen != train->samples) return FB_ERR_ARGUMENT;
    at = fb_state_at(&train->model, &train->config, train->state);
    train->passes++;
    if (at.head->phase == FB_CALIBRATE) {
        settle_exponents(train, &at);
        at.head->phase = FB_MEASURE;
    } else {
        for (unsigned op = train->pass.high_op + 1u; op-- > train->pass.low_op;) {
            fb_layer_decode(&train->model, op, &layer);
            if (fb_trains(&train->config, op, &layer)) finish_layer(train, &at, op, &layer);
        }
        fb_layer_decode(&train->model, train->pass.low_op, &layer);
        at.head->op = train->pass.low_op;
        at.head->filter = train->pass.end_filter;
        if (at.head->filter == layer.out.channels) {
            unsigned next = below(&train->model, &train->config, train->pass.low_op, &layer);
            at.head->filter = 0;
            at.head->op = (uint16_t)next;
            if (next == train->pass.low_op) {
                status = at.head->phase == FB_UPDATE ? FB_OK : FB_MORE;
                finish_step(train, &at);
            }
        }
    }
    at.head->crc = state_crc(train);
    if (status == FB_OK) {
        train->samples = 0;
        return FB_OK;
    }
    status = plan_pass(train);
    return status == FB_OK ? FB_MORE : status;
}
