/* USART of STM32F1, F2, F4. */
#include "drivers.h"

#define USART(offset) REGISTER(BOARD_UART_BASE + (offset))
#define SR 0x00u
#define DR 0x04u
#define BRR 0x08u
#define CR1 0x0Cu
#define SR_RECEIVED (1u << 5)
#define SR_SENT (1u << 6)
#define SR_ROOM (1u << 7)
#define CR1_ENABLE (1u << 13 | 1u << 3 | 1u << 2) /* USART, transmitter, receiver */

void uart_start(uint32_t clock_hz) {
    USART(BRR) = (clock_hz + BOARD_BAUD / 2) / BOARD_BAUD;
    USART(CR1) = CR1_ENABLE;
}

int board_read(void) { return USART(SR) & SR_RECEIVED ? (int)(USART(DR) & 0xFF) : -1; }

void board_write(uint8_t byte) {
    while (!(USART(SR) & SR_ROOM)) {
    }
    USART(DR) = byte;
}

void uart_drain(void) {
    while (!(USART(SR) & SR_SENT)) {
    }
}
