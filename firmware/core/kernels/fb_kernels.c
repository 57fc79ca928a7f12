/* Which kernels there are, fastest first. */
#include "fb_kernels_host.h"
#include "fb_kernels_mve.h"
#include "fb_kernels_scalar.h"

/* A variant's list, such as FB_ADD_MVE, is empty where it is not compiled; its entries end in commas. */
#define VARIANTS(list) FB_##list##_HOST FB_##list##_MVE FB_##list##_SCALAR

static const fb_kernel conv_binary[] = {VARIANTS(CONV_BINARY) FB_ENTRY(fb_conv_bin_reference), FB_KERNELS_END};
static const fb_kernel dense_binary[] = {VARIANTS(DENSE_BINARY) FB_ENTRY(fb_dense_bin), FB_KERNELS_END};
static const fb_kernel conv_int8[] = {VARIANTS(CONV_INT8) FB_ENTRY(fb_conv_int8), FB_KERNELS_END};
static const fb_kernel dense_int8[] = {VARIANTS(DENSE_INT8) FB_ENTRY(fb_dense_int8), FB_KERNELS_END};
static const fb_kernel depthwise_binary[] = {VARIANTS(DEPTHWISE_BINARY) FB_ENTRY(fb_depthwise_bin), FB_KERNELS_END};
static const fb_kernel depthwise_int8[] = {VARIANTS(DEPTHWISE_INT8) FB_ENTRY(fb_depthwise_int8), FB_KERNELS_END};
static const fb_kernel max_pool[] = {VARIANTS(MAX_POOL) FB_ENTRY(fb_max_pool), FB_KERNELS_END};
static const fb_kernel average_pool[] = {VARIANTS(AVERAGE_POOL) FB_ENTRY(fb_average_pool), FB_KERNELS_END};
static const fb_kernel add[] = {VARIANTS(ADD) FB_ENTRY(fb_add), FB_KERNELS_END};
static const fb_kernel shortcut[] = {FB_ENTRY(fb_shortcut), FB_KERNELS_END};
static const fb_kernel relu[] = {FB_ENTRY(fb_relu), FB_KERNELS_END};
static const fb_kernel flatten[] = {FB_ENTRY(fb_flatten), FB_KERNELS_END};
static const fb_kernel table[] = {FB_ENTRY(fb_table), FB_KERNELS_END};
static const fb_kernel concat[] = {FB_ENTRY(fb_concat), FB_KERNELS_END};
static const fb_kernel binarize[] = {FB_ENTRY(fb_binarize), FB_KERNELS_END};
static const fb_kernel conv_bits[] = {VARIANTS(CONV_BITS) FB_ENTRY(fb_conv_bits_reference), FB_KERNELS_END};
static const fb_kernel max_pool_bits[] = {FB_ENTRY(fb_max_pool_bits), FB_KERNELS_END};
static const fb_kernel none[] = {FB_KERNELS_END};

#ifdef FB_PLAN_BOARDS
int fb_plan_core, fb_plan_small_code;
#endif

const fb_kernel *fb_kernels_of(const fb_layer *layer) {
    bool binary = layer->flags & FB_FLAG_BINARY;
    switch (layer->kind) {
    case FB_CONV: return binary ? conv_binary : conv_int8;
    case FB_DENSE: return binary ? dense_binary : dense_int8;
    case FB_MAX_POOL: return max_pool;
    case FB_AVERAGE_POOL: return average_pool;
    case FB_ADD: return add;
    case FB_SHORTCUT: return shortcut;
    case FB_RELU: return relu;
    case FB_FLATTEN: return flatten;
    case FB_DEPTHWISE: return binary ? depthwise_binary : depthwise_int8;
    case FB_TABLE: return table;
    case FB_CONCAT: return concat;
    case FB_BINARIZE: return binarize;
    case FB_CONV_BITS: return conv_bits;
    case FB_MAX_POOL_BITS: return max_pool_bits;
    default: return none;
    }
}
