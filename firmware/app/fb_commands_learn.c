/* Commands about learning: open, steps, read back, save. docs/protocol.md says what their payloads are. */
#include <string.h>

#include "fb_app.h"

/* The stack that the whole firmware takes at most, by the compiler's call graph (firmware/fuzz/stack_depth.py BOARD), and
 * a little: a sample of training, or planning a pass, runs deepest. A board that keeps a smaller stack gives the rest from
 * its arena. */
#ifdef __ARM_FEATURE_MVE
#define STACK 2048u
#else
#define STACK 1680u
#endif

/* Where RAM for learning begins, behind input and output, and how much there is. */
static uint8_t *memory(const fb_app *app, uint32_t *room) {
    uint8_t *start = (uint8_t *)app->output + ((app->output_size + FB_ALIGN - 1) & ~(uint32_t)(FB_ALIGN - 1));
    uint32_t end = BOARD_ARENA_SIZE, have = (uint32_t)((uintptr_t)board_stack_top - (uintptr_t)board_stack);
    uint32_t used = (uint32_t)(start - board_arena);
    if (have < STACK) end = end > STACK - have ? end - (STACK - have) : 0;
    *room = end > used ? end - used : 0;
    return start;
}

/* The net that learns is the one in use. */
static void use_learned(fb_app *app) {
    app->model = app->learning.train.model;
    app->arena = app->learning.train.arena;
    app->arena_size = app->learning.train.arena_size;
}

void fb_app_resume(fb_app *app) {
    uint32_t room;
    uint8_t *start = memory(app, &room);
    fb_status status = fb_app_learning_resume(&app->learning, &app->model, start, room);
    app->checkpoint = (uint8_t)(status == FB_ERR_EMPTY ? FB_OK : status);
    if (app->learning.open) use_learned(app);
}

static fb_reply need_learning(fb_app *app) {
    return app->learning.open ? FB_REPLY_OK : fb_refuse(app, FB_REPLY_STATE, FB_MISSING_LEARNING);
}

static fb_reply need_step(fb_app *app) {
    fb_reply status = need_learning(app);
    if (status != FB_REPLY_OK || (fb_app_learning_busy(&app->learning) && !app->guard.on)) return status;
    return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_STEP);
}

static fb_reply refuse_core(fb_app *app, fb_status status) { return fb_refuse(app, FB_REPLY_LEARN, (uint32_t)status); }

static void put_ticks(fb_app *app, uint32_t start) { fb_put32(app, board_ticks() - start); }

/* The image that learning starts from: as it was uploaded or linked in. */
static fb_status original(const fb_app *app, fb_model *model) {
    uint32_t length;
    const uint8_t *image = fb_app_image(app, app->slot, &length);
    return image ? fb_model_open(model, image, length) : FB_ERR_TRUNCATED;
}

/* LEARN_OPEN: configuration, packed as in fb_train.h | fresh u8 | 3 × 0 */
enum { AT_FRESH = FB_TRAIN_CONFIG_SIZE, OPEN_SIZE = AT_FRESH + 4 };

static fb_reply open_learning(fb_app *app) {
    const uint8_t *p = fb_payload(app);
    fb_app_learning *learning = &app->learning;
    fb_train_config config;
    fb_app_learning_needs needs;
    fb_model model;
    fb_status status;
    uint32_t room, beside;
    uint8_t *start;
    bool fresh = p[AT_FRESH] != 0;
    if (!app->ready) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_MODEL);
    if (p[AT_FRESH] > 1 || p[AT_FRESH + 1] || p[AT_FRESH + 2] || p[AT_FRESH + 3]) {
        return fb_refuse(app, FB_REPLY_RANGE, 1);
    }
    status = original(app, &model);
    if (status != FB_OK) return fb_refuse(app, FB_REPLY_MODEL, (uint32_t)status);
    app->guard.on = false;
    start = memory(app, &room);
    beside = (uint32_t)(start - board_arena);
    memset(&needs, 0, sizeof needs);
    status = fb_train_config_unpack(&config, p);
    if (status == FB_OK) status = fb_app_learning_plan(&model, &config, room, &needs);
    if (status == FB_OK) status = fb_app_learning_open(learning, &model, &config, fresh, start, room);
    if (status == FB_OK) {
        use_learned(app);
        app->checkpoint = FB_OK;
    } else if (!learning->open && app->model.image != model.image) {
        fb_app_use(app, app->slot); /* a damaged checkpoint was written over the net in use */
    }
    app->size = 0;
    fb_put32(app, (uint32_t)status);
    fb_put32(app, beside + needs.total);
    fb_put32(app, beside + room);
    fb_put32(app, needs.image);
    fb_put32(app, needs.state);
    fb_put32(app, needs.least);
    fb_put32(app, needs.fast);
    fb_put32(app, needs.arena);
    fb_put32(app, status == FB_OK ? fb_train_steps(&learning->train) : 0);
    fb_put32(app, status == FB_OK && learning->resumed);
    fb_put32(app, fb_ledger_room(&app->ledger));
    fb_put32(app, FB_CHECKPOINT_HEAD + model.size + needs.state);
    fb_put32(app, app->ledger.checkpoint ? app->ledger.owner : 0);
    return FB_REPLY_OK;
}

/* step u32 | samples u32 | rate of bits u32 | of biases u32. Again: the pass begins anew. */
static fb_reply begin(fb_app *app) {
    const uint8_t *p = fb_payload(app);
    fb_reply reply = need_learning(app);
    fb_status status;
    uint32_t steps;
    if (reply != FB_REPLY_OK) return reply;
    status = fb_app_learning_leave(&app->learning);
    if (status != FB_OK) return refuse_core(app, status);
    steps = fb_train_steps(&app->learning.train);
    if (fb_get32(p) != steps) return fb_refuse(app, FB_REPLY_ORDER, steps);
    app->guard.on = false; /* samples come from the host now */
    status = fb_app_learning_begin(&app->learning, fb_get32(p + 4), fb_get32(p + 8), fb_get32(p + 12));
    app->size = 0;
    return status == FB_OK ? FB_REPLY_OK : refuse_core(app, status);
}

/* index u32 | label u32 → class u32 | loss u32 | ticks u32. The one before again: the same answer. */
static fb_reply sample(fb_app *app) {
    uint32_t index = fb_get32(fb_payload(app)), label = fb_get32(fb_payload(app) + 4), start = board_ticks();
    fb_app_learning *learning = &app->learning;
    fb_reply reply = need_step(app);
    if (reply != FB_REPLY_OK) return reply;
    if (app->loaded != app->input_size) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_INPUT);
    if (label >= app->output_size) return fb_refuse(app, FB_REPLY_RANGE, app->output_size);
    if (index >= learning->train.samples) return fb_refuse(app, FB_REPLY_RANGE, learning->train.samples);
    if (index + 1 != learning->train.seen) {
        fb_status status;
        if (index != learning->train.seen) return fb_refuse(app, FB_REPLY_ORDER, learning->train.seen);
        status = fb_app_learning_sample(learning, app->input, label);
        if (status != FB_OK) return refuse_core(app, status);
    }
    app->size = 0;
    fb_put32(app, learning->result.predicted);
    fb_put32(app, learning->result.loss);
    put_ticks(app, start);
    return FB_REPLY_OK;
}

/* step u32 | pass u32, since BEGIN → more u32 | steps u32 | flips u32 | ticks u32. The one before again: the same. */
static fb_reply end_pass(fb_app *app) {
    uint32_t step = fb_get32(fb_payload(app)), pass = fb_get32(fb_payload(app) + 4), start = board_ticks();
    fb_app_learning *learning = &app->learning;
    const fb_train *train = &learning->train;
    fb_reply reply = need_learning(app);
    uint32_t steps;
    if (reply != FB_REPLY_OK) return reply;
    steps = fb_train_steps(train);
    if (!(learning->between && train->passes && pass + 1 == train->passes && step + (train->samples == 0) == steps)) {
        fb_status status;
        reply = need_step(app);
        if (reply != FB_REPLY_OK) return reply;
        if (learning->follows) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_STEP); /* the leader ends it */
        if (step != steps) return fb_refuse(app, FB_REPLY_ORDER, steps);
        if (pass != train->passes) return fb_refuse(app, FB_REPLY_ORDER, train->passes);
        if (train->seen != train->samples) return fb_refuse(app, FB_REPLY_ORDER, train->seen);
        status = fb_app_learning_end_pass(learning);
        if (status != FB_OK && status != FB_MORE) return refuse_core(app, status);
        app->model = train->model; /* its CRC has changed */
    }
    app->size = 0;
    fb_put32(app, train->samples != 0);
    fb_put32(app, fb_train_steps(train));
    fb_put32(app, train->flips);
    put_ticks(app, start);
    return FB_REPLY_OK;
}

/* What LEARN_READ reads. Bits and what follows: for a fleet. */
enum { READ_IMAGE, READ_STATE, READ_BITS, READ_SUMS };

/* The bytes; NULL where there are none now. */
static const uint8_t *learned(const fb_app *app, uint32_t what, uint32_t *length) {
    const fb_train *train = &app->learning.train;
    uint32_t words = 0, counts;
    const void *bytes = NULL;
    switch (what) {
    case READ_IMAGE: *length = train->model.size; return train->image;
    case READ_STATE: *length = train->state_size; return train->state;
    case READ_BITS: bytes = fb_exchange_bits(train, &words); break;
    default:
        if (app->learning.follows && train->samples) bytes = fb_exchange_sums(train, &words, &counts);
        break;
    }
    *length = what == READ_BITS ? words * 2 : words * 4;
    return bytes;
}

/* what u32 | offset u32 | length u32 → bytes */
static fb_reply read_learned(fb_app *app) {
    const uint8_t *p = fb_payload(app), *bytes;
    uint32_t what = fb_get32(p), offset = fb_get32(p + 4), size = fb_get32(p + 8), length;
    fb_reply reply = need_learning(app);
    if (reply != FB_REPLY_OK) return reply;
    if (what > READ_SUMS) return fb_refuse(app, FB_REPLY_RANGE, READ_SUMS);
    bytes = learned(app, what, &length);
    if (!bytes) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_STEP);
    if (size > FB_PIECE_MAX) return fb_refuse(app, FB_REPLY_RANGE, FB_PIECE_MAX);
    if (offset > length || size > length - offset) return fb_refuse(app, FB_REPLY_RANGE, length);
    memcpy(fb_payload(app), bytes + offset, size);
    app->size = size;
    return FB_REPLY_OK;
}

/* → number of the record u32 | its bytes u32 | most erases of a slot u32. Nothing is written if nothing has changed. */
static fb_reply save(fb_app *app) {
    fb_app_learning *learning = &app->learning;
    fb_reply reply = need_learning(app);
    uint32_t worst = 0, slot;
    fb_status status;
    if (reply != FB_REPLY_OK) return reply;
    if (!app->ledger.kept) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_STORE);
    if (!learning->between) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_END);
    status = fb_app_learning_save(learning);
    if (status != FB_OK) return refuse_core(app, status);
    for (slot = 0; slot < app->ledger.store.flash->slots; slot++) {
        uint32_t wear = fb_store_wear(&app->ledger.store, slot);
        if (wear > worst) worst = wear;
    }
    app->size = 0;
    fb_put32(app, app->ledger.store.current.sequence);
    fb_put32(app, app->ledger.store.current.length);
    fb_put32(app, worst);
    return FB_REPLY_OK;
}

/* Back to the image as it was uploaded or linked in; what was saved goes, too. */
static fb_reply forget(fb_app *app) {
    fb_status status = fb_app_learning_forget(&app->learning);
    if (status != FB_OK) return refuse_core(app, status);
    app->guard.on = false;
    app->size = 0;
    if (app->ready) status = fb_app_use(app, app->slot);
    return status == FB_OK ? FB_REPLY_OK : fb_refuse(app, FB_REPLY_MODEL, (uint32_t)status);
}

const fb_command fb_learn_commands[] = {
    {FB_COMMAND_LEARN_OPEN, OPEN_SIZE, OPEN_SIZE, open_learning},
    {FB_COMMAND_LEARN_BEGIN, 16, 16, begin},
    {FB_COMMAND_LEARN_SAMPLE, 8, 8, sample},
    {FB_COMMAND_LEARN_END, 8, 8, end_pass},
    {FB_COMMAND_LEARN_READ, 12, 12, read_learned},
    {FB_COMMAND_LEARN_SAVE, 0, 0, save},
    {FB_COMMAND_LEARN_FORGET, 0, 0, forget},
    {0, 0, 0, NULL},
};
