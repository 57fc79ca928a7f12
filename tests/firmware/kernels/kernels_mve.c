/* Runs every Helium kernel on random layers beside its reference twin, on a Cortex-M55 (QEMU's mps3-an547).
 *
 * Inputs lie at the very start or end of a memory, where one byte too far is a fault; outputs and scratch are followed
 * by bytes that must not change. Prints a line per kernel: how many layers it computed, how many it left to others.
 */
#include <string.h>

#include "kernels/fb_kernels_mve.h"

/* The board: 512 KB at 0 for code, 512 KB of data with nothing before and behind, 4 MB of RAM for the rest. */
#define DTCM ((int8_t *)0x20000000)
#define DTCM_SIZE 0x80000u
#define STACK_TOP 0x21300000u

enum { GUARD = 64, LARGEST = 48 * 1024, PARAMS = 512, BITS = 64 * 1024 };

static int8_t expected[LARGEST + GUARD], actual[LARGEST + GUARD];
static uint8_t scratch[128 * 1024 + GUARD] __attribute__((aligned(8)));
static uint16_t bits[BITS];
static int8_t weights[BITS];
static int32_t bias[PARAMS], mult_int8[PARAMS];
static int16_t mult[PARAMS];

static uint32_t state = 1;
static uint32_t draw(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return (uint32_t)((uint64_t)state * below >> 32);
}
static int32_t between(int32_t low, int32_t high) { return low + (int32_t)draw((uint32_t)(high - low + 1)); }

static int semihosting(int operation, const void *argument) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}
static void print(const char *text) { semihosting(4, text); }
static void print_number(int32_t value) {
    char digits[12];
    uint32_t rest = value < 0 ? 0u - (uint32_t)value : (uint32_t)value;
    int at = 11;
    digits[at] = 0;
    do digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0) digits[--at] = '-';
    print(digits + at);
    print(" ");
}
static void leave(uint32_t status) {
    uint32_t block[2] = {0x20026, status};
    semihosting(0x20, block);
    for (;;) {
    }
}

static void random_tensor(fb_tensor *t, uint32_t height, uint32_t width, uint32_t channels) {
    t->height = (uint16_t)height;
    t->width = (uint16_t)width;
    t->channels = (uint16_t)channels;
    t->zero_point = (int8_t)(draw(2) ? -128 : between(-128, 127));
    t->rank = 3;
    t->size = height * width * channels;
}

/* Values: any, or all of them as far out as can be. */
static bool far_out;
static void random_values(int8_t *values, uint32_t size) {
    uint32_t kind = draw(far_out ? 2 : 5), i;
    for (i = 0; i < size; i++) values[i] = (int8_t)(kind == 0 ? -128 : kind == 1 ? 127 : between(-128, 127));
}

static void random_bits(const fb_layer *layer) {
    uint32_t o, i, kind = draw(4), spare = 16 * layer->words - layer->inputs;
    for (o = 0; o < layer->out.channels; o++) {
        uint16_t *filter = bits + o * layer->words;
        for (i = 0; i < layer->words; i++) {
            filter[i] = (uint16_t)(kind == 0 ? 0 : kind == 1 ? 0xFFFF : draw(0x10000));
        }
        if (spare) filter[layer->words - 1] &= (uint16_t)(0xFFFF >> spare);
    }
}

static uint32_t magnitude(int32_t v) { return v < 0 ? 0u - (uint32_t)v : (uint32_t)v; }

/* Multipliers and biases within the bounds of fb_model_open: mostly such that results spread over int8, with few
 * significant bits as the exporter makes them, or any; powers of 2, which have ties; and the largest there can be. */
static void random_binary_params(fb_layer *layer) {
    const uint32_t reach = layer->inputs * (128u + 2u * magnitude(layer->in.zero_point)), kind = draw(5);
    uint32_t o;
    layer->shift = (uint8_t)between(1, 30);
    if (kind > 0) layer->shift = (uint8_t)between(8, 20);
    for (o = 0; o < layer->out.channels; o++) {
        uint32_t most, m;
        bias[o] = draw(2) ? between(-(int32_t)layer->inputs * 128, (int32_t)layer->inputs * 128) : between(-40, 40);
        most = (0x7FFFFFFFu - (1u << (layer->shift - 1))) / (reach + magnitude(bias[o]));
        if (most > 32767) most = 32767;
        m = ((255u << layer->shift) / (layer->inputs * 128) << draw(6)) + draw(4);
        if (kind == 0 && draw(2)) m = most;
        if (kind == 1) m = 1u << draw(15);
        if (m > most) m = most;
        if (m < 1) m = 1;
        if (kind > 2) m &= 0xFFFFu << (31 - __builtin_clz(m) < 6 ? 0 : 31 - __builtin_clz(m) - 5);
        mult[o] = (int16_t)m;
    }
    layer->mult = mult;
    layer->bias = bias;
}

static void finish(fb_layer *layer) {
    layer->low = layer->flags & FB_FLAG_RELU ? layer->out.zero_point : (int8_t)-128;
    layer->inputs = (uint32_t)layer->kernel_h * layer->kernel_w * layer->in.channels;
    layer->words = (layer->inputs + 15) / 16;
}

/* A window of the given kernel and stride at random sizes, paddings; false if it does not fit. */
static bool random_window(fb_layer *layer, uint32_t channels, uint32_t out_channels, bool padded) {
    uint32_t height = (uint32_t)between(1, 20), width = (uint32_t)between(1, draw(4) ? 20 : 40);
    uint32_t bottom = padded ? draw(layer->kernel_h) : 0, right = padded ? draw(layer->kernel_w) : 0, down, across;
    layer->pad_top = (uint8_t)(padded ? draw(layer->kernel_h) : 0);
    layer->pad_left = (uint8_t)(padded ? draw(layer->kernel_w) : 0);
    down = height + layer->pad_top + bottom;
    across = width + layer->pad_left + right;
    if (down < layer->kernel_h || across < layer->kernel_w) return false;
    random_tensor(&layer->in, height, width, channels);
    random_tensor(&layer->out, (down - layer->kernel_h) / layer->stride_h + 1,
                  (across - layer->kernel_w) / layer->stride_w + 1, out_channels);
    if (layer->kind != FB_CONV && layer->kind != FB_CONV_BITS) layer->out.channels = layer->in.channels;
    layer->out.size = (uint32_t)layer->out.height * layer->out.width * layer->out.channels;
    layer->in2 = layer->in;
    finish(layer);
    return layer->in.size <= LARGEST && layer->out.size <= LARGEST;
}

static bool random_conv_binary(fb_layer *layer) {
    static const uint8_t channels[] = {1, 3, 5, 7, 8, 12, 15, 16, 16, 16, 17, 24, 32, 32, 48, 64};
    uint32_t c = channels[draw(sizeof channels)];
    uint32_t o = draw(8) ? (uint32_t)between(1, 20) : (uint32_t)between(60, 70);
    layer->kind = FB_CONV;
    layer->flags = (uint8_t)(FB_FLAG_BINARY | draw(2));
    layer->kernel_h = (uint8_t)(draw(4) ? 3 : between(1, 6));
    layer->kernel_w = (uint8_t)(draw(4) ? layer->kernel_h : between(1, 6));
    layer->stride_h = (uint8_t)between(1, draw(4) ? 2 : 4);
    layer->stride_w = (uint8_t)(draw(4) ? layer->stride_h : between(1, 4));
    if (layer->kernel_h == 3 && layer->kernel_w == 3 && c % 16 == 0 && draw(4)) layer->flags |= FB_FLAG_CHUNKS;
    if (!random_window(layer, c, o, true)) return false;
    if (o * layer->words > BITS || layer->out.size * layer->inputs > 600000) return false; /* twins are slow */
    random_bits(layer);
    random_binary_params(layer);
    layer->bits = bits;
    return true;
}

/* Sums and biases at the limits of 16 bits, with multipliers that keep them apart in the output; and kernels whose last
 * chunk of channels has larger groups than the others. */
static bool random_conv_limits(fb_layer *layer) {
    const uint32_t chunks = 1 + draw(2);
    uint32_t o;
    layer->kind = FB_CONV;
    layer->flags = (uint8_t)(FB_FLAG_BINARY | draw(2));
    layer->kernel_h = layer->kernel_w = 3;
    if (draw(8) == 0) {
        layer->kernel_h = layer->kernel_w = 6;
        layer->stride_h = layer->stride_w = 2;
        if (!random_window(layer, 13, 3, true)) return false;
    } else {
        layer->flags |= FB_FLAG_CHUNKS;
        if (!random_window(layer, 16 * chunks, 8, true)) return false;
    }
    if (layer->in.size > 4000) return false;
    random_bits(layer);
    for (o = 0; o < layer->out.channels; o++) {
        memset(bits + o * layer->words, draw(2) ? 0xFF : 0, layer->words * 2);
        bias[o] = chunks == 1 ? INT16_MAX - 144 * 128 + between(-100, 2000) : between(0, 30000);
        if (draw(2)) bias[o] = -bias[o];
        mult[o] = (int16_t)between(50, 400);
    }
    if (layer->in.channels == 13) random_bits(layer);
    layer->in.zero_point = (int8_t)(draw(2) ? -128 : 127);
    layer->out.zero_point = (int8_t)between(-128, 127);
    finish(layer);
    layer->shift = 15;
    layer->mult = mult;
    layer->bias = bias;
    layer->bits = bits;
    far_out = true;
    return true;
}

static bool random_dense_binary(fb_layer *layer) {
    layer->kind = FB_DENSE;
    layer->flags = (uint8_t)(FB_FLAG_BINARY | draw(2));
    random_tensor(&layer->in, 1, 1, (uint32_t)between(1, draw(4) ? 100 : 2000));
    random_tensor(&layer->out, 1, 1, (uint32_t)between(1, 20));
    finish(layer);
    random_bits(layer);
    random_binary_params(layer);
    layer->bits = bits;
    return true;
}

/* Weights and parameters of int8 layers, within the bounds of fb_model_open. */
static void random_int8_params(fb_layer *layer) {
    uint32_t i;
    random_values(weights, layer->inputs * layer->out.channels);
    for (i = 0; i < layer->inputs * layer->out.channels; i++) {
        if (weights[i] == -128) weights[i] = -127;
    }
    for (i = 0; i < layer->out.channels; i++) {
        bias[i] = between(-100000, 100000);
        mult_int8[i] = between(1 << 20, 0x7FFFFFFF);
    }
    layer->shift = (uint8_t)between(35, 46);
    layer->weights = weights;
    layer->bias = bias;
    layer->mult_int8 = mult_int8;
}

/* Of some layers products whose lower word is 0: ties. */
static void random_ties(fb_layer *layer) {
    uint32_t i;
    if (draw(3)) return;
    layer->shift = 33;
    for (i = 0; i < layer->out.channels; i++) mult_int8[i] = 1 << between(20, 30);
}

static bool random_conv_int8(fb_layer *layer) {
    layer->kind = FB_CONV;
    layer->flags = (uint8_t)draw(2);
    layer->kernel_h = (uint8_t)between(1, 4);
    layer->kernel_w = (uint8_t)between(1, 4);
    layer->stride_h = (uint8_t)between(1, 3);
    layer->stride_w = (uint8_t)between(1, 3);
    if (draw(4) == 0) layer->kernel_h = layer->kernel_w = layer->stride_h = layer->stride_w = 1;
    if (!random_window(layer, (uint32_t)between(1, draw(4) ? 20 : 300), (uint32_t)between(1, 9), true)) return false;
    if (layer->out.size * layer->inputs > 200000) return false;
    random_int8_params(layer);
    random_ties(layer);
    return true;
}

static bool random_depthwise_int8(fb_layer *layer) {
    layer->kind = FB_DEPTHWISE;
    layer->flags = (uint8_t)draw(2);
    layer->kernel_h = (uint8_t)(draw(2) ? 3 : between(1, 5));
    layer->kernel_w = (uint8_t)(draw(2) ? 3 : between(1, 5));
    layer->stride_h = (uint8_t)between(1, 3);
    layer->stride_w = (uint8_t)between(1, 3);
    if (!random_window(layer, (uint32_t)between(1, 5), 0, true)) return false;
    layer->inputs = (uint32_t)layer->kernel_h * layer->kernel_w;
    random_int8_params(layer);
    random_ties(layer);
    return true;
}

static bool random_dense_int8(fb_layer *layer) {
    layer->kind = FB_DENSE;
    layer->flags = (uint8_t)draw(2);
    random_tensor(&layer->in, 1, 1, (uint32_t)between(1, draw(4) ? 100 : 2000));
    random_tensor(&layer->out, 1, 1, (uint32_t)between(1, 20));
    finish(layer);
    random_int8_params(layer);
    return true;
}

static bool random_conv_bits(fb_layer *layer) {
    static const uint8_t channels[] = {1, 7, 15, 16, 16, 17, 32, 32, 40, 48, 64, 100};
    uint32_t c = channels[draw(sizeof channels)];
    layer->kind = FB_CONV_BITS;
    layer->flags = (uint8_t)(FB_FLAG_BINARY | draw(2) | (draw(2) ? FB_FLAG_ONES : 0u));
    layer->kernel_h = (uint8_t)(draw(3) ? 3 : between(1, 6));
    layer->kernel_w = (uint8_t)(draw(3) ? layer->kernel_h : between(1, 6));
    layer->stride_h = (uint8_t)between(1, draw(4) ? 2 : 4);
    layer->stride_w = (uint8_t)(draw(4) ? layer->stride_h : between(1, 4));
    if (draw(5) == 0) layer->kernel_h = layer->kernel_w = layer->stride_h = layer->stride_w = 1;
    if (layer->kernel_h == 3 && layer->kernel_w == 3 && c % 16 == 0 && draw(4)) layer->flags |= FB_FLAG_CHUNKS;
    if (!random_window(layer, c, (uint32_t)between(1, 12), true)) return false;
    if (layer->out.size * layer->inputs > 300000) return false;
    layer->in.size = fb_words(c) * layer->in.height * layer->in.width * 2; /* of packed words */
    random_bits(layer);
    random_binary_params(layer);
    layer->bits = bits;
    return true;
}

/* Bits that are left over are 0. */
static void clear_spare(const fb_layer *layer, int8_t *values) {
    uint32_t plane = (uint32_t)layer->in.height * layer->in.width, spare = (16 - layer->in.channels % 16u) % 16, i;
    uint16_t *last = (uint16_t *)(void *)values + (fb_words(layer->in.channels) - 1) * plane;
    for (i = 0; i < plane; i++) last[i] &= (uint16_t)(0xFFFFu >> spare);
}

static bool random_max_pool(fb_layer *layer) {
    layer->kind = FB_MAX_POOL;
    layer->kernel_h = (uint8_t)between(1, 4);
    layer->kernel_w = (uint8_t)between(1, 4);
    layer->stride_h = (uint8_t)between(1, 4);
    layer->stride_w = (uint8_t)between(1, 4);
    if (draw(20) == 0) layer->stride_w = (uint8_t)between(15, 20);
    return random_window(layer, (uint32_t)between(1, 5), 0, true);
}

static bool random_average_pool(fb_layer *layer) {
    layer->kind = FB_AVERAGE_POOL;
    layer->kernel_h = (uint8_t)between(1, 20);
    layer->kernel_w = (uint8_t)between(1, 20);
    layer->stride_h = (uint8_t)between(1, 4);
    layer->stride_w = (uint8_t)between(1, 4);
    layer->shift = (uint8_t)between(8, 20);
    layer->factor[0] = (1u << layer->shift) / layer->kernel_h / layer->kernel_w + 1;
    return random_window(layer, (uint32_t)between(1, 5), 0, false);
}

static bool random_add(fb_layer *layer) {
    layer->kind = FB_ADD;
    layer->flags = (uint8_t)draw(2);
    random_tensor(&layer->in, (uint32_t)between(1, 9), (uint32_t)between(1, 9), (uint32_t)between(1, 9));
    layer->in2 = layer->out = layer->in;
    layer->in2.zero_point = (int8_t)between(-128, 127);
    layer->out.zero_point = (int8_t)between(-128, 127);
    layer->shift = (uint8_t)between(1, 22);
    layer->factor[0] = 1 + draw(1u << layer->shift);
    layer->factor[1] = draw(4) ? 1 + draw(1u << layer->shift) : layer->factor[0];
    finish(layer);
    return true;
}

typedef bool generator(fb_layer *layer);

/* Compare a kernel with its twin on `count` layers. */
static void check(const fb_kernel *kernel, fb_run_function *twin, generator *generate, uint32_t count) {
    uint32_t done = 0, left = 0;
    while (done < count) {
        fb_layer layer;
        uint32_t seed = state, bytes, i, mixed;
        int8_t *in, *in2;
        memset(&layer, 0, sizeof layer);
        far_out = false;
        layer.kernel_h = layer.kernel_w = layer.stride_h = layer.stride_w = 1;
        if (!generate(&layer)) continue;
        bytes = kernel->scratch(&layer);
        if (bytes == FB_NOT_FOR_THIS) {
            if (++left > 20 * count) break;
            continue;
        }
        mixed = draw(2);
        in = mixed ? DTCM : DTCM + DTCM_SIZE - layer.in.size;
        in2 = mixed ? DTCM + DTCM_SIZE - layer.in.size : DTCM;
        random_values(in, layer.in.size);
        random_values(in2, layer.in.size);
        if (layer.kind == FB_CONV_BITS) clear_spare(&layer, in);
        twin(&layer, in, in2, expected, NULL);
        memset(actual, 0x55, sizeof actual);
        memset(scratch, 0x55, sizeof scratch);
        if (layer.kind == FB_ADD && draw(2)) { /* over an input */
            int8_t *over = draw(2) ? in : in2;
            kernel->run(&layer, in, in2, over, scratch);
            memcpy(actual, over, layer.out.size);
        } else if (bytes <= sizeof scratch - GUARD) {
            kernel->run(&layer, in, in2, actual, scratch);
        }
        for (i = 0; i < GUARD; i++) {
            if (actual[layer.out.size + i] != 0x55 || scratch[bytes + i] != 0x55) break;
        }
        if (i < GUARD || bytes > sizeof scratch - GUARD || memcmp(expected, actual, layer.out.size)) {
            for (i = 0; i < layer.out.size && expected[i] == actual[i];) i++;
            print(kernel->name);
            print(" DIFFERS: seed ");
            print_number((int32_t)seed);
            print("in h w c ");
            print_number(layer.in.height);
            print_number(layer.in.width);
            print_number(layer.in.channels);
            print("out h w c ");
            print_number(layer.out.height);
            print_number(layer.out.width);
            print_number(layer.out.channels);
            print("kernel ");
            print_number(layer.kernel_h);
            print_number(layer.kernel_w);
            print("stride ");
            print_number(layer.stride_h);
            print_number(layer.stride_w);
            print("pad ");
            print_number(layer.pad_top);
            print_number(layer.pad_left);
            print("flags ");
            print_number(layer.flags);
            print("shift ");
            print_number(layer.shift);
            print("scratch ");
            print_number((int32_t)bytes);
            print("at ");
            print_number((int32_t)i);
            if (i < layer.out.size) {
                print("expected ");
                print_number(expected[i]);
                print("got ");
                print_number(actual[i]);
            }
            print("\n");
            leave(1);
        }
        done++;
    }
    print(kernel->name);
    print(" equal ");
    print_number((int32_t)done);
    print("left ");
    print_number((int32_t)left);
    print("\n");
}

#define CHECK(list, twin, generate, count) \
    do { \
        static const fb_kernel kernels[] = {list}; \
        uint32_t i; \
        for (i = 0; i < sizeof kernels / sizeof *kernels; i++) check(&kernels[i], twin, generate, count); \
    } while (0)

static void run(void) {
    CHECK(FB_CONV_BINARY_MVE, fb_conv_bin_reference, random_conv_binary, 200);
    CHECK(FB_CONV_BINARY_MVE, fb_conv_bin_reference, random_conv_limits, 100);
    CHECK(FB_DENSE_BINARY_MVE, fb_dense_bin, random_dense_binary, 100);
    CHECK(FB_CONV_INT8_MVE, fb_conv_int8, random_conv_int8, 300);
    CHECK(FB_DEPTHWISE_INT8_MVE, fb_depthwise_int8, random_depthwise_int8, 300);
    CHECK(FB_DENSE_INT8_MVE, fb_dense_int8, random_dense_int8, 100);
    CHECK(FB_CONV_BITS_MVE, fb_conv_bits_reference, random_conv_bits, 300);
    CHECK(FB_MAX_POOL_MVE, fb_max_pool, random_max_pool, 200);
    CHECK(FB_AVERAGE_POOL_MVE, fb_average_pool, random_average_pool, 200);
    CHECK(FB_ADD_MVE, fb_add, random_add, 200);
    print("all equal\n");
    leave(0);
}

static void reset(void) {
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: the vector unit */
    __asm__ volatile("dsb\n\tisb");
    run();
}

static void fault(void) {
    print("FAULT\n");
    leave(3);
}

typedef void handler(void);
extern handler *const vectors[16];
__attribute__((section(".vectors"), used)) handler *const vectors[16] = {
    (handler *)STACK_TOP,
    reset,
    fault,
    fault,
    fault,
    fault,
    fault,
    NULL,
    NULL,
    NULL,
    NULL,
    fault,
    fault,
    NULL,
    fault,
    fault,
};
