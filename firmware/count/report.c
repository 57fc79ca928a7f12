#include "report.h"

#include "board.h"

#define PAINT 0xA5

void report_number(uint32_t value) {
    char text[12], *at = text + sizeof text - 1;
    *at = 0;
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    *--at = ' ';
    semihosting_write(at);
}

void report_failure(fb_status status) {
    semihosting_write("failed ");
    semihosting_write(fb_status_name(status));
    semihosting_write("\n");
    semihosting_exit(1);
}

void board_fault(void) {
    semihosting_write("fault\n");
    semihosting_exit(139);
}

int8_t next_value(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (int8_t)(*state >> 24);
}

/* From the stack's end up to this function's frame. */
void paint_stack(void) {
    uint8_t *p, *end = (uint8_t *)__builtin_frame_address(0) - 64;
    for (p = board_stack; p < end; p++) *(volatile uint8_t *)p = PAINT;
}

uint32_t stack_used(const uint8_t *top) {
    const uint8_t *p = board_stack;
    while (*(const volatile uint8_t *)p == PAINT) p++;
    return (uint32_t)(top - p);
}
