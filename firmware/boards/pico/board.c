/* UART0 on GPIO 0 (out) and 1 (in). */
#include "drivers.h"

#define CLEAR 0x3000u /* a register's second address, at which written ones clear bits */
#define RESETS 0x4000C000u
#define RESETS_DONE 0x4000C008u
#define IO_BANK (1u << 5)
#define PADS (1u << 8)
#define PLL_SYSTEM (1u << 12)
#define TIMER (1u << 21)
#define UART0 (1u << 22)
#define CRYSTAL_CONTROL 0x40024000u
#define CRYSTAL_STATUS 0x40024004u
#define CRYSTAL_DELAY 0x4002400Cu
#define CRYSTAL_STABLE (1u << 31)
#define PLL_CS 0x40028000u
#define PLL_POWER 0x40028004u
#define PLL_FEEDBACK 0x40028008u
#define PLL_DIVIDERS 0x4002800Cu
#define CLOCK_REFERENCE 0x40008030u
#define CLOCK_SYSTEM 0x4000803Cu
#define CLOCK_SYSTEM_NOW 0x40008044u
#define CLOCK_PERIPHERALS 0x40008048u
#define GPIO_FUNCTION(pin) (0x40014004u + 8u * (pin))

static void wake(uint32_t parts) {
    REGISTER(RESETS + CLEAR) = parts;
    wait_for(RESETS_DONE, parts, parts, 1);
}

/* 125 MHz out of the 12 MHz crystal: · 125 / 6 / 2. */
static void start_clock(void) {
    REGISTER(CRYSTAL_DELAY) = 47; /* 1 ms in units of 256 cycles */
    REGISTER(CRYSTAL_CONTROL) = 0xFABu << 12 | 0xAA0u;
    wait_for(CRYSTAL_STATUS, CRYSTAL_STABLE, CRYSTAL_STABLE, 2);
    REGISTER(CLOCK_REFERENCE) = 2;
    wake(PLL_SYSTEM);
    REGISTER(PLL_CS) = 1;
    REGISTER(PLL_FEEDBACK) = 125;
    REGISTER(PLL_POWER + CLEAR) = 1u << 5 | 1u; /* oscillator and PLL on */
    wait_for(PLL_CS, 1u << 31, 1u << 31, 1);
    REGISTER(PLL_DIVIDERS) = 6u << 16 | 2u << 12;
    REGISTER(PLL_POWER + CLEAR) = 1u << 3; /* dividers on */
    REGISTER(CLOCK_SYSTEM) = 1;            /* the PLL, its first choice of auxiliary sources */
    wait_for(CLOCK_SYSTEM_NOW, 2, 2, 1);
    REGISTER(CLOCK_PERIPHERALS) = 1u << 11;
}

void board_init(void) {
    start_clock();
    wake(IO_BANK | PADS | UART0 | TIMER);
    REGISTER(GPIO_FUNCTION(0)) = 2;
    REGISTER(GPIO_FUNCTION(1)) = 2;
    uart_start(BOARD_CLOCK_HZ);
    ticks_start();
}
