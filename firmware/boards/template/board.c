/* USART1 on PB6 (out) and PB7 (in); the clock stays at what reset gives. */
#include "drivers.h"

#define RCC_AHB1ENR 0x40023830u
#define RCC_APB2ENR 0x40023844u
#define GPIOB_MODER 0x40020400u
#define GPIOB_AFRL 0x40020420u

/* For firmware built with LOCKED=1: a jumper from PA0 to 3.3 V says that whoever is on the line may change the board. A pin
 * that nobody drives, or nothing models, says no. Leave this out where there is no button or jumper: then only a key opens
 * a locked board. */
#define RCC_GPIOA (1u << 0)
#define GPIOA_PUPDR 0x4002000Cu
#define GPIOA_IDR 0x40020010u

bool board_consents(void) { return REGISTER(GPIOA_IDR) & 1u; }

void board_init(void) {
    REGISTER(RCC_AHB1ENR) |= 1u << 1 | RCC_GPIOA; /* port B, and A */
    REGISTER(GPIOA_PUPDR) |= 2u;                  /* PA0 is low unless the jumper is set */
    REGISTER(RCC_APB2ENR) |= 1u << 4;             /* USART1 */
    REGISTER(GPIOB_AFRL) = (REGISTER(GPIOB_AFRL) & ~0xFF000000u) | 0x77000000u;
    REGISTER(GPIOB_MODER) = (REGISTER(GPIOB_MODER) & ~0xF000u) | 0xA000u;
    uart_start(BOARD_CLOCK_HZ);
    ticks_start();
}
