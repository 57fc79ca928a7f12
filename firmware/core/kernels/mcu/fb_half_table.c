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
            "ldr r4, [r5], #12\n"
            "1:\n"
            "ldm r4, {r6-r12, lr}\n"
            "ldr r0, [r5], #12\n"
            "ldr r4, [r5], #12\n"
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
            "  ldr r4, [r5], #12\n"
            "  add r10, r0\n"
            "  add r11, r1\n"
            "  add r12, r2\n"
            "  add lr, r3\n"
            ".endr\n"
            "2:\n"
            "ldr pc, [r5], #12\n"
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
            "  ldr r4, [r5], #12\n"
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
            ".balign 4\n" /* for adr */
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

/* Numbers of entries, as links have them. */
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
        const uint32_t *p = (const uint32_t *)*(links += 3, links - 3);
        uint32_t a = p[0], b = p[1], c = p[2], d = p[3], e = p[4], f = p[5], g = p[6], h = p[7];
        uintptr_t n;
        for (n = *(links += 3, links - 3); n; n--) {
            p = (const uint32_t *)*(links += 3, links - 3);
            a += p[0];
            b += p[1];
            c += p[2];
            d += p[3];
            e += p[4];
            f += p[5];
            g += p[6];
            h += p[7];
        }
        p = (const uint32_t *)*(links += 3, links - 3);
        n = *(links += 3, links - 3);
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
            p = (const uint32_t *)*(links += 3, links - 3);
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

void fb_half_look_up(const uintptr_t *links, uint32_t phase, uint32_t *sums, uint32_t filters) {
#ifdef FB_HALF_THUMB1
    phase *= FB_HALF_LINKS * filters;
#endif
    look_up(links + phase, sums, sums + FB_HALF_RUN * (size_t)filters);
}

#ifdef FB_HALF_THUMB1

/* How many of a filter's groups are added: those whose last bit is 1. */
static uint32_t added(const uint16_t *filter) {
    uint32_t fields = 0, tap;
    for (tap = 0; tap < 9; tap++) fields += filter[tap] & 0x8210u; /* up to 9 in each */
    return (fields >> 4 & 15) + (fields >> 9 & 15) + (fields >> 15);
}

/* A part of a filter's links is written from here on, and then put in order. */
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

/* Links of three taps, for three phases; where the next added and the next subtracted entry go is read and returned. */
static FB_NOINLINE void link_row(uintptr_t **to, uint32_t size, const uint16_t *word, uintptr_t at0, uintptr_t at1,
                                 uintptr_t at2, uint32_t stride) {
    uintptr_t *minus = to[0], *plus = to[1], offset = 0;
    unsigned tap;
    for (tap = 0;; tap++) {
        uint32_t w = *word++;
#define PUT(bit, shift, mask, entry) \
    do { \
        uint32_t number = w >> (shift); \
        uintptr_t *p, place; \
        if (w & 1u << (bit)) { \
            p = plus++; \
        } else { \
            number = ~number; \
            p = minus++; \
        } \
        place = offset + ((number & (mask)) + (entry)) * FB_HALF_ENTRY * 4; \
        p[0] = at0 + place; \
        p[size] = at1 + place; \
        p[2 * size] = at2 + place; \
    } while (0)
        PUT(4, 0, 15u, 0u);
        PUT(9, 5, 15u, 16u);
        PUT(15, 10, 31u, 32u);
#undef PUT
        if (tap == 2) break;
        if (stride == 1) {
            offset += 4;
        } else {
            offset = tap ? 4 : FB_HALF_TABLE * 4;
        }
    }
    to[0] = minus;
    to[1] = plus;
}

void fb_half_link(uintptr_t *links, const uint16_t *filter, uint32_t step, uint32_t filters, const uint32_t *tables,
                  uint32_t stride, const uint32_t *zeros) {
    const uintptr_t row = stride * FB_HALF_TABLE * 4;
    const uintptr_t row0 = (uintptr_t)tables, row1 = row0 + row, row2 = row1 + row;
    const uint32_t size = FB_HALF_LINKS * filters;
    for (; filters; filters--, filter += step) {
        uint32_t plus = added(filter), minus = 27 - plus, phase;
        uint32_t count[2] = {minus ? minus : 1, plus ? plus : 1};
        uintptr_t *part[2], *to[2];
        part[0] = links;
        part[1] = links + count[0] + first_of(count[0]);
        links = part[1] + count[1] + first_of(count[1]);
        to[0] = part[0] + first_of(count[0]);
        to[1] = part[1] + first_of(count[1]);
        if (!plus || !minus) {
            for (phase = 0; phase < 3; phase++) to[plus == 0][phase * size] = (uintptr_t)zeros;
        }
        link_row(to, size, filter, row0, row1, row2, stride);
        link_row(to, size, filter + 3, row1, row2, row0, stride);
        link_row(to, size, filter + 6, row2, row0, row1, stride);
        for (phase = 0; phase < 3; phase++) {
            settle(part[0] + phase * size, count[0], subtractions(count[0]));
            settle(part[1] + phase * size, count[1], additions(count[1]));
        }
    }
}

#else

/* Where a tap's entries are when the ring starts with row 0, and how much further in the two other phases. */
typedef struct tap {
    uintptr_t at, second, third;
} tap;

/* Writes a filter's added entries from `plus` on and subtracted ones up to `minus`; returns the end of added ones. */
#if defined(__thumb2__) && defined(__GNUC__)

/* r0 filter | r1 added, r2 subtracted | r3 taps | r4-r6 a tap | r7, r8 its bits | r9-r11 addresses | r12, lr word
 * An entry's number is in place in the word, or in its complement; the group's last bit makes 16 or 32 more of it. */
FB_NAKED static uintptr_t *link_filter(const uint16_t *filter FB_UNUSED, uintptr_t *plus FB_UNUSED,
                                       uintptr_t *minus FB_UNUSED, const tap *taps FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r4-r11, lr}\n"
            "add r4, r3, #9 * 12\n"
            "push {r4}\n"
            ".macro group last, mask, shift\n"
            "  lsls r7, lr, #31 - \\last\n"
            "  eor r8, r12, r7, asr #31\n"
            "  and r8, #\\mask\n"
            "  add r8, r8, r8, lsl #2\n"
            "  add r9, r4, r8, \\shift\n"
            "  add r10, r9, r5\n"
            "  add r11, r9, r6\n"
            "  bpl 2f\n"
            "  stm r1!, {r9-r11}\n"
            "  b 3f\n"
            "  2:\n"
            "  stmdb r2!, {r9-r11}\n"
            "  3:\n"
            ".endm\n"
            "1:\n"
            "ldrh lr, [r0], #2\n"
            "ldm r3!, {r4-r6}\n"
            "mvn r12, lr\n"
            "group 9, 31 << 5, lsr #2\n"
            "group 15, 63 << 10, lsr #7\n"
            "sub r4, #16 * 40\n"
            "group 4, 31, lsl #3\n"
            ".purgem group\n"
            "ldr r7, [sp]\n"
            "cmp r3, r7\n"
            "bne 1b\n"
            "mov r0, r1\n"
            "add sp, #4\n"
            "pop {r4-r11, pc}\n");
}

#else

static uintptr_t *link_filter(const uint16_t *filter, uintptr_t *plus, uintptr_t *minus, const tap *taps) {
    const tap *end = taps + 9;
    for (; taps != end; taps++) {
        const uint32_t word = *filter++;
#define GROUP(last, shift, mask, first) \
    do { \
        const bool added = word >> (last) & 1; \
        const uint32_t number = ((added ? word : ~word) >> (shift) & (mask)) + (first); \
        const uintptr_t place = taps->at + number * FB_HALF_ENTRY * sizeof(uint32_t); \
        uintptr_t *to = added ? plus : (minus -= 3); \
        to[0] = place; \
        to[1] = place + taps->second; \
        to[2] = place + taps->third; \
        if (added) plus += 3; \
    } while (0)
        GROUP(4, 0, 15u, 0);
        GROUP(9, 5, 15u, 16);
        GROUP(15, 10, 31u, 32);
#undef GROUP
    }
    return plus;
}

#endif

static void put(uintptr_t *links, uintptr_t link) { links[0] = links[1] = links[2] = link; }
static void move(uintptr_t *links, const uintptr_t *from) {
    uintptr_t a = from[0], b = from[1], c = from[2];
    links[0] = a;
    links[1] = b;
    links[2] = c;
}

void fb_half_link(uintptr_t *links, const uint16_t *filter, uint32_t step, uint32_t filters, const uint32_t *tables,
                  uint32_t stride, const uint32_t *zeros) {
    const uintptr_t row = stride * FB_HALF_TABLE * sizeof(uint32_t), middle = stride == 1 ? 4 : FB_HALF_TABLE * 4;
    const uintptr_t add = additions(1), subtract = subtractions(0), each_add = add - additions(2);
    const uintptr_t each_subtract = subtract - subtractions(1);
    tap taps[9];
    unsigned i;
    for (i = 0; i < 9; i++) {
        taps[i].at = (uintptr_t)tables + i / 3 * row + (i % 3 == 0 ? 0 : i % 3 == 1 ? middle : stride == 1 ? 8 : 4);
        taps[i].second = i < 6 ? row : 0 - 2 * row;
        taps[i].third = i < 3 ? 2 * row : 0 - row;
    }
    for (; filters; filters--, filter += step) {
        uintptr_t *end = links + 3 * 29; /* 27 addresses and two numbers */
        uintptr_t *plus = link_filter(filter, links + 3, end, taps);
        uint32_t count = (uint32_t)(plus - links) / 3 - 1;
        uintptr_t *minus = plus;
        if (count == 27) {
            put(minus, (uintptr_t)zeros);
            put(minus + 3, subtract - each_subtract);
            end += 3;
        } else {
            if (!count) {
                for (; end != links + 6; end -= 3) move(end, end - 3);
                end = links + 3 * 30;
                put(links + 3, (uintptr_t)zeros);
                minus = plus + 3;
                count = 1;
            }
            move(minus, minus + 3);
            put(minus + 3, subtract - (uintptr_t)((end - minus) / 3 - 1) * each_subtract);
        }
        move(links, links + 3);
        put(links + 3, add - (count - 1) * each_add);
        links = end;
    }
}

#endif

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
