/* Packing and dot products for five kinds of cores:
 *
 *     Helium     int8, one filter behind the other, for vectors of 16
 *     DSP        four pixels of a filter are two words of int16 pairs, (0, 2) and (1, 3), as SXTB16 takes bytes apart:
 *                | f0: 0 2 | f0: 1 3 | f1: 0 2 | f1: 1 3 | the next four …
 *     Cortex-M0  int32 of one filter: only words are loaded without a register for their offset
 *     scalar     int8, the two filters' gradients of a pixel side by side: f0 f1 f0 f1 …
 *     others     int8, one filter behind the other: compilers make vectors of them
 */
#include "fb_grad_tile.h"

#include <string.h>

#include "fb_fours.h"

#if defined(FB_MVE)
#include <arm_mve.h>
enum { STEP = 16 };
typedef int8_t packed_type;
static uint32_t place(uint32_t i, unsigned filter, uint32_t n) { return filter * n + i; }
#elif defined(__ARM_FEATURE_DSP) && !defined(__ARM_NEON) && defined(__OPTIMIZE__)
#define FB_DSP
enum { STEP = 4 };
typedef int16_t packed_type;
static uint32_t place(uint32_t i, unsigned filter, uint32_t n) {
    (void)n;
    return i / 4 * 8 + filter * 4 + i % 2 * 2 + i % 4 / 2;
}
#elif defined(FB_THUMB1)
enum { STEP = 4 };
typedef int32_t packed_type;
static uint32_t place(uint32_t i, unsigned filter, uint32_t n) { return filter * n + i; }
#elif defined(__thumb__) || defined(__riscv)
#define FB_SCALAR
enum { STEP = 3 };
typedef int8_t packed_type;
static uint32_t place(uint32_t i, unsigned filter, uint32_t n) {
    (void)n;
    return FB_GRAD_FILTERS * i + filter;
}
#else
enum { STEP = 1 };
typedef int8_t packed_type;
static uint32_t place(uint32_t i, unsigned filter, uint32_t n) { return filter * n + i; }
#endif

uint32_t fb_grad_length(uint32_t n) { return (n + STEP - 1) / STEP * STEP; }

uint32_t fb_grad_packed_size(uint32_t n) { return fb_aligned((uint32_t)sizeof(packed_type) * FB_GRAD_FILTERS * n); }

#if defined(FB_DSP) && defined(FB_FOURS_DSP)
/* Rows of multiples of 4, as one stream of words into which gaps are shifted. */
static int32_t pack_fours(const int8_t *h, uint32_t height, uint32_t width, uint32_t gap, uint32_t *to) {
    uint32_t sum = 0, rest = 0, bits = 0; /* behind the last whole word; how many */
    for (uint32_t y = 0; y < height; y++) {
        for (const int8_t *end = h + width; h < end; h += 4, to += 4) {
            uint32_t word = fb_load_four(h), next = rest | word << bits;
            sum = fb_add_four(word, sum);
            rest = word >> 1 >> (31 - bits);
            __asm__("sxtb16 %0, %1" : "=r"(to[0]) : "r"(next));
            __asm__("sxtb16 %0, %1, ror #8" : "=r"(to[1]) : "r"(next));
        }
        if (y < height - 1) bits += 8 * gap;
        for (; bits >= 32; bits -= 32, rest = 0, to += 4) {
            __asm__("sxtb16 %0, %1" : "=r"(to[0]) : "r"(rest));
            __asm__("sxtb16 %0, %1, ror #8" : "=r"(to[1]) : "r"(rest));
        }
    }
    if (bits) {
        __asm__("sxtb16 %0, %1" : "=r"(to[0]) : "r"(rest));
        __asm__("sxtb16 %0, %1, ror #8" : "=r"(to[1]) : "r"(rest));
    }
    return (int32_t)(sum - 128 * height * width);
}
#endif

int32_t fb_grad_pack(const int8_t *h, uint32_t height, uint32_t width, uint32_t pitch, unsigned filter, uint32_t n,
                     void *packed) {
    packed_type *to = packed;
    int32_t sum = 0;
#if defined(FB_DSP) && defined(FB_FOURS_DSP)
    if (width % 4 == 0 && fb_fours_aligned(h)) {
        return pack_fours(h, height, width, pitch - width, (uint32_t *)packed + 2 * filter);
    }
#endif
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t i = y * pitch, end = i + width; i < end; i++, h++) {
            to[place(i, filter, n)] = *h;
            sum += *h;
        }
    }
    return sum;
}

#if defined(FB_DSP) || defined(FB_SCALAR)
/* The sums of three streams with one filter. */
typedef struct three {
    int32_t a, b, c;
} three;
#endif

#if defined(FB_MVE)

void fb_grad_tile(const int8_t *x, int32_t second, int32_t third, const void *packed, uint32_t n,
                  int32_t sums[FB_GRAD_FILTERS][FB_GRAD_STREAMS]) {
    const int8_t *h = packed, *end = h + n;
    int32_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;
    for (; h < end; h += STEP, x += STEP) {
        int8x16_t h0 = vldrbq_s8(h), h1 = vldrbq_s8(h + n), v = vldrbq_s8(x);
        a = vmladavaq_s8(a, h0, v);
        d = vmladavaq_s8(d, h1, v);
        v = vldrbq_s8(x + second);
        b = vmladavaq_s8(b, h0, v);
        e = vmladavaq_s8(e, h1, v);
        v = vldrbq_s8(x + third);
        c = vmladavaq_s8(c, h0, v);
        f = vmladavaq_s8(f, h1, v);
    }
    sums[0][0] = a, sums[0][1] = b, sums[0][2] = c;
    sums[1][0] = d, sums[1][1] = e, sums[1][2] = f;
}

#elif defined(FB_DSP)

/* Four pixels of a kernel's row: x + 1 and x + 2 begin in the middle of x, and share pairs with it. In assembly, as it
 * takes all but one of the registers, and compilers that move its loads apart take more: 22 instructions for 24
 * products. Loads of x need not be aligned on these cores. */
FB_INLINE void row_of_4(const int8_t **x, const uint32_t **h, three *s, three *t) {
    uint32_t p02, p13, p24, p35, pair;
    __asm__(
        "ldr %[p02], [%[x]], #4\n\t"
        "ldr %[p24], [%[x], #-2]\n\t"
        "ldr %[pair], [%[h]], #4\n\t"
        "sxtb16 %[p13], %[p02], ror #8\n\t"
        "sxtb16 %[p02], %[p02]\n\t"
        "sxtb16 %[p35], %[p24], ror #8\n\t"
        "sxtb16 %[p24], %[p24]\n\t"
        "smlad %[a], %[pair], %[p02], %[a]\n\t"
        "smlad %[b], %[pair], %[p13], %[b]\n\t"
        "smlad %[c], %[pair], %[p24], %[c]\n\t"
        "ldr %[pair], [%[h]], #4\n\t"
        "smlad %[a], %[pair], %[p13], %[a]\n\t"
        "smlad %[b], %[pair], %[p24], %[b]\n\t"
        "smlad %[c], %[pair], %[p35], %[c]\n\t"
        "ldr %[pair], [%[h]], #4\n\t"
        "smlad %[d], %[pair], %[p02], %[d]\n\t"
        "smlad %[e], %[pair], %[p13], %[e]\n\t"
        "smlad %[f], %[pair], %[p24], %[f]\n\t"
        "ldr %[pair], [%[h]], #4\n\t"
        "smlad %[d], %[pair], %[p13], %[d]\n\t"
        "smlad %[e], %[pair], %[p24], %[e]\n\t"
        "smlad %[f], %[pair], %[p35], %[f]"
        : [x] "+r"(*x), [h] "+r"(*h), [a] "+r"(s->a), [b] "+r"(s->b), [c] "+r"(s->c), [d] "+r"(t->a), [e] "+r"(t->b),
          [f] "+r"(t->c), [p02] "=&r"(p02), [p13] "=&r"(p13), [p24] "=&r"(p24), [p35] "=&r"(p35), [pair] "=&r"(pair)
        :
        : "memory");
}

/* Four pixels of x, x + 1 and another stream, as strides of 2 have them: 24 instructions for 24 products, and all
 * registers. */
FB_INLINE void two_and_one_of_4(const int8_t **x, const int8_t **z, const uint32_t **h, three *s, three *t) {
    uint32_t word, p13, q, g, g2;
    __asm__("ldr %[word], [%[x]], #4\n\t"
            "ldr %[g2], [%[h], #8]\n\t"
            "ldr %[g], [%[h]], #4\n\t"
            "sxtb16 %[p13], %[word], ror #8\n\t"
            "sxtb16 %[word], %[word]\n\t"
            "smlad %[a], %[g], %[word], %[a]\n\t"
            "smlad %[d], %[g2], %[word], %[d]\n\t"
            "ldr %[word], [%[z]], #4\n\t"
            "smlad %[c], %[g], %[p13], %[c]\n\t"
            "smlad %[f], %[g2], %[p13], %[f]\n\t"
            "sxtb16 %[q], %[word]\n\t"
            "smlad %[b], %[g], %[q], %[b]\n\t"
            "smlad %[e], %[g2], %[q], %[e]\n\t"
            "ldr %[g2], [%[h], #8]\n\t"
            "ldr %[g], [%[h]], #12\n\t"
            "sxtb16 %[word], %[word], ror #8\n\t"
            "smlad %[b], %[g], %[word], %[b]\n\t"
            "smlad %[e], %[g2], %[word], %[e]\n\t"
            "ldr %[word], [%[x], #-2]\n\t"
            "smlad %[a], %[g], %[p13], %[a]\n\t"
            "smlad %[d], %[g2], %[p13], %[d]\n\t"
            "sxtb16 %[word], %[word]\n\t"
            "smlad %[c], %[g], %[word], %[c]\n\t"
            "smlad %[f], %[g2], %[word], %[f]"
            : [x] "+r"(*x), [z] "+r"(*z), [h] "+r"(*h), [a] "+r"(s->a), [b] "+r"(s->b), [c] "+r"(s->c), [d] "+r"(t->a),
              [e] "+r"(t->b), [f] "+r"(t->c), [word] "=&r"(word), [p13] "=&r"(p13), [q] "=&r"(q), [g] "=&r"(g),
              [g2] "=&r"(g2)
            :
            : "memory");
}

/* Four pixels of any one stream: 9 instructions for 8 products. */
FB_INLINE void any_4(const int8_t *x, const uint32_t *h, int32_t *s, int32_t *t) {
    uint32_t even, odd, pair;
    __asm__("ldr %[odd], [%[x]]\n\t"
            "ldr %[pair], [%[h]]\n\t"
            "sxtb16 %[even], %[odd]\n\t"
            "sxtb16 %[odd], %[odd], ror #8\n\t"
            "smlad %[s], %[pair], %[even], %[s]\n\t"
            "ldr %[pair], [%[h], #4]\n\t"
            "smlad %[s], %[pair], %[odd], %[s]\n\t"
            "ldr %[pair], [%[h], #8]\n\t"
            "smlad %[t], %[pair], %[even], %[t]\n\t"
            "ldr %[pair], [%[h], #12]\n\t"
            "smlad %[t], %[pair], %[odd], %[t]"
            : [s] "+r"(*s), [t] "+r"(*t), [even] "=&r"(even), [odd] "=&r"(odd), [pair] "=&r"(pair)
            : [x] "r"(x), [h] "r"(h)
            : "memory");
}

void fb_grad_tile(const int8_t *x, int32_t second, int32_t third, const void *packed, uint32_t n,
                  int32_t sums[FB_GRAD_FILTERS][FB_GRAD_STREAMS]) {
    const uint32_t *h = packed, *end = h + n, *twos = end - n / 4 % 2 * 4;
    three s = {0, 0, 0}, t = {0, 0, 0};
    if (second == 1 && third == 2) {
        while (h < twos) {
            row_of_4(&x, &h, &s, &t);
            row_of_4(&x, &h, &s, &t);
        }
        if (h < end) row_of_4(&x, &h, &s, &t);
    } else if (third == 1) {
        const int8_t *z = x + second;
        while (h < twos) {
            two_and_one_of_4(&x, &z, &h, &s, &t);
            two_and_one_of_4(&x, &z, &h, &s, &t);
        }
        if (h < end) two_and_one_of_4(&x, &z, &h, &s, &t);
    } else {
        for (; h < end; h += 4, x += 4) {
            any_4(x, h, &s.a, &t.a);
            any_4(x + second, h, &s.b, &t.b);
            any_4(x + third, h, &s.c, &t.c);
        }
    }
    sums[0][0] = s.a, sums[0][1] = s.b, sums[0][2] = s.c;
    sums[1][0] = t.a, sums[1][1] = t.b, sums[1][2] = t.c;
}

#elif defined(FB_THUMB1)

/* One pixel. Products take the place of what was loaded from x, as a multiplication overwrites a factor; sums are in
 * high registers, which can be added to. Compilers find neither. */
#define PIXEL \
    "ldmia %[h]!, {%[g]}\n\t" \
    "ldrsb %[p], [%[x], %[first]]\n\t" \
    "muls %[p], %[g], %[p]\n\t" \
    "add %[a], %[p]\n\t" \
    "ldrsb %[p], [%[x], %[second]]\n\t" \
    "muls %[p], %[g], %[p]\n\t" \
    "add %[b], %[p]\n\t" \
    "ldrsb %[p], [%[x], %[third]]\n\t" \
    "muls %[p], %[g], %[p]\n\t" \
    "add %[c], %[p]\n\t" \
    "adds %[x], #1\n\t"

void fb_grad_tile(const int8_t *x, int32_t second, int32_t third, const void *packed, uint32_t n,
                  int32_t sums[FB_GRAD_FILTERS][FB_GRAD_STREAMS]) {
    const int32_t *h = packed, *end = h + n;
    int32_t a = 0, b = 0, c = 0, g, p;
    __asm__(".syntax unified\n"
            "1:\n\t" PIXEL PIXEL PIXEL PIXEL "cmp %[end], %[h]\n\t"
            "bhi 1b"
            : [h] "+l"(h), [x] "+l"(x), [a] "+h"(a), [b] "+h"(b), [c] "+h"(c), [g] "=&l"(g), [p] "=&l"(p)
            : [first] "l"(0), [second] "l"(second), [third] "l"(third), [end] "h"(end)
            : "cc", "memory");
    sums[0][0] = a, sums[0][1] = b, sums[0][2] = c;
}

#elif defined(FB_SCALAR)

/* One pixel. */
FB_INLINE void pixel(const int8_t *h, int32_t x0, int32_t x1, int32_t x2, three *s, three *t) {
    s->a += h[0] * x0;
    s->b += h[0] * x1;
    s->c += h[0] * x2;
    t->a += h[1] * x0;
    t->b += h[1] * x1;
    t->c += h[1] * x2;
}

void fb_grad_tile(const int8_t *x, int32_t second, int32_t third, const void *packed, uint32_t n,
                  int32_t sums[FB_GRAD_FILTERS][FB_GRAD_STREAMS]) {
    const int8_t *h = packed, *end = h + 2 * n;
    three s = {0, 0, 0}, t = {0, 0, 0};
    if (second == 1 && third == 2) {
        int32_t x0 = x[0], x1 = x[1];
        for (; h < end; h += 6, x += 3) { /* what was loaded for the third stream serves the others later */
            int32_t x2 = x[2];
            pixel(h, x0, x1, x2, &s, &t);
            x0 = x[3];
            pixel(h + 2, x1, x2, x0, &s, &t);
            x1 = x[4];
            pixel(h + 4, x2, x0, x1, &s, &t);
        }
    } else {
        for (; h < end; h += 2, x++) pixel(h, x[0], x[second], x[third], &s, &t);
    }
    sums[0][0] = s.a, sums[0][1] = s.b, sums[0][2] = s.c;
    sums[1][0] = t.a, sums[1][1] = t.b, sums[1][2] = t.c;
}

#else

/* On x86 the compiler makes a version for AVX2 as well and the loader chooses. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
__attribute__((target_clones("avx2", "default")))
#endif
void fb_grad_tile(const int8_t *x, int32_t second, int32_t third, const void *packed, uint32_t n,
                  int32_t sums[FB_GRAD_FILTERS][FB_GRAD_STREAMS]) {
    const int8_t *h = packed, *y = x + second, *z = x + third;
    for (unsigned filter = 0; filter < FB_GRAD_FILTERS; filter++, h += n) {
        int32_t a = 0, b = 0, c = 0;
        for (uint32_t i = 0; i < n; i++) {
            a += h[i] * x[i];
            b += h[i] * y[i];
            c += h[i] * z[i];
        }
        sums[filter][0] = a, sums[filter][1] = b, sums[filter][2] = c;
    }
}

#endif
