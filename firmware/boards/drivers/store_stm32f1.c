/* Flash of STM32F1: pages, halfwords. QEMU does not model it. */
#include "drivers.h"

#define FLASH 0x40022000u
#define KEYR (FLASH + 0x04u)
#define SR (FLASH + 0x0Cu)
#define CR (FLASH + 0x10u)
#define AR (FLASH + 0x14u)
#define SR_BUSY 1u
#define SR_ERRORS 0x14u /* not erased, write protected */
#define SR_DONE 0x20u
enum { CR_PROGRAM = 0x01, CR_ERASE_PAGE = 0x02, CR_START = 0x40, CR_LOCK = 0x80 };

static void unlock(uint32_t what) {
    if (REGISTER(CR) & CR_LOCK) {
        REGISTER(KEYR) = 0x45670123u;
        REGISTER(KEYR) = 0xCDEF89ABu;
    }
    REGISTER(SR) = SR_ERRORS | SR_DONE; /* written ones clear */
    REGISTER(CR) = what;
}

static board_status finish(void) {
    bool good = wait_for(SR, SR_BUSY, 0, 100) && !(REGISTER(SR) & SR_ERRORS);
    REGISTER(CR) = CR_LOCK;
    return good ? BOARD_OK : BOARD_ERR_DEVICE;
}

board_status board_flash_erase_page(uint32_t address) {
    unlock(CR_ERASE_PAGE);
    REGISTER(AR) = address;
    REGISTER(CR) = CR_ERASE_PAGE | CR_START;
    return finish();
}

board_status board_flash_program_unit(uint32_t address, const uint8_t *data) {
    unlock(CR_PROGRAM);
    *(volatile uint16_t *)(uintptr_t)address = (uint16_t)(data[0] | data[1] << 8);
    return finish();
}
