/* Kernels, one per file, file name = function name. Private to the core.
 *
 * A kernel computes one layer. `in` and `in2` are its input tensors (in2 only where it reads two), `out` its output tensor;
 * out may be in or in2 for kinds with FB_IN_PLACE, and overlaps nothing otherwise. Tensors may lie at any address, since
 * the caller's may; packed bits are never the caller's and lie at even ones, as words of 16 bits need. `scratch` has as
 * many bytes as the kernel's _scratch function says, aligned to FB_ALIGN. Every kernel gives the bits of its reference
 * twin (docs/numerics.md).
 */
#ifndef FB_KERNELS_H
#define FB_KERNELS_H

#include "../run/fb_layer.h"

/* What a _scratch function answers for a layer its kernel cannot compute. */
#define FB_NOT_FOR_THIS UINT32_MAX

/* Bytes of a pointer where kernels run. FB_PLAN_BOARDS compiles the core for a computer that plans for boards: kernels of
 * microcontrollers, as large as they are there, which are never run (runtime/board/plan.py). */
#ifdef FB_PLAN_BOARDS
#define FB_POINTER_SIZE ((uint32_t)4)
/* Cortex-M0; M3; M4, M7, M33; M55 */
enum { FB_PLAN_RISCV, FB_PLAN_THUMB1, FB_PLAN_THUMB, FB_PLAN_DSP, FB_PLAN_HELIUM };
extern int fb_plan_core;       /* for which of these */
extern int fb_plan_small_code; /* whether they are built with FB_SMALL_CODE */
#else
#define FB_POINTER_SIZE ((uint32_t)sizeof(void *))
#endif

/* For functions that need all registers for themselves, or whose frames must not be part of their callers'; WebAssembly has
 * stack enough. */
#if defined(__GNUC__) && !defined(__wasm__)
#define FB_NOINLINE __attribute__((noinline))
#else
#define FB_NOINLINE
#endif

typedef void fb_run_function(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch);
typedef uint32_t fb_scratch_function(const fb_layer *layer);

typedef struct fb_kernel {
    const char *name;
    fb_scratch_function *scratch; /* bytes, or FB_NOT_FOR_THIS */
    fb_run_function *run;
    bool lean;  /* of one family with the one before it: little more time, for less scratch in most layers */
    bool large; /* takes much more than the next one that is not */
} fb_kernel;

/* Kernels to plan with: the fastest; its lean variants, nearly as fast with less scratch; the same without kernels with
 * large tables; or those that need least. */
typedef enum fb_choice { FB_FASTEST, FB_LEAN, FB_SMALL, FB_LEAST } fb_choice;

/* The kernels for a kind of layer, fastest first, ended by one without a name; the last one takes every layer. Of a
 * number that is no kind: an empty list. */
const fb_kernel *fb_kernels_of(const fb_layer *layer);

#define FB_KERNEL(name) \
    fb_run_function name; \
    fb_scratch_function name##_scratch

/* An entry of a list of kernels, and what ends one. */
#define FB_ENTRY(name) {#name, name##_scratch, name, false, false}
#define FB_LEAN_ENTRY(name) {#name, name##_scratch, name, true, false}
#define FB_LARGE_ENTRY(name, lean) {#name, name##_scratch, name, lean, true}
#define FB_KERNELS_END {NULL, NULL, NULL, false, false}

/* The same for boards of which only some have the kernel: those for which `there` holds while it is planned. */
#define FB_PLANNED(name, there) \
    static inline uint32_t name##_planned(const fb_layer *layer) { \
        return (there) ? name##_scratch(layer) : FB_NOT_FOR_THIS; \
    }
#define FB_PLANNED_ENTRY(name) {#name, name##_planned, NULL, false, false}
#define FB_PLANNED_LARGE_ENTRY(name, lean) {#name, name##_planned, NULL, lean, true}

/* The reference twins, which take every layer of their kind. Faster variants are in fb_kernels_scalar.h, _mve.h,
 * _host.h. Binary weights: */
FB_KERNEL(fb_conv_bin_reference);
FB_KERNEL(fb_dense_bin);
FB_KERNEL(fb_depthwise_bin);
/* int8 weights: */
FB_KERNEL(fb_conv_int8);
FB_KERNEL(fb_dense_int8);
FB_KERNEL(fb_depthwise_int8);
/* No weights: */
FB_KERNEL(fb_max_pool);
FB_KERNEL(fb_average_pool);
FB_KERNEL(fb_add);
FB_KERNEL(fb_shortcut);
FB_KERNEL(fb_relu);
FB_KERNEL(fb_flatten);
FB_KERNEL(fb_table);
FB_KERNEL(fb_concat);
/* Packed bits: */
FB_KERNEL(fb_binarize);
FB_KERNEL(fb_conv_bits_reference);
FB_KERNEL(fb_max_pool_bits);

/* For functions whose constant arguments choose what is in them. */
#if defined(__GNUC__)
#define FB_INLINE static inline __attribute__((always_inline))
#else
#define FB_INLINE static inline
#endif

/* int8 of −128 … 127. */
static inline int32_t fb_saturate(int32_t v) {
#if defined(__ARM_FEATURE_SAT) && !defined(__ARM_NEON)
    int32_t r;
    __asm__("ssat %0, #8, %1" : "=r"(r) : "r"(v));
    return r;
#elif defined(__thumb__)
    return v == (int8_t)v ? v : v >> 31 ^ 127; /* 3 instructions where nothing saturates */
#else
    if (v > 127) v = 127;
    if (v < -128) v = -128;
    return v;
#endif
}

/* What is to be added to a product before fb_scale: it can often join another constant. */
static inline int32_t fb_half(unsigned shift) {
#if defined(__thumb__) && defined(__GNUC__)
    (void)shift;
    return 0;
#else
    return (int32_t)1 << (shift - 1);
#endif
}

/* A product, plus fb_half, / 2^shift to the nearest integer, ties away from zero, plus the zero point, within
 * −128 … 127. With `relu`, negative quotients do not matter. The image's bounds keep the product ± 2^shift / 2 within
 * 31 bits. */
static inline int8_t fb_scale(int32_t v, unsigned shift, int32_t zero_point, bool relu) {
#if defined(__thumb__) && defined(__GNUC__)
    if (!relu) v += v >> 31;
    /* The last bit that is shifted out is the carry: it rounds. */
#if defined(__thumb2__)
    __asm__("asrs %0, %0, %1\n\tadcs %0, %0, %2" : "+r"(v) : "r"(shift), "r"(zero_point) : "cc");
#else
    __asm__(".syntax unified\n\tasrs %0, %0, %1\n\tadcs %0, %0, %2" : "+l"(v) : "l"(shift), "l"(zero_point) : "cc");
#endif
#else
    if (!relu) v -= v < fb_half(shift);
    v = (v >> shift) + zero_point;
#endif
    return (int8_t)fb_saturate(v);
}

/* `sum` · multiplier / 2^shift, rounded as above, plus the zero point, within low … 127. */
static inline int8_t fb_requantize(int32_t sum, int32_t multiplier, unsigned shift, int32_t zero_point, int32_t low) {
    int8_t v = fb_scale(sum * multiplier + fb_half(shift), shift, zero_point, false);
    return v < low ? (int8_t)low : v;
}

#endif
