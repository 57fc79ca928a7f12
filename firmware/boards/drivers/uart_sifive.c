/* UART of SiFive's FE310. */
#include "drivers.h"

#define UART(offset) REGISTER(BOARD_UART_BASE + (offset))
#define TXDATA 0x00u
#define RXDATA 0x04u
#define TXCTRL 0x08u
#define RXCTRL 0x0Cu
#define IP 0x14u
#define DIV 0x18u
#define TX_FULL 0x80000000u
#define RX_EMPTY 0x80000000u
#define IP_TX_WATERMARK 1u /* fewer bytes wait than TXCTRL says: 1, so none */

void uart_start(uint32_t clock_hz) {
    UART(DIV) = clock_hz / BOARD_BAUD - 1;
    UART(TXCTRL) = 1u << 16 | 1u;
    UART(RXCTRL) = 1;
}

int board_read(void) {
    uint32_t data = UART(RXDATA); /* reading takes it */
    return data & RX_EMPTY ? -1 : (int)(data & 0xFF);
}

void board_write(uint8_t byte) {
    while (UART(TXDATA) & TX_FULL) {
    }
    UART(TXDATA) = byte;
}

void uart_drain(void) { wait_for(BOARD_UART_BASE + IP, IP_TX_WATERMARK, IP_TX_WATERMARK, 10); }
