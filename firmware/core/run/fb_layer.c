#include "fb_layer.h"

fb_tensor fb_model_tensor(const fb_model *model, unsigned index) {
    const uint8_t *p = model->image + FB_HEADER_SIZE + FB_TENSOR_SIZE * (size_t)index;
    fb_tensor t;
    t.height = (uint16_t)fb_u16(p);
    t.width = (uint16_t)fb_u16(p + 2);
    t.channels = (uint16_t)fb_u16(p + 4);
    t.zero_point = (int8_t)p[6];
    t.rank = p[7];
    t.scale_bits = fb_u32(p + 8);
    t.size = (uint32_t)t.height * t.width; /* 2^32 − 2^17 + 1 at most */
    t.size = fb_product(t.size, t.channels);
    return t;
}

void fb_layer_fields(const fb_model *model, unsigned op, fb_layer *layer) {
    const uint8_t *p =
        model->image + FB_HEADER_SIZE + FB_TENSOR_SIZE * (size_t)model->tensors + FB_OP_SIZE * (size_t)op;
    bool adds;
    layer->kind = p[0];
    layer->flags = p[1];
    layer->input = (uint16_t)fb_u16(p + 2);
    layer->input2 = (uint16_t)fb_u16(p + 4);
    layer->output = (uint16_t)fb_u16(p + 6);
    layer->kernel_h = p[8] ? p[8] : 1;
    layer->kernel_w = p[9] ? p[9] : 1;
    layer->stride_h = p[10] ? p[10] : 1;
    layer->stride_w = p[11] ? p[11] : 1;
    layer->pad_top = p[12];
    layer->pad_left = p[14];
    layer->shift = p[16];
    adds = layer->kind == FB_ADD;
    layer->in = fb_model_tensor(model, layer->input);
    layer->in2 = fb_model_tensor(model, adds ? layer->input2 : layer->input);
    layer->out = fb_model_tensor(model, layer->output);
    layer->low = layer->flags & FB_FLAG_RELU ? layer->out.zero_point : (int8_t)-128;
    layer->inputs = fb_product((uint32_t)layer->kernel_h * layer->kernel_w, layer->in.channels);
    layer->words = layer->inputs / 16 + (layer->inputs % 16 != 0);
    layer->factor[0] = fb_u32(p + 20);
    layer->factor[1] = fb_u32(p + 24);
    layer->bits = NULL;
    layer->weights = NULL;
    layer->bias = NULL;
    layer->mult = NULL;
    layer->mult_int8 = NULL;
}

void fb_layer_decode(const fb_model *model, unsigned op, fb_layer *layer) {
    fb_layer_fields(model, op, layer);
    if (layer->kind == FB_CONV || layer->kind == FB_DENSE) fb_layer_weights(model, layer);
}

void fb_layer_weights(const fb_model *model, fb_layer *layer) {
    bool binary = layer->flags & FB_FLAG_BINARY;
    /* offsets, multiples of 4 as the image's own address is */
    const void *first = model->image + layer->factor[0];
    const void *params = model->image + layer->factor[1];
    layer->bits = binary ? first : NULL;
    layer->weights = binary ? NULL : first;
    layer->bias = params;
    layer->mult = binary ? (const void *)(layer->bias + layer->out.channels) : NULL;
    layer->mult_int8 = binary ? NULL : layer->bias + layer->out.channels;
}
