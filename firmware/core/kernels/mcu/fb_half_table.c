#include "fb_half_table.h"

/* Assembly where compilers run out of registers. Each chain adds or subtracts the most entries there can be; it is entered
 * where as many are left as a filter has. */
#if defined(__thumb2__) && defined(__GNUC__)

/* r0-r3 half an entry | r4 its address | r5 links | r6-r12, lr sums | sp: where sums go, their end
 * Single loads behind each other take a cycle each; the next address is one of them. */
FB_NAKED static uintptr_t look_up(const uintptr_t *links FB_UNUSED, uint32_t *sums FB_UNUSED, uint32_t *end FB_UNUSED) {
    __asm__(".syntax unified\n"
            "cmp r0, #0\n"
            "beq.w 4f\n"
            "push {r4-r11, lr}\n"
            "push {r1, r2}\n"
            "mov r5, r0\n"
            "ldr r4, [r5], #4\n"
            "1:\n"
            "ldm r4, {r6-r12, lr}\n"
            "ldm r5!, {r0, r4}\n"
            "bx r0\n"
            ".rept 26\n"
            "  ldm r4!, {r0-r3}\n"
            "  add r6, r0\n"
            "  add r7, r1\n"
            "  add r8, r2\n"
            "  add r9, r3\n"
            "  ldr.n r0, [r4]\n"
            "  ldr.n r1, [r4, #4]\n"
            "  ldr.n r2, [r4, #8]\n"
            "  ldr.n r3, [r4, #12]\n"
            "  ldr r4, [r5], #4\n"
            "  add r10, r0\n"
            "  add r11, r1\n"
            "  add r12, r2\n"
            "  add lr, r3\n"
            ".endr\n"
            "2:\n"
            "ldr pc, [r5], #4\n"
            ".rept 27\n"
            "  ldm r4!, {r0-r3}\n"
            "  subs r6, r6, r0\n"
            "  subs r7, r7, r1\n"
            "  sub r8, r2\n"
            "  sub r9, r3\n"
            "  ldr.n r0, [r4]\n"
            "  ldr.n r1, [r4, #4]\n"
            "  ldr.n r2, [r4, #8]\n"
            "  ldr.n r3, [r4, #12]\n"
            "  ldr r4, [r5], #4\n"
            "  sub r10, r0\n"
            "  sub r11, r1\n"
            "  sub r12, r2\n"
            "  sub lr, r3\n"
            ".endr\n"
            "3:\n"
            "ldrd r0, r1, [sp]\n"
            "stm r0!, {r6-r12, lr}\n"
            "cmp r0, r1\n"
            "str r0, [sp]\n"
            "bne.w 1b\n"
            "add sp, #8\n"
            "pop {r4-r11, pc}\n"
            "4:\n"
            "adr.w r0, 2b\n"
            "cbz r1, 5f\n" /* of the first chain, or the second */
            "addw r0, r0, #(3b - 2b)\n"
            "5:\n"
            "orr r0, #1\n" /* Thumb */
            "bx lr\n"
            ".if (3b - 2b) - (4 + 27 * 42)\n"
            ".error \"a subtraction's size\"\n"
            ".endif\n");
}
#define END_OF(chain) look_up(NULL, (uint32_t *)(uintptr_t)(chain), NULL)
enum { ADDITION = 30, SUBTRACTION = 42 }; /* bytes of code */

/* Numbers of entries as links have them, and the lengths of both parts. */
static uintptr_t additions(uint32_t count) { return END_OF(0) - (count - 1) * ADDITION; }
static uintptr_t subtractions(uint32_t count) { return END_OF(1) - count * SUBTRACTION; }

#elif defined(FB_HALF_THUMB1)

#define ADD_13_PAIRS \
    ".rept 13\n" \
    "  ldm r7!, {r4, r5}\n" \
    "  .irp address, r4, r5\n" \
    "    ldm \\address!, {r0-r3}\n" \
    "    add r8, r0\n" \
    "    add r9, r1\n" \
    "    add r10, r2\n" \
    "    add r11, r3\n" \
    "  .endr\n" \
    ".endr\n"

/* r8-r11 sums | r0-r3 an entry | r4, r5 addresses of entries, r6 of code | r7 links | sp: where sums go, their end
 * High registers can only be added to: entries to subtract come first, and their sums are subtracted from the first of
 * the others. */
FB_NAKED static uintptr_t look_up(const uintptr_t *links FB_UNUSED, uint32_t *sums FB_UNUSED, uint32_t *end FB_UNUSED) {
    __asm__(".syntax unified\n"
            "cmp r0, #0\n"
            "bne 6f\n"
            "ldr r0, 7f\n"
            "cmp r1, #0\n"
            "beq 8f\n"
            "ldr r0, 7f + 4\n"
            "8:\n"
            "bx lr\n"
            ".balign 4\n"
            "7:\n"
            ".word 2f + 1\n" /* Thumb */
            ".word 3f + 1\n"
            "6:\n"
            "push {r4-r7, lr}\n"
            "mov r4, r8\n"
            "mov r5, r9\n"
            "mov r6, r10\n"
            "mov r7, r11\n"
            "push {r1, r2, r4-r7}\n"
            "mov r7, r0\n"
            "1:\n"
            "ldm r7!, {r4-r6}\n"
            "ldm r4!, {r0-r3}\n"
            "mov r8, r0\n"
            "mov r9, r1\n"
            "mov r10, r2\n"
            "mov r11, r3\n"
            "bx r6\n" ADD_13_PAIRS "2:\n"
            "ldm r7!, {r4-r6}\n"
            "ldm r4!, {r0-r3}\n"
            "mov r4, r8\n"
            "subs r0, r0, r4\n"
            "mov r8, r0\n"
            "mov r4, r9\n"
            "subs r1, r1, r4\n"
            "mov r9, r1\n"
            "mov r4, r10\n"
            "subs r2, r2, r4\n"
            "mov r10, r2\n"
            "mov r4, r11\n"
            "subs r3, r3, r4\n"
            "mov r11, r3\n"
            "bx r6\n" ADD_13_PAIRS "3:\n"
            "mov r0, r8\n"
            "mov r1, r9\n"
            "mov r2, r10\n"
            "mov r3, r11\n"
            "ldr r4, [sp]\n"
            "stm r4!, {r0-r3}\n"
            "str r4, [sp]\n"
            "ldr r0, [sp, #4]\n"
            "cmp r4, r0\n"
            "beq 4f\n"
            "b 1b\n"
            "4:\n"
            "pop {r1, r2, r4-r7}\n"
            "mov r8, r4\n"
            "mov r9, r5\n"
            "mov r10, r6\n"
            "mov r11, r7\n"
            "pop {r4-r7, pc}\n");
}
#define END_OF(chain) look_up(NULL, (uint32_t *)(uintptr_t)(chain), NULL)
enum { PAIR = 22, SECOND = 10 }; /* bytes of code */

static uintptr_t chain(uintptr_t end, uint32_t count) {
    uint32_t others = count - 1;
    return end - others / 2 * PAIR - (others & 1) * SECOND;
}
static uintptr_t additions(uint32_t count) { return chain(END_OF(1), count); }
static uintptr_t subtractions(uint32_t count) { return chain(END_OF(0), count); }

#else

static void look_up(const uintptr_t *links, uint32_t *sums, const uint32_t *end) {
    for (; sums != end; sums += FB_HALF_RUN) {
        const uint32_t *p = (const uint32_t *)*links++;
        uint32_t a = p[0], b = p[1], c = p[2], d = p[3], e = p[4], f = p[5], g = p[6], h = p[7];
        uintptr_t n;
        for (n = *links++; n; n--) {
            p = (const uint32_t *)*links++;
            a += p[0];
            b += p[1];
            c += p[2];
            d += p[3];
            e += p[4];
            f += p[5];
            g += p[6];
            h += p[7];
        }
        p = (const uint32_t *)*links++;
        n = *links++;
        for (;;) {
            a -= p[0];
            b -= p[1];
            c -= p[2];
            d -= p[3];
            e -= p[4];
            f -= p[5];
            g -= p[6];
            h -= p[7];
            if (!--n) break;
            p = (const uint32_t *)*links++;
        }
        sums[0] = a;
        sums[1] = b;
        sums[2] = c;
        sums[3] = d;
        sums[4] = e;
        sums[5] = f;
        sums[6] = g;
        sums[7] = h;
    }
}
static uintptr_t additions(uint32_t count) { return count - 1; }
static uintptr_t subtractions(uint32_t count) { return count; }

#endif

void fb_half_look_up(const uintptr_t *links, uint32_t *sums, uint32_t *end) { look_up(links, sums, end); }

/* Puts a part of a filter's links into its final order: it was written from links[1] on, or on Thumb-1 as below. Returns
 * its length. */
#ifdef FB_HALF_THUMB1
static uint32_t first_of(uint32_t count) { return 1 + (count & 1); }
static void settle(uintptr_t *part, uint32_t count, uintptr_t code) {
    if (count & 1) { /* an even number of others */
        part[0] = part[2];
    } else {
        part[0] = part[1];
        part[1] = part[2];
    }
    part[2] = code;
}
#else
static uint32_t first_of(uint32_t count) {
    (void)count;
    return 1;
}
static void settle(uintptr_t *part, uint32_t count, uintptr_t code) {
    (void)count;
    part[0] = part[1];
    part[1] = code;
}
#endif

/* How many of a filter's groups are added: those whose last bit is 1. */
static uint32_t added(const uint16_t *filter) {
    uint32_t fields = 0, tap;
    for (tap = 0; tap < 9; tap++) fields += filter[tap] & 0x8210u; /* up to 9 in each */
    return (fields >> 4 & 15) + (fields >> 9 & 15) + (fields >> 15);
}

void fb_half_link(uintptr_t *links, uint32_t size, uint32_t phases, const uint16_t *filter, uint32_t step,
                  uint32_t filters, const uint32_t *tables, uint32_t stride, const uint32_t *zeros) {
    const uint32_t row = stride * FB_HALF_TABLE * 4, entry = FB_HALF_ENTRY * 4;
    const uint32_t middle = stride == 1 ? 4 : FB_HALF_TABLE * 4, right = stride == 1 ? 8 : 4;
    const uintptr_t ring = (uintptr_t)tables;
    for (; filters; filters--, filter += step) {
        const uint16_t *word = filter;
        uint32_t plus = added(filter), minus = 27 - plus, ky, phase, length;
        uintptr_t *part[2], *to[2];
        uint32_t count[2];
        count[0] = minus ? minus : 1;
        count[1] = plus ? plus : 1;
#ifdef FB_HALF_THUMB1
        part[0] = links;
        part[1] = links + count[0] + first_of(count[0]);
        length = count[0] + count[1] + first_of(count[0]) + first_of(count[1]);
#else
        part[1] = links;
        part[0] = links + count[1] + 1;
        length = count[0] + count[1] + 2;
#endif
        to[0] = part[0] + first_of(count[0]);
        to[1] = part[1] + first_of(count[1]);
        for (phase = 0; phase < phases; phase++) {
            to[0][phase * size] = (uintptr_t)zeros; /* unless there are some */
            to[1][phase * size] = (uintptr_t)zeros;
        }
        for (ky = 0; ky < 3; ky++) {
            uintptr_t at0 = ring + ky * row, at1 = ring + (ky == 2 ? 0 : ky + 1) * row;
            uintptr_t at2 = ring + (ky == 0 ? 2 : ky - 1) * row;
            uint32_t w;
#define TAP(first) \
    do { \
        w = *word++; \
        PUT_GROUP(w, 15u, 4, first); \
        PUT_GROUP(w >> 5, 15u, 4, (first) + 16 * entry); \
        PUT_GROUP(w >> 10, 31u, 5, (first) + 32 * entry); \
    } while (0)
#define PUT_GROUP(word, mask, last, first) \
    do { \
        uint32_t g = (word), sign = g >> (last)&1, number = (sign ? g : ~g) & (mask), offset = (first) + entry * number; \
        uintptr_t *p = to[sign]++; \
        p[0] = at0 + offset; \
        if (phases > 1) p[size] = at1 + offset; \
        if (phases > 2) p[2 * size] = at2 + offset; \
    } while (0)
            TAP(0u);
            TAP(middle);
            TAP(right);
        }
        for (phase = 0; phase < phases; phase++) {
            settle(part[0] + phase * size, count[0], subtractions(count[0]));
            settle(part[1] + phase * size, count[1], additions(count[1]));
        }
        links += length;
    }
}

/* Assembly as that of fb_bin_tile.c. */
#if defined(__thumb2__) && defined(__GNUC__)

/* Two columns at a time. r0 table | r1 x | r2, r3 sums | r4 … lr five pairs of inputs | sp: pairs left */
/* clang-format off */
#define STEP_T2(entry, sign, input) \
    #sign " r2, r2, " FIRST_##input ", lsl #1\n" \
    #sign " r3, r3, " SECOND_##input ", lsl #1\n" \
    "str r2, [r0, #40 * " #entry "]\n" \
    "str r3, [r0, #40 * " #entry " + 4]\n"
#define MOVE_T2(sign, count)
#define FIRST_0 "r4"
#define FIRST_1 "r6"
#define FIRST_2 "r8"
#define FIRST_3 "r10"
#define FIRST_4 "r12"
#define SECOND_0 "r5"
#define SECOND_1 "r7"
#define SECOND_2 "r9"
#define SECOND_3 "r11"
#define SECOND_4 "lr"
#define SUBTRACT_ALL \
    "  sub r2, r4\n" \
    "  sub r3, r5\n" \
    "  sub r2, r6\n" \
    "  sub r3, r7\n" \
    "  sub r2, r8\n" \
    "  sub r3, r9\n" \
    "  sub r2, r10\n" \
    "  sub r3, r11\n"
#define STORE_FIRST \
    "str r2, [r0]\n" \
    "str r3, [r0, #4]\n"

FB_NAKED static void fill(uint32_t *table FB_UNUSED, const uint32_t *x FB_UNUSED, uint32_t pairs FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r2, r4-r11, lr}\n"
            "1:\n"
            "ldm r1!, {r4-r11}\n"
            "ldrd r2, r3, [r1], #8\n"
            SUBTRACT_ALL
            STORE_FIRST
            FB_GRAY_16(STEP_T2, MOVE_T2)
            "add r0, #16 * 40\n"
            "ldm r1!, {r4-r11}\n"
            "ldrd r2, r3, [r1], #8\n"
            SUBTRACT_ALL
            STORE_FIRST
            FB_GRAY_16(STEP_T2, MOVE_T2)
            "add r0, #16 * 40\n"
            "ldm r1!, {r4-r12, lr}\n"
            "ldrd r2, r3, [r1], #8\n"
            SUBTRACT_ALL
            "sub r2, r12\n"
            "sub r3, lr\n"
            STORE_FIRST
            FB_GRAY(STEP_T2, MOVE_T2)
            "ldr r2, [sp]\n"
            "subw r0, r0, #32 * 40 - 8\n"
            "subs r2, #1\n"
            "str r2, [sp]\n"
            "bne.w 1b\n"
            "pop {r2, r4-r11, pc}\n");
}
/* clang-format on */

void fb_half_fill(uint32_t *table, const uint32_t *x, unsigned columns) { fill(table, x, (columns + 1) / 2); }

#elif defined(FB_HALF_THUMB1)

/* A column at a time. r0 the table's present 4 entries | r2 sum | r1, r3-r6 inputs, twice | r7 x | r12 columns left
 * lr the table's column */
/* clang-format off */
#define STEP_T1(entry, sign, input) \
    #sign "s r2, r2, " INPUT_##input "\n" \
    "str r2, [r0, #32 * (" #entry " & 3)]\n"
#define MOVE_T1(sign, count) ".rept " #count "\n" #sign "s r0, #128\n.endr\n"
#define INPUT_0 "r1"
#define INPUT_1 "r3"
#define INPUT_2 "r4"
#define INPUT_3 "r5"
#define INPUT_4 "r6"
#define LOAD_4 \
    "ldr r1, [r7]\n" \
    "ldr r3, [r7, #40]\n" \
    "ldr r4, [r7, #80]\n" \
    "ldr r5, [r7, #120]\n" \
    "adds r7, #160\n"
#define GROUP_T1 \
    LOAD_4 \
    "ldr r2, [r7]\n" \
    ".irp input, r1, r3, r4, r5\n" \
    "  subs r2, r2, \\input\n" \
    "  lsls \\input, \\input, #1\n" \
    ".endr\n"

FB_NAKED static void fill(uint32_t *table FB_UNUSED, const uint32_t *x FB_UNUSED, uint32_t columns FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r4-r7, lr}\n"
            "mov r7, r1\n"
            "mov lr, r0\n"
            "1:\n"
            "mov r12, r2\n"
            ".rept 2\n"
            GROUP_T1
            "str r2, [r0]\n"
            FB_GRAY_16(STEP_T1, MOVE_T1)
            "adds r0, #128\n" /* from entries 8 … 11 to the next 16 */
            "adds r0, #128\n"
            "adds r7, #40\n"
            ".endr\n"
            LOAD_4
            "ldr r6, [r7]\n"
            "ldr r2, [r7, #40]\n"
            ".irp input, r1, r3, r4, r5, r6\n"
            "  subs r2, r2, \\input\n"
            "  lsls \\input, \\input, #1\n"
            ".endr\n"
            "str r2, [r0]\n"
            FB_GRAY(STEP_T1, MOVE_T1)
            "subs r7, #255\n"
            "subs r7, #255\n"
            "subs r7, #14 * 40 - 4 - 2 * 255\n" /* the next column */
            "mov r0, lr\n"
            "adds r0, #4\n"
            "mov lr, r0\n"
            "mov r2, r12\n"
            "subs r2, #1\n"
            "beq 2f\n"
            "b 1b\n"
            "2:\n"
            "pop {r4-r7, pc}\n");
}
/* clang-format on */

void fb_half_fill(uint32_t *table, const uint32_t *x, unsigned columns) { fill(table, x, columns); }

#else

/* FB_KEEP_ORDER: a compiler that computes ahead runs out of registers. */
#define STEP_C(entry, sign, input) \
    sum = sign##_(sum, twice##input); \
    t[(entry) * FB_HALF_ENTRY] = sum; \
    FB_KEEP_ORDER(sum);
#define MOVE_C(sign, count)
#define add_(a, b) ((a) + (b))
#define sub_(a, b) ((a) - (b))

void fb_half_fill(uint32_t *t, const uint32_t *x, unsigned columns) {
    unsigned column, group;
    for (column = 0; column < columns; column++, x += column & 1 ? 1 : 31, t -= 32 * FB_HALF_ENTRY - 1) {
        const uint32_t *p = x;
        for (group = 0; group < 3; group++, p += 10, t += 16 * FB_HALF_ENTRY) {
            uint32_t x0 = p[0], x1 = p[2], x2 = p[4], x3 = p[6], x4 = p[8];
            uint32_t twice0 = 2 * x0, twice1 = 2 * x1, twice2 = 2 * x2, twice3 = 2 * x3, twice4 = 2 * x4;
            uint32_t sum = x4 - x0 - x1 - x2 - x3;
            if (group == 2) sum += p[10] - twice4;
            t[0] = sum;
            if (group < 2) {
                FB_GRAY_16(STEP_C, MOVE_C)
            } else {
                FB_GRAY(STEP_C, MOVE_C)
                t -= 16 * FB_HALF_ENTRY;
            }
        }
    }
}

#endif
