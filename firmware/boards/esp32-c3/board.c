/* The ROM copies the program from flash to RAM, and leaves clock, UART0 and its pins as they are needed here. */
#include "drivers.h"

#define RTC_RESET 0x60008000u
#define RTC_WATCHDOG 0x60008090u
#define RTC_WATCHDOG_KEY 0x600080A8u
#define SUPER_WATCHDOG 0x600080ACu
#define SUPER_WATCHDOG_KEY 0x600080B0u
#define GROUP_WATCHDOG 0x6001F048u
#define GROUP_WATCHDOG_KEY 0x6001F064u
#define KEY 0x50D83AA1u

/* Watchdogs that the ROM starts in case that what it loads hangs. */
static void stop_watchdogs(void) {
    REGISTER(RTC_WATCHDOG_KEY) = KEY;
    REGISTER(RTC_WATCHDOG) = 0;
    REGISTER(RTC_WATCHDOG_KEY) = 0;
    REGISTER(SUPER_WATCHDOG_KEY) = 0x8F1D312Au;
    REGISTER(SUPER_WATCHDOG) |= 1u << 31; /* feeds itself */
    REGISTER(SUPER_WATCHDOG_KEY) = 0;
    REGISTER(GROUP_WATCHDOG_KEY) = KEY;
    REGISTER(GROUP_WATCHDOG) = 0;
    REGISTER(GROUP_WATCHDOG_KEY) = 0;
}

void board_init(void) {
    stop_watchdogs();
    uart_start(BOARD_CLOCK_HZ);
    ticks_start();
}

void board_reset(void) {
    uart_drain();
    REGISTER(RTC_RESET) |= 1u << 31;
    for (;;) {
    }
}
