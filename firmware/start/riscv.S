/* Start-up of RV32: stack and trap vector, then C. */
    .option arch, +zicsr

    .section .vectors, "ax"
    .globl start
start:
    la sp, board_stack_top
    la t0, trap
    csrw mtvec, t0
    j start_program

    .balign 4 /* the low bits of mtvec are a mode */
trap:
    la sp, board_stack_top
    j board_fault
