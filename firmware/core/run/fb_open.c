/* Checks an image before anything in it is used. The order of checks is that of runtime/image/reader.py: a bad image gets the
 * same status from both. */
#include "fb_layer.h"

#define INT31 0x7FFFFFFFu

#define REQUIRE(condition, status) \
    do { \
        if (!(condition)) return (status); \
    } while (0)

static bool inside(const fb_model *model, uint32_t start, uint32_t at, uint64_t size) {
    return at >= start && at <= model->size && size <= model->size - at;
}

/* The next multiple of 4 is inside as well: the image's size is one. */
static fb_status check_slice(const fb_model *model, uint32_t start, uint32_t at, uint64_t size) {
    uint32_t end;
    REQUIRE(at % 4 == 0, FB_ERR_ALIGN);
    REQUIRE(inside(model, start, at, size), FB_ERR_OFFSET);
    for (end = at + (uint32_t)size; end % 4 != 0; end++) REQUIRE(model->image[end] == 0, FB_ERR_RESERVED);
    return FB_OK;
}

static fb_status check_tensor(const fb_model *model, unsigned i) {
    fb_tensor t = fb_model_tensor(model, i);
    REQUIRE(t.size > 0 && t.size <= INT31, FB_ERR_SHAPE);
    REQUIRE(t.rank == 3 || (t.rank == 1 && t.height == 1 && t.width == 1), FB_ERR_SHAPE);
    /* finite and positive, from the bits of the float */
    REQUIRE(t.scale_bits > 0 && t.scale_bits < 0x7F800000u, FB_ERR_SCALE);
    return FB_OK;
}

/* Whether `tensor` is the input or written by one of the first `count` operations. */
static bool written(const fb_model *model, unsigned count, uint32_t tensor) {
    const uint8_t *p = model->image + FB_HEADER_SIZE + FB_TENSOR_SIZE * (size_t)model->tensors;
    unsigned i;
    if (tensor == model->input) return true;
    for (i = 0; i < count; i++, p += FB_OP_SIZE) {
        if (fb_u16(p + 6) == tensor) return true;
    }
    return false;
}

/* Fields a kind does not use are 0; those it uses make sense. `p` is the record. */
static fb_status check_window(const uint8_t *p, const fb_layer *layer) {
    bool kernel = layer->kind == FB_CONV || layer->kind == FB_MAX_POOL || layer->kind == FB_AVERAGE_POOL;
    bool stride = kernel || layer->kind == FB_SHORTCUT;
    bool padding = layer->kind == FB_CONV || layer->kind == FB_MAX_POOL;
    bool weighted = layer->kind == FB_CONV || layer->kind == FB_DENSE;
    bool scaled = weighted || layer->kind == FB_AVERAGE_POOL || layer->kind == FB_ADD;
    unsigned largest = weighted && !(layer->flags & FB_FLAG_BINARY) ? 46 : 30;
    REQUIRE((p[8] != 0) == kernel && (p[9] != 0) == kernel, FB_ERR_WINDOW);
    REQUIRE((p[10] != 0) == stride && (p[11] != 0) == stride, FB_ERR_WINDOW);
    if (padding) {
        REQUIRE(p[12] < p[8] && p[13] < p[8] && p[14] < p[9] && p[15] < p[9], FB_ERR_WINDOW);
    } else {
        REQUIRE(p[12] == 0 && p[13] == 0 && p[14] == 0 && p[15] == 0, FB_ERR_WINDOW);
    }
    REQUIRE(scaled ? layer->shift >= 1 && layer->shift <= largest : layer->shift == 0, FB_ERR_SHIFT);
    if (layer->flags & FB_FLAG_CHUNKS) {
        REQUIRE(layer->flags & FB_FLAG_BINARY && p[8] == 3 && p[9] == 3 && layer->in.channels % 16 == 0, FB_ERR_FLAGS);
    }
    return FB_OK;
}

static bool same_shape(const fb_tensor *a, const fb_tensor *b) {
    return a->rank == b->rank && a->height == b->height && a->width == b->width && a->channels == b->channels;
}

static fb_status check_shapes(const uint8_t *p, const fb_layer *layer) {
    const fb_tensor *in = &layer->in, *out = &layer->out;
    int32_t height, width;
    switch (layer->kind) {
    case FB_CONV:
    case FB_MAX_POOL:
    case FB_AVERAGE_POOL:
        REQUIRE(in->rank == 3, FB_ERR_SHAPE);
        height = (int32_t)in->height + p[12] + p[13] - p[8];
        width = (int32_t)in->width + p[14] + p[15] - p[9];
        REQUIRE(height >= 0 && width >= 0, FB_ERR_SHAPE);
        REQUIRE(out->height == height / p[10] + 1 && out->width == width / p[11] + 1, FB_ERR_SHAPE);
        REQUIRE(layer->kind == FB_CONV || out->channels == in->channels, FB_ERR_SHAPE);
        REQUIRE(out->rank == 3 || layer->kind == FB_AVERAGE_POOL, FB_ERR_SHAPE); /* rank 1 is 1×1 */
        break;
    case FB_DENSE: REQUIRE(in->rank == 1 && out->rank == 1, FB_ERR_SHAPE); break;
    case FB_FLATTEN: REQUIRE(in->rank == 3 && out->rank == 1 && in->size == out->size, FB_ERR_SHAPE); break;
    case FB_SHORTCUT:
        REQUIRE(in->rank == 3 && out->rank == 3 && out->channels >= in->channels, FB_ERR_SHAPE);
        REQUIRE(out->height == (in->height - 1) / p[10] + 1 && out->width == (in->width - 1) / p[11] + 1, FB_ERR_SHAPE);
        break;
    default: /* add, ReLU */ REQUIRE(same_shape(in, out) && same_shape(&layer->in2, out), FB_ERR_SHAPE);
    }
    if (layer->kind == FB_MAX_POOL || layer->kind >= FB_SHORTCUT) {
        REQUIRE(in->zero_point == out->zero_point && in->scale_bits == out->scale_bits, FB_ERR_SCALE);
    }
    return FB_OK;
}

static fb_status check_factors(const fb_layer *layer) {
    bool average = layer->kind == FB_AVERAGE_POOL, add = layer->kind == FB_ADD;
    uint32_t limit = 1u << 22;
    uint64_t largest;
    REQUIRE(average || add ? layer->factor[0] >= 1 && layer->factor[0] < limit : layer->factor[0] == 0,
            FB_ERR_MULTIPLIER);
    REQUIRE(add ? layer->factor[1] >= 1 && layer->factor[1] < limit : layer->factor[1] == 0, FB_ERR_MULTIPLIER);
    if (!average && !add) return FB_OK;
    largest = (uint64_t)255 * (average ? (uint32_t)layer->kernel_h * layer->kernel_w : 1) * layer->factor[0];
    if (add) largest += (uint64_t)255 * layer->factor[1];
    REQUIRE(largest + (1u << layer->shift >> 1) <= INT31, FB_ERR_OVERFLOW);
    return FB_OK;
}

static uint32_t magnitude(int32_t v) { return v < 0 ? 0u - (uint32_t)v : (uint32_t)v; }

/* No input and no setting of the signs may overflow 32 bits. */
static fb_status check_binary(const fb_layer *layer) {
    uint64_t reach = (uint64_t)layer->inputs * (128u + 2u * magnitude(layer->in.zero_point));
    uint32_t half = 1u << layer->shift >> 1;
    unsigned spare = (unsigned)(16 * (uint64_t)layer->words - layer->inputs);
    unsigned o;
    for (o = 0; o < layer->out.channels; o++) REQUIRE(layer->mult[o] >= 1, FB_ERR_MULTIPLIER);
    for (o = 0; spare && o < layer->out.channels; o++) {
        REQUIRE(layer->bits[(size_t)(o + 1) * layer->words - 1] >> (16 - spare) == 0, FB_ERR_RESERVED);
    }
    for (o = 0; o < layer->out.channels; o++) {
        uint64_t sum = reach + magnitude(layer->bias[o]); /* below 2^42 */
        uint64_t factor = (uint16_t)layer->mult[o];
        REQUIRE(sum * factor + half <= INT31, FB_ERR_OVERFLOW);
    }
    return FB_OK;
}

static fb_status check_int8(const fb_layer *layer) {
    const int8_t *w = layer->weights;
    unsigned o;
    for (o = 0; o < layer->out.channels; o++) REQUIRE(layer->mult_int8[o] >= 1, FB_ERR_MULTIPLIER);
    for (o = 0; o < layer->out.channels; o++) {
        uint64_t sum = 0;
        uint32_t i;
        for (i = 0; i < layer->inputs; i++) sum += magnitude(*w++);
        REQUIRE(sum * 128 + magnitude(layer->bias[o]) <= INT31, FB_ERR_OVERFLOW);
    }
    return FB_OK;
}

static fb_status check_weights(const fb_model *model, uint32_t start, fb_layer *layer) {
    bool binary = layer->flags & FB_FLAG_BINARY;
    uint64_t filter = binary ? 2 * (uint64_t)layer->words : layer->inputs;
    uint64_t params = binary ? 6 : 8;
    fb_status status = check_slice(model, start, layer->factor[0], filter * layer->out.channels);
    if (status == FB_OK) status = check_slice(model, start, layer->factor[1], params * layer->out.channels);
    if (status != FB_OK) return status;
    fb_layer_weights(model, layer);
    return binary ? check_binary(layer) : check_int8(layer);
}

static fb_status check_op(const fb_model *model, uint32_t start, unsigned op) {
    static const uint8_t allowed[FB_KIND_END] = {0, 15, 11, 0, 0, 1, 0, 0, 0};
    const uint8_t *p =
        model->image + FB_HEADER_SIZE + FB_TENSOR_SIZE * (size_t)model->tensors + FB_OP_SIZE * (size_t)op;
    unsigned kind = p[0];
    fb_layer layer;
    fb_status status;
    REQUIRE(kind >= 1 && kind < FB_KIND_END, FB_ERR_KIND);
    REQUIRE(p[17] == 0 && p[18] == 0 && p[19] == 0, FB_ERR_RESERVED);
    REQUIRE((p[1] & ~(unsigned)allowed[kind]) == 0, FB_ERR_FLAGS);
    REQUIRE(kind == FB_ADD || fb_u16(p + 4) == FB_NO_TENSOR, FB_ERR_INDEX);
    REQUIRE(written(model, op, fb_u16(p + 2)), FB_ERR_INDEX);
    REQUIRE(kind != FB_ADD || written(model, op, fb_u16(p + 4)), FB_ERR_INDEX);
    REQUIRE(fb_u16(p + 6) < model->tensors && !written(model, op, fb_u16(p + 6)), FB_ERR_INDEX);
    fb_layer_fields(model, op, &layer);
    status = check_window(p, &layer);
    if (status == FB_OK) status = check_shapes(p, &layer);
    if (status != FB_OK) return status;
    if (kind == FB_CONV || kind == FB_DENSE) return check_weights(model, start, &layer);
    return check_factors(&layer);
}

fb_status fb_model_open(fb_model *model, const void *image, size_t size) {
    static const uint8_t magic[4] = {'F', 'B', 'I', 'T'}, zeros[4] = {0, 0, 0, 0};
    const uint8_t *p = image;
    uint32_t crc, start, at, length;
    uint64_t tables;
    unsigned i;
    REQUIRE(model && image, FB_ERR_ARGUMENT);
    REQUIRE((uintptr_t)image % 4 == 0, FB_ERR_ALIGN);
    REQUIRE(size >= FB_HEADER_SIZE, FB_ERR_TRUNCATED);
    for (i = 0; i < 4; i++) REQUIRE(p[i] == magic[i], FB_ERR_MAGIC);
    REQUIRE(fb_u16(p + 4) == FB_FORMAT_VERSION, FB_ERR_VERSION);
    REQUIRE(fb_u32(p + 8) == size && size % 4 == 0, FB_ERR_LENGTH);
    crc = fb_crc32(0, p, 12);
    crc = fb_crc32(crc, zeros, 4);
    crc = fb_crc32(crc, p + 16, size - 16);
    REQUIRE(crc == fb_u32(p + 12), FB_ERR_CRC);
    REQUIRE(fb_u16(p + 6) == 0, FB_ERR_RESERVED);
    model->image = p;
    model->size = (uint32_t)size;
    model->crc = crc;
    model->tensors = (uint16_t)fb_u16(p + 16);
    model->ops = (uint16_t)fb_u16(p + 18);
    model->input = (uint16_t)fb_u16(p + 20);
    model->output = (uint16_t)fb_u16(p + 22);
    tables = FB_HEADER_SIZE + FB_TENSOR_SIZE * (uint64_t)model->tensors + FB_OP_SIZE * (uint64_t)model->ops;
    REQUIRE(model->tensors >= 1 && model->ops >= 1 && tables <= size, FB_ERR_TABLE);
    REQUIRE(model->input < model->tensors && model->output < model->tensors, FB_ERR_INDEX);
    start = (uint32_t)tables;
    for (i = 0; i < model->tensors; i++) {
        fb_status status = check_tensor(model, i);
        if (status != FB_OK) return status;
    }
    at = fb_u32(p + 24);
    length = fb_u32(p + 28);
    if (at == 0) {
        REQUIRE(length == 0, FB_ERR_METADATA);
    } else {
        fb_status status = check_slice(model, start, at, length);
        if (status != FB_OK) return status;
    }
    for (i = 0; i < model->ops; i++) {
        fb_status status = check_op(model, start, i);
        if (status != FB_OK) return status;
    }
    REQUIRE(written(model, model->ops, model->output), FB_ERR_INDEX);
    return FB_OK;
}
