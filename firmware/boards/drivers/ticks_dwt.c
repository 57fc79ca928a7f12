/* The cycle counter of Cortex-M3 and up. QEMU does not model it: it reads as 0 there. */
#include "drivers.h"

#define DEMCR 0xE000EDFCu
#define DWT_CTRL 0xE0001000u
#define DWT_CYCCNT 0xE0001004u

void ticks_start(void) {
    REGISTER(DEMCR) |= 1u << 24;
    REGISTER(DWT_CTRL) |= 1u;
}

uint32_t board_ticks(void) { return REGISTER(DWT_CYCCNT); }
