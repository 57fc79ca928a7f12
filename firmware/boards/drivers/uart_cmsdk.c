/* UART of Arm's Cortex-M System Design Kit: the MPS2 and MPS3 boards. */
#include "drivers.h"

#define UART(offset) REGISTER(BOARD_UART_BASE + (offset))
#define DATA 0x00u
#define STATE 0x04u
#define CTRL 0x08u
#define BAUDDIV 0x10u
#define STATE_TX_FULL 1u
#define STATE_RX_FULL 2u

void uart_start(uint32_t clock_hz) {
    UART(BAUDDIV) = clock_hz / BOARD_BAUD;
    UART(CTRL) = 3; /* transmit, receive */
}

int board_read(void) { return UART(STATE) & STATE_RX_FULL ? (int)(UART(DATA) & 0xFF) : -1; }

void uart_drain(void) {
    while (UART(STATE) & STATE_TX_FULL) {
    }
}

void board_write(uint8_t byte) {
    uart_drain();
    UART(DATA) = byte;
}
