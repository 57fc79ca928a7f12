/* Kernels for SSE/AVX on x86-64, NEON on Arm: laptops and edge boards. Private to the core: fb_kernels.c joins these
 * lists. */
#ifndef FB_KERNELS_HOST_H
#define FB_KERNELS_HOST_H

#include "fb_kernels.h"

#if defined(FB_PLAN_BOARDS)
#define FB_NO_HOST
#elif defined(__x86_64__) && defined(__GNUC__)
FB_KERNEL(fb_conv_bin_amx);
FB_KERNEL(fb_conv_bin_vnni);
FB_KERNEL(fb_conv_int8_vnni);
FB_KERNEL(fb_conv_bin_avx2);
FB_KERNEL(fb_conv_bits_avx2);
FB_KERNEL(fb_dense_bin_avx2);
FB_KERNEL(fb_dense_int8_avx2);
FB_KERNEL(fb_max_pool_sse4);
FB_KERNEL(fb_add_avx2);
#define FB_CONV_BINARY_HOST FB_ENTRY(fb_conv_bin_amx), FB_ENTRY(fb_conv_bin_vnni), FB_ENTRY(fb_conv_bin_avx2),
#define FB_DENSE_BINARY_HOST FB_ENTRY(fb_dense_bin_avx2),
#define FB_CONV_INT8_HOST FB_ENTRY(fb_conv_int8_vnni),
#define FB_DENSE_INT8_HOST FB_ENTRY(fb_dense_int8_avx2),
#define FB_DEPTHWISE_BINARY_HOST
#define FB_DEPTHWISE_INT8_HOST
#define FB_CONV_BITS_HOST FB_ENTRY(fb_conv_bits_avx2),
#define FB_MAX_POOL_HOST FB_ENTRY(fb_max_pool_sse4),
#define FB_AVERAGE_POOL_HOST
#define FB_ADD_HOST FB_ENTRY(fb_add_avx2),
#elif defined(__ARM_NEON)
FB_KERNEL(fb_conv_bin_neon);
FB_KERNEL(fb_conv_bits_neon);
FB_KERNEL(fb_dense_bin_neon);
FB_KERNEL(fb_dense_int8_neon);
FB_KERNEL(fb_max_pool_neon);
FB_KERNEL(fb_average_pool_neon);
FB_KERNEL(fb_add_neon);
#define FB_CONV_BINARY_HOST FB_ENTRY(fb_conv_bin_neon),
#define FB_DENSE_BINARY_HOST FB_ENTRY(fb_dense_bin_neon),
#define FB_CONV_INT8_HOST
#define FB_DENSE_INT8_HOST FB_ENTRY(fb_dense_int8_neon),
#define FB_DEPTHWISE_BINARY_HOST
#define FB_DEPTHWISE_INT8_HOST
#define FB_CONV_BITS_HOST FB_ENTRY(fb_conv_bits_neon),
#define FB_MAX_POOL_HOST FB_ENTRY(fb_max_pool_neon),
#define FB_AVERAGE_POOL_HOST FB_ENTRY(fb_average_pool_neon),
#define FB_ADD_HOST FB_ENTRY(fb_add_neon),
#else
#define FB_NO_HOST
#endif

#ifdef FB_NO_HOST
#define FB_CONV_BINARY_HOST
#define FB_DENSE_BINARY_HOST
#define FB_CONV_INT8_HOST
#define FB_DENSE_INT8_HOST
#define FB_DEPTHWISE_BINARY_HOST
#define FB_DEPTHWISE_INT8_HOST
#define FB_CONV_BITS_HOST
#define FB_MAX_POOL_HOST
#define FB_AVERAGE_POOL_HOST
#define FB_ADD_HOST
#endif

#endif
