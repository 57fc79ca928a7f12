#include "drivers.h"

#define TEST_DEVICE 0x00100000u
#define TEST_RESET 0x7777u
#define UART_HZ 3686400u

void board_init(void) {
    uart_start(UART_HZ);
    ticks_start();
}

void board_reset(void) {
    uart_drain();
    REGISTER(TEST_DEVICE) = TEST_RESET;
    for (;;) {
    }
}
