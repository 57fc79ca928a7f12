/* Random layers through the kernels for x86-64 and NEON, each against its reference twin.
 *
 *     kernels_host FIRST COUNT      the layers with the numbers FIRST … FIRST + COUNT − 1
 *
 * Buffers end where memory ends that may be touched, or have exactly their size for the address sanitizer: a step
 * beyond is seen. Prints, for each kernel, how many layers it computed and how many of them differ from the twin.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/fb_kernels_host.h"

#define LIST(kind) {FB_##kind##_HOST FB_KERNELS_END}
static const fb_kernel conv_binary[] = LIST(CONV_BINARY), dense_binary[] = LIST(DENSE_BINARY);
static const fb_kernel conv_int8[] = LIST(CONV_INT8), dense_int8[] = LIST(DENSE_INT8);
static const fb_kernel conv_bits[] = LIST(CONV_BITS);
static const fb_kernel max_pool[] = LIST(MAX_POOL), average_pool[] = LIST(AVERAGE_POOL), add[] = LIST(ADD);

static uint32_t state;

static uint32_t below(uint32_t n) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return (state >> 4) % n;
}

static uint32_t among(const uint16_t *values, uint32_t count) { return values[below(count)]; }

#define AMONG(...) among((const uint16_t[]){__VA_ARGS__}, sizeof((const uint16_t[]){__VA_ARGS__}) / sizeof(uint16_t))

#ifdef __SANITIZE_ADDRESS__
static void *take(size_t size) {
    void *p = malloc(size ? size : 1);
    if (!p) exit(3);
    return p;
}

static void give(const void *p) { free((void *)(uintptr_t)p); }
#else
/* Memory that ends where a page ends that nobody may touch. */
enum { PAGE = 65536 };

static struct {
    uint8_t *start;
    size_t size;
    const void *p;
} taken[16];

static void *take(size_t size) {
    size_t whole = (size + PAGE) / PAGE * PAGE + PAGE;
    unsigned i = 0;
    while (taken[i].p) i++;
    taken[i].size = whole;
    taken[i].start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (taken[i].start == MAP_FAILED || mprotect(taken[i].start + whole - PAGE, PAGE, PROT_NONE) != 0) exit(3);
    taken[i].p = taken[i].start + whole - PAGE - size;
    return (void *)(uintptr_t)taken[i].p;
}

static void give(const void *p) {
    unsigned i = 0;
    if (!p) return;
    while (taken[i].p != p) i++;
    munmap(taken[i].start, taken[i].size);
    taken[i].p = NULL;
}
#endif

/* Extremes in a third of the layers: sums at their limits. */
static int8_t *draw_values(uint32_t count) {
    int8_t *values = take(count);
    uint32_t kind = below(6), i;
    for (i = 0; i < count; i++) {
        uint32_t any = below(256);
        values[i] = (int8_t)(kind == 0 ? 0x80 : kind == 1 ? (any & 1 ? 0x7F : 0x80) : any);
    }
    return values;
}

static int8_t draw_zero_point(void) { return below(2) ? (int8_t)-128 : (int8_t)below(256); }

static fb_tensor tensor(uint32_t height, uint32_t width, uint32_t channels) {
    fb_tensor t = {(uint16_t)height, (uint16_t)width, (uint16_t)channels, draw_zero_point(), 3, 0, 0};
    t.size = height * width * channels;
    return t;
}

static uint32_t magnitude(int32_t v) { return v < 0 ? 0u - (uint32_t)v : (uint32_t)v; }

/* Kernel, stride, padding, sizes. Sides around the 8, 16 and 32 pixels that kernels take at a time. */
static void draw_window(fb_layer *l, uint32_t channels, uint32_t filters, bool padded) {
    uint32_t height = AMONG(1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17),
             width = AMONG(1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 23, 32, 33);
    uint32_t bottom, right;
    l->stride_h = (uint8_t)AMONG(1, 1, 1, 2, 2, 3);
    l->stride_w = (uint8_t)(below(5) ? l->stride_h : 1 + below(3));
    l->pad_top = (uint8_t)(padded ? below(l->kernel_h) : 0);
    l->pad_left = (uint8_t)(padded ? below(l->kernel_w) : 0);
    bottom = padded ? below(l->kernel_h) : 0;
    right = padded ? below(l->kernel_w) : 0;
    if (height + l->pad_top + bottom < l->kernel_h) height = l->kernel_h;
    if (width + l->pad_left + right < l->kernel_w) width = l->kernel_w;
    l->in = tensor(height, width, channels);
    l->out = tensor((height + l->pad_top + bottom - l->kernel_h) / l->stride_h + 1,
                    (width + l->pad_left + right - l->kernel_w) / l->stride_w + 1, filters);
    l->inputs = (uint32_t)l->kernel_h * l->kernel_w * channels;
}

/* Scaling at the limits that fb_model_open sets. */
static void draw_binary(fb_layer *l) {
    uint32_t reach = l->inputs * (128 + 2 * magnitude(l->in.zero_point)), o, i, kind = below(5);
    uint16_t *bits = take(2 * (size_t)(l->words = (l->inputs + 15) / 16) * l->out.channels);
    int32_t *bias = take(4 * (size_t)l->out.channels);
    int16_t *mult = take(2 * (size_t)l->out.channels);
    l->flags |= FB_FLAG_BINARY;
    l->shift = (uint8_t)(1 + below(30));
    for (o = 0; o < l->out.channels; o++) {
        uint32_t size = below(3) ? below(reach + 1) : 0;
        uint32_t most = (0x7FFFFFFFu - (1u << l->shift >> 1)) / (reach + size);
        for (i = 0; i < l->words; i++) {
            uint32_t spare = i + 1 == l->words ? 16 * l->words - l->inputs : 0;
            uint32_t word = kind == 0 ? 0xFFFF : kind == 1 ? 0 : below(0x10000);
            bits[o * l->words + i] = (uint16_t)(word & 0xFFFFu >> spare);
        }
        most = most > 32767 ? 32767 : most;
        mult[o] = (int16_t)(below(2) ? most : 1 + below(most));
        bias[o] = below(2) ? (int32_t)size : -(int32_t)size;
    }
    l->bits = bits;
    l->bias = bias;
    l->mult = mult;
}

static void draw_int8(fb_layer *l) {
    int32_t *bias = take(4 * (size_t)l->out.channels), *mult = take(4 * (size_t)l->out.channels);
    uint32_t o;
    l->shift = (uint8_t)(1 + below(46));
    l->weights = draw_values(l->inputs * l->out.channels);
    for (o = 0; o < l->out.channels; o++) {
        uint32_t size = below(0x7FFFFFFFu - l->inputs * 128 * 128);
        bias[o] = below(2) ? (int32_t)(size >> below(31)) : -(int32_t)(size >> below(31));
        mult[o] = (int32_t)(1 + (below(0x7FFFFFFFu) >> below(31)));
    }
    l->bias = bias;
    l->mult_int8 = mult;
}

/* Inputs of packed bits; those left over are 0. */
static void clear_spare(const fb_layer *l, int8_t *values) {
    uint32_t plane = (uint32_t)l->in.height * l->in.width, spare = (16u - l->in.channels % 16u) % 16, i;
    uint16_t *last = (uint16_t *)(void *)values + (fb_words(l->in.channels) - 1) * plane;
    for (i = 0; i < plane; i++) last[i] = (uint16_t)(last[i] & 0xFFFFu >> spare);
}

typedef struct tally {
    const char *name;
    unsigned layers, different;
} tally;
static tally tallies[32];

static void note(const char *name, uint32_t number, bool different) {
    tally *t = tallies;
    while (t->name && strcmp(t->name, name) != 0) t++;
    t->name = name;
    t->layers++;
    t->different += different;
    if (different && t->different <= 3) printf("# %s: layer %u differs\n", name, number);
}

static void compare(const fb_kernel *kernels, fb_run_function *twin, const fb_layer *l, uint32_t number) {
    int8_t *in = draw_values(l->in.size), *in2 = l->kind == FB_ADD ? draw_values(l->in2.size) : in;
    int8_t *expected = take(l->out.size);
    if (l->kind == FB_CONV_BITS) clear_spare(l, in);
    twin(l, in, in2, expected, NULL);
    for (; kernels->name; kernels++) {
        uint32_t size = kernels->scratch(l);
        int8_t *out, *scratch;
        if (size == FB_NOT_FOR_THIS) continue;
        out = take(l->out.size);
        size = (size + 7) / 8 * 8;
        scratch = take(size + 8u);
        memset(out, 99, l->out.size);
        memset(scratch, 0xA5, size + 8u);
        kernels->run(l, in, in2, out, scratch + 8); /* aligned to FB_ALIGN and no more */
        note(kernels->name, number, memcmp(out, expected, l->out.size) != 0);
        if (l->kind == FB_ADD) { /* over its input */
            memcpy(out, in, l->out.size);
            kernels->run(l, out, in2, out, scratch + 8);
            note(kernels->name, number, memcmp(out, expected, l->out.size) != 0);
        }
        give(scratch);
        give(out);
    }
    give(expected);
    if (in2 != in) give(in2);
    give(in);
}

static void draw_add(fb_layer *l) {
    uint32_t limit;
    l->in = tensor(1 + below(9), 1 + below(20), 1 + below(9));
    l->in2 = l->out = l->in;
    l->in2.zero_point = draw_zero_point();
    l->out.zero_point = draw_zero_point();
    l->shift = (uint8_t)(1 + below(30));
    limit = (0x7FFFFFFFu - (1u << l->shift >> 1)) / 255 / 2;
    limit = limit >= 1u << 22 ? (1u << 22) - 1 : limit;
    l->factor[0] = below(2) ? limit : 1 + below(limit);
    l->factor[1] = below(2) ? limit : 1 + below(limit);
}

static void layer(uint32_t number) {
    fb_layer l;
    bool chunks = below(2);
    memset(&l, 0, sizeof l);
    l.kernel_h = l.kernel_w = l.stride_h = l.stride_w = 1;
    switch (below(12)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
        l.kind = FB_CONV;
        l.kernel_h = (uint8_t)(chunks ? 3 : AMONG(1, 1, 2, 3, 3, 5, 7));
        l.kernel_w = (uint8_t)(chunks || below(4) ? l.kernel_h : AMONG(1, 2, 3, 4, 6));
        draw_window(&l, chunks ? AMONG(16, 32, 48, 64, 64, 80, 128) : AMONG(1, 2, 3, 4, 5, 8, 13, 16, 20, 32, 35, 64),
                    AMONG(1, 2, 4, 7, 8, 9, 16, 17, 33, 40), true);
        l.flags = chunks ? FB_FLAG_CHUNKS : 0;
        draw_binary(&l);
        break;
    case 5:
        l.kind = FB_CONV;
        l.kernel_h = (uint8_t)AMONG(1, 2, 3, 5);
        l.kernel_w = (uint8_t)AMONG(1, 2, 3, 5);
        draw_window(&l, AMONG(1, 3, 4, 8, 10, 16), AMONG(1, 4, 8, 9), true);
        draw_int8(&l);
        break;
    case 6:
        l.kind = FB_DENSE;
        l.inputs = below(20) ? 1 + below(400) : 4000 + below(300); /* the long ones: counts beyond 255 words */
        l.in = tensor(1, 1, l.inputs);
        l.out = tensor(1, 1, 1 + below(20));
        if (chunks) {
            draw_binary(&l);
        } else {
            draw_int8(&l);
        }
        break;
    case 7:
        l.kind = FB_MAX_POOL;
        l.kernel_h = (uint8_t)(1 + below(4));
        l.kernel_w = (uint8_t)(1 + below(4));
        draw_window(&l, 1 + below(4), 1, true);
        break;
    case 10:
    case 11:
        l.kind = FB_CONV_BITS;
        l.kernel_h = (uint8_t)(chunks ? 3 : AMONG(1, 1, 2, 3, 5));
        l.kernel_w = (uint8_t)(chunks || below(4) ? l.kernel_h : AMONG(1, 2, 3, 4, 6));
        draw_window(&l, chunks ? AMONG(16, 32, 48, 64, 128) : AMONG(1, 2, 3, 4, 5, 8, 13, 16, 20, 32, 35, 64),
                    AMONG(1, 2, 4, 7, 8, 17), true);
        l.in.size = 2u * l.in.height * l.in.width * fb_words(l.in.channels);
        l.flags = (uint8_t)((chunks ? FB_FLAG_CHUNKS : 0) | (below(2) ? FB_FLAG_ONES : 0));
        draw_binary(&l);
        break;
    case 8:
        l.kind = FB_AVERAGE_POOL;
        l.kernel_h = (uint8_t)(1 + below(8));
        l.kernel_w = (uint8_t)(1 + below(8));
        draw_window(&l, 1 + below(4), 1, false);
        if (chunks) l.in = tensor(l.kernel_h, l.kernel_w, l.in.channels);
        l.shift = (uint8_t)(1 + below(30));
        l.factor[0] = (0x7FFFFFFFu - (1u << l.shift >> 1)) / 255 / ((uint32_t)l.kernel_h * l.kernel_w);
        l.factor[0] = 1 + below(l.factor[0] >= 1u << 22 ? (1u << 22) - 1 : l.factor[0]);
        break;
    default: l.kind = FB_ADD; draw_add(&l);
    }
    if (l.kind == FB_MAX_POOL || l.kind == FB_AVERAGE_POOL) {
        uint32_t height = l.out.height, width = l.out.width;
        if (l.kind == FB_AVERAGE_POOL && chunks) height = width = 1;
        l.out = tensor(height, width, l.in.channels);
        if (l.kind == FB_MAX_POOL) l.out.zero_point = l.in.zero_point;
    } else if (below(2)) {
        l.flags |= FB_FLAG_RELU;
    }
    l.low = l.flags & FB_FLAG_RELU ? l.out.zero_point : (int8_t)-128;
    switch (l.kind) {
    case FB_CONV:
        compare(l.bits ? conv_binary : conv_int8, l.bits ? fb_conv_bin_reference : fb_conv_int8, &l, number);
        break;
    case FB_DENSE:
        compare(l.bits ? dense_binary : dense_int8, l.bits ? fb_dense_bin : fb_dense_int8, &l, number);
        break;
    case FB_CONV_BITS: compare(conv_bits, fb_conv_bits_reference, &l, number); break;
    case FB_MAX_POOL: compare(max_pool, fb_max_pool, &l, number); break;
    case FB_AVERAGE_POOL: compare(average_pool, fb_average_pool, &l, number); break;
    default: compare(add, fb_add, &l, number);
    }
    give(l.bits);
    give(l.weights);
    give(l.bias);
    give(l.mult);
    give(l.mult_int8);
}

int main(int argc, char **argv) {
    uint32_t first = argc > 1 ? (uint32_t)atoi(argv[1]) : 0, count = argc > 2 ? (uint32_t)atoi(argv[2]) : 1000, i;
    unsigned different = 0;
    const tally *t;
    for (i = first; i < first + count; i++) {
        state = (i + 1) * 2654435761u;
        layer(i);
    }
    for (t = tallies; t->name; t++) {
        printf("%s %u %u\n", t->name, t->layers, t->different);
        different += t->different;
    }
    return different != 0;
}
