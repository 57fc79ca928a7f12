/* Which kernels there are, fastest first. */
#include "fb_kernels_host.h"
#include "fb_kernels_mve.h"
#include "fb_kernels_scalar.h"

/* A variant's list, such as FB_ADD_MVE, is empty where it is not compiled; its entries end in commas. */
#define VARIANTS(list) FB_##list##_HOST FB_##list##_MVE FB_##list##_SCALAR
#define END {NULL, NULL, NULL}

static const fb_kernel conv_binary[] = {VARIANTS(CONV_BINARY) FB_ENTRY(fb_conv_bin_reference), END};
static const fb_kernel dense_binary[] = {VARIANTS(DENSE_BINARY) FB_ENTRY(fb_dense_bin), END};
static const fb_kernel conv_int8[] = {VARIANTS(CONV_INT8) FB_ENTRY(fb_conv_int8), END};
static const fb_kernel dense_int8[] = {VARIANTS(DENSE_INT8) FB_ENTRY(fb_dense_int8), END};
static const fb_kernel max_pool[] = {VARIANTS(MAX_POOL) FB_ENTRY(fb_max_pool), END};
static const fb_kernel average_pool[] = {VARIANTS(AVERAGE_POOL) FB_ENTRY(fb_average_pool), END};
static const fb_kernel add[] = {VARIANTS(ADD) FB_ENTRY(fb_add), END};
static const fb_kernel shortcut[] = {FB_ENTRY(fb_shortcut), END};
static const fb_kernel relu[] = {FB_ENTRY(fb_relu), END};
static const fb_kernel flatten[] = {FB_ENTRY(fb_flatten), END};
static const fb_kernel none[] = {END};

#ifdef FB_PLAN_BOARDS
int fb_plan_core;
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
    default: return none;
    }
}
