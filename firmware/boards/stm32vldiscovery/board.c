/* USART1 on PA9 (out) and PA10 (in). */
#include "drivers.h"

#define RCC 0x40021000u
#define RCC_CR (RCC + 0x00u)
#define RCC_CFGR (RCC + 0x04u)
#define RCC_APB2ENR (RCC + 0x18u)
#define GPIOA_CRH 0x40010804u
#define PLL_ON (1u << 24)
#define PLL_READY (1u << 25)
#define INTERNAL_HZ 8000000u

/* 24 MHz out of the internal 8 MHz: / 2 · 6. Flash needs no wait states. An emulator without clocks stays at 8 MHz. */
static uint32_t start_clock(void) {
    REGISTER(RCC_CFGR) = 4u << 18;
    REGISTER(RCC_CR) |= PLL_ON;
    if (!wait_for(RCC_CR, PLL_READY, PLL_READY, 1)) return INTERNAL_HZ;
    REGISTER(RCC_CFGR) |= 2u;
    wait_for(RCC_CFGR, 3u << 2, 2u << 2, 1);
    return BOARD_CLOCK_HZ;
}

void board_init(void) {
    uint32_t uart_hz = start_clock();
    REGISTER(RCC_APB2ENR) |= 1u << 14 | 1u << 2;                    /* USART1, port A */
    REGISTER(GPIOA_CRH) = (REGISTER(GPIOA_CRH) & ~0xFF0u) | 0x4B0u; /* PA9 driven by the USART, PA10 floating */
    uart_start(uart_hz);
    ticks_start();
}
