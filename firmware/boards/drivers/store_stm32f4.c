/* Flash of STM32F405/407: the storage is made of its 128 KB sectors (5 to 11), words are programmed. QEMU does not
 * model it. */
#include <string.h>

#include "drivers.h"

#define FLASH 0x40023C00u
#define ACR (FLASH + 0x00u)
#define KEYR (FLASH + 0x04u)
#define SR (FLASH + 0x0Cu)
#define CR (FLASH + 0x10u)
#define ACR_DATA_CACHE (1u << 10)
#define ACR_DATA_CACHE_RESET (1u << 12)
#define SR_ERRORS 0xF2u
#define SR_BUSY (1u << 16)
#define CR_PROGRAM 1u
#define CR_ERASE_SECTOR 2u
#define CR_SECTOR(n) ((n) << 3)
#define CR_WORDS (2u << 8)
#define CR_START (1u << 16)
#define CR_LOCK (1u << 31)
#define FIRST_LARGE 0x08020000u /* sector 5 */

static void unlock(uint32_t what) {
    if (REGISTER(CR) & CR_LOCK) {
        REGISTER(KEYR) = 0x45670123u;
        REGISTER(KEYR) = 0xCDEF89ABu;
    }
    REGISTER(SR) = SR_ERRORS; /* written ones clear */
    REGISTER(CR) = what | CR_WORDS;
}

static board_status finish(void) {
    bool good = wait_for(SR, SR_BUSY, 0, 4000) && !(REGISTER(SR) & SR_ERRORS);
    REGISTER(CR) = CR_LOCK;
    return good ? BOARD_OK : BOARD_ERR_DEVICE;
}

board_status board_flash_erase_page(uint32_t address) {
    uint32_t erase = CR_ERASE_SECTOR | CR_SECTOR(5 + (address - FIRST_LARGE) / BOARD_STORE_PAGE);
    board_status status;
    unlock(erase);
    REGISTER(CR) = erase | CR_WORDS | CR_START;
    status = finish();
    REGISTER(ACR) &= ~ACR_DATA_CACHE; /* it may hold what was there before */
    REGISTER(ACR) |= ACR_DATA_CACHE_RESET;
    REGISTER(ACR) &= ~ACR_DATA_CACHE_RESET;
    REGISTER(ACR) |= ACR_DATA_CACHE;
    return status;
}

board_status board_flash_program_unit(uint32_t address, const uint8_t *data) {
    uint32_t word;
    memcpy(&word, data, sizeof word);
    unlock(CR_PROGRAM);
    REGISTER(address) = word;
    return finish();
}
