/* An operation, decoded: what kernels are given. Private to the core. */
#ifndef FB_LAYER_H
#define FB_LAYER_H

#include "fb_kinds.h"

typedef struct fb_layer {
    uint8_t kind, flags;
    uint16_t input, input2, output; /* indices of tensors; input2 is FB_NO_TENSOR unless it reads two */
    uint8_t kernel_h, kernel_w;     /* 1×1 for dense */
    uint8_t stride_h, stride_w;     /* 1 where the operation has none */
    uint8_t pad_top, pad_left;
    uint8_t shift;
    int8_t low;                /* lowest result: −128, or the output's zero point with a fused ReLU */
    fb_tensor in, in2, out;    /* in2 as in, unless it reads two */
    uint32_t inputs;           /* of one output value: kernel · fb_depth */
    uint32_t words;            /* 16-bit words of a binary filter */
    const uint16_t *bits;      /* binary: [out.channels][words] */
    const int8_t *weights;     /* int8: [out.channels][kernel_h][kernel_w][fb_depth]; or the table, [256] */
    const int32_t *bias;       /* [out.channels] */
    const int16_t *mult;       /* binary: [out.channels] */
    const int32_t *mult_int8;  /* int8: [out.channels] */
    uint32_t factor[2];        /* multipliers of averages and additions; offsets of weights and parameters */
    const uint8_t *references; /* of the channels: i16 mean, u16 deviation, with 7 fractional bits; or NULL */
    const int16_t *threshold;  /* [in.channels], −128 … 128: a bit is x ≥ threshold, */
    const uint16_t *inverted;  /* [in.channels / 16] words: or x < threshold */
} fb_layer;

/* 16-bit words of `bits` bits. */
static inline uint32_t fb_words(uint32_t bits) { return bits / 16 + (bits % 16 != 0); }

/* Decode operation `op`; no checks: fb_model_open has made them. */
void fb_layer_decode(const fb_model *model, unsigned op, fb_layer *layer);

/* Its two halves, for fb_model_open: all but the pointers to weights, parameters and tables, which are NULL; and those,
 * once their offsets are known to be inside the image. */
void fb_layer_fields(const fb_model *model, unsigned op, fb_layer *layer);
void fb_layer_weights(const fb_model *model, fb_layer *layer);

/* Input channels that a filter sees. */
static inline uint32_t fb_depth(const fb_layer *layer) {
    return layer->kind == FB_DEPTHWISE ? 1 : layer->in.channels; /* FB_PER_CHANNEL, without a call */
}

/* Whether every window lies inside the image. */
static inline bool fb_all_inside(const fb_layer *layer) {
    uint32_t down = (uint32_t)(layer->out.height - 1) * layer->stride_h + layer->kernel_h;
    uint32_t across = (uint32_t)(layer->out.width - 1) * layer->stride_w + layer->kernel_w;
    return !layer->pad_top && !layer->pad_left && down <= layer->in.height && across <= layer->in.width;
}

/* Bytes of all parameters of a layer with weights, references included. */
static inline uint32_t fb_params_size(const fb_layer *layer) {
    uint32_t each = layer->flags & FB_FLAG_BINARY ? FB_PARAMS_BINARY : FB_PARAMS_INT8;
    return (each + (layer->flags & FB_FLAG_REFERENCES ? FB_REFERENCE_SIZE : 0u)) * layer->out.channels;
}

/* Sizes are summed with saturation: a sum that does not fit 32 bits is too large for any arena. */
static inline uint32_t fb_sum(uint32_t a, uint32_t b) { return a > UINT32_MAX - b ? UINT32_MAX : a + b; }
static inline uint32_t fb_product(uint32_t a, uint32_t b) { return b && a > UINT32_MAX / b ? UINT32_MAX : a * b; }
static inline uint32_t fb_aligned(uint32_t n) {
    return n > UINT32_MAX - (FB_ALIGN - 1) ? UINT32_MAX : (n + (FB_ALIGN - 1)) & ~(uint32_t)(FB_ALIGN - 1);
}

#endif
