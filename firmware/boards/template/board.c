/* USART1 on PB6 (out) and PB7 (in); the clock stays at what reset gives. */
#include "drivers.h"

#define RCC_AHB1ENR 0x40023830u
#define RCC_APB2ENR 0x40023844u
#define GPIOB_MODER 0x40020400u
#define GPIOB_AFRL 0x40020420u

void board_init(void) {
    REGISTER(RCC_AHB1ENR) |= 1u << 1; /* port B */
    REGISTER(RCC_APB2ENR) |= 1u << 4; /* USART1 */
    REGISTER(GPIOB_AFRL) = (REGISTER(GPIOB_AFRL) & ~0xFF000000u) | 0x77000000u;
    REGISTER(GPIOB_MODER) = (REGISTER(GPIOB_MODER) & ~0xF000u) | 0xA000u;
    uart_start(BOARD_CLOCK_HZ);
    ticks_start();
}
