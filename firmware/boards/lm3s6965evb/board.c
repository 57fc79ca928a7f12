/* UART0 on PA0 (in) and PA1 (out). */
#include "drivers.h"

#define SYSTEM 0x400FE000u
#define RIS (SYSTEM + 0x50u)
#define RCC (SYSTEM + 0x60u)
#define RCGC1 (SYSTEM + 0x104u)
#define RCGC2 (SYSTEM + 0x108u)
#define GPIOA_AFSEL 0x40004420u
#define GPIOA_DEN 0x4000451Cu
#define PLL_LOCKED (1u << 6)
#define MAIN_OFF (1u << 0)
#define SOURCE (3u << 4) /* 0: the crystal */
#define CRYSTAL (0xFu << 6)
#define CRYSTAL_8_MHZ (0xEu << 6)
#define BYPASS (1u << 11)
#define PLL_OFF (1u << 13)
#define DIVIDE (1u << 22)
#define DIVISOR (0xFu << 23)
#define CRYSTAL_HZ 8000000u

/* 50 MHz: 200 MHz of the PLL / 4. Without a lock the crystal's 8 MHz. */
static uint32_t start_clock(void) {
    uint32_t rcc = (REGISTER(RCC) | BYPASS) & ~(DIVIDE | MAIN_OFF);
    REGISTER(RCC) = rcc;
    rcc = (rcc & ~(CRYSTAL | SOURCE | PLL_OFF)) | CRYSTAL_8_MHZ;
    REGISTER(RCC) = rcc;
    rcc = (rcc & ~DIVISOR) | 3u << 23 | DIVIDE;
    if (!wait_for(RIS, PLL_LOCKED, PLL_LOCKED, 10)) return CRYSTAL_HZ;
    REGISTER(RCC) = rcc;
    REGISTER(RCC) = rcc & ~BYPASS;
    return BOARD_CLOCK_HZ;
}

void board_init(void) {
    uint32_t uart_hz = start_clock();
    REGISTER(RCGC1) |= 1u; /* UART0 */
    REGISTER(RCGC2) |= 1u; /* port A */
    (void)REGISTER(RCGC2); /* a few cycles until they answer */
    (void)REGISTER(RCGC2);
    REGISTER(GPIOA_AFSEL) |= 3u;
    REGISTER(GPIOA_DEN) |= 3u;
    uart_start(uart_hz);
    ticks_start();
}
