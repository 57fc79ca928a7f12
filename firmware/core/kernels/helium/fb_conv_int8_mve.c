/* int8 convolution of any kernel, stride and padding on Helium (MVE): two filters and three pixels at a time.
 *
 * A filter's sum is a dot product, 16 products per instruction (VMLADAVA), with the inputs of a pixel gathered in the
 * order of the weights. Six sums at a time share their loads: five for 96 products.
 *
 *     columns[pixels][inputs]     inputs of pixels that follow each other in the output, row after row
 *
 * Activations lie plane by plane. Rows of the input are turned into pixels, padding included, each once, in a ring of
 * kernel_h rows: a window's row then is one run of bytes. A 1×1 kernel's columns are turned without one.
 *
 * scratch: sums | columns, of 16 bytes each | ring[kernel_h][row]
 */
#include "../fb_kernels_mve.h"

#if defined(FB_MVE) || defined(FB_PLAN_BOARDS)

enum {
    VECTOR = 16,
    ROOM = 8192,    /* bytes of columns, unless three are more */
    LONGEST = 8192, /* column */
    MOST = 48       /* pixels at most: bounds the sums, which are [pixels / 3][2 filters][3] */
};

/* How a layer is cut; sizes in bytes. */
typedef struct cut {
    uint32_t column, pixels; /* size of one, how many at a time */
    uint32_t run, row;       /* of a window, of the ring; 0 without one */
} cut;

static cut cut_of(const fb_layer *layer) {
    const uint32_t plane = (uint32_t)layer->out.height * layer->out.width;
    cut c = {(layer->inputs + VECTOR - 1) / VECTOR * VECTOR, 0, 0, 0};
    c.pixels = ROOM / c.column;
    if (c.pixels > MOST) c.pixels = MOST;
    if (c.pixels > plane) c.pixels = plane + 2;
    c.pixels = c.pixels < 3 ? 3 : c.pixels / 3 * 3;
    if (layer->inputs > layer->in.channels || layer->stride_h > 1 || layer->stride_w > 1) {
        c.run = layer->kernel_w * (uint32_t)layer->in.channels;
        c.row = fb_product((layer->out.width - 1u) * layer->stride_w + layer->kernel_w, layer->in.channels);
    }
    return c;
}

uint32_t fb_conv_int8_mve_scratch(const fb_layer *layer) {
    cut c;
    /* Products of one word; offsets of 16 bits. */
    if (layer->shift < 33 || layer->inputs > LONGEST) return FB_NOT_FOR_THIS;
    c = cut_of(layer);
    /* Runs are copied in whole vectors, from the ring's end and to the columns' end, too. */
    return fb_sum(2 * MOST * (uint32_t)sizeof(int32_t) + c.pixels * c.column + 2 * VECTOR,
                  fb_product(layer->kernel_h, c.row));
}
#endif

#ifdef FB_MVE
#include "fb_requantize_mve.h"

/* What the inner loop is given: the offsets are in its assembly. */
typedef struct products {
    const int8_t *columns;        /* 0 */
    const int8_t *first, *second; /* 4, 8: filters */
    uint32_t inputs;              /* 12 */
    uint32_t column;              /* 16: bytes */
    int32_t *sums, *end;          /* 20, 24: [pixels / 3][2 filters][3] */
} products;

/* r0, r2, r4 sums of the first filter | r6, r8, r10 of the second | r1, r3, r5 columns | r7, r9 filters | r11 column's
 * bytes | r12 sums | lr count. In the last round the loop loads and adds only what there is. */
__attribute__((naked)) static void sum_products(const products *p __attribute__((unused))) {
    __asm__(".syntax unified\n"
            "push {r0, r4-r11, lr}\n"
            "mov r12, r0\n"
            "ldr r1, [r12]\n"
            "ldrd r7, r9, [r12, #4]\n"
            "ldr r11, [r12, #16]\n"
            "ldr r12, [r12, #20]\n"
            "1:\n"
            "ldr lr, [sp]\n"
            "add r3, r1, r11\n"
            "add r5, r3, r11\n"
            "movs r0, #0\n"
            "movs r2, #0\n"
            "movs r4, #0\n"
            "movs r6, #0\n"
            "mov r8, r0\n"
            "mov r10, r0\n"
            "ldr lr, [lr, #12]\n"
            "dlstp.8 lr, lr\n"
            "2:\n"
            "vldrb.8 q0, [r7], #16\n"
            "vldrb.8 q2, [r1], #16\n"
            "vmladava.s8 r0, q2, q0\n"
            "vldrb.8 q1, [r9], #16\n"
            "vmladava.s8 r6, q2, q1\n"
            "vldrb.8 q3, [r3], #16\n"
            "vmladava.s8 r2, q3, q0\n"
            "vldrb.8 q2, [r5], #16\n"
            "vmladava.s8 r8, q3, q1\n"
            "vmladava.s8 r4, q2, q0\n"
            "vmladava.s8 r10, q2, q1\n"
            "letp lr, 2b\n"
            "stm r12!, {r0, r2, r4, r6, r8, r10}\n"
            "ldr lr, [sp]\n"
            "mov r1, r5\n" /* the next column follows */
            "sub r7, r11\n"
            "ldr lr, [lr, #24]\n"
            "sub r9, r11\n"
            "cmp r12, lr\n"
            "bne 1b\n"
            "pop {r0, r4-r11, pc}\n");
}

/* `count` pixels of all channels, `step` bytes apart. */
static void turn(const int8_t *in, size_t plane, uint32_t channels, uint32_t count, int8_t *to, uint32_t step) {
    const uint16x8_t places = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)step);
    uint32_t c;
    for (c = 0; c < channels; c++, in += plane) {
        const int8_t *from = in;
        int8_t *pixel = to + c;
        uint32_t left = count;
        for (; left >= 8; left -= 8, from += 8, pixel += 8 * step) {
            vstrbq_scatter_offset_s16(pixel, places, vldrbq_s16(from));
        }
        if (left) {
            const mve_pred16_t some = vctp16q(left);
            vstrbq_scatter_offset_p_s16(pixel, places, vldrbq_z_s16(from, some), some);
        }
    }
}

/* A row of the ring: columns of row y from −pad_left on; both may be outside. */
static void put_row(const fb_layer *layer, const cut *c, const int8_t *in, int32_t y, int8_t *to) {
    const uint32_t channels = layer->in.channels, columns = c->row / channels, left = layer->pad_left;
    uint32_t count = 0;
    if (y >= 0 && y < layer->in.height && columns > left) {
        count = columns - left < layer->in.width ? columns - left : layer->in.width;
    }
    if (count < columns) memset(to, layer->in.zero_point, c->row);
    if (!count) return;
    turn(in + (size_t)y * layer->in.width, (size_t)layer->in.height * layer->in.width, channels, count,
         to + left * channels, channels);
}

/* Where it is in the output, and which rows the ring has. */
typedef struct place {
    int8_t *ring;
    int32_t next; /* row to turn */
    uint32_t y, x;
} place;

static void put_columns(const fb_layer *layer, const cut *c, const int8_t *in, place *at, uint32_t count, int8_t *to) {
    const uint32_t height = layer->kernel_h, step = layer->stride_w * (uint32_t)layer->in.channels;
    while (count) {
        const uint32_t end = layer->out.width - at->x < count ? layer->out.width : at->x + count;
        const int32_t top = (int32_t)(at->y * layer->stride_h) - layer->pad_top;
        uint32_t ky, x, i;
        if (at->next < top) at->next = top;
        for (; at->next < top + (int32_t)height; at->next++) {
            put_row(layer, c, in, at->next, at->ring + (uint32_t)(at->next + layer->pad_top) % height * c->row);
        }
        count -= end - at->x;
        /* Runs one after another: each covers what the one before wrote too much. */
        for (x = at->x; x < end; x++, to += c->column) {
            const uint32_t first = at->y * layer->stride_h % height;
            const int8_t *from = at->ring + first * c->row + x * step;
            int8_t *run = to;
            for (ky = first; ky < first + height; ky++, from += c->row, run += c->run) {
                if (ky == height) from -= height * c->row;
                for (i = 0; i < c->run; i += VECTOR) vstrbq_s8(run + i, vldrbq_s8(from + i));
            }
        }
        at->x = end;
        if (at->x == layer->out.width) {
            at->x = 0;
            at->y++;
        }
    }
}

/* Results of a filter from sums of pixels 0 1 2 . . . 3 4 5 . . . 6 … */
FB_INLINE void put_results(const fb_layer *layer, uint32_t filter, const int32_t *sums, uint32_t count, int8_t *out,
                           bool relu) {
    const uint32x4_t one = {0, 1, 2, 6}, two = {7, 8, 12, 13}, three = {14, 18, 19, 20};
    const int32_t mult = layer->mult_int8[filter], bias = layer->bias[filter];
    int32_t left = (int32_t)count;
#define FOUR(places) \
    do { \
        const int32x4_t sum = vaddq_n_s32(vldrwq_gather_shifted_offset_s32(sums, places), bias); \
        vstrbq_p_s32(out, fb_requantize_mve(layer, sum, mult, relu), vctp32q((uint32_t)left)); \
        left -= 4; \
        out += 4; \
    } while (0)
    for (; left > 0; sums += 24) {
        FOUR(one);
        if (left <= 0) break;
        FOUR(two);
        if (left <= 0) break;
        FOUR(three);
    }
#undef FOUR
}

void fb_conv_int8_mve(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const cut c = cut_of(layer);
    const uint32_t plane = (uint32_t)layer->out.height * layer->out.width, filters = layer->out.channels;
    const bool relu = layer->low == layer->out.zero_point;
    int32_t *sums = scratch;
    int8_t *columns = (int8_t *)(sums + 2 * MOST);
    place at = {columns + c.pixels * c.column + VECTOR, -(int32_t)layer->pad_top, 0, 0};
    products p = {columns, NULL, NULL, layer->inputs, c.column, sums, NULL};
    uint32_t pixel, filter, count, i;
    (void)in2;
    for (pixel = 0; pixel < plane; pixel += count) {
        count = plane - pixel < c.pixels ? plane - pixel : c.pixels;
        p.end = sums + (count + 2) / 3 * 6;
        if (c.row) {
            put_columns(layer, &c, in, &at, count, columns);
        } else {
            turn(in + pixel, plane, layer->in.channels, count, columns, c.column);
        }
        for (filter = 0; filter < filters; filter += 2) {
            const uint32_t pair = filters - filter < 2 ? 1 : 2;
            p.first = layer->weights + (size_t)filter * layer->inputs;
            p.second = pair == 2 ? p.first + layer->inputs : p.first;
            sum_products(&p);
            for (i = 0; i < pair; i++) {
                int8_t *to = out + (size_t)(filter + i) * plane + pixel;
                if (relu) {
                    put_results(layer, filter + i, sums + 3 * i, count, to, true);
                } else {
                    put_results(layer, filter + i, sums + 3 * i, count, to, false);
                }
            }
        }
    }
}

#endif
