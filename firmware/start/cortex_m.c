/* Start-up of Cortex-M: the vector table, the vector unit of the M55, reset. */
#include "start.h"

#define CPACR (*(volatile uint32_t *)0xE000ED88u)
#define AIRCR (*(volatile uint32_t *)0xE000ED0Cu)

void start(void) {
#if defined(__ARM_FEATURE_MVE)
    CPACR |= 0xFu << 20; /* before any code that the compiler may have vectorized */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif
    start_program();
}

void board_reset(void) {
    uart_drain();
    __asm__ volatile("dsb" ::: "memory");
    AIRCR = 0x05FA0004u; /* SYSRESETREQ, with the key that allows it */
    for (;;) {
    }
}

/* Interrupts stay off, so that the 15 exceptions of the core are the whole table. */
typedef struct vector_table {
    uint8_t *stack;
    void (*reset)(void);
    void (*exceptions[14])(void);
} vector_table;

__attribute__((section(".vectors"), used)) static const vector_table vectors = {
    board_stack_top,
    start,
    {board_fault, board_fault, board_fault, board_fault, board_fault, 0, 0, 0, 0, board_fault, board_fault, 0,
     board_fault, board_fault},
};
