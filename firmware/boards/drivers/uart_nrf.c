/* UART of nRF51 and nRF52 (the one without DMA), on the pins that the profile names. */
#include "drivers.h"

#define START_RX 0x000u
#define START_TX 0x008u
#define RX_READY 0x108u
#define TX_READY 0x11Cu
#define ENABLE 0x500u
#define PIN_TX 0x50Cu
#define PIN_RX 0x514u
#define RXD 0x518u
#define TXD 0x51Cu
#define BAUDRATE 0x524u
#define UART(offset) REGISTER(BOARD_UART_BASE + (offset))
#define GPIO_OUT_SET 0x50000508u
#define GPIO_SET_OUTPUT 0x50000518u
#define CLOCK_START_CRYSTAL 0x40000000u
#define CLOCK_STARTED 0x40000100u

static bool sending;

void uart_start(uint32_t clock_hz) {
    REGISTER(CLOCK_START_CRYSTAL) = 1; /* the internal oscillator is too inexact for a UART */
    wait_for(CLOCK_STARTED, 1, 1, 2);
    REGISTER(GPIO_OUT_SET) = 1u << BOARD_UART_TX;
    REGISTER(GPIO_SET_OUTPUT) = 1u << BOARD_UART_TX;
    UART(PIN_TX) = BOARD_UART_TX;
    UART(PIN_RX) = BOARD_UART_RX;
    (void)clock_hz; /* always 16 MHz; baud · 2^32 / 16 MHz, rounded to 12 bits as the manual's table is */
    UART(BAUDRATE) = ((uint32_t)(((uint64_t)BOARD_BAUD << 32) / 16000000u) + 0x800u) & 0xFFFFF000u;
    UART(ENABLE) = 4;
    UART(START_RX) = 1;
    UART(START_TX) = 1;
    sending = false;
}

int board_read(void) {
    if (!UART(RX_READY)) return -1;
    UART(RX_READY) = 0; /* before the read, which may make it ready again */
    return (int)(UART(RXD) & 0xFF);
}

void uart_drain(void) {
    while (sending && !UART(TX_READY)) {
    }
    sending = false;
}

void board_write(uint8_t byte) {
    uart_drain();
    UART(TX_READY) = 0;
    UART(TXD) = byte;
    sending = true;
}
