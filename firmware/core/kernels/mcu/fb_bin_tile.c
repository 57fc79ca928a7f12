#include "../fb_bin_tile.h"

#include "../fb_tile_scale.h"

/* Columns of a row of the input. The first and the last one may be padding, which stays where it is. */
typedef struct columns {
    const int8_t *first, *middle, *last;
    size_t first_step, step, last_step; /* from channel to channel */
} columns;

static void pack_stride1(columns p, uint32_t *x, unsigned channels) {
    for (; channels; channels--, x += FB_COLUMNS) {
        const int8_t *m = p.middle;
        int32_t m3 = m[3], m4 = m[4];
        x[0] = fb_pack(*p.first, m3);
        x[1] = fb_pack(m[0], m4);
        x[2] = fb_pack(m[1], m[5]);
        x[3] = fb_pack(m[2], m[6]);
        x[4] = fb_pack(m3, m[7]);
        x[5] = fb_pack(m4, *p.last);
        p.first += p.first_step;
        p.middle += p.step;
        p.last += p.last_step;
    }
}

static void pack_stride2(columns p, uint32_t *x, unsigned channels) {
    for (; channels; channels--, x += FB_COLUMNS) {
        const int8_t *m = p.middle;
        int32_t m7 = m[7];
        x[0] = fb_pack(*p.first, m7);
        x[1] = fb_pack(m[1], m[9]);
        x[2] = fb_pack(m[3], m[11]);
        x[3] = fb_pack(m[5], m[13]);
        x[4] = fb_pack(m7, *p.last);
        x[5] = 0;
        x[6] = fb_pack(m[0], m[8]);
        x[7] = fb_pack(m[2], m[10]);
        x[8] = fb_pack(m[4], m[12]);
        x[9] = fb_pack(m[6], m[14]);
        p.first += p.first_step;
        p.middle += p.step;
        p.last += p.last_step;
    }
}

/* For 1×1 kernels, which use 4 words only. */
FB_INLINE void pack_points(const int8_t *p, size_t plane, uint32_t *x, unsigned channels, unsigned stride) {
    for (; channels; channels--, x += FB_COLUMNS, p += plane) {
        x[0] = fb_pack(p[0], p[4 * stride]);
        x[1] = fb_pack(p[stride], p[5 * stride]);
        x[2] = fb_pack(p[2 * stride], p[6 * stride]);
        x[3] = fb_pack(p[3 * stride], p[7 * stride]);
    }
}

void fb_tile_pack(const fb_layer *layer, const int8_t *in, int32_t y, int32_t left, uint32_t *x, unsigned channels) {
    int32_t width = layer->in.width, span = layer->stride_w == 1 ? 10 : 17;
    size_t plane = (size_t)layer->in.height * (size_t)width;
    unsigned i;
    if (y < 0 || y >= layer->in.height) {
        uint32_t zero = fb_pack(layer->in.zero_point, layer->in.zero_point);
        for (i = 0; i < channels * FB_COLUMNS; i++) x[i] = zero;
        return;
    }
    in += (size_t)y * (size_t)width;
    if (layer->kernel_w == 1 && left + 7 * layer->stride_w < width) { /* never padded on the left */
        if (layer->stride_w == 1) {
            pack_points(in + left, plane, x, channels, 1);
        } else {
            pack_points(in + left, plane, x, channels, 2);
        }
        return;
    }
    if (left >= -1 && left + span <= width + 1) {
        columns p = {&layer->in.zero_point, in + (left + 1), &layer->in.zero_point, 0, plane, 0};
        if (left >= 0) {
            p.first = in + left;
            p.first_step = plane;
        }
        if (left + span <= width) {
            p.last = in + (left + span - 1);
            p.last_step = plane;
        }
        if (layer->stride_w == 1) {
            pack_stride1(p, x, channels);
        } else {
            pack_stride2(p, x, channels);
        }
        return;
    }
    for (; channels; channels--, in += plane, x += FB_COLUMNS) { /* wider borders, or a tile of fewer pixels */
        int8_t row[17];
        columns p = {row, row + 1, row + span - 1, 0, 0, 0};
        int32_t j;
        for (j = 0; j < span; j++) {
            row[j] = left + j < 0 || left + j >= width ? layer->in.zero_point : in[left + j];
        }
        if (layer->stride_w == 1) {
            pack_stride1(p, x, 1);
        } else {
            pack_stride2(p, x, 1);
        }
    }
}

/* Assembly where compilers run out of registers. */
#if defined(__thumb2__) && defined(__GNUC__)

/* Two columns at a time. r0 table | r1 x | r2, r3 sums | r4 … lr five pairs of inputs. Two stores take 2 cycles on M3 and
 * M4, STRD takes 3. sp: starts, pairs left */
#define STEP_T2(entry, sign, input) \
    #sign " r2, r2, " FIRST_##input ", lsl #1\n" #sign " r3, r3, " SECOND_##input ", lsl #1\n" \
                                                                                  "str r2, [r0, #32 * " #entry "]\n" \
                                                                                  "str r3, [r0, #32 * " #entry \
                                                                                  " + 4]\n"
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
#define MOVE_T2(sign, count)

FB_NAKED static void fill_columns(uint32_t *t FB_UNUSED, const uint32_t *x FB_UNUSED, const uint32_t *starts FB_UNUSED,
                                  uint32_t pairs FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r2-r11, lr}\n"
            "1:\n"
            "ldr r12, [sp]\n"
            "ldrd r4, r5, [r1], #8\n"
            "ldrd r2, r3, [r12], #8\n"
            "str r12, [sp]\n"
            "ldrd r6, r7, [r1, #32]\n"
            "ldrd r8, r9, [r1, #72]\n"
            "ldrd r10, r11, [r1, #112]\n"
            "ldrd r12, lr, [r1, #152]\n"
            ".irp input, r4, r6, r8, r10, r12\n"
            "  sub r2, \\input\n"
            ".endr\n"
            ".irp input, r5, r7, r9, r11, lr\n"
            "  sub r3, \\input\n"
            ".endr\n"
            "str r2, [r0]\n"
            "str r3, [r0, #4]\n" FB_GRAY(STEP_T2, MOVE_T2) "ldr r2, [sp, #4]\n"
                                                           "add r0, #8\n"
                                                           "subs r2, #1\n"
                                                           "str r2, [sp, #4]\n"
                                                           "bne.w 1b\n"
                                                           "pop {r2-r11, pc}\n");
}

/* r4-r7 sums | r8-r11 entry | r11, r12, lr its addresses before | r0 list, r1 its end for this filter */
FB_NAKED void fb_tile_sum(const uint32_t *const *list FB_UNUSED, uint32_t size FB_UNUSED, uint32_t *packed FB_UNUSED,
                          uint32_t *end FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r1, r3, r4-r11, lr}\n"
            "add r1, r0\n"
            "1:\n"
            "movs r4, #0\n"
            "movs r5, #0\n"
            "movs r6, #0\n"
            "movs r7, #0\n"
            "2:\n"
            "ldm r0!, {r11, r12, lr}\n"
            ".irp address, r11, r12, lr\n"
            "  ldm \\address, {r8-r11}\n"
            "  add r4, r8\n"
            "  add r5, r9\n"
            "  add r6, r10\n"
            "  add r7, r11\n"
            ".endr\n"
            "cmp r0, r1\n"
            "bne 2b\n"
            "stm r2!, {r4-r7}\n"
            "ldrd r8, r9, [sp]\n" /* size, end */
            "add r1, r8\n"
            "cmp r2, r9\n"
            "bne 1b\n"
            "pop {r1, r3, r4-r11, pc}\n");
}

#elif defined(__thumb__) && defined(__GNUC__)

/* r0 the table's present 4 entries | r2 sum | r1, r3-r6 inputs, twice | r7 x */
#define STEP_T1(entry, sign, input) \
    #sign "s r2, r2, " INPUT_##input "\n" \
                                     "str r2, [r0, #32 * (" #entry " & 3)]\n"
#define INPUT_0 "r1"
#define INPUT_1 "r3"
#define INPUT_2 "r4"
#define INPUT_3 "r5"
#define INPUT_4 "r6"
#define MOVE_T1(sign, count) ".rept " #count "\n" #sign "s r0, #128\n.endr\n"

/* One column at a time. r12 columns left | lr starts */
FB_NAKED static void fill_columns(uint32_t *t FB_UNUSED, const uint32_t *x FB_UNUSED, const uint32_t *starts FB_UNUSED,
                                  uint32_t columns FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r4-r7, lr}\n"
            "mov r7, r1\n"
            "mov lr, r2\n"
            "1:\n"
            "mov r12, r3\n"
            "mov r1, lr\n"
            "ldm r1!, {r2}\n"
            "mov lr, r1\n"
            "ldr r3, [r7, #40]\n"
            "ldr r4, [r7, #80]\n"
            "ldr r5, [r7, #120]\n"
            "ldm r7!, {r1}\n"
            "adds r7, #76\n"
            "ldr r6, [r7, #80]\n"
            "subs r7, #76\n"
            ".irp input, r1, r3, r4, r5, r6\n"
            "  subs r2, r2, \\input\n"
            "  lsls \\input, \\input, #1\n"
            ".endr\n"
            "str r2, [r0]\n" FB_GRAY(STEP_T1, MOVE_T1) "subs r0, #255\n"
                                                       "subs r0, #253\n" /* 4 · 128 back, a word on */
                                                       "mov r3, r12\n"
                                                       "subs r3, #1\n"
                                                       "beq 2f\n"
                                                       "b 1b\n"
                                                       "2:\n"
                                                       "pop {r4-r7, pc}\n");
}

/* r8-r11 sums | r0-r3 entry | r4-r6 its addresses before | r7 list, r12 its end for this filter | lr packed */
FB_NAKED void fb_tile_sum(const uint32_t *const *list FB_UNUSED, uint32_t size FB_UNUSED, uint32_t *packed FB_UNUSED,
                          uint32_t *end FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r4-r7, lr}\n"
            "mov r4, r8\n"
            "mov r5, r9\n"
            "mov r6, r10\n"
            "mov r7, r11\n"
            "push {r1, r3, r4-r7}\n"
            "mov r7, r0\n"
            "adds r0, r0, r1\n"
            "mov r12, r0\n"
            "mov lr, r2\n"
            "1:\n"
            "movs r0, #0\n"
            "mov r8, r0\n"
            "mov r9, r0\n"
            "mov r10, r0\n"
            "mov r11, r0\n"
            "2:\n"
            "ldm r7!, {r4-r6}\n"
            ".irp address, r4, r5, r6\n"
            "  ldm \\address!, {r0-r3}\n"
            "  add r8, r0\n"
            "  add r9, r1\n"
            "  add r10, r2\n"
            "  add r11, r3\n"
            ".endr\n"
            "cmp r7, r12\n"
            "bne 2b\n"
            "mov r4, lr\n"
            "mov r0, r8\n"
            "mov r1, r9\n"
            "mov r2, r10\n"
            "mov r3, r11\n"
            "stm r4!, {r0-r3}\n"
            "mov lr, r4\n"
            "ldr r0, [sp]\n" /* size */
            "add r12, r0\n"
            "ldr r0, [sp, #4]\n" /* end */
            "cmp r4, r0\n"
            "bne 1b\n"
            "pop {r1, r3, r4-r7}\n"
            "mov r8, r4\n"
            "mov r9, r5\n"
            "mov r10, r6\n"
            "mov r11, r7\n"
            "pop {r4-r7, pc}\n");
}

#else

/* FB_KEEP_ORDER: a compiler that computes ahead runs out of registers. */
#define STEP_C(entry, sign, input) \
    sum = sign##_(sum, twice##input); \
    t[(entry) * FB_ENTRY_WORDS] = sum; \
    FB_KEEP_ORDER(sum);
#define MOVE_C(sign, count)
#define add_(a, b) ((a) + (b))
#define sub_(a, b) ((a) - (b))

static void fill_columns(uint32_t *t, const uint32_t *x, const uint32_t *starts, uint32_t columns) {
    for (; columns; columns--, t++, x++, starts++) {
        uint32_t x0 = x[0], x1 = x[FB_COLUMNS], x2 = x[2 * FB_COLUMNS], x3 = x[3 * FB_COLUMNS], x4 = x[4 * FB_COLUMNS];
        uint32_t twice0 = 2 * x0, twice1 = 2 * x1, twice2 = 2 * x2, twice3 = 2 * x3, twice4 = 2 * x4;
        uint32_t sum = *starts - x0 - x1 - x2 - x3 - x4;
        t[0] = sum;
        FB_GRAY(STEP_C, MOVE_C)
    }
}

void fb_tile_sum(const uint32_t *const *list, uint32_t size, uint32_t *packed, uint32_t *end) {
    uint32_t count = size / (uint32_t)sizeof *list;
    for (; packed != end; packed += 4) {
        const uint32_t *const *stop = list + count;
        const uint32_t *p = list[0], *q = list[1], *r = list[2];
        uint32_t a = p[0] + q[0] + r[0], b = p[1] + q[1] + r[1], c = p[2] + q[2] + r[2], d = p[3] + q[3] + r[3];
        for (list += 3; list != stop; list += 3) {
            p = list[0], q = list[1], r = list[2];
            a += p[0] + q[0] + r[0];
            b += p[1] + q[1] + r[1];
            c += p[2] + q[2] + r[2];
            d += p[3] + q[3] + r[3];
        }
        packed[0] = a;
        packed[1] = b;
        packed[2] = c;
        packed[3] = d;
    }
}

#endif

#if defined(__thumb2__) && defined(__GNUC__)
enum { AT_ONCE = 2 }; /* columns */
#else
enum { AT_ONCE = 1 };
#endif

static const uint32_t zeros[FB_COLUMNS] = {0};

void fb_tile_fill(uint32_t *t, const uint32_t *x, unsigned columns) {
    fill_columns(t, x, zeros, (columns + AT_ONCE - 1) / AT_ONCE);
}

void fb_tile_fill16(uint32_t *t, const uint32_t *x, unsigned columns) {
    const uint32_t *plus = x + 15 * FB_COLUMNS, count = (columns + AT_ONCE - 1) / AT_ONCE;
    uint32_t minus[FB_COLUMNS];
    unsigned i;
    for (i = 0; i < count * AT_ONCE; i++) minus[i] = 0 - plus[i];
    fill_columns(t, x, zeros, count);
    fill_columns(t + 32 * FB_ENTRY_WORDS, x + 5 * FB_COLUMNS, zeros, count);
    fill_columns(t + 64 * FB_ENTRY_WORDS, x + 10 * FB_COLUMNS, minus, count);
    fill_columns(t + 96 * FB_ENTRY_WORDS, x + 10 * FB_COLUMNS, plus, count);
}

void fb_tile_widen(const uint32_t *packed, int32_t *wide, uint32_t filters, bool first) {
    for (; filters; filters--, packed += 4, wide += FB_TILE) {
        uint32_t a = packed[0], b = packed[1], c = packed[2], d = packed[3];
        if (first) {
            wide[0] = fb_low(a);
            wide[1] = fb_low(b);
            wide[2] = fb_low(c);
            wide[3] = fb_low(d);
            wide[4] = fb_high(a);
            wide[5] = fb_high(b);
            wide[6] = fb_high(c);
            wide[7] = fb_high(d);
        } else {
            wide[0] += fb_low(a);
            wide[1] += fb_low(b);
            wide[2] += fb_low(c);
            wide[3] += fb_low(d);
            wide[4] += fb_high(a);
            wide[5] += fb_high(b);
            wide[6] += fb_high(c);
            wide[7] += fb_high(d);
        }
    }
}

FB_INLINE void requantize(const fb_layer *layer, const uint32_t *packed, const int32_t *wide, int8_t *out, bool relu) {
    const int32_t *bias = layer->bias;
    const int16_t *mult = layer->mult, *end = mult + layer->out.channels;
    size_t plane = (size_t)layer->out.height * layer->out.width;
    int32_t zero_point = layer->out.zero_point;
    unsigned shift = layer->shift;
    for (; mult != end; mult++, bias++, packed += 4, out += plane) {
        int32_t factor = *mult, offset = *bias * factor + fb_half(shift);
#define PAIR(j) \
    do { \
        uint32_t word = packed[j]; \
        int32_t low = wide ? (fb_low(word) + wide[j]) * factor + offset : fb_low_product(word, factor, offset); \
        int32_t high = wide ? (fb_high(word) + wide[j + 4]) * factor + offset : fb_high_product(word, factor, offset); \
        out[j] = fb_scale(low, shift, zero_point, relu); \
        out[j + 4] = fb_scale(high, shift, zero_point, relu); \
    } while (0)
        PAIR(0);
        PAIR(1);
        PAIR(2);
        PAIR(3);
#undef PAIR
        if (wide) wide += FB_TILE;
    }
}

#if defined(__thumb__) && !defined(__thumb2__) && defined(__GNUC__)

/* As above without wide sums, in 13 instead of 21 instructions per pixel.
 *
 * r0, r2 pixels j and j+4 | r1 their int8 | r3 factor | r4 offset | r5 shift | r6 zero point | r7 out
 * r8 packed | r9 bias | r10 mult, r12 its end | r11 plane */
typedef struct scaling {
    const uint32_t *packed;
    const int32_t *bias;
    const int16_t *mult, *end;
    uint32_t plane, shift;
    int32_t zero_point;
    int8_t *out;
} scaling;

#define PIXEL(pixel, j, away_from_zero) \
    "muls " pixel ", r3, " pixel "\n" \
    "adds " pixel ", " pixel ", r4\n" away_from_zero "asrs " pixel ", r5\n" \
    "adcs " pixel ", r6\n" \
    "sxtb r1, " pixel "\n" \
    "cmp r1, " pixel "\n" \
    "beq 2f\n" \
    "asrs r1, " pixel ", #31\n" \
    "movs " pixel ", #127\n" \
    "eors r1, " pixel "\n" \
    "2: strb r1, [r7, #" #j "]\n"
#define PAIR_T1(j, high, low_away, high_away) \
    "mov r0, r8\n" \
    "ldr r2, [r0, #4 * " #j "]\n" \
    "sxth r0, r2\n" \
    "subs r2, r2, r0\n" \
    "asrs r2, r2, #16\n" PIXEL("r0", j, low_away) PIXEL("r2", high, high_away)
#define REQUANTIZE_T1(low_away, high_away) \
    __asm__(".syntax unified\n" \
            "push {r4-r7, lr}\n" \
            "mov r4, r8\n" \
            "mov r5, r9\n" \
            "mov r6, r10\n" \
            "mov r7, r11\n" \
            "push {r4-r7}\n" \
            "ldm r0!, {r1-r7}\n" \
            "mov r8, r1\n" \
            "mov r9, r2\n" \
            "mov r10, r3\n" \
            "mov r12, r4\n" \
            "mov r11, r5\n" \
            "mov r5, r6\n" \
            "mov r6, r7\n" \
            "ldr r7, [r0]\n" \
            "1:\n" \
            "mov r0, r10\n" \
            "movs r1, #0\n" \
            "ldrsh r3, [r0, r1]\n" \
            "adds r0, #2\n" \
            "mov r10, r0\n" \
            "mov r0, r9\n" \
            "ldm r0!, {r4}\n" \
            "mov r9, r0\n" \
            "muls r4, r3, r4\n" /* */ \
            PAIR_T1(0, 4, low_away, high_away) PAIR_T1(1, 5, low_away, high_away) PAIR_T1(2, 6, low_away, high_away) \
                PAIR_T1(3, 7, low_away, high_away) "movs r0, #16\n" \
                                                   "add r8, r0\n" \
                                                   "add r7, r11\n" \
                                                   "cmp r10, r12\n" \
                                                   "beq 3f\n" \
                                                   "b 1b\n" \
                                                   "3:\n" \
                                                   "pop {r4-r7}\n" \
                                                   "mov r8, r4\n" \
                                                   "mov r9, r5\n" \
                                                   "mov r10, r6\n" \
                                                   "mov r11, r7\n" \
                                                   "pop {r4-r7, pc}\n")

FB_NAKED static void requantize_relu(const scaling *s FB_UNUSED) { REQUANTIZE_T1("", ""); }
FB_NAKED static void requantize_any(const scaling *s FB_UNUSED) {
    REQUANTIZE_T1("asrs r1, r0, #31\nadds r0, r0, r1\n", "asrs r1, r2, #31\nadds r2, r2, r1\n");
}

static void requantize_packed(const fb_layer *layer, const uint32_t *packed, int8_t *out, bool relu) {
    scaling s;
    s.packed = packed;
    s.bias = layer->bias;
    s.mult = layer->mult;
    s.end = layer->mult + layer->out.channels;
    s.plane = (uint32_t)layer->out.height * layer->out.width;
    s.shift = layer->shift;
    s.zero_point = layer->out.zero_point;
    s.out = out;
    if (relu) {
        requantize_relu(&s);
    } else {
        requantize_any(&s);
    }
}

#else

static void requantize_packed(const fb_layer *layer, const uint32_t *packed, int8_t *out, bool relu) {
    if (relu) {
        requantize(layer, packed, NULL, out, true);
    } else {
        requantize(layer, packed, NULL, out, false);
    }
}

#endif

/* Fewer than 8 pixels, or a ReLU that is not at −128. */
static void requantize_some(const fb_layer *layer, const uint32_t *packed, const int32_t *wide, int8_t *out,
                            unsigned pixels) {
    size_t plane = (size_t)layer->out.height * layer->out.width;
    uint32_t o, j;
    for (o = 0; o < layer->out.channels; o++, out += plane, packed += 4) {
        for (j = 0; j < pixels; j++) {
            int32_t sum = (j < 4 ? fb_low(packed[j]) : fb_high(packed[j - 4])) + (wide ? wide[FB_TILE * o + j] : 0);
            out[j] =
                fb_requantize(sum + layer->bias[o], layer->mult[o], layer->shift, layer->out.zero_point, layer->low);
        }
    }
}

void fb_tile_requantize(const fb_layer *layer, const uint32_t *packed, const int32_t *wide, int8_t *out,
                        unsigned pixels) {
    bool relu = layer->flags & FB_FLAG_RELU;
    if (pixels < FB_TILE || layer->low != -128) {
        requantize_some(layer, packed, wide, out, pixels);
    } else if (!wide) {
        requantize_packed(layer, packed, out, relu);
    } else if (relu) {
        requantize(layer, packed, wide, out, true);
    } else {
        requantize(layer, packed, wide, out, false);
    }
}
