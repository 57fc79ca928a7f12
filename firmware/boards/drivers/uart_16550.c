/* The PC's UART, byte-wide registers: QEMU's RISC-V virt machine. */
#include "drivers.h"

#define UART(offset) (*(volatile uint8_t *)(uintptr_t)(BOARD_UART_BASE + (offset)))
#define DATA 0u
#define LINE_CONTROL 3u
#define LINE_STATUS 5u
#define RECEIVED 0x01u
#define ROOM 0x20u
#define SENT 0x40u

void uart_start(uint32_t clock_hz) {
    uint32_t divisor = clock_hz / (16 * BOARD_BAUD);
    UART(LINE_CONTROL) = 0x83; /* 8 bits; the divisor's turn */
    UART(0) = (uint8_t)divisor;
    UART(1) = (uint8_t)(divisor >> 8);
    UART(LINE_CONTROL) = 0x03;
}

int board_read(void) { return UART(LINE_STATUS) & RECEIVED ? UART(DATA) : -1; }

void board_write(uint8_t byte) {
    while (!(UART(LINE_STATUS) & ROOM)) {
    }
    UART(DATA) = byte;
}

void uart_drain(void) {
    while (!(UART(LINE_STATUS) & SENT)) {
    }
}
