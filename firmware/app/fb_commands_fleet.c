/* Commands of a board that learns with others: docs/protocol.md, docs/fleet.md. LEARN_READ hands out its bits and sums. */
#include <string.h>

#include "fb_app.h"

#define FLIPS_MAX (FB_PIECE_MAX / 4u)

static fb_reply need_learning(fb_app *app) {
    return app->learning.open ? FB_REPLY_OK : fb_refuse(app, FB_REPLY_STATE, FB_MISSING_LEARNING);
}

static fb_reply refuse_core(fb_app *app, fb_status status) {
    app->model = app->learning.train.model;
    return fb_refuse(app, FB_REPLY_LEARN, (uint32_t)status);
}

/* Of these places those whose bit is not what it shall be: `count` of them in `places`. FB_REPLY_ORDER if they do not
 * rise, FB_REPLY_RANGE if there is no such place. */
static fb_reply differing(fb_app *app, uint32_t *places, uint32_t *count) {
    const uint8_t *p = fb_payload(app);
    uint32_t words, least = 0;
    const uint16_t *bits = fb_exchange_bits(&app->learning.train, &words);
    *count = 0;
    for (uint32_t i = 0; i < app->size / 4; i++) {
        uint32_t place = fb_get32(p + 4 * i) >> 1, bit = fb_get32(p + 4 * i) & 1u;
        if (place / 16 >= words) return fb_refuse(app, FB_REPLY_RANGE, words * 16);
        if (place < least) return fb_refuse(app, FB_REPLY_ORDER, least);
        least = place + 1;
        if (((uint32_t)bits[place / 16] >> place % 16 & 1u) != bit) places[(*count)++] = place;
    }
    return FB_REPLY_OK;
}

/* Up to 60 × (place × 2 + the bit that shall stand there) u32, places rising → CRC of the image then u32 | places u32. A
 * list that comes twice finds nothing to flip. */
static fb_reply flip(fb_app *app) {
    fb_app_learning *learning = &app->learning;
    uint32_t places[FLIPS_MAX], count;
    fb_reply reply = need_learning(app);
    uint32_t words;
    fb_status status;
    if (reply != FB_REPLY_OK) return reply;
    if (app->size % 4) return fb_refuse(app, FB_REPLY_LENGTH, app->size);
    if (fb_app_learning_busy(learning) && !learning->follows) {
        return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_END);
    }
    reply = differing(app, places, &count);
    if (reply != FB_REPLY_OK) return reply;
    status = fb_app_learning_flip(learning, places, count);
    if (status != FB_OK) return refuse_core(app, status);
    app->model = learning->train.model; /* its CRC has changed */
    fb_exchange_bits(&learning->train, &words);
    app->size = 0;
    fb_put32(app, app->model.crc);
    fb_put32(app, words * 16);
    return FB_REPLY_OK;
}

/* first u32 | plan → words of its sums u32 | of them counts u32 | 1 finds scales, 2 recalibrates u32. Again: the pass begins
 * anew. Samples follow by LEARN_SAMPLE, from index `first` on. */
static fb_reply follow(fb_app *app) {
    fb_reply reply = need_learning(app);
    const fb_train *train = &app->learning.train;
    uint32_t words, counts;
    fb_status status;
    if (reply != FB_REPLY_OK) return reply;
    app->guard.on = false;
    status = fb_app_learning_follow(&app->learning, fb_payload(app) + 4, app->size - 4, fb_get32(fb_payload(app)));
    if (status != FB_OK) return refuse_core(app, status);
    fb_exchange_sums(train, &words, &counts);
    app->size = 0;
    fb_put32(app, words);
    fb_put32(app, counts);
    fb_put32(app, fb_exchange_scales(train) ? 1 : fb_exchange_recalibrates(train) ? 2 : 0);
    return FB_REPLY_OK;
}

/* → the plan as this pass has left it: what the next device follows while scales are found. */
static fb_reply plan(fb_app *app) {
    const fb_train *train = &app->learning.train;
    fb_reply reply = need_learning(app);
    fb_status status;
    if (reply != FB_REPLY_OK) return reply;
    if (!fb_app_learning_busy(&app->learning)) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_STEP);
    if (fb_exchange_plan_size(train) > FB_PIECE_MAX) return fb_refuse(app, FB_REPLY_RANGE, FB_PIECE_MAX);
    status = fb_exchange_plan(train, fb_payload(app));
    if (status != FB_OK) return refuse_core(app, status);
    app->size = (uint32_t)fb_exchange_plan_size(train);
    return FB_REPLY_OK;
}

const fb_command fb_fleet_commands[] = {
    {FB_COMMAND_LEARN_FLIP, 0, FB_PIECE_MAX, flip},
    {FB_COMMAND_LEARN_FOLLOW, 5, FB_PAYLOAD_MAX, follow},
    {FB_COMMAND_LEARN_PLAN, 0, 0, plan},
    {0, 0, 0, NULL},
};
