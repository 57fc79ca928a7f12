/* UART of ESP32-C3, with the baud rate (115200) and the pins that its ROM has set. 128 bytes of buffer each way. */
#include "drivers.h"

#define UART(offset) REGISTER(BOARD_UART_BASE + (offset))
#define FIFO 0x00u
#define STATUS 0x1Cu
#define STATUS_RX(status) ((status) & 0x3FFu)
#define STATUS_TX(status) ((status) >> 16 & 0x3FFu)

void uart_start(uint32_t clock_hz) { (void)clock_hz; }

int board_read(void) { return STATUS_RX(UART(STATUS)) ? (int)(UART(FIFO) & 0xFF) : -1; }

void board_write(uint8_t byte) {
    while (STATUS_TX(UART(STATUS)) >= 127) {
    }
    UART(FIFO) = byte;
}

void uart_drain(void) {
    while (STATUS_TX(UART(STATUS))) {
    }
}
