/* Flash of nRF51 and nRF52: the non-volatile memory controller. The core waits while it works, so this may run from
 * flash. */
#include <string.h>

#include "drivers.h"

#define NVMC 0x4001E000u
#define READY (NVMC + 0x400u)
#define CONFIG (NVMC + 0x504u)
#define ERASE_PAGE (NVMC + 0x508u)
enum { READ_ONLY, WRITE, ERASE };

static board_status finish(void) {
    bool ready = wait_for(READY, 1, 1, 100);
    REGISTER(CONFIG) = READ_ONLY;
    return ready ? BOARD_OK : BOARD_ERR_DEVICE;
}

board_status board_flash_erase_page(uint32_t address) {
    REGISTER(CONFIG) = ERASE;
    REGISTER(ERASE_PAGE) = address;
    return finish();
}

board_status board_flash_program_unit(uint32_t address, const uint8_t *data) {
    uint32_t word;
    memcpy(&word, data, sizeof word);
    REGISTER(CONFIG) = WRITE;
    REGISTER(address) = word;
    return finish();
}
