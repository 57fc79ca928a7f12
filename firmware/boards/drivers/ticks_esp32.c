/* ESP32-C3 has Espressif's own performance counter in place of mcycle. */
#include "drivers.h"

#define ZICSR ".option push\n\t.option arch, +zicsr\n\t"

void ticks_start(void) {
    __asm__ volatile(ZICSR "csrwi 0x7e0, 1\n\t" /* count cycles */
                           "csrwi 0x7e1, 1\n\t" /* run */
                           ".option pop");
}

uint32_t board_ticks(void) {
    uint32_t cycles;
    __asm__ volatile(ZICSR "csrr %0, 0x7e2\n\t.option pop" : "=r"(cycles));
    return cycles;
}
