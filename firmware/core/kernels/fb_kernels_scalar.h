/* Kernels for plain C and Thumb or RISC-V assembly: microcontrollers without vector units. Private to the core:
 * fb_kernels.c joins these lists. */
#ifndef FB_KERNELS_SCALAR_H
#define FB_KERNELS_SCALAR_H

#include "fb_kernels.h"

/* Half tables for 16 channels, full ones, the same with less RAM, and with still less, for few inputs, for anything, and
 * that with less RAM. */
FB_KERNEL(fb_conv_bin_3x3);
FB_KERNEL(fb_conv_bin_3x3_full);
FB_KERNEL(fb_conv_bin_3x3_lean);
FB_KERNEL(fb_conv_bin_3x3_row);
FB_KERNEL(fb_conv_bin_few);
FB_KERNEL(fb_conv_bin_any);
FB_KERNEL(fb_conv_bin_small);
/* Two pixels in a word. */
FB_KERNEL(fb_depthwise_bin_pairs);
/* Packed bits: tables for 16 channels, and for anything. */
FB_KERNEL(fb_conv_bits_3x3);
FB_KERNEL(fb_conv_bits_any);

/* int8 weights, and the same with less RAM. */
FB_KERNEL(fb_conv_int8_rows);
FB_KERNEL(fb_conv_int8_pair);
FB_KERNEL(fb_depthwise_int8_3x3);

#define FB_CONV_BINARY_SCALAR \
    FB_CONV_BINARY_HALF FB_LEAN_ENTRY(fb_conv_bin_3x3_full), FB_LEAN_ENTRY(fb_conv_bin_3x3_lean), \
        FB_LEAN_ENTRY(fb_conv_bin_3x3_row), FB_ENTRY(fb_conv_bin_few), FB_ENTRY(fb_conv_bin_any), \
        FB_ENTRY(fb_conv_bin_small),
#define FB_DENSE_BINARY_SCALAR

/* What FB_SMALL_CODE (flipbit.h) leaves to the reference kernels. */
#ifdef FB_SMALL_CODE
#define FB_CONV_BITS_SCALAR
#define FB_CONV_INT8_SCALAR
#define FB_DEPTHWISE_BINARY_SCALAR
#define FB_DEPTHWISE_INT8_SCALAR
#else
#ifdef FB_PLAN_BOARDS
FB_PLANNED(fb_conv_bin_3x3, !fb_plan_small_code && fb_plan_core != FB_PLAN_RISCV && fb_plan_core != FB_PLAN_HELIUM)
FB_PLANNED(fb_conv_bits_3x3, !fb_plan_small_code)
FB_PLANNED(fb_conv_bits_any, !fb_plan_small_code)
FB_PLANNED(fb_conv_int8_rows, !fb_plan_small_code)
FB_PLANNED(fb_conv_int8_pair, !fb_plan_small_code)
FB_PLANNED(fb_depthwise_bin_pairs, !fb_plan_small_code)
FB_PLANNED(fb_depthwise_int8_3x3, !fb_plan_small_code)
#define FB_LARGE FB_PLANNED_ENTRY
#else
#define FB_LARGE FB_ENTRY
#endif
#define FB_CONV_BITS_SCALAR FB_LARGE(fb_conv_bits_3x3), FB_LARGE(fb_conv_bits_any),
#define FB_CONV_INT8_SCALAR FB_LARGE(fb_conv_int8_rows), FB_LARGE(fb_conv_int8_pair),
#define FB_DEPTHWISE_BINARY_SCALAR FB_LARGE(fb_depthwise_bin_pairs),
#define FB_DEPTHWISE_INT8_SCALAR FB_LARGE(fb_depthwise_int8_3x3),
#endif
/* Vectors are faster than half tables; RISC-V boards have no room for them, and they save less there. */
#if defined(FB_SMALL_CODE) || defined(FB_MVE) || defined(__riscv)
#define FB_CONV_BINARY_HALF
#else
#define FB_CONV_BINARY_HALF FB_LARGE(fb_conv_bin_3x3),
#endif
#define FB_DENSE_INT8_SCALAR
#define FB_MAX_POOL_SCALAR
#define FB_AVERAGE_POOL_SCALAR
#define FB_ADD_SCALAR

#endif
