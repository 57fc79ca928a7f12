/* LPUART1 on PG7 (out) and PG8 (in), which the ST-LINK passes on over USB. */
#include "drivers.h"

#define RCC 0x40021000u
#define RCC_CR (RCC + 0x00u)
#define RCC_CFGR (RCC + 0x08u)
#define RCC_PLLCFGR (RCC + 0x0Cu)
#define RCC_AHB2ENR (RCC + 0x4Cu)
#define RCC_APB1ENR1 (RCC + 0x58u)
#define RCC_APB1ENR2 (RCC + 0x5Cu)
#define PWR_CR2 0x40007004u
#define PWR_CR5 0x40007080u
#define FLASH_ACR 0x40022000u
#define GPIOG_MODER 0x48001800u
#define GPIOG_AFRL 0x48001820u
#define GPIOG_AFRH 0x48001824u
#define PLL_ON (1u << 24)
#define PLL_READY (1u << 25)
#define RESET_HZ 4000000u

/* 120 MHz out of the internal 4 MHz: · 60 / 2. Above 80 MHz the regulator must be in its stronger mode, and the clock
 * rise in two steps. */
static uint32_t start_clock(void) {
    REGISTER(RCC_APB1ENR1) |= 1u << 28; /* power control */
    REGISTER(PWR_CR5) &= ~(1u << 8);
    REGISTER(FLASH_ACR) = 0x700u | 5u; /* caches, prefetch, 5 wait states */
    REGISTER(RCC_PLLCFGR) = 1u << 24 | 60u << 8 | 1u;
    REGISTER(RCC_CR) |= PLL_ON;
    if (!wait_for(RCC_CR, PLL_READY, PLL_READY, 1)) return RESET_HZ;
    REGISTER(RCC_CFGR) = 8u << 4 | 3u; /* half of the PLL */
    wait_for(RCC_CFGR, 3u << 2, 3u << 2, 1);
    REGISTER(RCC_CFGR) = 3u;
    return BOARD_CLOCK_HZ;
}

void board_init(void) {
    uint32_t uart_hz = start_clock();
    REGISTER(PWR_CR2) |= 1u << 9;     /* port G has its own supply */
    REGISTER(RCC_AHB2ENR) |= 1u << 6; /* port G */
    REGISTER(RCC_APB1ENR2) |= 1u;     /* LPUART1 */
    REGISTER(GPIOG_AFRL) = (REGISTER(GPIOG_AFRL) & ~0xF0000000u) | 0x80000000u;
    REGISTER(GPIOG_AFRH) = (REGISTER(GPIOG_AFRH) & ~0xFu) | 0x8u;
    REGISTER(GPIOG_MODER) = (REGISTER(GPIOG_MODER) & ~0x3C000u) | 0x28000u;
    uart_start(uart_hz);
    ticks_start();
}
