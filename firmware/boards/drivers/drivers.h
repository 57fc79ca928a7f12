/* Drivers that boards share; which ones a board takes is in its profile, build.drivers. A driver's file name starts
 * with what it does: uart_… ticks_… store_…, one of each. Facts come from board_profile.h. */
#ifndef DRIVERS_H
#define DRIVERS_H

#include <stdbool.h>
#include <stdint.h>

#include "board.h"

#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))

/* Wait until the masked bits of a register have a value, `milliseconds` or somewhat more; false if they never have. A
 * part that does not answer, or that an emulator does not model, must not hang the board. */
bool wait_for(uint32_t address, uint32_t mask, uint32_t value, uint32_t milliseconds);

/* Set the baud rate and switch the UART on; `clock_hz` is what it is driven with. */
void uart_start(uint32_t clock_hz);

/* Wait until the last byte has left. */
void uart_drain(void);

void ticks_start(void);

/* In RAM: code that runs while the flash cannot be read. */
#define RAM_CODE __attribute__((section(".ramcode"), noinline))

#endif
