#include "fb_slots.h"

#include <string.h>

/* "FBim", "FBse" */
#define IMAGE 0x6D694246u
#define SELECTION 0x65734246u

#if FB_SLOT_STORE > 0
static const uint8_t *store(uint32_t offset) { return (const uint8_t *)(uintptr_t)BOARD_STORE_BASE + offset; }
#else
static const uint8_t *store(uint32_t offset) { /* not called: there are no slots */
    static const uint8_t nothing[FB_RECORD] = {0};
    (void)offset;
    return nothing;
}
#endif

static uint32_t place(unsigned slot, unsigned record) { return slot * FB_SLOT_SIZE + record * FB_RECORD; }

static bool read_record(unsigned slot, unsigned record, uint32_t magic, uint32_t *first, uint32_t *second) {
    const uint8_t *p = store(place(slot, record));
    *first = fb_get32(p + 4);
    *second = fb_get32(p + 8);
    return fb_get32(p) == magic && fb_get32(p + 12) == fb_crc32(0, p, 12);
}

static bool blank(unsigned slot, unsigned record) {
    const uint8_t *p = store(place(slot, record));
    unsigned i;
    for (i = 0; i < FB_RECORD && p[i] == 0xFF; i++) continue;
    return i == FB_RECORD;
}

static board_status write_record(unsigned slot, unsigned record, uint32_t magic, uint32_t first, uint32_t second) {
    uint8_t bytes[FB_RECORD];
    memset(bytes, 0xFF, sizeof bytes);
    fb_set32(bytes, magic);
    fb_set32(bytes + 4, first);
    fb_set32(bytes + 8, second);
    fb_set32(bytes + 12, fb_crc32(0, bytes, 12));
    return board_store_program(place(slot, record), bytes, sizeof bytes);
}

const uint8_t *fb_slot_image(unsigned slot, uint32_t *length) {
    uint32_t crc;
    if (slot >= fb_slots() || !read_record(slot, 0, IMAGE, length, &crc) || *length > FB_SLOT_ROOM) return NULL;
    return store(place(slot, 0) + FB_SLOT_HEAD);
}

/* The selection that counts; `at` is the slot its record stands in. */
static unsigned find_selection(uint32_t *number, unsigned *at) {
    unsigned selected = FB_SLOT_BUILT_IN, slot, record;
    uint32_t n, target;
    *number = 0;
    *at = FB_SLOT_NONE;
    for (slot = 0; slot < fb_slots(); slot++) {
        for (record = 1; record < FB_RECORDS; record++) {
            if (!read_record(slot, record, SELECTION, &n, &target) || n <= *number) continue;
            *number = n;
            *at = slot;
            selected = target < fb_slots() ? (unsigned)target : FB_SLOT_BUILT_IN;
        }
    }
    return selected;
}

/* Write a selection into the first blank record, in any slot but `avoid`. */
static fb_reply note_selection(unsigned selected, uint32_t number, unsigned avoid, uint32_t *detail) {
    unsigned slot, record;
    for (slot = 0; slot < fb_slots(); slot++) {
        for (record = 1; slot != avoid && record < FB_RECORDS; record++) {
            if (!blank(slot, record)) continue;
            *detail = write_record(slot, record, SELECTION, number, selected);
            return *detail == BOARD_OK ? FB_REPLY_OK : FB_REPLY_STORE;
        }
    }
    *detail = fb_slots() * (FB_RECORDS - 1);
    return FB_REPLY_FULL;
}

unsigned fb_slot_selected(void) {
    uint32_t number;
    unsigned at;
    return find_selection(&number, &at);
}

fb_reply fb_slot_select(unsigned slot, uint32_t *detail) {
    uint32_t number;
    unsigned at;
    if (find_selection(&number, &at) == slot) return FB_REPLY_OK; /* nothing to wear the flash for */
    return note_selection(slot, number + 1, FB_SLOT_NONE, detail);
}

/* Erase a slot but keep the selection that counts, which may be noted there: in another slot first, if one has room. */
static fb_reply erase_slot(unsigned slot, uint32_t size, uint32_t *detail) {
    uint32_t number, now;
    unsigned at, selected = find_selection(&number, &at);
    if (at == slot && note_selection(selected, number + 1, slot, detail) == FB_REPLY_STORE) return FB_REPLY_STORE;
    *detail = board_store_erase(place(slot, 0), (size + FB_SLOT_PAGE - 1) / FB_SLOT_PAGE * FB_SLOT_PAGE);
    if (*detail != BOARD_OK) return FB_REPLY_STORE;
    if (find_selection(&now, &at) == selected) return FB_REPLY_OK;
    return note_selection(selected, number + 1, FB_SLOT_NONE, detail);
}

fb_reply fb_upload_begin(fb_upload *upload, unsigned slot, uint32_t length, uint32_t crc, uint32_t *detail) {
    fb_reply reply;
    upload->begun = false;
    *detail = FB_MISSING_STORE;
    if (fb_slots() == 0) return FB_REPLY_STATE;
    *detail = fb_slots();
    if (slot >= fb_slots()) return FB_REPLY_RANGE;
    *detail = FB_SLOT_ROOM;
    if (length == 0 || length % 4 || length > FB_SLOT_ROOM) return FB_REPLY_RANGE;
    reply = erase_slot(slot, FB_SLOT_HEAD + length, detail);
    if (reply != FB_REPLY_OK) return reply;
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
    return stored ? *store(place(upload->slot, 0) + FB_SLOT_HEAD + offset) : upload->unit[offset % FB_SLOT_UNIT];
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
            *detail = board_store_program(place(upload->slot, 0) + FB_SLOT_HEAD + unit, upload->unit, FB_SLOT_UNIT);
            if (*detail != BOARD_OK) { /* a unit is programmed once: there is no second try */
                upload->begun = false;
                return FB_REPLY_STORE;
            }
        }
        upload->received++;
    }
    return FB_REPLY_OK;
}

fb_reply fb_upload_finish(fb_upload *upload, uint32_t *detail) {
    uint32_t length, crc;
    fb_model model;
    *detail = FB_MISSING_BEGIN;
    if (!upload->begun) return FB_REPLY_STATE;
    *detail = FB_MISSING_PIECES;
    if (upload->received != upload->length) return FB_REPLY_STATE;
    if (read_record(upload->slot, 0, IMAGE, &length, &crc)) return FB_REPLY_OK; /* the same request once more */
    *detail = fb_model_open(&model, store(place(upload->slot, 0) + FB_SLOT_HEAD), upload->length);
    if (*detail == FB_OK && model.crc != upload->crc) *detail = FB_ERR_CRC;
    if (*detail != FB_OK) return FB_REPLY_MODEL;
    *detail = write_record(upload->slot, 0, IMAGE, upload->length, upload->crc);
    return *detail == BOARD_OK ? FB_REPLY_OK : FB_REPLY_STORE;
}
