/* The image given with MODEL=… and the key given with KEY_FILE=…, or none: MODEL_FILE, KEY_FILE are their paths. */
    .section .rodata.board_key, "a"
    .globl board_key, board_key_end
board_key:
#ifdef KEY_FILE
    .incbin KEY_FILE
#endif
board_key_end:
    .balign 4

    .section .model, "a"
    .balign 8
    .globl board_model, board_model_end
board_model:
#ifdef MODEL_FILE
    .incbin MODEL_FILE
#endif
board_model_end:
    .balign 8
