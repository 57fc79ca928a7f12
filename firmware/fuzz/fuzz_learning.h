/* The script of fuzz_learning.c: what is trained, how, and what is done to the state. */
#ifndef FUZZ_LEARNING_H
#define FUZZ_LEARNING_H

enum {
    SEED,        /* low byte; others are alike */
    BUFFER_BITS, /* modulo 10: one too many, too; in tens, modulo 4, FB_SUMS_… and one too many */
    START,       /* levels; modulo what the buffer holds, or 0xFF as it is */
    TRAINED,   /* 1 bits, 2 biases, 8 gains, 16 recalibrates first; 4 leaves the CRC of a forged state as it was; 32, 64
                    and 128 augment */
    SAMPLES,   /* of a batch, less one, modulo 4 */
    FIRST_OP,  /* first operation that is trained */
    LAST_OP,   /* 0xFF: all */
    RATE_BITS, /* of 255 */
    RATE_BIAS,
    ARENA,     /* of 255, from the least to the largest of use */
    STOP,      /* passes before the copy, modulo 16 */
    FORGERIES, /* how many of the following, modulo 7 */
    FORGED,    /* each: 2 bytes where, 1 what, 1 value */
    SCRIPT = FORGED + 4 * 6
};

#endif
