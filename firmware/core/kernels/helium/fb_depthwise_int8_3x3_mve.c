/* int8 3×3 convolution of each channel by itself on Helium (MVE), horizontal strides 1 and 2: four pixels at a time,
 * from nine loads to results in one loop.
 *
 * scratch: plane[rows][columns] of a channel, padding included
 */
#include "../fb_kernels_mve.h"

#if defined(FB_MVE) || defined(FB_PLAN_BOARDS)

static uint32_t columns_of(const fb_layer *layer) { return (layer->out.width - 1u) * layer->stride_w + 3; }
static uint32_t rows_of(const fb_layer *layer) { return (layer->out.height - 1u) * layer->stride_h + 3; }

uint32_t fb_depthwise_int8_3x3_mve_scratch(const fb_layer *layer) {
    if (layer->kernel_h != 3 || layer->kernel_w != 3 || layer->stride_w > 2 || layer->shift < 33) {
        return FB_NOT_FOR_THIS;
    }
    return fb_product(rows_of(layer), columns_of(layer));
}
#endif

#ifdef FB_MVE
#include "fb_requantize_mve.h"

/* A channel, for the loop: the offsets are in its assembly. */
typedef struct channel {
    int32_t bias[4];         /* 0 */
    uint32_t next_row;       /* 16: from where a row's loads end to the next row */
    uint32_t next_out;       /* 20: likewise */
    const int8_t *end;       /* 24: of the output */
    uint32_t width;          /* 28 */
    int32_t mult[4];         /* 32 */
    int32_t shift[4];        /* 48: to the left, from the upper word */
    int32_t zero_point[4];   /* 64 */
    int32_t low[4], high[4]; /* 80, 96 */
    const int8_t *rows[3];   /* 112 */
    int8_t *out;             /* 124 */
    int32_t weights[9];      /* 128 */
} channel;

/* r0-r2 rows | r3 output | r4-r12 weights | lr count | q0 sums | q1 values | q2 places of values, stride 2
 * q3 multiplier | q4 shift | q5 zero point | q6 low | q7 high
 * sp: bias, next_row, next_out, end, width. In the last round of a row it loads and stores only what there is. */
#define CHANNEL(taps) \
    __asm__(".syntax unified\n" \
            "push {r4-r11, lr}\n" \
            "vpush {d8-d15}\n" \
            "sub sp, #36\n" \
            "vldrw.32 q0, [r0]\n" \
            "vldrw.32 q1, [r0, #16]\n" \
            "vstrw.32 q0, [sp]\n" \
            "vstrw.32 q1, [sp, #16]\n" \
            "vldrw.32 q3, [r0, #32]\n" \
            "vldrw.32 q4, [r0, #48]\n" \
            "vldrw.32 q5, [r0, #64]\n" \
            "vldrw.32 q6, [r0, #80]\n" \
            "vldrw.32 q7, [r0, #96]\n" \
            "movs r2, #0\n" \
            "vidup.u32 q2, r2, #2\n" /* */ \
            "add r0, #112\n" \
            "ldm r0, {r0-r12}\n" \
            "1:\n" \
            "ldr lr, [sp, #28]\n" \
            "dlstp.32 lr, lr\n" \
            "2:\n" \
            "vldrw.32 q0, [sp]\n"                                                                     /* */ \
            taps("r0", "r4", "r5", "r6") taps("r1", "r7", "r8", "r9") taps("r2", "r10", "r11", "r12") /* */ \
            "vshr.s32 q1, q0, #31\n" /* as fb_requantize_mve */ \
            "vabs.s32 q0, q0\n" \
            "vmulh.s32 q0, q0, q3\n" \
            "veor q0, q0, q1\n" \
            "vrshl.s32 q0, q0, q4\n" \
            "vadd.i32 q0, q0, q5\n" \
            "vmax.s32 q0, q0, q6\n" \
            "vmin.s32 q0, q0, q7\n" \
            "vstrb.32 q0, [r3], #4\n" \
            "letp lr, 2b\n" \
            "ldr lr, [sp, #16]\n" \
            "add r0, lr\n" \
            "add r1, lr\n" \
            "add r2, lr\n" \
            "ldr lr, [sp, #20]\n" \
            "add r3, lr\n" \
            "ldr lr, [sp, #24]\n" \
            "cmp r3, lr\n" \
            "bne 1b\n" \
            "add sp, #36\n" \
            "vpop {d8-d15}\n" \
            "pop {r4-r11, pc}\n")

#define DENSE(row, first, second, third) \
    "vldrb.s32 q1, [" row ", #1]\n" \
    "vmla.s32 q0, q1, " second "\n" \
    "vldrb.s32 q1, [" row ", #2]\n" \
    "vmla.s32 q0, q1, " third "\n" \
    "vldrb.s32 q1, [" row "], #4\n" \
    "vmla.s32 q0, q1, " first "\n"
#define EVERY_OTHER(row, first, second, third) \
    "vldrb.s32 q1, [" row ", q2]\n" \
    "adds " row ", #1\n" \
    "vmla.s32 q0, q1, " first "\n" \
    "vldrb.s32 q1, [" row ", q2]\n" \
    "adds " row ", #1\n" \
    "vmla.s32 q0, q1, " second "\n" \
    "vldrb.s32 q1, [" row ", q2]\n" \
    "adds " row ", #6\n" \
    "vmla.s32 q0, q1, " third "\n"

__attribute__((naked)) static void dense(const channel *c __attribute__((unused))) { CHANNEL(DENSE); }
__attribute__((naked)) static void every_other(const channel *c __attribute__((unused))) { CHANNEL(EVERY_OTHER); }

static inline void copy(const int8_t *from, int8_t *to, uint32_t size) {
    __asm__ volatile("dlstp.8 lr, %[size]\n\t"
                     "1:\n\t"
                     "vldrb.8 q0, [%[from]], #16\n\t"
                     "vstrb.8 q0, [%[to]], #16\n\t"
                     "letp lr, 1b"
                     : [from] "+r"(from), [to] "+r"(to)
                     : [size] "r"(size)
                     : "lr", "q0", "memory");
}

void fb_depthwise_int8_3x3_mve(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    const uint32_t columns = columns_of(layer), rows = rows_of(layer), stride = layer->stride_w;
    const uint32_t top = layer->pad_top, left = layer->pad_left, rounds = (layer->out.width + 3u) / 4;
    const uint32_t plane = (uint32_t)layer->out.height * layer->out.width;
    uint32_t width = columns > left ? columns - left : 0, height = rows > top ? rows - top : 0, index, y, i;
    channel c;
    (void)in2;
    if (width > layer->in.width) width = layer->in.width;
    if (height > layer->in.height) height = layer->in.height;
    memset(scratch, layer->in.zero_point, rows * columns); /* what is padding stays it */
    c.next_row = layer->stride_h * columns - rounds * 4 * stride;
    c.next_out = layer->out.width - rounds * 4;
    c.width = layer->out.width;
    vst1q_s32(c.shift, vdupq_n_s32(32 - layer->shift));
    vst1q_s32(c.zero_point, vdupq_n_s32(layer->out.zero_point));
    vst1q_s32(c.low, vdupq_n_s32(layer->low));
    vst1q_s32(c.high, vdupq_n_s32(127));
    for (i = 0; i < 3; i++) c.rows[i] = (const int8_t *)scratch + i * columns;
    for (index = 0; index < layer->out.channels; index++, in += (size_t)layer->in.height * layer->in.width) {
        const int8_t *w = layer->weights + 9 * (size_t)index;
        const int8_t *from = in;
        int8_t *to = (int8_t *)scratch + top * columns + left;
        if (width) {
            for (y = height; y; y--, from += layer->in.width, to += columns) copy(from, to, width);
        }
        for (i = 0; i < 9; i++) c.weights[i] = w[i];
        vst1q_s32(c.bias, vdupq_n_s32(layer->bias[index]));
        vst1q_s32(c.mult, vdupq_n_s32(layer->mult_int8[index]));
        c.out = out;
        c.end = out += plane;
        if (stride == 1) {
            dense(&c);
        } else {
            every_other(&c);
        }
    }
}

#endif
