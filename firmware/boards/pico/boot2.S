/* Second boot stage of RP2040: its ROM copies the first 256 bytes of flash to RAM and runs them, if the last four are
 * the CRC-32 of the others (most significant bit first, start all ones; boards/make_image.py checks it). This sets the
 * flash interface to plain serial reads (command 0x03, which every SPI flash has) and starts the program behind.
 */
    .syntax unified
    .cpu cortex-m0plus
    .thumb

    .equ SSI, 0x18000000
    .equ SSI_CTRLR0, 0x00
    .equ SSI_CTRLR1, 0x04
    .equ SSI_ENABLE, 0x08
    .equ SSI_BAUD, 0x14
    .equ SSI_SPI_CTRLR0, 0xF4
    .equ PROGRAM, 0x10000100
    .equ VTOR, 0xE000ED08

    .section .boot2, "ax"
    .globl boot2
boot2:
    ldr r0, =SSI
    movs r1, #0
    str r1, [r0, #SSI_ENABLE]
    movs r2, #4 /* a quarter of the system clock: 31 MHz at 125 MHz, within every flash's limit for plain reads */
    str r2, [r0, #SSI_BAUD]
    ldr r2, =(31 << 16 | 3 << 8) /* frames of 32 bits; write a command, then read */
    str r2, [r0, #SSI_CTRLR0]
    str r1, [r0, #SSI_CTRLR1] /* one frame at a time */
    ldr r2, =(0x03 << 24 | 2 << 8 | 6 << 2) /* command 0x03, 8 bits of command, 24 of address, on one wire */
    movs r3, #SSI_SPI_CTRLR0
    str r2, [r0, r3]
    movs r1, #1
    str r1, [r0, #SSI_ENABLE]

    ldr r0, =PROGRAM /* its vector table: stack, entry */
    ldr r1, =VTOR
    str r0, [r1]
    ldr r1, [r0]
    msr msp, r1
    ldr r1, [r0, #4]
    bx r1
    .ltorg

    .org 252, 0
    .word 0xde8d34e2 /* the CRC */
