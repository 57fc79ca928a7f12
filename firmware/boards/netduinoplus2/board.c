/* USART1 on PB6 (out) and PB7 (in). */
#include "drivers.h"

#define RCC 0x40023800u
#define RCC_CR (RCC + 0x00u)
#define RCC_PLLCFGR (RCC + 0x04u)
#define RCC_CFGR (RCC + 0x08u)
#define RCC_AHB1ENR (RCC + 0x30u)
#define RCC_APB2ENR (RCC + 0x44u)
#define FLASH_ACR 0x40023C00u
#define GPIOB_MODER 0x40020400u
#define GPIOB_AFRL 0x40020420u
#define PLL_ON (1u << 24)
#define PLL_READY (1u << 25)
#define INTERNAL_HZ 16000000u

/* 168 MHz out of the internal 16 MHz: / 16 · 336 / 2. Answers the clock of USART1, half of that; an emulator without
 * clocks stays at what reset gives. */
static uint32_t start_clock(void) {
    REGISTER(RCC_PLLCFGR) = 7u << 24 | 336u << 6 | 16u;
    REGISTER(RCC_CR) |= PLL_ON;
    if (!wait_for(RCC_CR, PLL_READY, PLL_READY, 1)) return INTERNAL_HZ;
    REGISTER(FLASH_ACR) = 0x700u | 5u;             /* caches, prefetch, 5 wait states */
    REGISTER(RCC_CFGR) = 4u << 13 | 5u << 10 | 2u; /* slow bus / 4, fast bus / 2, run from the PLL */
    wait_for(RCC_CFGR, 3u << 2, 2u << 2, 1);
    return BOARD_CLOCK_HZ / 2;
}

void board_init(void) {
    uint32_t uart_hz = start_clock();
    REGISTER(RCC_AHB1ENR) |= 1u << 1; /* port B */
    REGISTER(RCC_APB2ENR) |= 1u << 4; /* USART1 */
    REGISTER(GPIOB_AFRL) = (REGISTER(GPIOB_AFRL) & ~0xFF000000u) | 0x77000000u;
    REGISTER(GPIOB_MODER) = (REGISTER(GPIOB_MODER) & ~0xF000u) | 0xA000u;
    uart_start(uart_hz);
    ticks_start();
}
