/* A board without storage: BOARD_STORE_SIZE is 0, so that every range is refused before this is reached. */
#include "drivers.h"

board_status board_flash_erase_page(uint32_t address) {
    (void)address;
    return BOARD_ERR_DEVICE;
}

board_status board_flash_program_unit(uint32_t address, const uint8_t *data) {
    (void)address, (void)data;
    return BOARD_ERR_DEVICE;
}
