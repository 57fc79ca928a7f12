/* What programs share that compare kernels with their twins on random layers.
 *
 * Layers have numbers, and a number always makes the same layer. On the host (TWINS_HOSTED, arguments: first number,
 * count) buffers have exactly the size they must have, for the sanitizers; on bare metal (TWINS_FIRST, TWINS_COUNT)
 * guards stand behind them. Prints a line for each difference; the exit status says whether there was one.
 */
#ifndef TWINS_H
#define TWINS_H

#include "kernels/fb_kernels.h"

#include <string.h>

#ifdef TWINS_HOSTED
#include <stdio.h>
#include <stdlib.h>
static void *take(size_t size) { return malloc(size ? size : 1); }
static void give(void *p) { free(p); }
static void say(const char *text) { fputs(text, stdout); }
#else
#include "semihosting.h"
enum { GUARD = 8 };
static uint8_t pool[512 * 1024] __attribute__((aligned(8)));
static size_t used;
static void say(const char *text) { semihosting_write(text); }

/* Last taken, first given. The size lies before a block, a guard from its end on. */
static void *take(size_t size) {
    uint8_t *p = pool + used + 8;
    used += 8 + ((size + GUARD + 7) & ~(size_t)7);
    if (used > sizeof pool) {
        say("no room\n");
        semihosting_exit(2);
    }
    ((uint32_t *)(void *)p)[-2] = (uint32_t)size;
    memset(p + size, 0x5A, GUARD);
    return p;
}
static void give(void *block) {
    uint8_t *p = block;
    size_t size = ((uint32_t *)block)[-2], i;
    for (i = 0; i < GUARD; i++) {
        if (p[size + i] != 0x5A) {
            say("written behind the end\n");
            semihosting_exit(3);
        }
    }
    used = (size_t)(p - pool) - 8;
}
#endif

/* What a program defines: compare one layer; how many differences there are. */
static int twin(uint32_t number);

static uint32_t state;

static uint32_t draw(void) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static uint32_t below(uint32_t n) { return (draw() >> 8) % n; }
static uint32_t among(const uint8_t *values, uint32_t n) { return values[below(n)]; }

/* All −128, all 127, the two of them, the zero point nearly everywhere, or anything. */
static void draw_values(int8_t *values, uint32_t count, int8_t zero) {
    uint32_t kind = below(6), i;
    for (i = 0; i < count; i++) {
        int32_t any = (int32_t)(draw() >> 9 & 255) - 128;
        values[i] = (int8_t)(kind == 0   ? -128
                             : kind == 1 ? 127
                             : kind == 2 ? (any < 0 ? -128 : 127)
                             : kind == 3 ? (any < 100 ? zero : any)
                                         : any);
    }
}

static void draw_bits(uint16_t *bits, const fb_layer *layer) {
    uint32_t kind = below(5), o, i;
    for (o = 0; o < layer->out.channels; o++) {
        for (i = 0; i < layer->words; i++) {
            uint32_t spare = i == layer->words - 1 ? 16 * layer->words - layer->inputs : 0;
            uint32_t word = kind == 0 ? 0xFFFF : kind == 1 ? 0 : kind == 2 && o < 2 ? 0xFFFF * o : draw() >> 7;
            *bits++ = (uint16_t)((word & 0xFFFF) & 0xFFFFu >> spare);
        }
    }
}

static int8_t draw_zero(void) {
    static const int8_t often[4] = {-128, 0, 127, -7};
    return below(2) ? often[below(4)] : (int8_t)((int32_t)below(256) - 128);
}

static void draw_tensor(fb_tensor *t, uint32_t height, uint32_t width, uint32_t channels) {
    t->height = (uint16_t)height;
    t->width = (uint16_t)width;
    t->channels = (uint16_t)channels;
    t->zero_point = draw_zero();
    t->rank = 3;
    t->scale_bits = 0;
    t->size = height * width * channels;
}

/* Kernel, stride, padding and an image they fit; `small` keeps the work of a bare-metal run small. */
static void draw_window(fb_layer *layer, uint32_t channels, uint32_t filters, bool padded) {
    static const uint8_t sides[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 14, 16, 17, 19, 24};
    uint32_t height = among(sides, sizeof sides), width = among(sides, sizeof sides), bottom, right;
    layer->pad_top = padded ? (uint8_t)below(layer->kernel_h) : 0;
    layer->pad_left = padded ? (uint8_t)below(layer->kernel_w) : 0;
    bottom = padded ? below(layer->kernel_h) : 0;
    right = padded ? below(layer->kernel_w) : 0;
    if (padded && below(2)) {
        layer->pad_top = (uint8_t)(layer->kernel_h / 2);
        layer->pad_left = (uint8_t)(layer->kernel_w / 2);
        bottom = layer->kernel_h / 2;
        right = layer->kernel_w / 2;
    }
    while (height + layer->pad_top + bottom < layer->kernel_h) height++;
    while (width + layer->pad_left + right < layer->kernel_w) width++;
    draw_tensor(&layer->in, height, width, channels);
    draw_tensor(&layer->out, (height + layer->pad_top + bottom - layer->kernel_h) / layer->stride_h + 1,
                (width + layer->pad_left + right - layer->kernel_w) / layer->stride_w + 1, filters);
    layer->inputs = (uint32_t)layer->kernel_h * layer->kernel_w * channels;
    layer->words = (layer->inputs + 15) / 16;
}

/* round(value · multiplier / 2^shift), ties away from zero: said with division instead of shifts. */
static int8_t formula(int64_t product, unsigned shift, int32_t zero_point, int32_t low) {
    int64_t one = (int64_t)1 << shift, size = product < 0 ? -product : product;
    int64_t v = (2 * size + one) / (2 * one);
    v = (product < 0 ? -v : v) + zero_point;
    if (v > 127) v = 127;
    if (v < -128) v = -128;
    return (int8_t)(v < low ? low : v);
}

/* Input of a window at (y, x) of the input, the zero point outside. */
static int32_t at(const fb_layer *layer, const int8_t *in, uint32_t c, int32_t y, int32_t x, int32_t outside) {
    if (y < 0 || x < 0 || y >= layer->in.height || x >= layer->in.width) return outside;
    return in[(c * layer->in.height + (uint32_t)y) * layer->in.width + (uint32_t)x];
}

static int different(const char *name, uint32_t number) {
    char digits[11];
    unsigned i = 10;
    digits[i] = 0;
    do {
        digits[--i] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    say(name);
    say(" differs: layer ");
    say(digits + i);
    say("\n");
    return 1;
}

static int differ(const char *name, uint32_t number, const void *a, const void *b, uint32_t size) {
    return memcmp(a, b, size) == 0 ? 0 : different(name, number);
}

static int fb_twins(uint32_t first, uint32_t count) {
    int bad = 0;
    uint32_t number;
    for (number = first; number < first + count && bad < 20; number++) {
        state = number * 2654435761u + 1;
        if (!state) state = 1;
        draw();
        draw();
        bad += twin(number);
    }
    return bad;
}

#ifdef TWINS_HOSTED
int main(int argc, char **argv) {
    uint32_t first = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    uint32_t count = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1000;
    int bad = fb_twins(first, count);
    printf("%lu layers, %d differences\n", (unsigned long)count, bad);
    return bad != 0;
}
#else

int main(void) { semihosting_exit(fb_twins(TWINS_FIRST, TWINS_COUNT) ? 1 : 0); }

static void fault(void) {
    say("fault\n");
    semihosting_exit(4);
}

/* Start-up without a linker script: code lies behind .vectors, there are no initial values, .bss is zero already. */
#if defined(__arm__)
typedef void handler(void);
static void start(void) {
#if defined(__ARM_FEATURE_MVE)
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: let vectors be used */
    __asm__ volatile("dsb\n\tisb");
#endif
    main();
}
__attribute__((section(".vectors"), used)) static handler *const vectors[16] = {
    (handler *)TWINS_STACK, start, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault};
#else
__attribute__((section(".vectors"), used, naked, aligned(4))) static void start(void) {
    __asm__(".option arch, +zicsr\n\tla sp, %0\n\tla t0, %1\n\tcsrw mtvec, t0\n\tj %2"
            :
            : "i"(TWINS_STACK), "i"(fault), "i"(main));
}
#endif
#endif

#endif
