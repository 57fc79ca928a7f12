#include "start.h"

/* From the linker script, which makes all of them multiples of 8. */
extern uint32_t link_data[], link_data_end[], link_bss[], link_bss_end[];
extern const uint32_t link_data_source[];

void start_program(void) {
    const uint32_t *from = link_data_source;
    uint32_t *to;
    for (to = link_data; (uintptr_t)to < (uintptr_t)link_data_end;) *to++ = *from++;
    for (to = link_bss; (uintptr_t)to < (uintptr_t)link_bss_end;) *to++ = 0;
    main();
    board_fault(); /* main is not meant to return */
}

__attribute__((weak)) void board_fault(void) { board_reset(); }

__attribute__((weak)) bool board_consents(void) { return false; }
