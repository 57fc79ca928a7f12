/* Commands about the net: load input, infer, look at its layers. */
#include <string.h>

#include "fb_app.h"

/* A run of the net with a look at its layers. */
typedef struct run {
    fb_app *app;
    uint32_t mark;  /* ticks when the last layer ended */
    uint64_t ticks; /* of all layers */
    unsigned first; /* LAYERS: the first that is told; STOP: where to stop */
} run;

static uint32_t lap(run *r) {
    uint32_t now = board_ticks(), ticks = now - r->mark;
    r->ticks += ticks;
    r->mark = now;
    return ticks;
}

static fb_reply run_net(run *r, fb_app *app, void (*after)(void *, unsigned, unsigned, const int8_t *, uint32_t)) {
    fb_hooks hooks = {0};
    fb_status status;
    if (fb_app_learning_busy(&app->learning)) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_END);
    hooks.context = r;
    hooks.after = after;
    r->app = app;
    r->ticks = 0;
    r->mark = board_ticks();
    status = fb_invoke(&app->model, app->arena, app->arena_size, app->input, app->output, &hooks);
    return status == FB_OK ? FB_REPLY_OK : fb_refuse(app, FB_REPLY_MODEL, (uint32_t)status);
}

static fb_reply need_model(fb_app *app) {
    return app->ready ? FB_REPLY_OK : fb_refuse(app, FB_REPLY_STATE, FB_MISSING_MODEL);
}

static fb_reply need_input(fb_app *app) {
    fb_reply status = need_model(app);
    if (status == FB_REPLY_OK && app->loaded != app->input_size) {
        status = fb_refuse(app, FB_REPLY_STATE, FB_MISSING_INPUT);
    }
    return status;
}

/* offset u32 | bytes. Pieces follow each other; one may be sent again. */
static fb_reply load(fb_app *app) {
    const uint8_t *p = fb_payload(app);
    uint32_t offset = fb_get32(p), size = app->size - 4;
    fb_reply status = need_model(app);
    if (status != FB_REPLY_OK) return status;
    if (offset > app->input_size || size > app->input_size - offset) {
        return fb_refuse(app, FB_REPLY_RANGE, app->input_size);
    }
    if (offset > app->loaded) return fb_refuse(app, FB_REPLY_ORDER, app->loaded);
    memcpy(app->input + offset, p + 4, size);
    app->loaded = offset + size;
    app->size = 0;
    return FB_REPLY_OK;
}

static void after_each(void *context, unsigned op, unsigned tensor, const int8_t *values, uint32_t size) {
    (void)op, (void)tensor, (void)values, (void)size;
    lap(context);
}

/* The same while the guard is on: it looks at the sample, too. */
static fb_reply run_guarded(run *r, fb_app *app) {
    fb_status status;
    r->ticks = 0;
    r->mark = board_ticks();
    status = fb_guard_sample(app);
    lap(r);
    return status == FB_OK ? FB_REPLY_OK : fb_refuse(app, FB_REPLY_LEARN, (uint32_t)status);
}

/* Reply: class u32 | ticks u64 | values of the output u32 | as many of them as fit. */
static fb_reply infer(fb_app *app) {
    run r;
    fb_reply status = need_input(app);
    uint32_t size;
    if (status == FB_REPLY_OK) status = app->guard.on ? run_guarded(&r, app) : run_net(&r, app, after_each);
    if (status != FB_REPLY_OK) return status;
    app->size = 0;
    fb_put32(app, fb_argmax(app->output, app->output_size));
    fb_put32(app, (uint32_t)r.ticks);
    fb_put32(app, (uint32_t)(r.ticks >> 32));
    fb_put32(app, app->output_size);
    size = FB_PAYLOAD_MAX - app->size;
    if (size > app->output_size) size = app->output_size;
    memcpy(fb_payload(app) + app->size, app->output, size);
    app->size += size;
    return FB_REPLY_OK;
}

/* A piece of `total` bytes at `data`, as the request asks: offset u32 | length u32. */
static fb_reply send_piece(fb_app *app, const void *data, uint32_t total) {
    uint32_t offset = fb_get32(fb_payload(app)), size = fb_get32(fb_payload(app) + 4);
    if (size > FB_PIECE_MAX) return fb_refuse(app, FB_REPLY_RANGE, FB_PIECE_MAX);
    if (offset > total || size > total - offset) return fb_refuse(app, FB_REPLY_RANGE, total);
    memcpy(fb_payload(app), (const uint8_t *)data + offset, size);
    app->size = size;
    return FB_REPLY_OK;
}

/* The output of the last run. */
static fb_reply read_output(fb_app *app) {
    fb_reply status = need_model(app);
    return status == FB_REPLY_OK ? send_piece(app, app->output, app->output_size) : status;
}

/* CRC-32 u32 | ticks u32 | bytes u32 of each layer, as many as fit. */
static void after_told(void *context, unsigned op, unsigned tensor, const int8_t *values, uint32_t size) {
    run *r = context;
    uint32_t ticks = lap(r);
    (void)tensor;
    if (op >= r->first && r->app->size + 12 <= FB_PIECE_MAX) {
        fb_put32(r->app, fb_crc32(0, values, size));
        fb_put32(r->app, ticks);
        fb_put32(r->app, size);
    }
    r->mark = board_ticks(); /* the CRC is not the net's */
}

static fb_reply layers(fb_app *app) {
    run r;
    fb_reply status = need_input(app);
    if (status != FB_REPLY_OK) return status;
    r.first = fb_get32(fb_payload(app));
    if (r.first >= app->model.ops) return fb_refuse(app, FB_REPLY_RANGE, app->model.ops);
    app->size = 0;
    return run_net(&r, app, after_told);
}

/* Reply: bytes of activations u32 | of scratch u32 | name of the kernel, ended by a 0. */
static fb_reply plan(fb_app *app) {
    fb_layer_plan layer;
    fb_status done;
    uint32_t op = fb_get32(fb_payload(app));
    size_t size;
    fb_reply status = need_model(app);
    if (status != FB_REPLY_OK) return status;
    if (op >= app->model.ops) return fb_refuse(app, FB_REPLY_RANGE, app->model.ops);
    done = fb_plan_layer(&app->model, app->arena_size, op, &layer);
    if (done != FB_OK) return fb_refuse(app, FB_REPLY_MODEL, (uint32_t)done);
    app->size = 0;
    fb_put32(app, layer.live);
    fb_put32(app, layer.scratch);
    size = strlen(layer.kernel) + 1;
    memcpy(fb_payload(app) + app->size, layer.kernel, size);
    app->size += (uint32_t)size;
    return FB_REPLY_OK;
}

/* The net stands still after a layer: tell its CRC and size, then give pieces of it until another request comes. */
static void after_stop(void *context, unsigned op, unsigned tensor, const int8_t *values, uint32_t size) {
    run *r = context;
    fb_app *app = r->app;
    if (op != r->first) return;
    app->size = 0;
    fb_put32(app, fb_crc32(0, values, size));
    fb_put32(app, size);
    fb_put32(app, tensor);
    fb_app_reply(app, FB_REPLY_OK);
    for (;;) {
        if (!fb_app_receive(app)) continue;
        if (app->frame[2] != FB_COMMAND_READ_LAYER || app->size != 8) break;
        fb_app_reply(app, send_piece(app, values, size));
    }
    app->waiting = true;
}

static fb_reply stop(fb_app *app) {
    run r;
    fb_reply status = need_input(app);
    if (status != FB_REPLY_OK) return status;
    r.first = fb_get32(fb_payload(app));
    if (r.first >= app->model.ops) return fb_refuse(app, FB_REPLY_RANGE, app->model.ops);
    return run_net(&r, app, after_stop);
}

/* Handled in after_stop; here the net does not stand still. */
static fb_reply read_layer(fb_app *app) { return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_STOP); }

const fb_command fb_model_commands[] = {
    {FB_COMMAND_LOAD, 4, FB_PAYLOAD_MAX, load},
    {FB_COMMAND_INFER, 0, 0, infer},
    {FB_COMMAND_READ_OUTPUT, 8, 8, read_output},
    {FB_COMMAND_LAYERS, 4, 4, layers},
    {FB_COMMAND_PLAN, 4, 4, plan},
    {FB_COMMAND_STOP, 4, 4, stop},
    {FB_COMMAND_READ_LAYER, 8, 8, read_layer},
    {0, 0, 0, NULL},
};
