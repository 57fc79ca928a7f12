/* Kernels for plain C and Thumb or RISC-V assembly: microcontrollers without vector units. Private to the core:
 * fb_kernels.c joins these lists. */
#ifndef FB_KERNELS_SCALAR_H
#define FB_KERNELS_SCALAR_H

#include "fb_kernels.h"

#define FB_CONV_BINARY_SCALAR
#define FB_DENSE_BINARY_SCALAR
#define FB_CONV_INT8_SCALAR
#define FB_DENSE_INT8_SCALAR
#define FB_MAX_POOL_SCALAR
#define FB_AVERAGE_POOL_SCALAR
#define FB_ADD_SCALAR

#endif
