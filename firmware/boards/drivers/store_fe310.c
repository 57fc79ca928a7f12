/* The SPI flash that FE310 executes from: 4 KB sectors, any bytes. It cannot be read while commands are sent, so that
 * part runs from RAM and calls nothing. QEMU does not model the SPI controller. */
#include "drivers.h"

#define SPI 0x10014000u
#define CS_MODE (SPI + 0x18u)
#define FORMAT (SPI + 0x40u)
#define TX_DATA (SPI + 0x48u)
#define RX_DATA (SPI + 0x4Cu)
#define MAPPED (SPI + 0x60u)
#define BUSY_OR_EMPTY 0x80000000u
#define SINGLE_8_BITS (8u << 16)
#define FLASH_BASE 0x20000000u
enum { CS_AUTO = 0, CS_HOLD = 2 };
enum { WRITE_ENABLE = 0x06, READ_STATUS = 0x05, ERASE_SECTOR = 0x20, PROGRAM = 0x02, STATUS_BUSY = 1 };

/* One command: `out` is sent with the chip selected; the answer to its last byte is returned. */
RAM_CODE static uint32_t command(const uint8_t *out, uint32_t size) {
    uint32_t answer = 0, turns, i;
    REGISTER(CS_MODE) = CS_HOLD;
    for (i = 0; i < size; i++) {
        for (turns = 0; (REGISTER(TX_DATA) & BUSY_OR_EMPTY) && turns < 100000; turns++) {
        }
        REGISTER(TX_DATA) = out[i];
        for (turns = 0; ((answer = REGISTER(RX_DATA)) & BUSY_OR_EMPTY) && turns < 100000; turns++) {
        }
    }
    REGISTER(CS_MODE) = CS_AUTO;
    return answer;
}

/* Write-enable, a command, and waiting until the flash has done it. The bytes are on the stack: constants are not. */
RAM_CODE static board_status change(const uint8_t *out, uint32_t size) {
    uint8_t enable[1], ask[2];
    uint32_t turns, format = REGISTER(FORMAT);
    board_status status = BOARD_ERR_DEVICE;
    enable[0] = WRITE_ENABLE;
    ask[0] = READ_STATUS;
    ask[1] = 0;
    REGISTER(MAPPED) = 0;
    REGISTER(FORMAT) = SINGLE_8_BITS;
    command(enable, 1);
    command(out, size);
    for (turns = 0; turns < 1000000 && status != BOARD_OK; turns++) {
        if (!(command(ask, 2) & STATUS_BUSY)) status = BOARD_OK;
    }
    REGISTER(FORMAT) = format;
    REGISTER(MAPPED) = 1;
    return status;
}

static void address_bytes(uint8_t *out, uint32_t address) {
    out[0] = (uint8_t)((address - FLASH_BASE) >> 16);
    out[1] = (uint8_t)((address - FLASH_BASE) >> 8);
    out[2] = (uint8_t)(address - FLASH_BASE);
}

board_status board_flash_erase_page(uint32_t address) {
    uint8_t out[4];
    out[0] = ERASE_SECTOR;
    address_bytes(out + 1, address);
    return change(out, sizeof out);
}

board_status board_flash_program_unit(uint32_t address, const uint8_t *data) {
    uint8_t out[4 + BOARD_STORE_UNIT];
    uint32_t i;
    out[0] = PROGRAM;
    address_bytes(out + 1, address);
    for (i = 0; i < BOARD_STORE_UNIT; i++) out[4 + i] = data[i];
    return change(out, sizeof out);
}
