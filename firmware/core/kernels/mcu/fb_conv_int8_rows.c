/* int8 convolution of any kernel, stride and padding: two filters and two pixels at a time.
 *
 * Activations lie plane by plane, weights pixel by pixel. Therefore rows of the input are turned into pixels, once for
 * all filters: a ring of kernel_h rows, in which a window's row is kernel_w pixels one behind the other (a run). Going
 * down a strip of columns, each row is turned once. Where channels do not come in fours, each window is copied and is
 * one run.
 *
 * Cores with SMLAD (Cortex-M4, M7, M33) multiply two pairs of 16-bit values per instruction. They get values and weights
 * in fours, filled up with zeros, in the order in which SXTB16 takes a word of bytes apart; two filters' in turn:
 *
 *     value 0 | value 2 << 16,  value 1 | value 3 << 16            weights  a a b b | a a b b | …
 *
 * Others get bytes, and multiply with two filters' weights at once, a + (b << 16). The sum of two products fits a half
 * of a word.
 *
 * scratch: runs[kernel_h] addresses | weights of two filters | window | ring[kernel_h][columns][channels] or
 * windows[pixels][inputs]
 */
#include "../fb_bin_tile.h"
#include "../fb_long.h"
#include "../fb_window.h"

enum { ROOM = 6144 /* bytes of pixels at most, unless two columns take more */ };

#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && defined(__GNUC__)
#define SMLAD
#endif

/* Bytes of a value. */
#if defined(FB_PLAN_BOARDS)
#define VALUE (fb_plan_core >= FB_PLAN_DSP ? 2u : 1u)
#elif defined(SMLAD)
#define VALUE 2u
#else
#define VALUE 1u
#endif

/* How a layer is cut up; sizes are bytes. A 1×1 convolution of stride 1 has no rows: all pixels are one. */
typedef struct cut {
    uint32_t height, width, out_height, out_width;
    bool windows;             /* copied one by one */
    uint32_t runs;            /* of a window */
    uint32_t run;             /* of values */
    uint32_t step;            /* from a pixel of the output to the next */
    uint32_t row;             /* of the ring, or all windows */
    uint32_t pixels, columns; /* of the output and of the input in a strip */
    uint32_t weights;         /* of a filter, zeros included: words for two */
} cut;

static cut cut_of(const fb_layer *layer, uint32_t room) {
    const uint32_t pixel = layer->in.channels * VALUE, overlap = layer->kernel_w - (uint32_t)layer->stride_w;
    uint32_t fixed = 0;
    cut c = {layer->in.height, layer->in.width, layer->out.height, layer->out.width, false, 1, 0, 0, 0, 0, 0, 0};
    c.windows = layer->in.channels % 4 != 0;
    if (!c.windows && layer->inputs == layer->in.channels && layer->stride_h == 1 && layer->stride_w == 1) {
        c.width = c.out_width = c.width * c.height;
        c.height = c.out_height = 1;
    }
    if (c.windows) {
        c.run = c.step = VALUE == 2 ? (layer->inputs + 3) / 4 * 8 : (layer->inputs + 1) / 2 * 2;
    } else {
        c.runs = layer->kernel_h;
        c.run = layer->kernel_w * pixel;
        c.step = layer->stride_w * pixel;
        if (layer->kernel_w > layer->stride_w) fixed = overlap * pixel * c.runs;
    }
    c.pixels = room > fixed ? (room - fixed) / (c.step * c.runs) & ~1u : 0;
    if (c.pixels < 2) c.pixels = 2;
    if (c.pixels > c.out_width) c.pixels = c.out_width;
    c.columns = (c.pixels - 1) * layer->stride_w + layer->kernel_w;
    c.row = c.windows ? c.pixels * c.step : c.columns * pixel;
    c.weights = c.run / VALUE * c.runs;
    return c;
}

/* Bytes of a window before its values become 16 bits wide. */
static uint32_t window_of(const fb_layer *layer) { return VALUE == 2 ? (layer->inputs + 3) / 4 * 4 : 0; }

/* What the inner loops are given: pixels `at`, `at` + step of `count` pairs, for filters a and b. */
typedef struct pairs {
    const int8_t *const *runs, *const *runs_end;
    uint32_t at, step;       /* bytes */
    const uint32_t *weights; /* of both filters */
    uint32_t run;            /* bytes of weights per run */
    int32_t bias_a, bias_b;
    uint32_t count, next; /* pairs; results of a pair lie `next` bytes apart, 0 or 1 */
    int8_t *out_a, *out_b;
    int32_t half, shift; /* upper word of 2^shift / 2, shift − 32 */
    int32_t zero_point, low;
    int32_t mult_a, mult_b;
    uint32_t total; /* pairs of weights of a filter */
} pairs;

#ifdef SMLAD

#define FOUR_PRODUCTS \
    "ldm r2!, {r9-r12}\n" \
    "ldrd r8, lr, [r0], #8\n" \
    "smlad r4, r8, r9, r4\n" \
    "smlad r6, r8, r11, r6\n" \
    "smlad r4, lr, r10, r4\n" \
    "smlad r6, lr, r12, r6\n" \
    "ldrd r8, lr, [r1], #8\n" \
    "smlad r5, r8, r9, r5\n" \
    "smlad r7, r8, r11, r7\n" \
    "smlad r5, lr, r10, r5\n" \
    "smlad r7, lr, r12, r7\n"

/* r0 half | r1 shift | r2 zero point | r3 low | r8, lr multipliers | r9, r10 places */
#define RESULT(sum, mult, place) \
    "asr r11, " sum ", #31\n" /* ties away from zero */ \
    "add r12, r0, r11\n" \
    "smlal r11, r12, " sum ", " mult "\n" \
    "asr r12, r12, r1\n" \
    "add r12, r2\n" \
    "ssat r12, #8, r12\n" \
    "cmp r12, r3\n" \
    "it lt\n" \
    "movlt r12, r3\n" \
    "strb r12, " place "\n"

/* r4, r5 sums of filter a | r6, r7 of b | r9-r12 weights | r8, lr values | r0, r1 pixels | r2 weights, r3 their end
 * sp: next run, end of the runs, p */
FB_NAKED static void sum_pairs(pairs *p FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r0, r4-r11, lr}\n"
            "sub sp, #8\n"
            "1:\n"
            "ldrd r11, r3, [r0]\n"     /* runs, their end */
            "ldr r2, [r0, #16]\n"      /* weights */
            "ldrd r4, r6, [r0, #24]\n" /* biases */
            "mov r12, r0\n"
            "str r3, [sp, #4]\n"
            "mov r5, r4\n"
            "mov r7, r6\n"
            "2:\n"                      /* a run */
            "ldrd r9, r10, [r12, #8]\n" /* at, step */
            "ldr r3, [r12, #20]\n"      /* run */
            "ldr r0, [r11], #4\n"
            "str r11, [sp]\n"
            "tst r3, #16\n"
            "add r0, r9\n"
            "add r1, r0, r10\n"
            "add r3, r2\n"
            "beq 3f\n" /* an even number of fours */
            /* */ FOUR_PRODUCTS "cmp r2, r3\n"
            "beq 4f\n"
            "3:\n" FOUR_PRODUCTS FOUR_PRODUCTS "cmp r2, r3\n"
            "bne 3b\n"
            "4:\n"
            "ldm sp, {r3, r8, r12}\n"
            "mov r11, r3\n"
            "cmp r3, r8\n"
            "bne 2b\n"
            "ldrd r9, r10, [r12, #40]\n" /* out */
            "ldr r11, [r12, #36]\n"      /* next */
            "ldrd r0, r1, [r12, #48]\n"
            "ldrd r2, r3, [r12, #56]\n"
            "ldrd r8, lr, [r12, #64]\n"
            "add r9, r11\n"
            "add r10, r11\n" /* */
            RESULT("r5", "r8", "[r9]") RESULT("r7", "lr", "[r10]") "ldr r12, [sp, #8]\n"
                                                                   "ldrd r9, r10, [r12, #40]\n" /* */
            RESULT("r4", "r8", "[r9], #2") RESULT("r6", "lr", "[r10], #2") "ldr r0, [sp, #8]\n"
                                                                           "strd r9, r10, [r0, #40]\n"
                                                                           "ldrd r1, r2, [r0, #8]\n"
                                                                           "ldr r3, [r0, #32]\n"
                                                                           "add r1, r1, r2, lsl #1\n"
                                                                           "subs r3, #1\n"
                                                                           "str r1, [r0, #8]\n"
                                                                           "str r3, [r0, #32]\n"
                                                                           "bne.w 1b\n"
                                                                           "add sp, #8\n"
                                                                           "pop {r0, r4-r11, pc}\n");
}

/* Up to four values; the others are 0. */
FB_INLINE void put_four(uint32_t *to, const int8_t *v, uint32_t count) {
    if (count >= 4) {
        uint32_t word;
        memcpy(&word, v, sizeof word);
        __asm__("sxtb16 %0, %1" : "=r"(to[0]) : "r"(word));
        __asm__("sxtb16 %0, %1, ror #8" : "=r"(to[1]) : "r"(word));
    } else {
        to[0] = (uint16_t)v[0] | (count > 2 ? (uint32_t)v[2] << 16 : 0);
        to[1] = count > 1 ? (uint16_t)v[1] : 0;
    }
}

static void put_weights(const fb_layer *layer, uint32_t a, uint32_t b, uint32_t *to) {
    const int8_t *wa = layer->weights + (size_t)a * layer->inputs, *wb = layer->weights + (size_t)b * layer->inputs;
    uint32_t left = layer->inputs;
    for (; left >= 4; left -= 4, wa += 4, wb += 4, to += 4) {
        put_four(to, wa, 4);
        put_four(to + 2, wb, 4);
    }
    if (left) {
        put_four(to, wa, left);
        put_four(to + 2, wb, left);
    }
}

/* Pixels of four channels. */
static void put_pixels(const int8_t *in, size_t plane, uint32_t count, int8_t *pixels, uint32_t pixel) {
    const int8_t *end = in + count;
    for (; in != end; in++, pixels += pixel) {
        uint32_t *to = (uint32_t *)(void *)pixels;
        to[0] = (uint16_t)in[0] | (uint32_t)in[2 * plane] << 16;
        to[1] = (uint16_t)in[plane] | (uint32_t)in[3 * plane] << 16;
    }
}

static void put_window(const fb_layer *layer, const int8_t *in, int32_t top, int32_t left, int8_t *window, int8_t *to) {
    uint32_t rest = layer->inputs, *words = (uint32_t *)(void *)to;
    fb_window(layer, in, top, left, window);
    for (; rest >= 4; rest -= 4, window += 4, words += 2) put_four(words, window, 4);
    if (rest) put_four(words, window, rest);
}

#else

/* The sum of two products of int8 values is −2^15 + 256 … 2^15: with this added it is 16 bits without a sign, in both
 * halves. */
#define OFFSET 0x7FFFu

typedef struct run_sums {
    const int8_t *first, *second; /* pixels */
    const uint32_t *w, *end;      /* weights; an even number of them */
    uint32_t all[2];              /* sums of both halves, */
    uint32_t upper[2];            /* and of the upper ones */
} run_sums;

#if defined(__thumb2__) && defined(__GNUC__)

#define TWO_PRODUCTS(pixel, all, upper) \
    "ldrsb r12, [" pixel ", #1]\n" \
    "ldrsb r11, [" pixel "], #2\n" \
    "mla r11, r11, r9, r8\n" \
    "mla r11, r12, r10, r11\n" \
    "add " all ", r11\n" \
    "add " upper ", " upper ", r11, lsr #16\n"

/* r0, r1 pixels | r2 weights, r3 their end | r4, r5 all | r6, r7 upper | r8 offset | r9, r10 weights | r11, r12 values */
FB_NAKED static void sum_run(run_sums *s FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r0, r4-r11, lr}\n"
            "ldm r0, {r0-r7}\n"
            "mov r8, #0x7FFF7FFF\n"
            "sub r9, r3, r2\n"
            "tst r9, #8\n"
            "beq 1f\n"
            "ldrd r9, r10, [r2], #8\n" TWO_PRODUCTS("r0", "r4", "r6")
                TWO_PRODUCTS("r1", "r5", "r7") "cmp r2, r3\n"
                                               "beq 2f\n"
                                               "1:\n"
                                               ".rept 2\n"
                                               "ldrd r9, r10, [r2], #8\n" TWO_PRODUCTS("r0", "r4", "r6")
                                                   TWO_PRODUCTS("r1", "r5", "r7") ".endr\n"
                                                                                  "cmp r2, r3\n"
                                                                                  "bne 1b\n"
                                                                                  "2:\n"
                                                                                  "pop {r0}\n"
                                                                                  "add r0, #16\n"
                                                                                  "stm r0, {r4-r7}\n"
                                                                                  "pop {r4-r11, pc}\n");
}

#elif defined(__thumb__) && defined(__GNUC__)

/* r0, r1 ends of the pixels, r3 back from there | r2 weights | r4, r5 weights | r6, r7 sums | r8, r9 all | r10, r11
 * upper | r12 offset */
FB_NAKED static void sum_run(run_sums *s FB_UNUSED) {
    __asm__(".syntax unified\n"
            "push {r4-r7, lr}\n"
            "mov r4, r8\n"
            "mov r5, r9\n"
            "mov r6, r10\n"
            "mov r7, r11\n"
            "push {r0, r4-r7}\n"
            "ldr r1, =0x7FFF7FFF\n"
            "mov r12, r1\n"
            "ldm r0!, {r1-r7}\n"
            "ldr r0, [r0]\n"
            "mov r8, r5\n"
            "mov r9, r6\n"
            "mov r10, r7\n"
            "mov r11, r0\n"
            "mov r0, r1\n"
            "mov r1, r2\n"
            "mov r2, r3\n"
            "subs r3, r4, r3\n"
            "lsrs r3, r3, #2\n"
            "adds r0, r0, r3\n"
            "adds r1, r1, r3\n"
            "rsbs r3, r3, #0\n"
            "1:\n"
            "ldm r2!, {r4, r5}\n"
            "ldrsb r6, [r0, r3]\n"
            "ldrsb r7, [r1, r3]\n"
            "muls r6, r4\n"
            "muls r7, r4\n"
            "adds r3, #1\n"
            "ldrsb r4, [r0, r3]\n"
            "muls r4, r5\n"
            "adds r6, r6, r4\n"
            "ldrsb r4, [r1, r3]\n"
            "muls r4, r5\n"
            "adds r7, r7, r4\n"
            "add r6, r12\n"
            "add r7, r12\n"
            "lsrs r4, r6, #16\n"
            "lsrs r5, r7, #16\n"
            "adds r3, #1\n" /* the others leave its flags alone */
            "add r8, r6\n"
            "add r9, r7\n"
            "add r10, r4\n"
            "add r11, r5\n"
            "bne 1b\n"
            "pop {r0}\n"
            "adds r0, #16\n"
            "mov r4, r8\n"
            "mov r5, r9\n"
            "mov r6, r10\n"
            "mov r7, r11\n"
            "stm r0!, {r4-r7}\n"
            "pop {r4-r7}\n"
            "mov r8, r4\n"
            "mov r9, r5\n"
            "mov r10, r6\n"
            "mov r11, r7\n"
            "pop {r4-r7, pc}\n"
            ".ltorg\n");
}

#else

#define TWO_PRODUCTS(pixel, i) \
    do { \
        uint32_t sum = (uint32_t)pixel[i] * w[i] + OFFSET * 0x10001u + (uint32_t)pixel[(i) + 1] * w[(i) + 1]; \
        all_##pixel += sum; \
        upper_##pixel += sum >> 16; \
    } while (0)

static void sum_run(run_sums *s) {
    const int8_t *first = s->first, *second = s->second;
    const uint32_t *w = s->w, *end = s->end;
    uint32_t all_first = s->all[0], all_second = s->all[1], upper_first = s->upper[0], upper_second = s->upper[1];
    if ((end - w) & 2) {
        TWO_PRODUCTS(first, 0);
        TWO_PRODUCTS(second, 0);
        first += 2, second += 2, w += 2;
    }
    for (; w != end; first += 4, second += 4, w += 4) {
        TWO_PRODUCTS(first, 0);
        TWO_PRODUCTS(second, 0);
        TWO_PRODUCTS(first, 2);
        TWO_PRODUCTS(second, 2);
    }
    s->all[0] = all_first;
    s->all[1] = all_second;
    s->upper[0] = upper_first;
    s->upper[1] = upper_second;
}

#endif

static void sum_pairs(pairs *p) {
    for (; p->count; p->count--, p->at += 2 * p->step, p->out_a += 2, p->out_b += 2) {
        const int8_t *const *run;
        const uint32_t offset = p->total * OFFSET;
        uint32_t i;
        int32_t a[2], b[2];
        run_sums s;
        s.end = p->weights;
        s.all[0] = s.all[1] = s.upper[0] = s.upper[1] = 0;
        for (run = p->runs; run != p->runs_end; run++) {
            s.first = *run + p->at;
            s.second = s.first + p->step;
            s.w = s.end;
            s.end += p->run / 4;
            sum_run(&s);
        }
        for (i = 0; i < 2; i++) {
            a[i] = (int32_t)(s.all[i] - (s.upper[i] << 16) - offset) + p->bias_a;
            b[i] = (int32_t)(s.upper[i] - offset) + p->bias_b;
        }
#define RESULT(sum, filter) fb_requantize_upper(sum, p->mult_##filter, (unsigned)p->shift, p->zero_point, p->low)
        p->out_a[p->next] = RESULT(a[1], a);
        p->out_b[p->next] = RESULT(b[1], b);
        p->out_a[0] = RESULT(a[0], a);
        p->out_b[0] = RESULT(b[0], b);
    }
}

static void put_weights(const fb_layer *layer, uint32_t a, uint32_t b, uint32_t *to) {
    const int8_t *wa = layer->weights + (size_t)a * layer->inputs, *wb = layer->weights + (size_t)b * layer->inputs;
    const int8_t *end = wa + layer->inputs;
    while (wa != end) *to++ = fb_pack(*wa++, *wb++);
    if (layer->inputs % 2) *to = 0;
}

static void put_pixels(const int8_t *in, size_t plane, uint32_t count, int8_t *to, uint32_t pixel) {
    const int8_t *end = in + count;
    for (; in != end; in++, to += pixel) {
        to[0] = in[0];
        to[1] = in[plane];
        to[2] = in[2 * plane];
        to[3] = in[3 * plane];
    }
}

static void put_window(const fb_layer *layer, const int8_t *in, int32_t top, int32_t left, int8_t *window, int8_t *to) {
    (void)window;
    fb_window(layer, in, top, left, to);
    if (layer->inputs % 2) to[layer->inputs] = 0;
}

#endif

/* Pixels that are padding. */
static int8_t *put_zeros(const fb_layer *layer, uint32_t count, int8_t *to) {
    uint32_t values = count * layer->in.channels;
#ifdef SMLAD
    uint32_t *words = (uint32_t *)(void *)to;
    for (values /= 2; values; values--) *words++ = (uint16_t)layer->in.zero_point * 0x10001u;
    return (int8_t *)words;
#else
    memset(to, layer->in.zero_point, values);
    return to + values;
#endif
}

/* A row of the ring: columns of row y from `left` on, which may both be outside. */
static void put_row(const fb_layer *layer, const cut *c, const int8_t *in, int32_t y, int32_t left, int8_t *to) {
    const size_t plane = (size_t)c->height * c->width;
    const int32_t columns = (int32_t)c->columns;
    const uint32_t pixel = layer->in.channels * VALUE;
    int32_t before = left < 0 ? -left : 0, behind = left + columns - (int32_t)c->width;
    uint32_t middle, channel;
    if (y < 0 || y >= (int32_t)c->height || before > columns) before = columns;
    if (behind > columns - before) behind = columns - before;
    if (behind < 0) behind = 0;
    middle = (uint32_t)(columns - before - behind);
    to = put_zeros(layer, (uint32_t)before, to);
    if (middle) {
        in += (size_t)y * c->width + (size_t)(left + before);
        for (channel = 0; channel < layer->in.channels; channel += 4, in += 4 * plane) {
            put_pixels(in, plane, middle, to + channel * VALUE, pixel);
        }
    }
    put_zeros(layer, (uint32_t)behind, to + middle * pixel);
}

/* All filters of `pixels` pixels of a row of the output. */
static void put_results(const fb_layer *layer, const cut *c, pairs *p, uint32_t *weights, int8_t *out,
                        uint32_t pixels) {
    const size_t plane = (size_t)layer->out.height * layer->out.width;
    uint32_t a, filters = layer->out.channels;
    for (a = 0; a < filters; a += 2) {
        uint32_t b = a + 1 < filters ? a + 1 : a;
        put_weights(layer, a, b, weights);
        p->at = 0;
        p->step = c->step;
        p->bias_a = layer->bias[a];
        p->bias_b = layer->bias[b];
        p->mult_a = layer->mult_int8[a];
        p->mult_b = layer->mult_int8[b];
        p->out_a = out + a * plane;
        p->out_b = out + b * plane;
        p->count = pixels / 2;
        p->next = 1;
        if (p->count) sum_pairs(p);
        if (pixels % 2) { /* one pixel, as a pair with itself */
            p->count = 1;
            p->step = p->next = 0;
            sum_pairs(p);
        }
    }
}

static void run(const fb_layer *layer, const int8_t *in, int8_t *out, void *scratch, uint32_t room) {
    const cut c = cut_of(layer, room);
    const int8_t **runs = scratch;
    uint32_t *weights = (uint32_t *)(runs + (c.runs + 1) / 2 * 2);
    int8_t *window = (int8_t *)(weights + c.weights), *pixels = window + (c.windows ? window_of(layer) : 0);
    uint32_t column, y, i;
    pairs p;
    p.runs = runs;
    p.runs_end = runs + c.runs;
    p.weights = weights;
    p.run = c.run / VALUE * 4;
    p.total = c.weights / 2;
    p.shift = layer->shift - 32;
    p.half = (int32_t)1 << (p.shift - 1);
    p.zero_point = layer->out.zero_point;
    p.low = layer->low;
    for (column = 0; column < c.out_width; column += c.pixels) {
        const uint32_t count = c.out_width - column < c.pixels ? c.out_width - column : c.pixels;
        const int32_t left = (int32_t)(column * layer->stride_w) - layer->pad_left;
        int32_t next = -(int32_t)layer->pad_top; /* row to turn */
        for (y = 0; y < c.out_height; y++) {
            const int32_t top = (int32_t)(y * layer->stride_h) - layer->pad_top;
            for (i = 0; c.windows && i < count; i++) {
                put_window(layer, in, top, left + (int32_t)(i * layer->stride_w), window, pixels + i * c.step);
            }
            if (next < top) next = top;
            for (; !c.windows && next < top + layer->kernel_h; next++) {
                put_row(layer, &c, in, next, left, pixels + (uint32_t)(next + layer->pad_top) % c.runs * c.row);
            }
            for (i = 0; i < c.runs; i++) runs[i] = pixels + (y * layer->stride_h + i) % c.runs * c.row;
            put_results(layer, &c, &p, weights, out + y * c.out_width + column, count);
        }
    }
}

static uint32_t scratch_of(const fb_layer *layer, uint32_t room) {
    const cut c = cut_of(layer, room);
    if (layer->shift < 33) return FB_NOT_FOR_THIS; /* products of one word */
    return (c.runs + 1) / 2 * 2 * FB_POINTER_SIZE + c.weights * 4 +
           (c.windows ? window_of(layer) + c.row : c.runs * c.row);
}

uint32_t fb_conv_int8_rows_scratch(const fb_layer *layer) { return scratch_of(layer, ROOM); }

void fb_conv_int8_rows(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    run(layer, in, out, scratch, ROOM);
}

/* The same with two columns of pixels at a time: less RAM. */
uint32_t fb_conv_int8_pair_scratch(const fb_layer *layer) { return scratch_of(layer, 0); }

void fb_conv_int8_pair(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    run(layer, in, out, scratch, 0);
}
