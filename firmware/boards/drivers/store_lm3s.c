/* Flash of Stellaris LM3S: pages of 1 KB, words. QEMU does not model it. */
#include "drivers.h"

#define FLASH 0x400FD000u
#define FMA (FLASH + 0x00u)
#define FMD (FLASH + 0x04u)
#define FMC (FLASH + 0x08u)
#define USECRL 0x400FE140u
#define KEY 0xA4420000u
enum { WRITE = 1, ERASE = 2 };

static board_status flash(uint32_t address, uint32_t what) {
    REGISTER(USECRL) = BOARD_CLOCK_HZ / 1000000u - 1; /* what the controller times its pulses by */
    REGISTER(FMA) = address;
    REGISTER(FMC) = KEY | what;
    return wait_for(FMC, what, 0, 250) ? BOARD_OK : BOARD_ERR_DEVICE;
}

board_status board_flash_erase_page(uint32_t address) { return flash(address, ERASE); }

board_status board_flash_program_unit(uint32_t address, const uint8_t *data) {
    REGISTER(FMD) = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
    return flash(address, WRITE);
}
