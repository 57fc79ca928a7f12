/* The cycle counter of RISC-V. */
#include "drivers.h"

void ticks_start(void) {}

uint32_t board_ticks(void) {
    uint32_t cycles;
    __asm__ volatile(".option push\n\t.option arch, +zicsr\n\tcsrr %0, mcycle\n\t.option pop" : "=r"(cycles));
    return cycles;
}
