/* The storage functions of board.h: check, have the board's flash driver do it, read back. */
#include <stdbool.h>
#include <string.h>

#include "drivers.h"

static const uint8_t *stored(uint32_t offset) { return (const uint8_t *)(uintptr_t)(BOARD_STORE_BASE + offset); }

static board_status check(uint32_t offset, uint32_t size, uint32_t multiple) {
    if (offset > BOARD_STORE_SIZE || size > BOARD_STORE_SIZE - offset) return BOARD_ERR_RANGE;
    if ((offset | size) & (multiple - 1)) return BOARD_ERR_ALIGN; /* pages and units are powers of two */
    return BOARD_OK;
}

static bool erased(uint32_t offset) {
    uint32_t i;
    for (i = 0; i < BOARD_STORE_PAGE; i++) {
        if (stored(offset)[i] != 0xFF) return false;
    }
    return true;
}

board_status board_store_erase(uint32_t offset, uint32_t size) {
    board_status status = check(offset, size, BOARD_STORE_PAGE);
    uint32_t end = offset + size;
    for (; status == BOARD_OK && offset < end; offset += BOARD_STORE_PAGE) {
        status = board_flash_erase_page(BOARD_STORE_BASE + offset);
        if (status == BOARD_OK && !erased(offset)) status = BOARD_ERR_VERIFY;
    }
    return status;
}

board_status board_store_program(uint32_t offset, const void *data, uint32_t size) {
    board_status status = check(offset, size, BOARD_STORE_UNIT);
    const uint8_t *from = data;
    uint32_t end = offset + size;
    for (; status == BOARD_OK && offset < end; offset += BOARD_STORE_UNIT, from += BOARD_STORE_UNIT) {
        status = board_flash_program_unit(BOARD_STORE_BASE + offset, from);
        if (status == BOARD_OK && memcmp(stored(offset), from, BOARD_STORE_UNIT) != 0) status = BOARD_ERR_VERIFY;
    }
    return status;
}
