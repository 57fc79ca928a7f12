/* Commands about images in the board's storage: look, upload, select, read back. */
#include <string.h>

#include "fb_app.h"

/* slot u8 → state u8, 3 × 0 | length u32 | CRC u32, of a stored image; FB_SLOT_BUILT_IN is the one linked in. */
static fb_reply look(fb_app *app) {
    unsigned slot = fb_payload(app)[0];
    uint32_t length = 0, crc = 0;
    const uint8_t *image;
    bool ok;
    if (slot != FB_SLOT_BUILT_IN && slot >= fb_slots()) return fb_refuse(app, FB_REPLY_RANGE, fb_slots());
    image = fb_app_image(app, slot, &length);
    ok = image && length >= 16;
    if (ok) crc = fb_get32(image + 12);
    app->size = 0;
    fb_put32(app, ok ? 1 : 0);
    fb_put32(app, ok ? length : 0);
    fb_put32(app, crc);
    return FB_REPLY_OK;
}

/* slot u8, 3 × 0 | length u32 | CRC u32 */
static fb_reply begin(fb_app *app) {
    const uint8_t *p = fb_payload(app);
    unsigned slot = p[0];
    if (app->ready && slot == app->slot) return fb_refuse(app, FB_REPLY_IN_USE, slot);
    app->size = 0;
    return fb_upload_begin(&app->upload, &app->ledger, slot, fb_get32(p + 4), fb_get32(p + 8), &app->detail);
}

/* offset u32 | bytes */
static fb_reply piece(fb_app *app) {
    const uint8_t *p = fb_payload(app);
    uint32_t size = app->size - 4;
    app->size = 0;
    return fb_upload_piece(&app->upload, fb_get32(p), p + 4, size, &app->detail);
}

static fb_reply finish(fb_app *app) { return fb_upload_finish(&app->upload, &app->ledger, &app->detail); }

/* slot u8: use its image from now on, after the next start too. */
static fb_reply choose(fb_app *app) {
    unsigned slot = fb_payload(app)[0];
    uint32_t length, before = app->slot;
    fb_status status;
    fb_reply reply;
    if (slot != FB_SLOT_BUILT_IN && slot >= fb_slots()) return fb_refuse(app, FB_REPLY_RANGE, fb_slots());
    if (!fb_app_image(app, slot, &length)) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_IMAGE);
    if (app->learning.open && app->learning.changed) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_SAVE);
    status = fb_app_use(app, slot);
    if (status != FB_OK) return fb_refuse(app, FB_REPLY_MODEL, (uint32_t)status);
    reply = fb_slot_select(&app->ledger, slot, &app->detail);
    if (reply == FB_REPLY_OK) {
        app->refused = FB_OK;
    } else {
        fb_app_use(app, before);
    }
    app->size = 0;
    return reply;
}

/* slot u8, 3 × 0 | offset u32 | length u32 → bytes of its image */
static fb_reply read_image(fb_app *app) {
    const uint8_t *p = fb_payload(app), *image;
    unsigned slot = p[0];
    uint32_t offset = fb_get32(p + 4), size = fb_get32(p + 8), length;
    if (slot != FB_SLOT_BUILT_IN && slot >= fb_slots()) return fb_refuse(app, FB_REPLY_RANGE, fb_slots());
    image = fb_app_image(app, slot, &length);
    if (!image) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_IMAGE);
    if (size > FB_PIECE_MAX) return fb_refuse(app, FB_REPLY_RANGE, FB_PIECE_MAX);
    if (offset > length || size > length - offset) return fb_refuse(app, FB_REPLY_RANGE, length);
    memcpy(fb_payload(app), image + offset, size);
    app->size = size;
    return FB_REPLY_OK;
}

const fb_command fb_slot_commands[] = {
    {FB_COMMAND_LOOK, 1, 1, look},
    {FB_COMMAND_BEGIN, 12, 12, begin},
    {FB_COMMAND_PIECE, 4, FB_PAYLOAD_MAX, piece},
    {FB_COMMAND_FINISH, 0, 0, finish},
    {FB_COMMAND_SELECT, 1, 1, choose},
    {FB_COMMAND_READ_IMAGE, 12, 12, read_image},
    {0, 0, 0, NULL},
};
