#include "fb_layer.h"

fb_tensor fb_model_tensor(const fb_model *model, unsigned index) {
    const uint8_t *p = model->image + FB_HEADER_SIZE + FB_TENSOR_SIZE * (size_t)index;
    fb_tensor t;
    t.height = (uint16_t)fb_u16(p + FB_TENSOR_HEIGHT);
    t.width = (uint16_t)fb_u16(p + FB_TENSOR_WIDTH);
    t.channels = (uint16_t)fb_u16(p + FB_TENSOR_CHANNELS);
    t.zero_point = (int8_t)p[FB_TENSOR_ZERO_POINT];
    t.rank = p[FB_TENSOR_RANK];
    t.scale_bits = fb_u32(p + FB_TENSOR_SCALE);
    t.size = (uint32_t)t.height * t.width; /* 2^32 − 2^17 + 1 at most */
    t.size = fb_product(t.size, t.rank == FB_RANK_BITS ? 2 * fb_words(t.channels) : t.channels);
    return t;
}

void fb_layer_fields(const fb_model *model, unsigned op, fb_layer *layer) {
    const uint8_t *p = fb_op_record(model, op);
    bool two = fb_traits_of(p[FB_OP_KIND])->inputs == 2;
    layer->kind = p[FB_OP_KIND];
    layer->flags = p[FB_OP_FLAGS];
    layer->input = (uint16_t)fb_u16(p + FB_OP_INPUT);
    layer->input2 = (uint16_t)fb_u16(p + FB_OP_INPUT2);
    layer->output = (uint16_t)fb_u16(p + FB_OP_OUTPUT);
    layer->kernel_h = p[FB_OP_KERNEL_H] ? p[FB_OP_KERNEL_H] : 1;
    layer->kernel_w = p[FB_OP_KERNEL_W] ? p[FB_OP_KERNEL_W] : 1;
    layer->stride_h = p[FB_OP_STRIDE_H] ? p[FB_OP_STRIDE_H] : 1;
    layer->stride_w = p[FB_OP_STRIDE_W] ? p[FB_OP_STRIDE_W] : 1;
    layer->pad_top = p[FB_OP_PAD_TOP];
    layer->pad_left = p[FB_OP_PAD_LEFT];
    layer->shift = p[FB_OP_SHIFT];
    layer->in = fb_model_tensor(model, layer->input);
    layer->in2 = fb_model_tensor(model, two ? layer->input2 : layer->input);
    layer->out = fb_model_tensor(model, layer->output);
    layer->low = layer->flags & FB_FLAG_RELU ? layer->out.zero_point : (int8_t)-128;
    layer->inputs = fb_product((uint32_t)layer->kernel_h * layer->kernel_w, fb_depth(layer));
    layer->words = fb_words(layer->inputs);
    layer->factor[0] = fb_u32(p + FB_OP_FIRST);
    layer->factor[1] = fb_u32(p + FB_OP_SECOND);
    layer->bits = NULL;
    layer->weights = NULL;
    layer->bias = NULL;
    layer->mult = NULL;
    layer->mult_int8 = NULL;
    layer->threshold = NULL;
    layer->inverted = NULL;
    layer->references = NULL;
}

void fb_layer_decode(const fb_model *model, unsigned op, fb_layer *layer) {
    fb_layer_fields(model, op, layer);
    fb_layer_weights(model, layer);
}

void fb_layer_weights(const fb_model *model, fb_layer *layer) {
    bool binary = layer->flags & FB_FLAG_BINARY;
    unsigned has = fb_traits_of(layer->kind)->has;
    const void *first, *params;
    if (has & FB_LOOKS_UP) layer->weights = (const int8_t *)model->image + layer->factor[0];
    if (!(has & (FB_WEIGHTS | FB_THRESHOLDS))) return;
    /* offsets, multiples of 4 as the image's own address is */
    first = model->image + layer->factor[0];
    params = model->image + layer->factor[1];
    if (has & FB_THRESHOLDS) {
        layer->threshold = params;
        layer->inverted = (const uint16_t *)params + layer->in.channels;
        return;
    }
    layer->bits = binary ? first : NULL;
    layer->weights = binary ? NULL : first;
    layer->bias = params;
    layer->mult = binary ? (const void *)(layer->bias + layer->out.channels) : NULL;
    layer->mult_int8 = binary ? NULL : layer->bias + layer->out.channels;
    if (layer->flags & FB_FLAG_REFERENCES) {
        uint32_t each = binary ? FB_PARAMS_BINARY : FB_PARAMS_INT8;
        layer->references = (const uint8_t *)params + (size_t)each * layer->out.channels;
    }
}
