/* The running guard: what the net is asked to classify is also what it is recalibrated by, without labels.
 *
 * Samples come by INFER. After a window of them the drift is computed (fb_train_drift). Where it exceeds the threshold and
 * what the last recalibration left, the window becomes the first pass of a step that recalibrates, and the windows that
 * follow its other passes; then the result is saved. LEARN_FORGET takes everything back. */
#include <string.h>

#include "fb_app.h"

static fb_status begin_window(fb_app *app) { return fb_app_learning_begin(&app->learning, app->guard.window, 0, 0); }

/* The window is full: recalibrate, or drop it. */
static fb_status end_window(fb_app *app) {
    fb_guard *guard = &app->guard;
    fb_train *train = &app->learning.train;
    fb_status status;
    bool first = fb_train_may_recalibrate(train);
    guard->drift = fb_train_drift(train);
    guard->windows++;
    if (guard->fresh) guard->settled = guard->drift;
    guard->fresh = false;
    if (first && (guard->drift <= guard->threshold || guard->drift - guard->threshold < guard->settled)) {
        return begin_window(app);
    }
    status = fb_app_learning_end_pass(&app->learning);
    if (status != FB_OK && status != FB_MORE) return status;
    app->model = train->model; /* its CRC has changed */
    guard->passes++;
    if (status == FB_OK) {
        guard->fresh = true;
        fb_app_learning_save(&app->learning); /* without flash, or with worn flash, it goes on all the same */
    }
    return begin_window(app);
}

fb_status fb_guard_sample(fb_app *app) {
    fb_train *train = &app->learning.train;
    fb_status status = fb_app_learning_sample(&app->learning, app->input, 0);
    if (status != FB_OK) return status;
    memcpy(app->output, fb_train_scores(train), app->output_size);
    return train->seen == train->samples ? end_window(app) : FB_OK;
}

/* window u32, in samples (0: off) | threshold u32. Learning is open, with a configuration that recalibrates. */
static fb_reply set_guard(fb_app *app) {
    uint32_t window = fb_get32(fb_payload(app)), threshold = fb_get32(fb_payload(app) + 4);
    fb_guard *guard = &app->guard;
    fb_status status;
    if (!app->learning.open) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_LEARNING);
    if (window > UINT16_MAX) return fb_refuse(app, FB_REPLY_RANGE, UINT16_MAX);
    app->learning.train.samples = 0; /* a window that was begun is dropped */
    memset(guard, 0, sizeof *guard);
    app->size = 0;
    if (window == 0) return FB_REPLY_OK;
    guard->window = window;
    guard->threshold = threshold;
    status = app->learning.train.config.recalibrate ? begin_window(app) : FB_ERR_ARGUMENT;
    if (status != FB_OK) return fb_refuse(app, FB_REPLY_LEARN, (uint32_t)status);
    guard->on = true;
    return FB_REPLY_OK;
}

/* → on u32 | drift u32 | left by the last recalibration u32 | samples in the window u32 | windows u32 | passes u32 | steps
 * u32 */
static fb_reply drift(fb_app *app) {
    const fb_guard *guard = &app->guard;
    app->size = 0;
    fb_put32(app, guard->on);
    fb_put32(app, guard->drift);
    fb_put32(app, guard->settled);
    fb_put32(app, guard->on ? app->learning.train.seen : 0);
    fb_put32(app, guard->windows);
    fb_put32(app, guard->passes);
    fb_put32(app, app->learning.open ? fb_train_steps(&app->learning.train) : 0);
    return FB_REPLY_OK;
}

const fb_command fb_guard_commands[] = {
    {FB_COMMAND_LEARN_GUARD, 8, 8, set_guard},
    {FB_COMMAND_LEARN_DRIFT, 0, 0, drift},
    {0, 0, 0, NULL},
};
