/* Commands about the device: identify, counters, echo, reset. */
#include <string.h>

#include "fb_consent.h"

static void put_text(fb_app *app, const char *text) {
    size_t size = strlen(text) + 1;
    memcpy(fb_payload(app) + app->size, text, size);
    app->size += (uint32_t)size;
}

/* The names fit behind the numbers. */
typedef char fb_identity_fits
    [61 + sizeof FB_VERSION + sizeof BOARD_NAME + sizeof BOARD_CHIP + sizeof BOARD_CORE <= FB_PAYLOAD_MAX ? 1 : -1];

static fb_reply identify(fb_app *app) {
    bool ready = app->ready;
    uint8_t *p = fb_payload(app);
    p[0] = FB_PROTOCOL_VERSION;
    p[1] = FB_PIECE_MAX;
    p[2] = (uint8_t)fb_slots();
    p[3] = app->slot;
    p[4] = app->refused;
    p[5] = BOARD_STORE_RAM;
    p[6] = app->learning.open;
    p[7] = app->checkpoint;
    app->size = 8;
    fb_put32(app, ready ? app->model.crc : 0);
    fb_put32(app, ready ? app->model.size : 0);
    fb_put32(app, ready ? app->model.ops : 0);
    fb_put32(app, ready ? app->input_size : 0);
    fb_put32(app, ready ? app->output_size : 0);
    fb_put32(app, ready ? (uint32_t)fb_arena_size(&app->model) : 0);
    fb_put32(app, ready ? (uint32_t)fb_arena_least(&app->model) : 0);
    fb_put32(app, BOARD_ARENA_SIZE);
    fb_put32(app, BOARD_RAM_SIZE);
    fb_put32(app, BOARD_FLASH_SIZE);
    fb_put32(app, FB_SLOT_SIZE);
    fb_put32(app, BOARD_CLOCK_HZ);
    fb_put32(app, BOARD_TICK_HZ);
    put_text(app, FB_VERSION);
    put_text(app, BOARD_NAME);
    put_text(app, BOARD_CHIP);
    put_text(app, BOARD_CORE);
    fb_payload(app)[app->size++] = fb_lock_state(app);
    return FB_REPLY_OK;
}

static fb_reply counters(fb_app *app) {
    app->size = 0;
    fb_put32(app, app->good);
    fb_put32(app, app->bad);
    fb_put32(app, board_ticks());
    return FB_REPLY_OK;
}

static fb_reply echo(fb_app *app) {
    (void)app; /* the payload is in its place already */
    return FB_REPLY_OK;
}

static fb_reply reset(fb_app *app) {
    app->size = 0;
    fb_app_reply(app, FB_REPLY_OK); /* first: afterwards nobody is there to answer */
    board_reset();
}

const fb_command fb_device_commands[] = {
    {FB_COMMAND_IDENTIFY, 0, 0, identify},
    {FB_COMMAND_COUNTERS, 0, 0, counters},
    {FB_COMMAND_ECHO, 0, FB_PAYLOAD_MAX, echo},
    {FB_COMMAND_RESET, 0, 0, reset},
    {0, 0, 0, NULL},
};
