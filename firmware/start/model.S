/* The image given with MODEL=…, or none: MODEL_FILE is its path. */
    .section .model, "a"
    .balign 8
    .globl board_model, board_model_end
board_model:
#ifdef MODEL_FILE
    .incbin MODEL_FILE
#endif
board_model_end:
    .balign 8
