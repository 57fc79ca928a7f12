#include "fb_app.h"

#include <string.h>

#include "fb_consent.h"
#include "fb_ledger_flash.h"

static const fb_command *const lists[] = {fb_device_commands, fb_consent_commands, fb_model_commands,
                                          fb_slot_commands,   fb_listen_commands,  fb_learn_commands,
                                          fb_guard_commands,  fb_fleet_commands};

const uint8_t *fb_app_image(const fb_app *app, unsigned slot, uint32_t *length) {
    if (slot != FB_SLOT_BUILT_IN) return fb_slot_image(&app->ledger, slot, length);
    *length = BOARD_MODEL_SIZE;
    return *length ? board_model : NULL;
}

/* Cut the RAM for a model; FB_ERR_ARENA if it has not enough. */
static fb_status cut_memory(fb_app *app, const fb_model *model) {
    uint32_t input = fb_model_tensor(model, model->input).size;
    uint32_t output = fb_model_tensor(model, model->output).size;
    uint32_t room = BOARD_ARENA_SIZE, in, out;
    size_t least = fb_arena_least(model);
    if (least == 0) return FB_ERR_LIVE;
    in = (input + FB_ALIGN - 1) & ~(uint32_t)(FB_ALIGN - 1); /* sizes are below 2^31: fb_model_open */
    out = (output + FB_ALIGN - 1) & ~(uint32_t)(FB_ALIGN - 1);
    if (in > room || out > room - in || least > room - in - out) return FB_ERR_ARENA;
    app->input = (int8_t *)board_arena;
    app->output = (int8_t *)(board_arena + in);
    app->arena = board_arena + in + out;
    app->input_size = input;
    app->output_size = output;
    app->arena_size = room - in - out;
    app->loaded = 0;
    return FB_OK;
}

fb_status fb_app_use(fb_app *app, unsigned slot) {
    fb_model model;
    uint32_t length;
    const uint8_t *image = fb_app_image(app, slot, &length);
    fb_status status = image ? fb_model_open(&model, image, length) : FB_ERR_TRUNCATED;
    if (status == FB_OK) status = cut_memory(app, &model);
    if (status != FB_OK) return status;
    app->model = model;
    app->slot = (uint8_t)slot;
    app->guard.on = false;
    app->ready = true;
    fb_app_resume(app);
    return FB_OK;
}

static void event(fb_app *app, const char *text) {
    size_t size = strlen(text);
    memset(app->frame, 0, FB_FRAME_HEAD);
    app->frame[2] = FB_EVENT;
    memcpy(fb_payload(app), text, size);
    board_write(0); /* ends what noise there may be */
    fb_frame_send(app->frame, (uint32_t)(FB_FRAME_HEAD + size), board_write);
}

void fb_app_start(fb_app *app) {
    unsigned selected, slot;
    uint32_t length;
    memset(app, 0, sizeof *app);
    app->slot = FB_SLOT_NONE;
    fb_ledger_open(&app->ledger, fb_ledger_flash());
    fb_app_learning_start(&app->learning, &app->ledger);
    selected = fb_slot_selected(&app->ledger);
    if (fb_app_image(app, selected, &length)) app->refused = (uint8_t)fb_app_use(app, selected);
    if (!app->ready) fb_app_use(app, FB_SLOT_BUILT_IN);
    for (slot = 0; !app->ready && slot < fb_slots(); slot++) fb_app_use(app, slot);
    event(app, "ready: flipbit " FB_VERSION " on " BOARD_NAME);
}

void fb_app_reply(fb_app *app, fb_reply status) {
    if (status != FB_REPLY_OK) {
        app->size = 0;
        fb_put32(app, app->detail);
    }
    app->frame[2] |= FB_IS_REPLY;
    app->frame[3] = (uint8_t)status;
    fb_frame_send(app->frame, FB_FRAME_HEAD + app->size, board_write);
}

/* What ended with a 0: true if it is a request. */
static bool open_request(fb_app *app) {
    uint32_t size = app->received;
    fb_reply status;
    app->received = 0;
    if (size == 0) return false; /* between frames */
    status = fb_frame_open(app->frame, size, &app->size, &app->detail);
    if (status != FB_REPLY_OK) {
        app->bad++;
        memset(app->frame, 0, FB_FRAME_HEAD);
        fb_app_reply(app, status);
        return false;
    }
    app->good++;
    return app->frame[2] < FB_IS_REPLY; /* an echo of a reply of ours needs none */
}

bool fb_app_receive(fb_app *app) {
    int byte = board_read();
    while (byte > 0) {
        if (app->received < sizeof app->frame) app->frame[app->received++] = (uint8_t)byte;
        byte = board_read();
    }
    return byte == 0 && open_request(app);
}

static const fb_command *find_command(unsigned number) {
    unsigned i;
    for (i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const fb_command *command;
        for (command = lists[i]; command->handler; command++) {
            if (command->number == number) return command;
        }
    }
    return NULL;
}

/* A command that needs neither the net's input nor its arena: listening goes on. */
static bool leaves_the_net_alone(unsigned command) {
    return command < FB_COMMAND_LOAD || command == FB_COMMAND_LISTEN_OPEN || command == FB_COMMAND_LISTEN_PUSH;
}

void fb_app_answer(fb_app *app) {
    const fb_command *command = find_command(app->frame[2]);
    fb_reply status;
    app->waiting = false;
    if (!command) {
        status = fb_refuse(app, FB_REPLY_COMMAND, app->frame[2]);
    } else if (!fb_permitted(app, command->number)) {
        status = fb_refuse_locked(app);
    } else if (app->size < command->least || app->size > command->most) {
        status = fb_refuse(app, FB_REPLY_LENGTH, app->size);
    } else {
        if (!leaves_the_net_alone(command->number)) fb_app_listen_end(app);
        status = command->handler(app);
    }
    if (!app->waiting) fb_app_reply(app, status); /* else this request was answered, and the frame holds the next */
}

void fb_app_poll(fb_app *app) {
    if (app->waiting || fb_app_receive(app)) fb_app_answer(app);
}
