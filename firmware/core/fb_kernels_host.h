/* Kernels for SSE/AVX on x86-64, NEON on Arm: laptops and edge boards. Private to the core: fb_kernels.c joins these
 * lists. */
#ifndef FB_KERNELS_HOST_H
#define FB_KERNELS_HOST_H

#include "fb_kernels.h"

#define FB_CONV_BINARY_HOST
#define FB_DENSE_BINARY_HOST
#define FB_CONV_INT8_HOST
#define FB_DENSE_INT8_HOST
#define FB_MAX_POOL_HOST
#define FB_AVERAGE_POOL_HOST
#define FB_ADD_HOST

#endif
