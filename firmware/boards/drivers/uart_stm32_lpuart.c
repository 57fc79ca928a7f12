/* LPUART of STM32L4 and newer. */
#include "drivers.h"

#define UART(offset) REGISTER(BOARD_UART_BASE + (offset))
#define CR1 0x00u
#define BRR 0x0Cu
#define ISR 0x1Cu
#define ICR 0x20u
#define RDR 0x24u
#define TDR 0x28u
#define ISR_OVERRUN (1u << 3)
#define ISR_RECEIVED (1u << 5)
#define ISR_SENT (1u << 6)
#define ISR_ROOM (1u << 7)
#define CR1_ENABLE (1u | 1u << 3 | 1u << 2) /* UART, transmitter, receiver */

void uart_start(uint32_t clock_hz) {
    UART(BRR) = (uint32_t)((256u * (uint64_t)clock_hz + BOARD_BAUD / 2) / BOARD_BAUD);
    UART(CR1) = CR1_ENABLE;
}

int board_read(void) {
    if (UART(ISR) & ISR_OVERRUN) UART(ICR) = ISR_OVERRUN; /* or nothing more would be received */
    return UART(ISR) & ISR_RECEIVED ? (int)(UART(RDR) & 0xFF) : -1;
}

void board_write(uint8_t byte) {
    while (!(UART(ISR) & ISR_ROOM)) {
    }
    UART(TDR) = byte;
}

void uart_drain(void) {
    while (!(UART(ISR) & ISR_SENT)) {
    }
}
