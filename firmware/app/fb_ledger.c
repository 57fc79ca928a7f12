#include "fb_ledger.h"

#include <string.h>

#define MAGIC 0x56444246u /* "FBDV" */
#define CHUNK 64u         /* bytes copied at a time: stack */

static uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void set32(uint8_t *p, uint32_t v) {
    for (unsigned i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static void read_head(fb_ledger *ledger) {
    const fb_record *record = &ledger->store.current;
    uint8_t head[FB_LEDGER_HEAD];
    if (record->sequence == 0) return;
    if (record->kind == FB_KIND_CHECKPOINT) { /* of firmware that kept no directory there */
        ledger->checkpoint = record->length;
        ledger->owner = record->owner;
        return;
    }
    if (record->kind != FB_KIND_DEVICE || record->length < sizeof head) return;
    if (fb_store_read(&ledger->store, 0, head, sizeof head) != FB_OK || get32(head) != MAGIC) return;
    ledger->directory.selected = get32(head + 4);
    for (unsigned i = 0; i < FB_LEDGER_SLOTS; i++) {
        ledger->directory.slot[i].length = get32(head + 8 + 8 * i);
        ledger->directory.slot[i].crc = get32(head + 12 + 8 * i);
    }
    ledger->at = FB_LEDGER_HEAD;
    ledger->checkpoint = record->length - FB_LEDGER_HEAD;
    ledger->owner = record->owner;
}

void fb_ledger_open(fb_ledger *ledger, const fb_flash *flash) {
    memset(ledger, 0, sizeof *ledger);
    ledger->directory.selected = FB_SLOT_BUILT_IN;
    ledger->kept = flash && fb_store_open(&ledger->store, flash) == FB_OK;
    if (ledger->kept) read_head(ledger);
}

static fb_status begin(fb_ledger *ledger, const fb_directory *directory, uint32_t length, uint32_t owner) {
    uint8_t head[FB_LEDGER_HEAD];
    fb_status status;
    if (!ledger->kept) return FB_ERR_EMPTY;
    if (length > fb_ledger_room(ledger)) return FB_ERR_FULL;
    set32(head, MAGIC);
    set32(head + 4, directory->selected);
    for (unsigned i = 0; i < FB_LEDGER_SLOTS; i++) {
        set32(head + 8 + 8 * i, directory->slot[i].length);
        set32(head + 12 + 8 * i, directory->slot[i].crc);
    }
    fb_store_abort(&ledger->store); /* what may be left of a failed attempt */
    status = fb_store_begin(&ledger->store, FB_LEDGER_HEAD + length, FB_KIND_DEVICE, owner);
    return status == FB_OK ? fb_store_write(&ledger->store, head, sizeof head) : status;
}

/* Read twice: a bit that was misread once would be committed with a right CRC. */
static fb_status copy_checkpoint(fb_ledger *ledger) {
    uint8_t chunk[CHUNK], again[CHUNK];
    fb_status status = FB_OK;
    for (uint32_t at = 0; at < ledger->checkpoint && status == FB_OK; at += CHUNK) {
        uint32_t n = ledger->checkpoint - at < CHUNK ? ledger->checkpoint - at : CHUNK;
        status = fb_ledger_read(ledger, at, chunk, n);
        if (status == FB_OK) status = fb_ledger_read(ledger, at, again, n);
        if (status == FB_OK && memcmp(chunk, again, n) != 0) status = FB_ERR_FLASH;
        if (status == FB_OK) status = fb_store_write(&ledger->store, chunk, n);
    }
    return status;
}

fb_status fb_ledger_note(fb_ledger *ledger, const fb_directory *directory) {
    fb_directory noted = *directory; /* may be the ledger's own */
    fb_status status;
    unsigned tries = 0;
    do { /* where a place turned out to be worn while it was written, the next attempt gets another */
        status = begin(ledger, &noted, ledger->checkpoint, ledger->owner);
        if (status == FB_OK) status = copy_checkpoint(ledger);
        if (status == FB_OK) status = fb_store_commit(&ledger->store);
    } while (status == FB_ERR_FLASH && ++tries < ledger->store.flash->slots);
    if (status != FB_OK) {
        if (ledger->kept) fb_store_abort(&ledger->store);
        return status;
    }
    ledger->directory = noted;
    ledger->at = FB_LEDGER_HEAD;
    return FB_OK;
}

fb_status fb_ledger_begin(fb_ledger *ledger, uint32_t length, uint32_t owner) {
    return begin(ledger, &ledger->directory, length, length ? owner : 0);
}

fb_status fb_ledger_write(fb_ledger *ledger, const void *data, uint32_t size) {
    return fb_store_write(&ledger->store, data, size);
}

fb_status fb_ledger_commit(fb_ledger *ledger) {
    fb_status status = fb_store_commit(&ledger->store);
    if (status != FB_OK) return status;
    ledger->at = FB_LEDGER_HEAD;
    ledger->checkpoint = ledger->store.current.length - FB_LEDGER_HEAD;
    ledger->owner = ledger->store.current.owner;
    return FB_OK;
}

fb_status fb_ledger_read(const fb_ledger *ledger, uint32_t offset, void *data, uint32_t size) {
    if (offset > ledger->checkpoint || size > ledger->checkpoint - offset) return FB_ERR_ARGUMENT;
    return fb_store_read(&ledger->store, ledger->at + offset, data, size);
}

uint32_t fb_ledger_room(const fb_ledger *ledger) {
    return ledger->kept && ledger->store.capacity > FB_LEDGER_HEAD ? ledger->store.capacity - FB_LEDGER_HEAD : 0;
}
