/* TIMER0 of nRF51, whose core has neither a cycle counter nor SysTick: 32 bits at 16 MHz. */
#include "drivers.h"

#define TIMER0 0x40008000u
#define START (TIMER0 + 0x000u)
#define CAPTURE_0 (TIMER0 + 0x040u)
#define BITMODE (TIMER0 + 0x508u)
#define PRESCALER (TIMER0 + 0x510u)
#define CC_0 (TIMER0 + 0x540u)

void ticks_start(void) {
    REGISTER(BITMODE) = 3; /* 32 bits */
    REGISTER(PRESCALER) = 0;
    REGISTER(START) = 1;
}

uint32_t board_ticks(void) {
    REGISTER(CAPTURE_0) = 1;
    return REGISTER(CC_0);
}
