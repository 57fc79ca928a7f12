/* RP2040's microsecond timer. The watchdog divides the 12 MHz crystal down for it. */
#include "drivers.h"

#define WATCHDOG_TICK 0x4005802Cu
#define TIMER_RAW_LOW 0x40054028u

void ticks_start(void) { REGISTER(WATCHDOG_TICK) = 1u << 9 | 12u; }

uint32_t board_ticks(void) { return REGISTER(TIMER_RAW_LOW); }
