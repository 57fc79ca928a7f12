#include "fb_consent.h"

static bool always_permitted(unsigned command) {
    switch (command) {
    case FB_COMMAND_IDENTIFY:
    case FB_COMMAND_COUNTERS:
    case FB_COMMAND_ECHO:
    case FB_COMMAND_UNLOCK:
    case FB_COMMAND_LOAD:
    case FB_COMMAND_INFER:
    case FB_COMMAND_READ_OUTPUT:
    case FB_COMMAND_LOOK:
    case FB_COMMAND_LISTEN_OPEN:
    case FB_COMMAND_LISTEN_PUSH: return true;
    default: return false;
    }
}

static uint32_t key_size(void) { return (uint32_t)((uintptr_t)board_key_end - (uintptr_t)board_key); }

static bool takes_key(void) { return key_size() >= FB_KEY_LEAST && key_size() <= FB_KEY_MOST; }

bool fb_permitted(const fb_app *app, unsigned command) {
    return !FB_LOCKED || always_permitted(command) || app->unlocked || board_consents();
}

fb_reply fb_refuse_locked(fb_app *app) {
    return fb_refuse(app, FB_REPLY_LOCKED, takes_key() ? FB_CONSENT_KEY : FB_CONSENT_BOARD);
}

uint8_t fb_lock_state(const fb_app *app) {
    bool consent = app->unlocked || board_consents();
    return FB_LOCKED ? (uint8_t)(1u | (consent ? 2u : 0u) | (takes_key() ? 4u : 0u)) : 0;
}

/* Takes as long for a key that is wrong in its first byte as for one that is wrong in its last. What stands in the frame
 * buffer behind a short key is compared, too. */
static bool same_key(const uint8_t *key, uint32_t size) {
    volatile uint32_t difference = size ^ key_size();
    for (uint32_t i = 0; i < key_size(); i++) difference |= (uint32_t)(key[i] ^ board_key[i]);
    return difference == 0;
}

/* Key: consent from here on. Nothing: no longer. */
static fb_reply unlock(fb_app *app) {
    uint32_t size = app->size;
    app->size = 0;
    app->unlocked = false;
    if (!FB_LOCKED || size == 0) return FB_REPLY_OK;
    app->unlocked = takes_key() && same_key(fb_payload(app), size);
    return app->unlocked ? FB_REPLY_OK : fb_refuse_locked(app);
}

const fb_command fb_consent_commands[] = {{FB_COMMAND_UNLOCK, 0, FB_KEY_MOST, unlock}, {0, 0, 0, NULL}};
