/* RAM that stands in for flash, with flash's rules: erasing sets all bits, programming can only clear them. For
 * emulators and for boards whose flash programs cannot write. Keeps its content over board_reset, not over power-off.
 */
#include <string.h>

#include "drivers.h"

board_status board_flash_erase_page(uint32_t address) {
    memset((void *)(uintptr_t)address, 0xFF, BOARD_STORE_PAGE);
    return BOARD_OK;
}

board_status board_flash_program_unit(uint32_t address, const uint8_t *data) {
    uint8_t *to = (uint8_t *)(uintptr_t)address;
    uint32_t i;
    for (i = 0; i < BOARD_STORE_UNIT; i++) to[i] &= data[i];
    return BOARD_OK;
}
