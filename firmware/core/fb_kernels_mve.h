/* Kernels for Helium (MVE): Cortex-M55, M85. Private to the core: fb_kernels.c joins these lists. */
#ifndef FB_KERNELS_MVE_H
#define FB_KERNELS_MVE_H

#include "fb_kernels.h"

#define FB_CONV_BINARY_MVE
#define FB_DENSE_BINARY_MVE
#define FB_CONV_INT8_MVE
#define FB_DENSE_INT8_MVE
#define FB_MAX_POOL_MVE
#define FB_AVERAGE_POOL_MVE
#define FB_ADD_MVE

#endif
