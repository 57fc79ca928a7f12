/* Sums for recalibrating: of each channel that has a reference, the results and their squares.
 *
 * What a fused ReLU cuts off counts too. Such a layer is run once more without the ReLU, on every other row and column,
 * with half the resolution: −256 … 254 steps then fit int8. That is a quarter of its work. Of other layers all results
 * count as they are.
 */
#include "../run/fb_plan.h"
#include "fb_train_internal.h"

bool fb_recalibrates(const fb_train_config *config, unsigned op, const fb_layer *layer) {
    return config->recalibrate && op >= config->first_op && op <= config->last_op && layer->references;
}

uint32_t fb_referenced_channels(const fb_model *model, const fb_train_config *config, unsigned stop) {
    fb_layer layer;
    uint32_t n = 0;
    for (unsigned op = 0; op < model->ops && op < stop; op++) {
        fb_layer_decode(model, op, &layer);
        if (fb_recalibrates(config, op, &layer)) n = fb_sum(n, layer.out.channels);
    }
    return n;
}

/* Every other place along an axis, if there are enough. */
static void every_other(uint8_t *stride, uint16_t *size) {
    if (*size < 4 || *stride > 127) return;
    *stride = (uint8_t)(*stride * 2);
    *size = (uint16_t)((*size + 1) / 2);
}

bool fb_watched(const fb_layer *layer, fb_layer *watched) {
    *watched = *layer;
    if (!(layer->flags & FB_FLAG_RELU)) return false;
    watched->flags = (uint8_t)(layer->flags & ~FB_FLAG_RELU);
    watched->low = -128;
    watched->out.zero_point = 0;
    watched->shift++;
    every_other(&watched->stride_h, &watched->out.height);
    every_other(&watched->stride_w, &watched->out.width);
    watched->out.size = (uint32_t)watched->out.height * watched->out.width * watched->out.channels;
    return true;
}

static void sum_up(const fb_layer *layer, const int8_t *values, fb_moments *moments) {
    uint32_t plane = (uint32_t)layer->out.height * layer->out.width;
    int32_t zero = layer->out.zero_point;
    for (uint32_t c = 0; c < layer->out.channels; c++, moments++) {
        int32_t sum = 0;      /* 2^16 values of 8 bits: FB_TRAIN_PIXELS */
        uint32_t squares = 0; /* of 255 at most: below 2^32 */
        for (uint32_t i = 0; i < plane; i++) {
            int32_t v = *values++ - zero;
            sum += v;
            squares += (uint32_t)(v * v);
        }
        moments->sum += sum;
        moments->squares += squares;
    }
}

static void look(void *context, unsigned op, const fb_layer *layer, const int8_t *in, const int8_t *out,
                 uint8_t *scratch, uint32_t room) {
    fb_train *train = context;
    fb_moments *moments = (fb_moments *)(void *)(train->arena + train->pass.sums);
    fb_layer watched;
    if (!fb_recalibrates(&train->config, op, layer)) return;
    moments += fb_referenced_channels(&train->model, &train->config, op);
    if (fb_watched(layer, &watched)) {
        uint32_t size = fb_aligned(watched.out.size), need;
        const fb_kernel *kernel = fb_choose(&watched, room - size, &need); /* fb_recalibrating_work has seen to room */
        kernel->run(&watched, in, NULL, (int8_t *)scratch, scratch + size);
        sum_up(&watched, (const int8_t *)scratch, moments);
    } else {
        sum_up(layer, out, moments);
    }
}

uint32_t fb_recalibrating_work(const fb_train *train, bool fast) {
    fb_walk walk;
    fb_blocks live;
    fb_layer layer, watched;
    fb_places places;
    uint32_t most;
    fb_walk_start(&walk, &train->model, &live);
    most = fb_walk_arena(&walk, fast ? FB_FASTEST : FB_LEAST);
    if (most == 0) return UINT32_MAX;
    fb_walk_start(&walk, &train->model, &live);
    while (walk.op < train->model.ops) {
        unsigned op = walk.op;
        uint32_t need, scratch;
        if (fb_walk_next(&walk, &layer, &places) != FB_OK) return UINT32_MAX;
        if (!fb_recalibrates(&train->config, op, &layer) || !fb_watched(&layer, &watched)) continue;
        scratch = fb_scratch_of(&watched, fast ? FB_FASTEST : FB_LEAST);
        if (scratch == FB_NOT_FOR_THIS) return UINT32_MAX;
        need = fb_sum(fb_sum(places.bottom, places.top), fb_sum(fb_aligned(watched.out.size), fb_aligned(scratch)));
        if (need > most) most = need;
    }
    return most;
}

fb_status fb_watch(fb_train *train, uint8_t *work, uint32_t size, const int8_t *input, int8_t *scores) {
    fb_walk walk;
    fb_blocks live;
    uint32_t *classes = (uint32_t *)(void *)(train->arena + train->pass.saved);
    fb_status status;
    fb_walk_start(&walk, &train->model, &live);
    walk.look = look;
    walk.context = train;
    status = fb_walk_run(&walk, work, size, input, scores, NULL);
    if (status == FB_OK) classes[fb_argmax(scores, fb_model_tensor(&train->model, train->model.output).size)]++;
    return status;
}
