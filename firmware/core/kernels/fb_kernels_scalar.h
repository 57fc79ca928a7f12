/* Kernels for plain C and Thumb or RISC-V assembly: microcontrollers without vector units. Private to the core:
 * fb_kernels.c joins these lists. */
#ifndef FB_KERNELS_SCALAR_H
#define FB_KERNELS_SCALAR_H

#include "fb_kernels.h"

/* Tables for 16 channels, the same with less RAM, for few inputs, for anything, and that with less RAM. */
FB_KERNEL(fb_conv_bin_3x3);
FB_KERNEL(fb_conv_bin_3x3_row);
FB_KERNEL(fb_conv_bin_few);
FB_KERNEL(fb_conv_bin_any);
FB_KERNEL(fb_conv_bin_small);

#define FB_CONV_BINARY_SCALAR \
    FB_ENTRY(fb_conv_bin_3x3), FB_ENTRY(fb_conv_bin_3x3_row), FB_ENTRY(fb_conv_bin_few), FB_ENTRY(fb_conv_bin_any), \
        FB_ENTRY(fb_conv_bin_small),
#define FB_DENSE_BINARY_SCALAR
#define FB_CONV_INT8_SCALAR
#define FB_DENSE_INT8_SCALAR
#define FB_MAX_POOL_SCALAR
#define FB_AVERAGE_POOL_SCALAR
#define FB_ADD_SCALAR

#endif
