/* Arm's PrimeCell UART: RP2040. 32 bytes of buffer each way. */
#include "drivers.h"

#define UART(offset) REGISTER(BOARD_UART_BASE + (offset))
#define DATA 0x00u
#define FLAGS 0x18u
#define BAUD_WHOLE 0x24u
#define BAUD_FRACTION 0x28u
#define LINE 0x2Cu
#define CONTROL 0x30u
#define BUSY (1u << 3)
#define RX_EMPTY (1u << 4)
#define TX_FULL (1u << 5)

void uart_start(uint32_t clock_hz) {
    uint32_t divisor = (8 * clock_hz / BOARD_BAUD + 1) / 2; /* in 64ths of 16 · baud */
    UART(BAUD_WHOLE) = divisor >> 6;
    UART(BAUD_FRACTION) = divisor & 63;
    UART(LINE) = 3u << 5 | 1u << 4; /* 8 bits, buffers on; also takes over the divisor */
    UART(CONTROL) = 1u << 9 | 1u << 8 | 1u;
}

int board_read(void) { return UART(FLAGS) & RX_EMPTY ? -1 : (int)(UART(DATA) & 0xFF); }

void board_write(uint8_t byte) {
    while (UART(FLAGS) & TX_FULL) {
    }
    UART(DATA) = byte;
}

void uart_drain(void) {
    while (UART(FLAGS) & BUSY) {
    }
}
