/* Kernels for Helium (MVE): Cortex-M55, M85. Private to the core: fb_kernels.c joins these lists. */
#ifndef FB_KERNELS_MVE_H
#define FB_KERNELS_MVE_H

#include "fb_kernels.h"

/* Their assembly takes more registers than a compiler leaves that does not optimize. */
#if defined(__ARM_FEATURE_MVE) && defined(__OPTIMIZE__)
#define FB_MVE
#endif

#ifdef FB_MVE

/* The second one with less RAM. */
FB_KERNEL(fb_conv_bin_mve);
FB_KERNEL(fb_conv_bin_mve_lean);
FB_KERNEL(fb_dense_bin_mve);
/* The second one with the RAM of one column. */
FB_KERNEL(fb_conv_int8_mve);
FB_KERNEL(fb_conv_int8_column_mve);
FB_KERNEL(fb_dense_int8_mve);
FB_KERNEL(fb_depthwise_int8_3x3_mve);
FB_KERNEL(fb_depthwise_int8_mve);
FB_KERNEL(fb_conv_bits_mve);
FB_KERNEL(fb_max_pool_mve);
FB_KERNEL(fb_average_pool_mve);
FB_KERNEL(fb_add_mve);

#define FB_CONV_BINARY_MVE FB_LARGE_ENTRY(fb_conv_bin_mve, false), FB_LARGE_ENTRY(fb_conv_bin_mve_lean, true),
#define FB_DENSE_BINARY_MVE FB_ENTRY(fb_dense_bin_mve),
#define FB_CONV_INT8_MVE FB_ENTRY(fb_conv_int8_mve), FB_ENTRY(fb_conv_int8_column_mve),
#define FB_DENSE_INT8_MVE FB_ENTRY(fb_dense_int8_mve),
#define FB_DEPTHWISE_BINARY_MVE
#define FB_DEPTHWISE_INT8_MVE FB_ENTRY(fb_depthwise_int8_3x3_mve), FB_ENTRY(fb_depthwise_int8_mve),
#define FB_CONV_BITS_MVE FB_ENTRY(fb_conv_bits_mve),
#define FB_MAX_POOL_MVE FB_ENTRY(fb_max_pool_mve),
#define FB_AVERAGE_POOL_MVE FB_ENTRY(fb_average_pool_mve),
#define FB_ADD_MVE FB_ENTRY(fb_add_mve),

#elif defined(FB_PLAN_BOARDS)

/* For boards without Helium none of these is for any layer. */
fb_scratch_function fb_conv_bin_mve_scratch;
fb_scratch_function fb_conv_bin_mve_lean_scratch;
fb_scratch_function fb_dense_bin_mve_scratch;
fb_scratch_function fb_conv_int8_mve_scratch;
fb_scratch_function fb_conv_int8_column_mve_scratch;
fb_scratch_function fb_dense_int8_mve_scratch;
fb_scratch_function fb_depthwise_int8_3x3_mve_scratch;
fb_scratch_function fb_depthwise_int8_mve_scratch;
fb_scratch_function fb_conv_bits_mve_scratch;
fb_scratch_function fb_max_pool_mve_scratch;
fb_scratch_function fb_average_pool_mve_scratch;
fb_scratch_function fb_add_mve_scratch;
FB_PLANNED(fb_conv_bin_mve, fb_plan_core == FB_PLAN_HELIUM)
FB_PLANNED(fb_conv_bin_mve_lean, fb_plan_core == FB_PLAN_HELIUM)
FB_PLANNED(fb_dense_bin_mve, fb_plan_core == FB_PLAN_HELIUM)
FB_PLANNED(fb_conv_int8_mve, fb_plan_core == FB_PLAN_HELIUM)
FB_PLANNED(fb_conv_int8_column_mve, fb_plan_core == FB_PLAN_HELIUM)
FB_PLANNED(fb_dense_int8_mve, fb_plan_core == FB_PLAN_HELIUM)
FB_PLANNED(fb_depthwise_int8_3x3_mve, fb_plan_core == FB_PLAN_HELIUM)
FB_PLANNED(fb_depthwise_int8_mve, fb_plan_core == FB_PLAN_HELIUM)
FB_PLANNED(fb_conv_bits_mve, fb_plan_core == FB_PLAN_HELIUM)
FB_PLANNED(fb_max_pool_mve, fb_plan_core == FB_PLAN_HELIUM)
FB_PLANNED(fb_average_pool_mve, fb_plan_core == FB_PLAN_HELIUM)
FB_PLANNED(fb_add_mve, fb_plan_core == FB_PLAN_HELIUM)

#define FB_CONV_BINARY_MVE \
    FB_PLANNED_LARGE_ENTRY(fb_conv_bin_mve, false), FB_PLANNED_LARGE_ENTRY(fb_conv_bin_mve_lean, true),
#define FB_DENSE_BINARY_MVE FB_PLANNED_ENTRY(fb_dense_bin_mve),
#define FB_CONV_INT8_MVE FB_PLANNED_ENTRY(fb_conv_int8_mve), FB_PLANNED_ENTRY(fb_conv_int8_column_mve),
#define FB_DENSE_INT8_MVE FB_PLANNED_ENTRY(fb_dense_int8_mve),
#define FB_DEPTHWISE_BINARY_MVE
#define FB_DEPTHWISE_INT8_MVE FB_PLANNED_ENTRY(fb_depthwise_int8_3x3_mve), FB_PLANNED_ENTRY(fb_depthwise_int8_mve),
#define FB_CONV_BITS_MVE FB_PLANNED_ENTRY(fb_conv_bits_mve),
#define FB_MAX_POOL_MVE FB_PLANNED_ENTRY(fb_max_pool_mve),
#define FB_AVERAGE_POOL_MVE FB_PLANNED_ENTRY(fb_average_pool_mve),
#define FB_ADD_MVE FB_PLANNED_ENTRY(fb_add_mve),

#else

#define FB_CONV_BINARY_MVE
#define FB_DENSE_BINARY_MVE
#define FB_CONV_INT8_MVE
#define FB_DENSE_INT8_MVE
#define FB_DEPTHWISE_BINARY_MVE
#define FB_DEPTHWISE_INT8_MVE
#define FB_CONV_BITS_MVE
#define FB_MAX_POOL_MVE
#define FB_AVERAGE_POOL_MVE
#define FB_ADD_MVE

#endif
#endif
