#include "fb_look_up.h"

/* Packed sums of every filter, for 16 channels of a tile. Half the time is spent here, and compilers run out
 * of registers; hence assembly, naked to have them all. (GCC needs 1.4 times as many instructions on Cortex-M4.) */
#if defined(__thumb2__) && defined(__GNUC__)

/* r4-r7 sums | r8-r11 entry, r8 its address before | r12 word | r0, r3, lr tables | r1 list | r2 filter */
FB_NAKED static void look_up(const fb_look_ups *l FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r4-r11, lr}\n"
            "ldm r0, {r1-r5}\n" /* list, filter, end, step, sums */
            "push {r3-r5}\n"
            "1:\n"
            ".irp tap, 0, 1, 2, 3, 4, 5, 6, 7, 8\n"
            "  ldm r1!, {r0, r3, lr}\n"
            "  ldrh r12, [r2, #2 * \\tap]\n"
            "  and r8, r12, #31\n"
            "  add r8, r0, r8, lsl #5\n"
            "  .if \\tap == 0\n"
            "  ldm r8, {r4-r7}\n"
            "  .else\n"
            "  ldm r8, {r8-r11}\n"
            "  add r4, r8\n"
            "  add r5, r9\n"
            "  add r6, r10\n"
            "  add r7, r11\n"
            "  .endif\n"
            "  and r8, r12, #31 << 5\n" /* in place already */
            "  add r8, r3\n"
            "  ldm r8, {r8-r11}\n"
            "  add r4, r8\n"
            "  add r5, r9\n"
            "  add r6, r10\n"
            "  add r7, r11\n"
            "  lsr r8, r12, #10\n"
            "  add r8, lr, r8, lsl #5\n"
            "  ldm r8, {r8-r11}\n"
            "  add r4, r8\n"
            "  add r5, r9\n"
            "  add r6, r10\n"
            "  add r7, r11\n"
            ".endr\n"
            "ldm sp, {r8-r10}\n" /* end, step, sums */
            "stm r10!, {r4-r7}\n"
            "str r10, [sp, #8]\n"
            "add r2, r9\n"
            "sub r1, #27 * 4\n"
            "cmp r2, r8\n"
            "bne.w 1b\n"
            "add sp, #12\n"
            "pop {r4-r11, pc}\n");
}

/* One row of output at a time. */
uint32_t fb_rows_together(const fb_layer *layer) {
    (void)layer;
    return 1;
}
void fb_look_up(const fb_look_ups *l, uint32_t rows) {
    (void)rows;
    look_up(l);
}

#elif defined(__thumb__) && defined(__GNUC__)

/* r8-r11 sums | r0-r3 entry, r0 its address before | r4 word | r5, r6 tables | r7 list | r12 filter | lr 31 << 5 */
FB_NAKED static void look_up(const fb_look_ups *l FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r4-r7, lr}\n"
            "mov r4, r8\n"
            "mov r5, r9\n"
            "mov r6, r10\n"
            "mov r7, r11\n"
            "push {r4-r7}\n"
            "ldm r0!, {r1-r5}\n" /* list, filter, end, step, sums */
            "mov r7, r1\n"
            "mov r12, r2\n"
            "push {r3-r5}\n"
            "movs r0, #31\n"
            "lsls r0, r0, #5\n"
            "mov lr, r0\n"
            "1:\n"
            ".irp tap, 0, 1, 2, 3, 4, 5, 6, 7, 8\n"
            "  mov r0, r12\n"
            "  ldrh r4, [r0, #2 * \\tap]\n"
            "  ldm r7!, {r5, r6}\n"
            "  lsls r0, r4, #27\n"
            "  lsrs r0, r0, #22\n"
            "  adds r0, r0, r5\n"
            "  ldm r0, {r0-r3}\n"
            "  .if \\tap == 0\n"
            "  mov r8, r0\n"
            "  mov r9, r1\n"
            "  mov r10, r2\n"
            "  mov r11, r3\n"
            "  .else\n"
            "  add r8, r0\n"
            "  add r9, r1\n"
            "  add r10, r2\n"
            "  add r11, r3\n"
            "  .endif\n"
            "  mov r0, lr\n"
            "  ands r0, r0, r4\n"
            "  adds r0, r0, r6\n"
            "  ldm r0, {r0-r3}\n"
            "  add r8, r0\n"
            "  add r9, r1\n"
            "  add r10, r2\n"
            "  add r11, r3\n"
            "  ldm r7!, {r5}\n"
            "  lsrs r0, r4, #10\n"
            "  lsls r0, r0, #5\n"
            "  adds r0, r0, r5\n"
            "  ldm r0, {r0-r3}\n"
            "  add r8, r0\n"
            "  add r9, r1\n"
            "  add r10, r2\n"
            "  add r11, r3\n"
            ".endr\n"
            "mov r0, r8\n"
            "mov r1, r9\n"
            "mov r2, r10\n"
            "mov r3, r11\n"
            "ldr r4, [sp, #8]\n"
            "stm r4!, {r0-r3}\n"
            "str r4, [sp, #8]\n"
            "ldr r0, [sp, #4]\n"
            "add r12, r0\n"
            "subs r7, #27 * 4\n"
            "ldr r0, [sp]\n"
            "cmp r12, r0\n"
            "beq 2f\n"
            "b 1b\n"
            "2:\n"
            "add sp, #12\n"
            "pop {r4-r7}\n"
            "mov r8, r4\n"
            "mov r9, r5\n"
            "mov r10, r6\n"
            "mov r11, r7\n"
            "pop {r4-r7, pc}\n");
}

/* One row of output at a time. */
uint32_t fb_rows_together(const fb_layer *layer) {
    (void)layer;
    return 1;
}
void fb_look_up(const fb_look_ups *l, uint32_t rows) {
    (void)rows;
    look_up(l);
}

#else

/* Adds the entry that is `offset` bytes into a group's table, from its `first` word on, to four sums. The groups lie 1
 * KB before the table's address, at it, and 1 KB behind, all within the reach of a load. */
#define ADD(a, b, c, d, table, offset, group, first) \
    do { \
        const uint32_t *entry = (table) + (offset) / 4; \
        FB_KEEP_ORDER(entry); \
        entry += ((group) - 1) * 32 * FB_ENTRY_WORDS + (first); \
        a += entry[0]; \
        b += entry[1]; \
        c += entry[2]; \
        d += entry[3]; \
    } while (0)
#define LOW(word) (((word) & 31) * 32)
#define MIDDLE(word) ((word) & 31 << 5)
#define HIGH(word) (((word) >> 10) * 32)

FB_NOINLINE static void look_up(const fb_look_ups *l) {
    const uint32_t *const *list = l->list + 1; /* the second of three groups */
    const uint32_t *t0 = list[0], *t1 = list[3], *t2 = list[6], *t3 = list[9], *t4 = list[12], *t5 = list[15];
    const uint32_t *t6 = list[18], *t7 = list[21], *t8 = list[24];
    const uint16_t *filter = l->filter, *end = l->end;
    uint32_t *sums = l->sums, step = l->step / 2;
#define TAP(tap, table) \
    do { \
        uint32_t word = filter[tap]; \
        ADD(a, b, c, d, table, LOW(word), 0, 0); \
        ADD(a, b, c, d, table, MIDDLE(word), 1, 0); \
        ADD(a, b, c, d, table, HIGH(word), 2, 0); \
    } while (0)
    do {
        uint32_t a = 0, b = 0, c = 0, d = 0;
        TAP(0, t0);
        TAP(1, t1);
        TAP(2, t2);
        TAP(3, t3);
        TAP(4, t4);
        TAP(5, t5);
        TAP(6, t6);
        TAP(7, t7);
        TAP(8, t8);
        sums[0] = a;
        sums[1] = b;
        sums[2] = c;
        sums[3] = d;
        sums += 4;
        filter += step;
    } while (filter != end);
}

/* Two output rows at stride 1: they share the offsets of entries. Takes 31 registers. */
FB_NOINLINE static void look_up_two(const fb_look_ups *l) {
    const uint32_t *row0 = l->list[1], *row1 = l->list[10], *row2 = l->list[19], *row3 = l->next_list[19];
    const uint16_t *filter = l->filter, *end = l->end;
    uint32_t *sums = l->sums, *sums2 = l->sums2, step = l->step / 2;
#define ADD_TWO(table, table2, offset, group, first) \
    do { \
        uint32_t at = offset; \
        ADD(a, b, c, d, table, at, group, first); \
        ADD(e, f, g, h, table2, at, group, first); \
    } while (0)
#define TAP_TWO(tap, table, table2, kx) \
    do { \
        uint32_t word = filter[tap]; \
        ADD_TWO(table, table2, LOW(word), 0, kx); \
        ADD_TWO(table, table2, MIDDLE(word), 1, kx); \
        ADD_TWO(table, table2, HIGH(word), 2, kx); \
    } while (0)
    do {
        uint32_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
        TAP_TWO(0, row0, row1, 0);
        TAP_TWO(1, row0, row1, 1);
        TAP_TWO(2, row0, row1, 2);
        TAP_TWO(3, row1, row2, 0);
        TAP_TWO(4, row1, row2, 1);
        TAP_TWO(5, row1, row2, 2);
        TAP_TWO(6, row2, row3, 0);
        TAP_TWO(7, row2, row3, 1);
        TAP_TWO(8, row2, row3, 2);
        sums[0] = a;
        sums[1] = b;
        sums[2] = c;
        sums[3] = d;
        sums2[0] = e;
        sums2[1] = f;
        sums2[2] = g;
        sums2[3] = h;
        sums += 4;
        sums2 += 4;
        filter += step;
    } while (filter != end);
}

uint32_t fb_rows_together(const fb_layer *layer) {
#ifdef FB_PLAN_BOARDS
    if (fb_plan_core != FB_PLAN_RISCV) return 1; /* as above */
#endif
    return layer->stride_w == 1 ? 2 : 1;
}
void fb_look_up(const fb_look_ups *l, uint32_t rows) {
    if (rows == 2) {
        look_up_two(l);
    } else {
        look_up(l);
    }
}

#endif

/* Which tables the taps use when the ring starts with row `phase`. */
void fb_make_list(const uint32_t **list, const uint32_t *tables, unsigned stride, unsigned phase, unsigned ring) {
    static const uint16_t at_stride[2][3] = {{0, 1, 2}, {0, FB_TABLE_WORDS, 1}};
    unsigned tap;
    for (tap = 0; tap < 9; tap++) {
        unsigned row = (phase + tap / 3) % ring;
        const uint32_t *table = tables + row * stride * FB_TABLE_WORDS + at_stride[stride - 1][tap % 3];
        *list++ = table;
        *list++ = table + 32 * FB_ENTRY_WORDS;
        *list++ = table + 64 * FB_ENTRY_WORDS;
    }
}
