/* What a pass sums up: as many filters as the arena has room for beside what it must save of the forward pass. */
#include <string.h>

#include "../run/fb_plan.h"
#include "fb_train_internal.h"

/* What is saved in the forward pass: from the last operation down to the pass's lowest, the masks of active layers and
 * the choices of max pooling, or the slopes of tables. */

/* Where results are kept for the gradients of multipliers: every other row and column, 4 bits each. */
static bool keeps_results(const fb_train *train, unsigned op, const fb_layer *layer) {
    return op >= train->pass.low_op && op <= train->pass.high_op && fb_trains_gain(&train->config, op, layer);
}

uint32_t fb_kept_size(const fb_layer *layer) {
    uint32_t rows = (layer->out.height + 1u) / 2, columns = (layer->out.width + 1u) / 2;
    return fb_aligned(fb_product(rows * columns, layer->out.channels) / 2 + 1);
}

static uint32_t mask_size(const fb_layer *layer) { return fb_masked(layer) ? fb_aligned(layer->out.size / 8 + 1) : 0; }

static bool is_saved_early(const fb_layer *layer) { return fb_chooses(layer) || fb_sloped(layer); }

/* What an operation saves. */
static uint32_t saved_of(const fb_train *train, unsigned op, const fb_layer *layer) {
    uint32_t size;
    if (!fb_active(train, layer->output)) return 0;
    size = mask_size(layer);
    if (is_saved_early(layer)) size = fb_sum(size, fb_aligned(layer->out.size));
    if (keeps_results(train, op, layer)) size = fb_sum(size, fb_kept_size(layer));
    return size;
}

uint32_t fb_saved_mask(const fb_train *train, unsigned op) {
    uint32_t at = 0;
    for (unsigned i = train->pass.low_op; i < op; i++) {
        fb_layer layer;
        fb_layer_decode(&train->model, i, &layer);
        at = fb_sum(at, saved_of(train, i, &layer));
    }
    return at;
}

uint32_t fb_saved_size(const fb_train *train) { return fb_saved_mask(train, train->model.ops); }

/* The operation behind which something is saved for operation `i`: choices and slopes as soon as the values are there that
 * they are made from. */
static unsigned saved_behind(const fb_train *train, unsigned i, const fb_layer *layer) {
    for (unsigned op = is_saved_early(layer) ? 0 : i; op < i; op++) {
        if (fb_u16(fb_op_record(&train->model, op) + FB_OP_OUTPUT) == layer->input) return op;
    }
    return i;
}

uint32_t fb_saved_until(const fb_train *train, unsigned op) {
    uint32_t at = 0, until = 0;
    for (unsigned i = train->pass.low_op; i < train->model.ops; i++) {
        fb_layer layer;
        fb_layer_decode(&train->model, i, &layer);
        at = fb_sum(at, saved_of(train, i, &layer));
        if (saved_behind(train, i, &layer) <= op) until = at;
    }
    return until;
}

unsigned fb_saved_reach(const fb_train *train, uint32_t used) {
    unsigned reach = train->model.ops;
    uint32_t at = 0;
    for (unsigned i = train->pass.low_op; i < train->model.ops; i++) {
        fb_layer layer;
        unsigned behind;
        fb_layer_decode(&train->model, i, &layer);
        at = fb_sum(at, saved_of(train, i, &layer));
        behind = saved_behind(train, i, &layer);
        if (at > used && behind < reach) reach = behind;
    }
    return reach;
}

/* Where a layer's result is not cut off. */
static void save_mask(const fb_layer *layer, const int8_t *values, uint8_t *mask) {
    bool zero = fb_traits_of(layer->kind)->cut == FB_CUT_ZERO;
    fb_grad_mask(values, layer->out.size, zero ? layer->out.zero_point : layer->low, zero ? 128 : 127, mask);
}

/* For each window, the place of its largest value, the first among equals. */
static void save_choices(const fb_layer *layer, const int8_t *in, uint8_t *choices) {
    int32_t h = layer->in.height, w = layer->in.width;
    for (uint32_t c = 0; c < layer->in.channels; c++, in += (size_t)h * (size_t)w) {
        for (int32_t y = 0; y < layer->out.height; y++) {
            for (int32_t x = 0; x < layer->out.width; x++) {
                int32_t top = y * layer->stride_h - layer->pad_top, left = x * layer->stride_w - layer->pad_left;
                int32_t most = -129, best = 0;
                for (int32_t i = 0; i < (int32_t)fb_taps(layer); i++) {
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

/* The slope at each value. At the ends there is only one side: beyond them a result stays what it is. */
static void save_slopes(const fb_layer *layer, const int8_t *in, uint8_t *slopes) {
    const int32_t reach = 1 << (FB_SLOPE_BITS - 1);
    for (uint32_t i = 0; i < layer->in.size; i++) {
        int32_t low = in[i] + 128 - reach, high = in[i] + 128 + reach;
        int32_t rise = layer->weights[high > 255 ? 255 : high] - layer->weights[low < 0 ? 0 : low];
        slopes[i] = (uint8_t)(rise > 127 ? 127 : rise < -127 ? -127 : rise);
    }
}

static void keep_results(const fb_layer *layer, const int8_t *values, uint8_t *kept) {
    uint32_t height = layer->out.height, width = layer->out.width, some = (height + 1) / 2 * ((width + 1) / 2);
    for (uint32_t c = 0; c < layer->out.channels; c++, values += height * width) {
        fb_grad_keep(values, height, width, some * c, kept);
    }
}

uint32_t fb_kept_results(const fb_train *train, unsigned op, const fb_layer *layer) {
    return fb_sum(fb_saved_mask(train, op), mask_size(layer));
}

void fb_save_masks(const fb_train *train, unsigned op, unsigned tensor, const int8_t *values) {
    uint8_t *saved = train->arena + train->pass.saved;
    fb_layer layer;
    bool masks, keeps;
    fb_layer_decode(&train->model, op, &layer);
    masks = op >= train->pass.low_op && fb_active(train, tensor) && fb_masked(&layer);
    keeps = keeps_results(train, op, &layer);
    if (masks || keeps) {
        uint8_t *mask = saved + fb_saved_mask(train, op);
        if (masks) save_mask(&layer, values, mask);
        if (keeps) keep_results(&layer, values, mask + mask_size(&layer));
    }
    for (unsigned i = op + 1; i < train->model.ops; i++) {
        uint8_t back = fb_traits_of(fb_op_record(&train->model, i)[FB_OP_KIND])->back;
        if (back != FB_BACK_LARGEST && back != FB_BACK_SLOPE) continue;
        fb_layer_decode(&train->model, i, &layer);
        if (i < train->pass.low_op || layer.input != tensor || !fb_active(train, layer.output)) continue;
        if (fb_chooses(&layer)) save_choices(&layer, values, saved + fb_saved_mask(train, i));
        if (fb_sloped(&layer)) save_slopes(&layer, values, saved + fb_saved_mask(train, i));
    }
}

/* Offset of these sums behind the pass's first, and the filters. */
static uint32_t sums_before(const fb_train *train, unsigned op, unsigned *first, unsigned *end) {
    fb_layer layer;
    uint32_t at = 0;
    unsigned i = train->pass.high_op;
    for (;;) {
        uint32_t each;
        fb_layer_decode(&train->model, i, &layer);
        each = fb_trains(&train->config, i, &layer) ? fb_sums_size(&train->config, i, &layer) : 0;
        *first = i == train->pass.high_op ? train->pass.first_filter : 0;
        *end = i == train->pass.low_op ? train->pass.end_filter : layer.out.channels;
        if (i <= op) break;
        at = fb_sum(at, fb_product(each, *end - *first));
        i--;
    }
    if (!fb_trains(&train->config, op, &layer)) *end = *first;
    return at;
}

uint8_t *fb_sums_of(const fb_train *train, unsigned op, unsigned *first, unsigned *end) {
    return train->arena + train->pass.sums + sums_before(train, op, first, end);
}

uint32_t fb_scores_size(const fb_model *model) { return fb_aligned(fb_model_tensor(model, model->output).size); }

/* Bytes in which a filter's narrow sums are widened, when the samples are done. */
FB_NOINLINE static uint32_t widening_size(const fb_train *train) {
    uint32_t most = 0;
    for (unsigned op = train->pass.low_op; train->config.sums && op <= train->pass.high_op; op++) {
        fb_layer layer;
        fb_layer_decode(&train->model, op, &layer);
        if (fb_trains_bits(&train->config, op, &layer) && layer.inputs > most) most = layer.inputs;
    }
    return fb_product(4, most);
}

/* Bytes the pass needs beside the sums. */
static uint32_t need_beside_sums(fb_train *train, fb_choice choice) {
    uint32_t work, needed;
    fb_mark_tensors(train);
    work = fb_sum(fb_saved_size(train), widening_size(train));
    needed = fb_work_size(train, choice);
    if (needed > work) work = needed;
    work = fb_sum(fb_aligned(work), fb_sum(fb_scores_size(&train->model), fb_copy_size(train)));
    return fb_sum(fb_counts_size(train), work);
}

/* As many filters as fit, from (op, filter) on. False if not even one does. */
static bool take_filters(fb_train *train, unsigned op, unsigned filter, uint32_t arena, fb_choice choice) {
    fb_layer layer;
    uint32_t taken = 0; /* bytes of sums of whole layers so far */
    bool any = false;
    fb_layer_decode(&train->model, op, &layer);
    train->pass.high_op = (uint16_t)op;
    train->pass.first_filter = (uint16_t)filter;
    for (;;) {
        unsigned from = op == train->pass.high_op ? filter : 0, next;
        uint32_t each = fb_sums_size(&train->config, op, &layer), need, room;
        uint16_t low = train->pass.low_op, end = train->pass.end_filter;
        train->pass.low_op = (uint16_t)op;
        need = fb_sum(need_beside_sums(train, choice), taken);
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
        next = fb_below(&train->model, &train->config, op, &layer);
        if (next == op) return true;
        op = next;
    }
}

/* Bytes of all sums of the pass. */
static uint32_t sums_size(const fb_train *train) {
    unsigned first, end;
    uint32_t sums = sums_before(train, train->pass.low_op, &first, &end);
    fb_layer layer;
    fb_layer_decode(&train->model, train->pass.low_op, &layer);
    return sums + (end - first) * fb_sums_size(&train->config, train->pass.low_op, &layer);
}

static fb_status lay_out(fb_train *train) {
    uint32_t sums = sums_size(train);
    fb_mark_tensors(train);
    train->pass.sums = fb_counts_size(train);
    train->pass.saved = fb_aligned(train->pass.sums + sums);
    train->pass.work = train->pass.saved + fb_saved_size(train);
    memset(train->arena, 0, train->pass.saved);
    return FB_OK;
}

/* The calibrating pass sums up nothing and goes down to the lowest layer. */
static void calibrating_pass(fb_train *train) {
    fb_amounts a = fb_amounts_of(&train->model, &train->config, UINT32_MAX);
    train->pass.low_op = (uint16_t)a.lowest;
    train->pass.high_op = (uint16_t)a.lowest;
    train->pass.first_filter = train->pass.end_filter = 0;
}

static uint32_t moments_size(const fb_train *train) {
    uint32_t channels = fb_referenced_channels(&train->model, &train->config, train->model.ops);
    return fb_product(sizeof(fb_moments), channels);
}

static uint32_t classes_size(const fb_train *train) {
    return fb_aligned(fb_product(4, fb_model_tensor(&train->model, train->model.output).size));
}

/* Bytes of arena for a pass that recalibrates. */
static uint32_t recalibrating_size(const fb_train *train, bool fast) {
    uint32_t work = fb_sum(fb_aligned(fb_recalibrating_work(train, fast)), fb_scores_size(&train->model));
    return fb_sum(fb_sum(moments_size(train), classes_size(train)), work);
}

static fb_status recalibrating_pass(fb_train *train) {
    if (recalibrating_size(train, false) > train->arena_size) return FB_ERR_ARENA;
    train->pass.sums = 0;
    train->pass.saved = moments_size(train);
    train->pass.work = train->pass.saved + classes_size(train);
    memset(train->arena, 0, train->pass.work);
    return FB_OK;
}

/* Whether the pass is the step's last one. */
static bool is_last(const fb_train *train) {
    fb_layer layer;
    unsigned below = fb_below(&train->model, &train->config, train->pass.low_op, &layer);
    fb_layer_decode(&train->model, train->pass.low_op, &layer);
    return below == train->pass.low_op && train->pass.end_filter == layer.out.channels;
}

/* The filters of a pass, planned with the fastest kernels that leave room for all that are left, or with those that sum up
 * most in a time. How long samples take with each choice is about this; without tables, ten times as long: more than that
 * can save in passes. */
static bool choose_filters(fb_train *train, unsigned op, unsigned filter) {
    static const uint8_t slow[FB_LEAST] = {4, 5, 8};
    uint32_t most = 0, sums;
    unsigned best = FB_LEAST;
    for (unsigned choice = 0; choice < FB_LEAST; choice++) {
        if (!take_filters(train, op, filter, train->arena_size, (fb_choice)choice)) continue;
        if (is_last(train)) return true;
        sums = sums_size(train);
        if (best < FB_LEAST && (uint64_t)sums * slow[best] <= (uint64_t)most * slow[choice]) continue;
        most = sums;
        best = choice;
    }
    return take_filters(train, op, filter, train->arena_size, (fb_choice)best);
}

fb_status fb_plan_pass(fb_train *train) {
    const fb_head *head = (const fb_head *)(const void *)train->state;
    train->seen = 0;
    if (head->phase == FB_RECALIBRATE) return recalibrating_pass(train);
    if (head->phase == FB_CALIBRATE) {
        calibrating_pass(train);
        return need_beside_sums(train, FB_LEAST) > train->arena_size ? FB_ERR_ARENA : lay_out(train);
    }
    return choose_filters(train, head->op, head->filter) ? lay_out(train) : FB_ERR_ARENA;
}

/* The trained operation below `op`, and bytes of the sums of one of its filters or of all; `op` itself if none is left. A
 * function of its own, so that the layer is off the stack when a pass is planned. */
FB_NOINLINE static unsigned sums_below(const fb_train *train, unsigned op, bool all, uint32_t *sums) {
    fb_layer layer;
    unsigned next = fb_below(&train->model, &train->config, op, &layer);
    if (next == op) return op;
    *sums = fb_sums_size(&train->config, next, &layer);
    if (all) *sums = fb_product(*sums, layer.out.channels);
    return next;
}

size_t fb_train_arena_size(const fb_model *model, const fb_train_config *config, bool fast) {
    fb_train train;
    uint32_t most = 0, sums = 0, its, need;
    unsigned op, next;
    if (fb_check_config(model, config) != FB_OK) return 0;
    memset(&train, 0, sizeof train);
    train.model = *model;
    train.config = *config;
    if (config->recalibrate) {
        most = recalibrating_size(&train, fast);
        if (most == UINT32_MAX) return 0;
    }
    train.pass.high_op = (uint16_t)sums_below(&train, model->ops, fast, &its);
    /* From the last layer down: each alone, or all so far together. Together may be more tensors than FB_MAX_LIVE; then
     * the largest pass that can run is what counts. */
    for (op = model->ops; (next = sums_below(&train, op, fast, &its)) != op; op = next) {
        train.pass.low_op = (uint16_t)next;
        if (!fast) train.pass.high_op = (uint16_t)next;
        sums = fast ? fb_sum(sums, its) : its;
        need = fb_sum(need_beside_sums(&train, fast ? FB_FASTEST : FB_LEAST), sums);
        if (need == UINT32_MAX) return fast ? fb_aligned(most) : 0;
        if (need > most) most = need;
    }
    return fb_aligned(most);
}
