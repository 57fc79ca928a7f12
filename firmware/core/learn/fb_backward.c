/* The backward pass. Gradients of tensors lie in the work part of the arena as fb_blocks, each from the last operation
 * that reads its tensor to the one that wrote it. */
#include <string.h>

#include "../run/fb_plan.h"
#include "fb_train_internal.h"

typedef struct backward {
    fb_train *train;
    fb_state state;
    fb_blocks blocks;
    uint8_t *work;
    uint32_t size;
    uint32_t saved; /* bytes before it that are in use */
    bool dry, calibrate;
    fb_choice choice;
    uint32_t peak;
    const int8_t *input, *scores;
    uint32_t loss;
} backward;

#define TEMPORARY 0xFFFEu /* no tensor's index */
#define KEPT 0x4000u      /* added to the index of a tensor that the forward pass has left: others are gradients */

/* Whether the pass sums up gradients of its weights. */
static bool needs_input(const fb_train *train, unsigned op, const fb_layer *layer) {
    return op >= train->pass.low_op && op <= train->pass.high_op && fb_trains_bits(&train->config, op, layer);
}

/* The operation that makes `tensor` from the net's input alone, decoded; false if there is none. Its result is made again
 * where it is needed, which takes less than the pass that keeping it could cost: it is the largest of most nets. */
static bool made_of_input(const fb_train *train, unsigned tensor, fb_layer *layer) {
    for (unsigned op = 0; op < train->model.ops; op++) {
        fb_layer_decode(&train->model, op, layer);
        if (layer->output != tensor) continue;
        return fb_weighted(layer) && layer->input == train->model.input && tensor != train->model.output;
    }
    return false;
}

void fb_mark_tensors(fb_train *train) {
    fb_layer layer;
    unsigned op;
    memset(train->pass.active, 0, sizeof train->pass.active);
    memset(train->pass.keep, 0, sizeof train->pass.keep);
    for (op = 0; op < train->model.ops; op++) {
        bool trained;
        fb_layer_decode(&train->model, op, &layer);
        trained = op >= train->pass.low_op && fb_trains(&train->config, op, &layer);
        if (trained || fb_active(train, layer.input) ||
            (fb_traits_of(layer.kind)->inputs == 2 && fb_active(train, layer.input2))) {
            train->pass.active[layer.output / 8] |= (uint8_t)(1u << layer.output % 8);
        }
        if (needs_input(train, op, &layer)) {
            unsigned tensor = layer.input;
            if (!made_of_input(train, tensor, &layer)) train->pass.keep[tensor / 8] |= (uint8_t)(1u << tensor % 8);
        }
    }
}

/* Active tensors before `tensor`. */
static uint32_t active_before(const fb_train *train, unsigned tensor) {
    uint32_t n = 0;
    for (unsigned i = 0; i < tensor; i++) n += fb_active(train, i);
    return n;
}

fb_count *fb_count_of(const fb_train *train, unsigned tensor) {
    return (fb_count *)(void *)train->arena + 2 * active_before(train, tensor);
}

fb_count *fb_sum_count_of(const fb_train *train, unsigned tensor) { return fb_count_of(train, tensor) + 1; }

uint32_t fb_counts_size(const fb_train *train) {
    return fb_aligned(2 * (uint32_t)sizeof(fb_count) * active_before(train, train->model.tensors));
}

static int8_t *address(const backward *b, const fb_block *block) {
    return (int8_t *)fb_block_address(block, b->work, b->size);
}

/* Note how much is in use, with `scratch` bytes more. */
static void note(backward *b, uint32_t scratch) {
    uint32_t use = fb_sum(fb_blocks_extent(&b->blocks, false), fb_blocks_extent(&b->blocks, true));
    use = fb_sum(fb_sum(use, b->saved), fb_aligned(scratch));
    if (use > b->peak) b->peak = use;
}

/* Move what lies at an end together, so that nothing is lost to gaps. */
static void close_gaps(backward *b, bool top) {
    uint32_t end = 0;
    for (unsigned done = 0; done < b->blocks.count; done++) {
        fb_block *next = NULL, old;
        for (unsigned i = 0; i < b->blocks.count; i++) { /* the lowest that is not yet in its place */
            fb_block *block = &b->blocks.block[i];
            if (block->top == top && block->offset >= end && (!next || block->offset < next->offset)) next = block;
        }
        if (!next) return;
        old = *next;
        next->offset = end;
        end += next->size;
        if (!b->dry && old.offset != next->offset) memmove(address(b, next), address(b, &old), next->size);
    }
}

/* The mask, choices or slopes of an operation. */
FB_NOINLINE static const uint8_t *saved_by(const fb_train *train, unsigned op) {
    return train->arena + train->pass.saved + fb_saved_mask(train, op);
}

/* Bytes with which an operation's gradients are computed fastest, beside what lies there. */
static uint32_t wanted(const backward *b, unsigned op, const fb_layer *layer) {
    uint32_t size = layer->in.size, input = 0, sums = 0;
    if (!fb_weighted(layer)) return fb_sum(size, fb_traits_of(layer->kind)->inputs == 2 ? layer->in2.size : 0);
    if (fb_active(b->train, layer->input)) input = fb_grad_input_scratch(layer, FB_FASTEST);
    if (needs_input(b->train, op, layer)) { /* which may be made again */
        sums = fb_grad_weights_scratch(layer);
        size = fb_sum(size, size);
    }
    return fb_sum(size, sums > input ? sums : input);
}

/* Take over what operations behind `op` have saved, if there is not room enough without it. */
FB_NOINLINE static void make_room(backward *b, unsigned op, const fb_layer *layer) {
    uint32_t less;
    if (b->dry && b->choice == FB_FASTEST) return; /* nothing is to be moved then */
    if (!b->dry) {
        uint32_t use = fb_sum(fb_blocks_extent(&b->blocks, false), fb_blocks_extent(&b->blocks, true));
        if (fb_sum(fb_sum(use, 3 * FB_ALIGN), wanted(b, op, layer)) <= b->size) return;
    }
    less = b->saved - fb_saved_mask(b->train, op + 1);
    if (!b->dry && less) {
        memmove(b->work - less, b->work, fb_blocks_extent(&b->blocks, false));
        b->work -= less;
        b->size += less;
    }
    b->saved -= less;
}

static fb_status place(backward *b, unsigned tensor, uint32_t size, fb_block *placed) {
    return fb_blocks_place(&b->blocks, tensor, size, false, placed);
}

/* Of `n` gradients, so many may be cut off. */
static uint32_t allowed(uint32_t n) { return n >> 10; }

/* Scale into a tensor, whose exponent falls while calibrating until few gradients are cut off. `base` is the shift at
 * an exponent of 0. */
static void scale_into(backward *b, const int8_t *from, int8_t *to, const fb_tensor *shape, const fb_factors *f,
                       int32_t base, const uint8_t *mask, bool join, int8_t *exponent, fb_count *counts) {
    while (b->calibrate && *exponent > -FB_EXPONENT_MAX &&
           fb_grad_cuts_off(from, to, shape, f, base - *exponent, mask, join, allowed(shape->size))) {
        if (join) fb_grad_halve(to, shape->size); /* its exponent falls, too */
        --*exponent;
    }
    fb_grad_scale(from, to, shape, f, base - *exponent, mask, join, counts);
}

static fb_status loss(backward *b, const int8_t *scores, unsigned label) {
    fb_tensor out = fb_model_tensor(&b->train->model, b->train->model.output);
    fb_block block;
    fb_status status = fb_blocks_place(&b->blocks, b->train->model.output, out.size, false, &block);
    if (status != FB_OK) return status;
    note(b, 0);
    if (!b->dry) {
        b->state.exponent[b->train->model.output] = 7; /* 127 is 1 */
        b->loss = fb_softmax_gradient(scores, out.size, out.scale_bits, label, address(b, &block));
    }
    return FB_OK;
}

/* Gradients of multipliers: Σ h · (result − zero point), on every other row and column. */
static void gains(const fb_train *train, unsigned op, const fb_layer *layer, const int8_t *h, unsigned shift,
                  uint8_t *sums, uint32_t each, unsigned first, unsigned end) {
    const uint8_t *kept = train->arena + train->pass.saved + fb_kept_results(train, op, layer);
    uint32_t width = layer->out.width, height = layer->out.height, some = (height + 1) / 2 * ((width + 1) / 2);
    for (; first < end; first++, sums += each, h += (size_t)height * width) {
        int32_t here = fb_grad_gain(h, height, width, some * first, kept, layer->out.zero_point);
        *(int32_t *)(void *)sums += (here + (1 << shift >> 1)) >> shift;
    }
}

/* By which narrow sums are rounded: another one for each sample and layer. */
static uint32_t sample_key(const fb_train *train, unsigned op) {
    const fb_head *head = (const fb_head *)(const void *)train->state;
    uint32_t key = fb_grad_key(train->config.seed, head->step * 2 + (head->phase == FB_UPDATE));
    return fb_grad_key(fb_grad_key(key, train->seen), op);
}

/* Gradients of a layer's weights and biases, for its filters in this pass. */
FB_NOINLINE static void accumulate(backward *b, unsigned op, const fb_layer *layer, const int8_t *h) {
    fb_train *train = b->train;
    uint32_t plane = (uint32_t)layer->out.height * layer->out.width;
    unsigned first, end;
    uint8_t *sums = fb_sums_of(train, op, &first, &end);
    bool bits = fb_trains_bits(&train->config, op, layer);
    uint32_t each = fb_sums_size(&train->config, op, layer);
    /* |h| ≤ 127, |x − z| ≤ 255: what a sample adds has 31 bits, as plane ≤ FB_TRAIN_PIXELS; what a batch adds has after
     * the shift. Rounding adds a half per sample at most: less than 127 leaves of 128. */
    uint64_t largest = (uint64_t)plane * 128 * 255 * train->samples;
    unsigned shift = 0;
    fb_block kept = fb_blocks_find(&b->blocks, layer->input + KEPT);
    const int8_t *in = layer->input == train->model.input ? b->input : b->scores;
    while (largest >> shift > INT32_MAX) shift++;
    if (kept.offset != FB_OUTSIDE) in = address(b, &kept);
    h += (size_t)first * plane;
    if (layer->kind == FB_DEPTHWISE) in += (size_t)first * layer->in.height * layer->in.width;
    if (bits) {
        uint32_t bottom = fb_blocks_extent(&b->blocks, false), top = fb_blocks_extent(&b->blocks, true);
        fb_grad_sums to = {sums, each, layer->inputs, 0, (uint16_t)first, (uint8_t)fb_sum_bytes(&train->config)};
        to.key = sample_key(train, op);
        fb_grad_weights(layer, h, in, shift, &to, end - first, b->work + bottom, b->size - bottom - top);
    }
    sums += fb_weight_sums_size(&train->config, op, layer);
    if (fb_trains_gain(&train->config, op, layer)) {
        uint32_t behind = 4u * fb_trains_bias(&train->config, op, layer);
        gains(train, op, layer, h, shift, sums + behind, each, first, end);
    }
    if (!fb_trains_bias(&train->config, op, layer)) return;
    for (; first < end; first++, sums += each, h += plane) {
        int32_t *to = (int32_t *)(void *)sums;
        int64_t sum = (int64_t)*to + fb_grad_sum(h, plane); /* large planes in large batches take more than 32 bits */
        *to = (int32_t)(sum > INT32_MAX ? INT32_MAX : sum < -INT32_MAX ? -INT32_MAX : sum);
    }
}

/* Run the operation that makes a tensor of the net's input. */
FB_NOINLINE static fb_status run_maker(const backward *b, const fb_layer *maker, const fb_block *made) {
    uint32_t used = fb_blocks_extent(&b->blocks, false), scratch;
    const fb_kernel *kernel = fb_choose(maker, b->size - used - fb_blocks_extent(&b->blocks, true), &scratch);
    if (!kernel) return FB_ERR_ARENA;
    kernel->run(maker, b->input, b->input, address(b, made), b->work + used);
    return FB_OK;
}

/* Make the input of an operation again, as if the forward pass had kept it. */
FB_NOINLINE static fb_status make_again(backward *b, unsigned op, const fb_layer *layer) {
    const fb_train *train = b->train;
    fb_layer maker;
    fb_block made = fb_blocks_find(&b->blocks, layer->input + KEPT);
    fb_status status;
    if (!needs_input(train, op, layer) || made.offset != FB_OUTSIDE) return FB_OK;
    if (!made_of_input(train, layer->input, &maker)) return FB_OK;
    status = place(b, layer->input + KEPT, maker.out.size, &made);
    if (status != FB_OK) return status;
    note(b, fb_scratch_of(&maker, b->choice));
    if (b->dry || b->calibrate) return FB_OK;
    return run_maker(b, &maker, &made);
}

/* Forget the input of an operation, unless one before it needs it, too. */
FB_NOINLINE static void drop_kept(backward *b, unsigned op, const fb_layer *layer) {
    unsigned tensor = layer->input;
    if (fb_blocks_find(&b->blocks, tensor + KEPT).offset == FB_OUTSIDE) return;
    while (op-- > b->train->pass.low_op) {
        fb_layer before;
        fb_layer_decode(&b->train->model, op, &before);
        if (before.input == tensor && needs_input(b->train, op, &before)) return;
    }
    fb_blocks_drop(&b->blocks, tensor + KEPT);
}

static void input_gradient(backward *b, const fb_layer *layer, const int8_t *h, fb_block *to, int8_t sum_exponent,
                           int8_t *exponent, uint8_t *scratch, uint32_t room, int8_t *there, fb_count *counts) {
    int8_t *out = address(b, to);
    fb_count found;
    for (;;) {
        int32_t shift = sum_exponent - *exponent;
        if (shift < 1) { /* only when calibrating: afterwards exponents are settled */
            if (there) fb_grad_halve(there, layer->in.size);
            --*exponent;
            continue;
        }
        fb_grad_input(layer, h, out, shift > 30 ? 30u : (unsigned)shift, scratch, room);
        found.large = found.saturated = 0;
        fb_grad_count(&found, out, layer->in.size);
        if (!b->calibrate || found.saturated <= allowed(layer->in.size) || *exponent <= -FB_EXPONENT_MAX) break;
        if (there) fb_grad_halve(there, layer->in.size);
        --*exponent;
    }
    if (there) {
        fb_factors one = {NULL, NULL, 1, NULL};
        scale_into(b, out, there, &layer->in, &one, *exponent, NULL, true, exponent, counts);
    } else {
        counts->large += found.large;
        counts->saturated += found.saturated;
    }
}

static fb_status weighted(backward *b, unsigned op, const fb_layer *layer) {
    fb_train *train = b->train;
    fb_block grad = fb_blocks_find(&b->blocks, layer->output), there, to;
    uint32_t scratch;
    fb_status status;
    int8_t *h = NULL;
    status = make_again(b, op, layer);
    if (status != FB_OK) return status;
    if (!b->dry) {
        fb_factors f = {layer->mult_int8, layer->mult, 0, NULL};
        int8_t *exponent = &b->state.sum_exponent[op];
        fb_count *counts = fb_sum_count_of(train, layer->output);
        int32_t base = layer->shift - (layer->mult ? 0 : 16) + b->state.exponent[layer->output];
        const uint8_t *mask = saved_by(train, op);
        h = address(b, &grad);
        scale_into(b, h, h, &layer->out, &f, base, mask, false, exponent, counts);
        if (!b->calibrate && op <= train->pass.high_op) accumulate(b, op, layer, h);
    }
    drop_kept(b, op, layer);
    if (!fb_active(train, layer->input)) {
        fb_blocks_drop(&b->blocks, layer->output);
        return FB_OK;
    }
    close_gaps(b, false);
    close_gaps(b, true);
    if (!b->dry) {
        grad = fb_blocks_find(&b->blocks, layer->output);
        h = address(b, &grad);
    }
    there = fb_blocks_find(&b->blocks, layer->input);
    status = place(b, there.offset == FB_OUTSIDE ? layer->input : TEMPORARY, layer->in.size, &to);
    if (status != FB_OK) return status;
    scratch = fb_grad_input_scratch(layer, b->choice);
    note(b, scratch);
    if (!b->dry) {
        uint32_t bottom = fb_blocks_extent(&b->blocks, false), top = fb_blocks_extent(&b->blocks, true);
        input_gradient(b, layer, h, &to, b->state.sum_exponent[op], &b->state.exponent[layer->input], b->work + bottom,
                       b->size - bottom - top, there.offset == FB_OUTSIDE ? NULL : address(b, &there),
                       fb_count_of(train, layer->input));
    }
    fb_blocks_drop(&b->blocks, TEMPORARY);
    fb_blocks_drop(&b->blocks, layer->output);
    return FB_OK;
}

/* What the values of input number `i` are multiplied with. */
static int32_t factor_of(const fb_layer *layer, const fb_traits *traits, unsigned i) {
    return i < traits->factors ? (int32_t)layer->factor[i] : 1;
}

/* The slopes of an operation that looks up its results, one for each value. */
static const int8_t *slopes_of(const backward *b, unsigned op) { return (const int8_t *)saved_by(b->train, op); }

/* One input of an operation that works value by value. The last one may take the place of the output's gradient. */
static fb_status elementwise(backward *b, unsigned op, const fb_layer *layer, unsigned tensor, int32_t factor,
                             bool last) {
    fb_train *train = b->train;
    fb_block grad = fb_blocks_find(&b->blocks, layer->output), there = fb_blocks_find(&b->blocks, tensor), to = there;
    bool join = there.offset != FB_OUTSIDE, in_place = !join && last;
    if (in_place) {
        to = grad;
    } else if (!join) {
        fb_status status = place(b, tensor, layer->out.size, &to);
        if (status != FB_OK) return status;
    }
    note(b, 0);
    if (!b->dry) {
        bool sloped = fb_sloped(layer);
        fb_factors f = {NULL, NULL, factor, sloped ? slopes_of(b, op) : NULL};
        const uint8_t *mask = fb_masked(layer) ? saved_by(train, op) : NULL;
        scale_into(b, address(b, &grad), address(b, &to), &layer->out, &f,
                   layer->shift + (sloped ? FB_SLOPE_BITS : 0) + b->state.exponent[layer->output], mask, join,
                   &b->state.exponent[tensor], fb_count_of(train, tensor));
    }
    if (in_place) {
        fb_blocks_rename(&b->blocks, layer->output, tensor);
    } else if (last) {
        fb_blocks_drop(&b->blocks, layer->output);
    }
    return FB_OK;
}

/* All inputs of such an operation. */
FB_NOINLINE static fb_status value_by_value(backward *b, unsigned op, const fb_layer *layer, const fb_traits *traits) {
    bool first = fb_active(b->train, layer->input);
    bool second = traits->inputs == 2 && fb_active(b->train, layer->input2);
    fb_status status = FB_OK;
    if (first) status = elementwise(b, op, layer, layer->input, factor_of(layer, traits, 0), !second);
    if (status == FB_OK && second) {
        status = elementwise(b, op, layer, layer->input2, factor_of(layer, traits, 1), true);
    }
    return status;
}

/* Channels that were put together go their ways again. */
FB_NOINLINE static fb_status parts(backward *b, const fb_layer *layer, const fb_traits *traits) {
    fb_train *train = b->train;
    fb_block grad = fb_blocks_find(&b->blocks, layer->output);
    for (unsigned i = 0; i < 2; i++) {
        unsigned tensor = i ? layer->input2 : layer->input;
        const fb_tensor *shape = i ? &layer->in2 : &layer->in;
        fb_block to = fb_blocks_find(&b->blocks, tensor);
        bool join = to.offset != FB_OUTSIDE;
        if (!fb_active(train, tensor)) continue;
        if (!join) {
            fb_status status = place(b, tensor, shape->size, &to);
            if (status != FB_OK) return status;
        }
        note(b, 0);
        if (!b->dry) {
            fb_factors f = {NULL, NULL, factor_of(layer, traits, i), NULL};
            scale_into(b, address(b, &grad) + (i ? layer->in.size : 0), address(b, &to), shape, &f,
                       layer->shift + b->state.exponent[layer->output], NULL, join, &b->state.exponent[tensor],
                       fb_count_of(train, tensor));
        }
    }
    fb_blocks_drop(&b->blocks, layer->output);
    return FB_OK;
}

static int8_t clipped(int32_t v) { return (int8_t)(v > 127 ? 127 : v < -127 ? -127 : v); }

/* To the pixels of a window that are inside the image. The fewer they are, the more each counts. */
static void to_window(const fb_layer *layer, int32_t v, int32_t top, int32_t left, int8_t *out) {
    int32_t w = layer->in.width, bottom = top + layer->kernel_h, right = left + layer->kernel_w, n;
    int32_t window = layer->kernel_h * layer->kernel_w;
    if (top < 0) top = 0;
    if (left < 0) left = 0;
    if (bottom > layer->in.height) bottom = layer->in.height;
    if (right > w) right = w;
    n = (bottom - top) * (right - left);
    if (n != window) v = clipped((v * window + (v < 0 ? -n / 2 : n / 2)) / n);
    for (int32_t y = top; y < bottom; y++) {
        for (int32_t x = left; x < right; x++) out[y * w + x] = clipped(out[y * w + x] + v);
    }
}

/* Where a window's gradient goes: to all of it (averages), to the largest (max pooling), or to one corner (shortcut).
 */
static void spread(const backward *b, unsigned op, const fb_layer *layer, unsigned back, const int8_t *grad,
                   int8_t *out) {
    const fb_train *train = b->train;
    const uint8_t *choice = saved_by(train, op);
    uint32_t w = layer->in.width;
    memset(out, 0, layer->in.size);
    for (uint32_t c = 0; c < layer->in.channels; c++, out += (size_t)layer->in.height * w) {
        for (uint32_t y = 0; y < layer->out.height; y++) {
            for (uint32_t x = 0; x < layer->out.width; x++) {
                int32_t v = *grad++;
                int32_t top = (int32_t)(y * layer->stride_h) - layer->pad_top;
                int32_t left = (int32_t)(x * layer->stride_w) - layer->pad_left;
                if (back == FB_BACK_WINDOW) {
                    to_window(layer, v, top, left, out);
                    continue;
                }
                if (back == FB_BACK_LARGEST) {
                    top += *choice / layer->kernel_w;
                    left += *choice++ % layer->kernel_w;
                }
                out[top * (int32_t)w + left] = clipped(out[top * (int32_t)w + left] + v);
            }
        }
    }
}

/* Windows that an input's pixel may lie in. */
static int32_t overlap(const fb_layer *layer) {
    int32_t down = (layer->kernel_h - 1) / layer->stride_h + 1, across = (layer->kernel_w - 1) / layer->stride_w + 1;
    return down * across < 4 ? down * across : 4; /* no more than the window has pixels: see fb_factors */
}

/* Pooling and shortcuts: scale the output's gradient in place, then spread it over the input's. */
FB_NOINLINE static fb_status window(backward *b, unsigned op, const fb_layer *layer, const fb_traits *traits) {
    fb_train *train = b->train;
    fb_block grad = fb_blocks_find(&b->blocks, layer->output), there = fb_blocks_find(&b->blocks, layer->input), to;
    bool join = there.offset != FB_OUTSIDE;
    fb_status status = place(b, join ? TEMPORARY : layer->input, layer->in.size, &to);
    if (status != FB_OK) return status;
    note(b, 0);
    if (!b->dry) {
        fb_factors f = {NULL, NULL, factor_of(layer, traits, 0), NULL};
        int8_t *exponent = &b->state.exponent[layer->input], *values = address(b, &grad);
        fb_count *counts = fb_count_of(train, layer->input), ignored = {0, 0};
        int32_t base = layer->shift + b->state.exponent[layer->output];
        fb_factors most = {NULL, NULL, f.one * overlap(layer), NULL};
        while (b->calibrate && *exponent > -FB_EXPONENT_MAX &&
               fb_grad_cuts_off(values, NULL, &layer->out, &most, base - *exponent, NULL, false,
                                allowed(layer->out.size))) {
            if (join) fb_grad_halve(address(b, &there), layer->in.size);
            --*exponent;
        }
        fb_grad_scale(values, values, &layer->out, &f, base - *exponent, NULL, false, &ignored);
        spread(b, op, layer, traits->back, values, address(b, &to));
        if (join) {
            fb_factors one = {NULL, NULL, 1, NULL};
            scale_into(b, address(b, &to), address(b, &there), &layer->in, &one, *exponent, NULL, true, exponent,
                       counts);
        } else {
            fb_grad_count(counts, address(b, &to), layer->in.size);
        }
    }
    fb_blocks_drop(&b->blocks, TEMPORARY);
    fb_blocks_drop(&b->blocks, layer->output);
    return FB_OK;
}

static fb_status backwards(backward *b, unsigned label) {
    fb_train *train = b->train;
    fb_status status = loss(b, b->scores, label);
    for (unsigned op = train->model.ops; status == FB_OK && op-- > train->pass.low_op;) {
        fb_layer layer;
        const fb_traits *traits;
        fb_layer_decode(&train->model, op, &layer);
        if (!fb_active(train, layer.output) || fb_blocks_find(&b->blocks, layer.output).offset == FB_OUTSIDE) continue;
        close_gaps(b, false);
        close_gaps(b, true);
        make_room(b, op, &layer);
        traits = fb_traits_of(layer.kind);
        switch (traits->back) {
        case FB_BACK_WEIGHTS: status = weighted(b, op, &layer); break;
        case FB_BACK_VALUES:
        case FB_BACK_SLOPE: status = value_by_value(b, op, &layer, traits); break;
        case FB_BACK_WINDOW:
        case FB_BACK_LARGEST:
        case FB_BACK_CORNER: status = window(b, op, &layer, traits); break;
        case FB_BACK_PARTS: status = parts(b, &layer, traits); break;
        default: status = FB_ERR_KIND;
        }
    }
    return status;
}

FB_NOINLINE static void pass_through(fb_walk *walk) {
    fb_layer layer;
    fb_places places;
    while (walk->op < walk->end && fb_walk_next(walk, &layer, &places) == FB_OK) continue;
    walk->op = walk->end;
}

/* Walk through the net without running it: what the forward pass leaves where. Returns the arena it needs. A function
 * of its own, so that the walk is off the stack when the backward pass begins. */
FB_NOINLINE static uint32_t start(backward *b, fb_train *train, fb_choice choice, bool dry) {
    fb_walk walk;
    uint32_t forward = FB_ALIGN;
    memset(b, 0, sizeof *b);
    b->train = train;
    b->dry = dry;
    b->choice = choice;
    b->saved = fb_saved_size(train);
    fb_walk_start(&walk, &train->model, &b->blocks);
    walk.keep = train->pass.keep;
    if (!dry) pass_through(&walk);
    while (walk.op < walk.end) {
        uint32_t saved = choice == FB_FASTEST ? b->saved : fb_saved_until(train, walk.op);
        uint32_t need = fb_walk_step(&walk, choice);
        if (need == UINT32_MAX) return 0;
        need = fb_sum(need, saved);
        if (need > forward) forward = need;
    }
    for (unsigned i = 0; i < b->blocks.count; i++) b->blocks.block[i].tensor |= KEPT;
    return forward;
}

uint32_t fb_work_size(fb_train *train, fb_choice choice) {
    backward b;
    uint32_t forward = start(&b, train, choice, true);
    if (forward == 0) return UINT32_MAX;
    if (backwards(&b, 0) != FB_OK) return UINT32_MAX;
    return b.peak > forward ? b.peak : forward;
}

static void after_layer(void *context, unsigned op, unsigned tensor, const int8_t *values, uint32_t size) {
    (void)size;
    fb_save_masks(context, op, tensor, values);
}

/* Bytes of the saved part to reserve before the next operation: all, or as much as leaves `size` bytes room enough for the
 * operations from here on; at least what the next one needs. */
FB_NOINLINE static uint32_t reserve(const fb_train *train, const fb_walk *walk, uint32_t size, uint32_t saved) {
    fb_blocks live = *walk->live;
    fb_walk ahead = *walk;
    uint32_t least, most;
    ahead.live = &live;
    ahead.end = train->model.ops;
    most = fb_walk_arena(&ahead, FB_FASTEST);
    most = size > most ? size - most : 0;
    if (most >= saved) return saved;
    least = fb_saved_until(train, walk->op);
    return most > least ? most & ~(uint32_t)(FB_ALIGN - 1) : least;
}

fb_status fb_forward(fb_train *train, uint8_t *work, uint32_t size, const int8_t *input, int8_t *scores) {
    fb_hooks hooks = {NULL, NULL, NULL};
    fb_walk walk;
    fb_blocks live;
    fb_status status = FB_OK;
    uint32_t saved = fb_saved_size(train), used = 0;
    fb_walk_start(&walk, &train->model, &live);
    walk.keep = train->pass.keep;
    hooks.context = train;
    hooks.after = after_layer;
    work -= saved;
    size += saved;
    while (status == FB_OK && walk.op < train->model.ops) {
        uint32_t more = reserve(train, &walk, size + used, saved) - used;
        if (more) memmove(work + more, work, fb_blocks_extent(&live, false));
        used += more;
        work += more;
        size -= more;
        walk.end = used == saved ? train->model.ops : fb_saved_reach(train, used);
        status = fb_walk_run(&walk, work, size, input, scores, &hooks);
    }
    return status;
}

fb_status fb_backward(fb_train *train, uint8_t *work, uint32_t size, const int8_t *input, const int8_t *scores,
                      unsigned label, uint32_t *loss_found) {
    backward b;
    fb_status status;
    start(&b, train, FB_LEAST, false);
    b.state = fb_state_at(&train->model, &train->config, train->state);
    b.calibrate = b.state.head->phase == FB_CALIBRATE;
    b.work = work;
    b.size = size;
    b.input = input;
    b.scores = scores;
    status = backwards(&b, label);
    if (loss_found) *loss_found = b.loss;
    return status;
}
