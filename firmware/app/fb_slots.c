#include "fb_slots.h"

#include <string.h>

#if FB_SLOT_STORE > 0
static const uint8_t *store(uint32_t offset) { return (const uint8_t *)(uintptr_t)BOARD_STORE_BASE + offset; }
#else
static const uint8_t *store(uint32_t offset) { /* not called: there are no slots */
    static const uint8_t nothing[1] = {0};
    (void)offset;
    return nothing;
}
#endif

static uint32_t place(unsigned slot) { return slot * FB_SLOT_SIZE; }

const uint8_t *fb_slot_image(const fb_ledger *ledger, unsigned slot, uint32_t *length) {
    if (slot >= fb_slots()) return NULL;
    *length = ledger->directory.slot[slot].length;
    return *length > 0 && *length <= FB_SLOT_SIZE ? store(place(slot)) : NULL;
}

unsigned fb_slot_selected(const fb_ledger *ledger) {
    uint32_t selected = ledger->directory.selected;
    return selected < fb_slots() ? (unsigned)selected : FB_SLOT_BUILT_IN;
}

/* What a failed note is told as: the storage does not hold what was written. */
static fb_reply note(fb_ledger *ledger, const fb_directory *directory, uint32_t *detail) {
    fb_status status = fb_ledger_note(ledger, directory);
    *detail = BOARD_ERR_VERIFY;
    return status == FB_OK ? FB_REPLY_OK : FB_REPLY_STORE;
}

fb_reply fb_slot_select(fb_ledger *ledger, unsigned slot, uint32_t *detail) {
    fb_directory directory = ledger->directory;
    if (fb_slot_selected(ledger) == slot) return FB_REPLY_OK; /* nothing to wear the flash for */
    directory.selected = slot;
    return note(ledger, &directory, detail);
}

/* Note what a slot holds, if that is new. */
static fb_reply note_image(fb_ledger *ledger, unsigned slot, uint32_t length, uint32_t crc, uint32_t *detail) {
    fb_directory directory = ledger->directory;
    if (directory.slot[slot].length == length && directory.slot[slot].crc == crc) return FB_REPLY_OK;
    directory.slot[slot].length = length;
    directory.slot[slot].crc = crc;
    return note(ledger, &directory, detail);
}

fb_reply fb_upload_begin(fb_upload *upload, fb_ledger *ledger, unsigned slot, uint32_t length, uint32_t crc,
                         uint32_t *detail) {
    fb_reply reply;
    upload->begun = false;
    *detail = FB_MISSING_STORE;
    if (fb_slots() == 0 || !ledger->kept) return FB_REPLY_STATE;
    *detail = fb_slots();
    if (slot >= fb_slots()) return FB_REPLY_RANGE;
    *detail = FB_SLOT_SIZE;
    if (length == 0 || length % 4 || length > FB_SLOT_SIZE) return FB_REPLY_RANGE;
    reply = note_image(ledger, slot, 0, 0, detail);
    if (reply != FB_REPLY_OK) return reply;
    *detail = board_store_erase(place(slot), (length + FB_SLOT_PAGE - 1) / FB_SLOT_PAGE * FB_SLOT_PAGE);
    if (*detail != BOARD_OK) return FB_REPLY_STORE;
    upload->slot = (uint8_t)slot;
    upload->length = length;
    upload->crc = crc;
    upload->received = 0;
    upload->begun = true;
    return FB_REPLY_OK;
}

/* A byte that came before: still in `unit`, or stored. */
static uint8_t received_byte(const fb_upload *upload, uint32_t offset) {
    bool stored = offset < upload->received - upload->received % FB_SLOT_UNIT;
    return stored ? *store(place(upload->slot) + offset) : upload->unit[offset % FB_SLOT_UNIT];
}

fb_reply fb_upload_piece(fb_upload *upload, uint32_t offset, const uint8_t *data, uint32_t size, uint32_t *detail) {
    uint32_t i;
    *detail = FB_MISSING_BEGIN;
    if (!upload->begun) return FB_REPLY_STATE;
    *detail = upload->length;
    if (offset > upload->length || size > upload->length - offset) return FB_REPLY_RANGE;
    if (offset + size <= upload->received) {
        for (i = 0; i < size; i++) {
            *detail = offset + i;
            if (received_byte(upload, offset + i) != data[i]) return FB_REPLY_DIFFERS;
        }
        return FB_REPLY_OK;
    }
    *detail = upload->received;
    if (offset != upload->received) return FB_REPLY_ORDER;
    for (i = 0; i < size; i++) {
        uint32_t at = upload->received % FB_SLOT_UNIT, unit = upload->received - at;
        if (at == 0) memset(upload->unit, 0xFF, sizeof upload->unit);
        upload->unit[at] = data[i];
        if (at + 1 == FB_SLOT_UNIT || upload->received + 1 == upload->length) {
            *detail = board_store_program(place(upload->slot) + unit, upload->unit, FB_SLOT_UNIT);
            if (*detail != BOARD_OK) { /* a unit is programmed once: there is no second try */
                upload->begun = false;
                return FB_REPLY_STORE;
            }
        }
        upload->received++;
    }
    return FB_REPLY_OK;
}

fb_reply fb_upload_finish(fb_upload *upload, fb_ledger *ledger, uint32_t *detail) {
    fb_model model;
    *detail = FB_MISSING_BEGIN;
    if (!upload->begun) return FB_REPLY_STATE;
    *detail = FB_MISSING_PIECES;
    if (upload->received != upload->length) return FB_REPLY_STATE;
    *detail = fb_model_open(&model, store(place(upload->slot)), upload->length);
    if (*detail == FB_OK && model.crc != upload->crc) *detail = FB_ERR_CRC;
    if (*detail != FB_OK) return FB_REPLY_MODEL;
    return note_image(ledger, upload->slot, upload->length, upload->crc, detail);
}
