/* Flash of STM32L4+ in two banks, as delivered: pages of 4 KB, double words. No emulator here models it. */
#include <string.h>

#include "drivers.h"

#define FLASH 0x40022000u
#define ACR (FLASH + 0x00u)
#define KEYR (FLASH + 0x08u)
#define SR (FLASH + 0x10u)
#define CR (FLASH + 0x14u)
#define ACR_DATA_CACHE (1u << 10)
#define ACR_DATA_CACHE_RESET (1u << 12)
#define SR_ERRORS 0xC3FBu
#define SR_BUSY (1u << 16)
#define CR_PROGRAM 1u
#define CR_ERASE_PAGE 2u
#define CR_PAGE(n) ((n) << 3)
#define CR_BANK_2 (1u << 11)
#define CR_START (1u << 16)
#define CR_LOCK (1u << 31)
#define BANK_1 0x08000000u
#define BANK_2 0x08100000u

static void unlock(uint32_t what) {
    if (REGISTER(CR) & CR_LOCK) {
        REGISTER(KEYR) = 0x45670123u;
        REGISTER(KEYR) = 0xCDEF89ABu;
    }
    REGISTER(SR) = SR_ERRORS; /* written ones clear */
    REGISTER(CR) = what;
}

static board_status finish(void) {
    bool good = wait_for(SR, SR_BUSY, 0, 100) && !(REGISTER(SR) & SR_ERRORS);
    REGISTER(CR) = CR_LOCK;
    return good ? BOARD_OK : BOARD_ERR_DEVICE;
}

board_status board_flash_erase_page(uint32_t address) {
    bool second = address >= BANK_2;
    uint32_t page = (address - (second ? BANK_2 : BANK_1)) / BOARD_STORE_PAGE;
    uint32_t erase = CR_ERASE_PAGE | CR_PAGE(page) | (second ? CR_BANK_2 : 0u);
    board_status status;
    unlock(erase);
    REGISTER(CR) = erase | CR_START;
    status = finish();
    REGISTER(ACR) &= ~ACR_DATA_CACHE; /* it may hold what was there before */
    REGISTER(ACR) |= ACR_DATA_CACHE_RESET;
    REGISTER(ACR) &= ~ACR_DATA_CACHE_RESET;
    REGISTER(ACR) |= ACR_DATA_CACHE;
    return status;
}

board_status board_flash_program_unit(uint32_t address, const uint8_t *data) {
    uint32_t words[2];
    memcpy(words, data, sizeof words);
    unlock(CR_PROGRAM);
    REGISTER(address) = words[0];
    __asm__ volatile("isb" ::: "memory"); /* the two words must arrive in this order */
    REGISTER(address + 4) = words[1];
    return finish();
}
