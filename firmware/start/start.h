/* What the start-up files share. */
#ifndef START_H
#define START_H

#include "board.h"
#include "drivers.h"

int main(void);

/* Where execution starts, named by the vector table or the linker script. */
__attribute__((noreturn)) void start(void);

/* Sets up variables and runs main; the stack is there already. */
__attribute__((noreturn)) void start_program(void);

#endif
