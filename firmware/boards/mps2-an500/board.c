#include "drivers.h"

void board_init(void) {
    uart_start(BOARD_CLOCK_HZ);
    ticks_start();
}
