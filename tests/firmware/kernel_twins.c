/* Random layers through every scalar kernel, against the reference twin and against the formulas of docs/numerics.md.
 *
 * Layers have numbers, and a number always makes the same layer. On the host (TWINS_HOSTED, arguments: first number,
 * count) buffers have exactly the size they must have, for the sanitizers; on bare metal (TWINS_FIRST, TWINS_COUNT)
 * guards stand behind them. Prints a line for each difference; the exit status says whether there was one.
 */
#include "fb_kernels_scalar.h"

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

static const fb_kernel conv_kernels[] = {FB_CONV_BINARY_SCALAR{NULL, NULL, NULL}};
static const fb_kernel dense_kernels[] = {FB_DENSE_BINARY_SCALAR FB_ENTRY(fb_dense_bin), {NULL, NULL, NULL}};
static const fb_kernel conv_int8_kernels[] = {FB_CONV_INT8_SCALAR FB_ENTRY(fb_conv_int8), {NULL, NULL, NULL}};
static const fb_kernel dense_int8_kernels[] = {FB_DENSE_INT8_SCALAR FB_ENTRY(fb_dense_int8), {NULL, NULL, NULL}};
static const fb_kernel add_kernels[] = {FB_ADD_SCALAR FB_ENTRY(fb_add), {NULL, NULL, NULL}};
static const fb_kernel average_kernels[] = {FB_AVERAGE_POOL_SCALAR FB_ENTRY(fb_average_pool), {NULL, NULL, NULL}};
static const fb_kernel max_kernels[] = {FB_MAX_POOL_SCALAR FB_ENTRY(fb_max_pool), {NULL, NULL, NULL}};

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

static void set_relu(fb_layer *layer) {
    if (below(2)) layer->flags |= FB_FLAG_RELU;
    layer->low = layer->flags & FB_FLAG_RELU ? layer->out.zero_point : (int8_t)-128;
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

/* The largest multiplier for which (reach + |bias|) · multiplier + half fits 31 bits. */
static void draw_scaling(fb_layer *layer, int32_t *bias, int16_t *mult) {
    uint32_t reach = layer->inputs *
                     (128u + 2u * (uint32_t)(layer->in.zero_point < 0 ? -layer->in.zero_point : layer->in.zero_point));
    uint32_t largest, o;
    layer->shift = (uint8_t)(1 + below(30));
    for (o = 0; o < layer->out.channels; o++) {
        uint32_t size = below(4) ? below(2 * reach + 1) : 0;
        largest = (0x7FFFFFFFu - (1u << layer->shift >> 1)) / (reach + size);
        if (largest > 32767) largest = 32767;
        if (!largest) largest = 1; /* only where reach is huge: not drawn here */
        mult[o] = (int16_t)(below(3) ? largest - below(largest < 16 ? 1 : 16) : 1 + below(largest));
        bias[o] = below(2) ? -(int32_t)size : (int32_t)size;
    }
}

static int differ(const char *name, uint32_t number, const int8_t *a, const int8_t *b, uint32_t size) {
    char digits[11];
    unsigned i = 10;
    if (memcmp(a, b, size) == 0) return 0;
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

/* Every kernel of a list that takes the layer against `expected`. `in_place` writes over the input. */
static int compare(const fb_kernel *kernels, const fb_layer *layer, const int8_t *in, const int8_t *in2,
                   const int8_t *expected, uint32_t number, bool in_place) {
    int bad = 0;
    for (; kernels->name; kernels++) {
        uint32_t size = kernels->scratch(layer);
        int8_t *out;
        void *scratch;
        if (size == FB_NOT_FOR_THIS) continue;
        out = take(layer->out.size);
        scratch = take(size);
        memset(out, 99, layer->out.size);
        memset(scratch, 0xA5, size);
        if (in_place) {
            memcpy(out, in, layer->out.size);
            in = out;
        }
        kernels->run(layer, in, in2, out, scratch);
        bad += differ(kernels->name, number, out, expected, layer->out.size);
        give(scratch);
        give(out);
        if (in_place) break;
    }
    return bad;
}

static int binary_conv(uint32_t number) {
    static const uint8_t channels[] = {1, 2, 3, 5, 13, 16, 17, 32, 48, 100}, chunked[] = {16, 16, 32, 48, 64};
    static const uint8_t filters[] = {1, 2, 3, 8, 16, 17, 33};
    fb_layer layer = {0};
    int8_t *in, *expected;
    uint16_t *bits;
    int32_t *bias;
    int16_t *mult;
    bool chunks = below(2);
    int bad;
    layer.kind = FB_CONV;
    layer.flags = FB_FLAG_BINARY;
    layer.kernel_h = (uint8_t)(chunks ? 3 : 1 + below(7));
    layer.kernel_w = (uint8_t)(chunks || below(2) ? layer.kernel_h : 1 + below(7));
    layer.stride_h = (uint8_t)(1 + below(3));
    layer.stride_w = below(4) ? layer.stride_h : (uint8_t)(1 + below(3));
    if (chunks) layer.flags |= FB_FLAG_CHUNKS;
    draw_window(&layer, chunks ? among(chunked, sizeof chunked) : among(channels, sizeof channels),
                among(filters, sizeof filters), true);
    set_relu(&layer);
    in = take(layer.in.size);
    bits = take(2 * layer.words * layer.out.channels);
    bias = take(sizeof *bias * layer.out.channels);
    mult = take(sizeof *mult * layer.out.channels);
    expected = take(layer.out.size);
    draw_values(in, layer.in.size, layer.in.zero_point);
    draw_bits(bits, &layer);
    draw_scaling(&layer, bias, mult);
    layer.bits = bits;
    layer.bias = bias;
    layer.mult = mult;
    fb_conv_bin_reference(&layer, in, NULL, expected, NULL);
    bad = compare(conv_kernels, &layer, in, NULL, expected, number, false);
    give(expected);
    give(mult);
    give(bias);
    give(bits);
    give(in);
    return bad;
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

static int binary_dense(uint32_t number) {
    fb_layer layer = {0};
    int8_t *in, *expected;
    uint16_t *bits;
    int32_t *bias;
    int16_t *mult;
    uint32_t o, i;
    int bad;
    layer.kind = FB_DENSE;
    layer.flags = FB_FLAG_BINARY;
    layer.kernel_h = layer.kernel_w = layer.stride_h = layer.stride_w = 1;
    draw_tensor(&layer.in, 1, 1, 1 + below(700));
    draw_tensor(&layer.out, 1, 1, 1 + below(20));
    layer.inputs = layer.in.channels;
    layer.words = (layer.inputs + 15) / 16;
    set_relu(&layer);
    in = take(layer.in.size);
    bits = take(2 * layer.words * layer.out.channels);
    bias = take(sizeof *bias * layer.out.channels);
    mult = take(sizeof *mult * layer.out.channels);
    expected = take(layer.out.size);
    draw_values(in, layer.in.size, layer.in.zero_point);
    draw_bits(bits, &layer);
    draw_scaling(&layer, bias, mult);
    layer.bits = bits;
    layer.bias = bias;
    layer.mult = mult;
    for (o = 0; o < layer.out.channels; o++) {
        int32_t sum = bias[o];
        for (i = 0; i < layer.inputs; i++) sum += bits[o * layer.words + i / 16] >> i % 16 & 1 ? in[i] : -in[i];
        expected[o] = formula((int64_t)sum * mult[o], layer.shift, layer.out.zero_point, layer.low);
    }
    bad = compare(dense_kernels, &layer, in, NULL, expected, number, false);
    give(expected);
    give(mult);
    give(bias);
    give(bits);
    give(in);
    return bad;
}

/* Input of a window at (y, x) of the input, the zero point outside. */
static int32_t at(const fb_layer *layer, const int8_t *in, uint32_t c, int32_t y, int32_t x, int32_t outside) {
    if (y < 0 || x < 0 || y >= layer->in.height || x >= layer->in.width) return outside;
    return in[(c * layer->in.height + (uint32_t)y) * layer->in.width + (uint32_t)x];
}

static int int8_layer(uint32_t number) {
    static const uint8_t channels[] = {1, 3, 4, 7, 16};
    bool dense = below(2);
    fb_layer layer = {0};
    int8_t *in, *weights, *expected;
    int32_t *bias, *mult, y, x, ky, kx;
    uint32_t o, c, i;
    int bad;
    layer.kind = dense ? FB_DENSE : FB_CONV;
    layer.kernel_h = layer.kernel_w = layer.stride_h = layer.stride_w = 1;
    if (dense) {
        draw_tensor(&layer.in, 1, 1, 1 + below(200));
        draw_tensor(&layer.out, 1, 1, 1 + below(20));
        layer.inputs = layer.in.channels;
    } else {
        layer.kernel_h = (uint8_t)(1 + below(3));
        layer.kernel_w = (uint8_t)(1 + below(3));
        layer.stride_h = layer.stride_w = (uint8_t)(1 + below(2));
        draw_window(&layer, among(channels, sizeof channels), 1 + below(6), true);
    }
    set_relu(&layer);
    layer.shift = (uint8_t)(1 + below(46));
    in = take(layer.in.size);
    weights = take(layer.inputs * layer.out.channels);
    bias = take(sizeof *bias * layer.out.channels);
    mult = take(sizeof *mult * layer.out.channels);
    expected = take(layer.out.size);
    draw_values(in, layer.in.size, layer.in.zero_point);
    draw_values(weights, layer.inputs * layer.out.channels, 0);
    for (o = 0; o < layer.out.channels; o++) {
        bias[o] = (int32_t)(draw() >> below(31));
        bias[o] = below(2) ? -(bias[o] / 2) : bias[o] / 2;
        mult[o] = (int32_t)(1 + (draw() >> 1 >> below(31)) % 0x7FFFFFFEu);
    }
    layer.weights = weights;
    layer.bias = bias;
    layer.mult_int8 = mult;
    for (o = 0, i = 0; o < layer.out.channels; o++) {
        for (y = 0; y < layer.out.height; y++) {
            for (x = 0; x < layer.out.width; x++) {
                const int8_t *w = weights + o * layer.inputs;
                int32_t sum = bias[o];
                for (ky = 0; ky < layer.kernel_h; ky++) {
                    for (kx = 0; kx < layer.kernel_w; kx++) {
                        for (c = 0; c < layer.in.channels; c++) {
                            sum += *w++ * at(&layer, in, c, y * layer.stride_h - layer.pad_top + ky,
                                             x * layer.stride_w - layer.pad_left + kx, layer.in.zero_point);
                        }
                    }
                }
                expected[i++] = formula((int64_t)sum * mult[o], layer.shift, layer.out.zero_point, layer.low);
            }
        }
    }
    bad = compare(dense ? dense_int8_kernels : conv_int8_kernels, &layer, in, NULL, expected, number, false);
    give(expected);
    give(mult);
    give(bias);
    give(weights);
    give(in);
    return bad;
}

static int addition(uint32_t number) {
    fb_layer layer = {0};
    int8_t *in, *in2, *expected;
    uint32_t limit, i;
    int bad;
    layer.kind = FB_ADD;
    draw_tensor(&layer.in, 1 + below(9), 1 + below(9), 1 + below(9));
    layer.in2 = layer.out = layer.in;
    layer.in2.zero_point = draw_zero();
    layer.out.zero_point = draw_zero();
    set_relu(&layer);
    layer.shift = (uint8_t)(1 + below(30));
    limit = (0x7FFFFFFFu - (1u << layer.shift >> 1)) / 255; /* first + second */
    layer.factor[0] = 1 + below(limit - 1 < (1u << 22) - 1 ? limit - 1 : (1u << 22) - 1);
    limit -= layer.factor[0];
    layer.factor[1] = limit < (1u << 22) - 1 ? limit : (1u << 22) - 1;
    if (below(2)) layer.factor[1] = 1 + below(layer.factor[1]);
    in = take(layer.in.size);
    in2 = take(layer.in.size);
    expected = take(layer.out.size);
    draw_values(in, layer.in.size, layer.in.zero_point);
    draw_values(in2, layer.in.size, layer.in2.zero_point);
    for (i = 0; i < layer.out.size; i++) {
        int64_t sum = (int64_t)(in[i] - layer.in.zero_point) * layer.factor[0] +
                      (int64_t)(in2[i] - layer.in2.zero_point) * layer.factor[1];
        expected[i] = formula(sum, layer.shift, layer.out.zero_point, layer.low);
    }
    bad = compare(add_kernels, &layer, in, in2, expected, number, false);
    bad += compare(add_kernels, &layer, in, in2, expected, number, true);
    give(expected);
    give(in2);
    give(in);
    return bad;
}

static int pooling(uint32_t number) {
    bool average = below(2);
    fb_layer layer = {0};
    int8_t *in, *expected;
    uint32_t c, i = 0;
    int32_t y, x, ky, kx;
    int bad;
    layer.kind = average ? FB_AVERAGE_POOL : FB_MAX_POOL;
    layer.kernel_h = (uint8_t)(1 + below(8));
    layer.kernel_w = (uint8_t)(below(3) ? layer.kernel_h : 1 + below(8));
    layer.stride_h = (uint8_t)(1 + below(3));
    layer.stride_w = below(3) ? layer.stride_h : (uint8_t)(1 + below(3));
    draw_window(&layer, 1 + below(5), 1, !average && below(2));
    layer.out.channels = layer.in.channels;
    layer.out.size = (uint32_t)layer.out.height * layer.out.width * layer.out.channels;
    if (!average) layer.out.zero_point = layer.in.zero_point;
    layer.low = -128;
    layer.shift = (uint8_t)(average ? 1 + below(30) : 0);
    if (average) {
        uint32_t limit = (0x7FFFFFFFu - (1u << layer.shift >> 1)) / (255u * layer.kernel_h * layer.kernel_w);
        if (limit > (1u << 22) - 1) limit = (1u << 22) - 1;
        layer.factor[0] = below(2) ? limit : 1 + below(limit);
    }
    in = take(layer.in.size);
    expected = take(layer.out.size);
    draw_values(in, layer.in.size, layer.in.zero_point);
    for (c = 0; c < layer.out.channels; c++) {
        for (y = 0; y < layer.out.height; y++) {
            for (x = 0; x < layer.out.width; x++) {
                int32_t sum = 0, most = -128;
                for (ky = 0; ky < layer.kernel_h; ky++) {
                    for (kx = 0; kx < layer.kernel_w; kx++) {
                        int32_t v = at(&layer, in, c, y * layer.stride_h - layer.pad_top + ky,
                                       x * layer.stride_w - layer.pad_left + kx, -128);
                        if (v > most) most = v;
                        sum += v - layer.in.zero_point;
                    }
                }
                expected[i++] = average
                                    ? formula((int64_t)sum * layer.factor[0], layer.shift, layer.out.zero_point, -128)
                                    : (int8_t)most;
            }
        }
    }
    bad = compare(average ? average_kernels : max_kernels, &layer, in, NULL, expected, number, false);
    give(expected);
    give(in);
    return bad;
}

static int fb_twins(uint32_t first, uint32_t count) {
    int bad = 0;
    uint32_t number;
    for (number = first; number < first + count && bad < 20; number++) {
        state = number * 2654435761u + 1;
        if (!state) state = 1;
        draw();
        draw();
        switch (number % 8) {
        case 0: bad += addition(number); break;
        case 1: bad += pooling(number); break;
        case 2: bad += number % 16 == 2 ? int8_layer(number) : binary_dense(number); break;
        default: bad += binary_conv(number);
        }
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
static void start(void) { main(); }
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
