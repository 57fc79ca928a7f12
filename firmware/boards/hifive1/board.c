#include "drivers.h"
#include "start.h"

#define PRCI_CRYSTAL 0x10008004u
#define PRCI_PLL 0x10008008u
#define PRCI_PLL_DIVIDER 0x1000800Cu
#define CRYSTAL_ON (1u << 30)
#define CRYSTAL_READY (1u << 31)
#define PLL_USE_BYPASSED_CRYSTAL (1u << 18 | 1u << 17 | 1u << 16)
#define GPIO_IOF_ENABLE 0x10012038u
#define GPIO_IOF_SELECT 0x1001203Cu
#define UART_PINS (1u << 17 | 1u << 16)
#define WATCHDOG_CONFIG 0x10000000u
#define WATCHDOG_KEY 0x1000001Cu
#define WATCHDOG_COMPARE 0x10000020u

void board_init(void) {
    REGISTER(PRCI_CRYSTAL) |= CRYSTAL_ON;
    wait_for(PRCI_CRYSTAL, CRYSTAL_READY, CRYSTAL_READY, 10);
    REGISTER(PRCI_PLL_DIVIDER) = 1u << 8; /* by 1 */
    REGISTER(PRCI_PLL) |= PLL_USE_BYPASSED_CRYSTAL;
    REGISTER(GPIO_IOF_SELECT) &= ~UART_PINS;
    REGISTER(GPIO_IOF_ENABLE) |= UART_PINS;
    uart_start(BOARD_CLOCK_HZ);
    ticks_start();
}

/* By the watchdog. QEMU 7.2 has none: then by starting over, which initializes everything as well. */
void board_reset(void) {
    uart_drain();
    REGISTER(WATCHDOG_KEY) = 0x51F15Eu;
    REGISTER(WATCHDOG_COMPARE) = 0;
    REGISTER(WATCHDOG_KEY) = 0x51F15Eu;
    REGISTER(WATCHDOG_CONFIG) = 1u << 12 | 1u << 8; /* always on, resets */
    wait_for(WATCHDOG_CONFIG, 0, 1, 10);            /* never true: a pause */
    start();
}
