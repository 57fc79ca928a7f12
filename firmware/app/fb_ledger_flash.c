#include "fb_ledger_flash.h"

#include <string.h>

#define SIZE (BOARD_STORE_SIZE - FB_SLOT_STORE)

#if BOARD_STORE_SIZE > 0
#define PAGES (SIZE / BOARD_STORE_PAGE)

/* No record is longer than RAM. Where that leaves room for more than two slots, a worn page leaves others. */
#define AS_LONG_AS_RAM (SIZE / BOARD_RAM_SIZE)
#define SLOTS (AS_LONG_AS_RAM > 4u ? 4u : AS_LONG_AS_RAM < 2u ? 2u : AS_LONG_AS_RAM)

/* A larger unit is programmed in parts, with what is there already around them; serial NOR allows it. */
#if BOARD_STORE_UNIT > FB_STORE_UNIT_MAX && !BOARD_STORE_REPROGRAM
#error "units of more than 32 bytes that may be programmed once only: the store has no use for them"
#endif
#define UNIT (BOARD_STORE_UNIT > FB_STORE_UNIT_MAX ? FB_STORE_UNIT_MAX : BOARD_STORE_UNIT)

static const uint8_t *stored(uint32_t offset) { return (const uint8_t *)(uintptr_t)BOARD_STORE_BASE + offset; }

static fb_status read_bytes(void *context, uint32_t offset, void *data, uint32_t size) {
    (void)context;
    memcpy(data, stored(FB_SLOT_STORE + offset), size);
    return FB_OK;
}

static fb_status program_bytes(void *context, uint32_t offset, const void *data, uint32_t size) {
    uint32_t at = FB_SLOT_STORE + offset;
    (void)context;
#if BOARD_STORE_UNIT > FB_STORE_UNIT_MAX
    {
        const uint8_t *from = data;
        uint8_t unit[BOARD_STORE_UNIT];
        while (size) {
            uint32_t inside = at % BOARD_STORE_UNIT, part = BOARD_STORE_UNIT - inside;
            if (part > size) part = size;
            memcpy(unit, stored(at - inside), sizeof unit);
            memcpy(unit + inside, from, part);
            if (board_store_program(at - inside, unit, sizeof unit) != BOARD_OK) return FB_ERR_FLASH;
            at += part;
            from += part;
            size -= part;
        }
        return FB_OK;
    }
#else
    return board_store_program(at, data, size) == BOARD_OK ? FB_OK : FB_ERR_FLASH;
#endif
}

static fb_status erase_page(void *context, uint32_t offset) {
    (void)context;
    return board_store_erase(FB_SLOT_STORE + offset, BOARD_STORE_PAGE) == BOARD_OK ? FB_OK : FB_ERR_FLASH;
}

const fb_flash *fb_ledger_flash(void) {
    static const fb_flash flash = {
        .size = SIZE,
        .page = BOARD_STORE_PAGE,
        .unit = UNIT,
        .slots = SLOTS,
        .reprogram = BOARD_STORE_REPROGRAM,
        .read = read_bytes,
        .program = program_bytes,
        .erase = erase_page,
    };
    return PAGES >= 2 ? &flash : NULL;
}
#else
const fb_flash *fb_ledger_flash(void) { return NULL; }
#endif
