/* Checks an image before anything in it is used. The order of checks is that of runtime/image/reader.py: a bad image gets the
 * same status from both. */
#include "fb_front_end.h"
#include "fb_layer.h"

#define INT31 0x7FFFFFFFu

#define REQUIRE(condition, status) \
    do { \
        if (!(condition)) return (status); \
    } while (0)

static uint32_t version_of(const uint8_t *image) { return fb_u16(image + FB_HEADER_VERSION); }

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
    bool bits = t.rank == FB_RANK_BITS && version_of(model->image) >= 2;
    REQUIRE(t.size > 0 && t.size <= INT31, FB_ERR_SHAPE);
    REQUIRE(t.rank == 3 || bits || (t.rank == 1 && t.height == 1 && t.width == 1), FB_ERR_SHAPE);
    /* finite and positive, from the bits of the float */
    REQUIRE(t.scale_bits > 0 && t.scale_bits < 0x7F800000u, FB_ERR_SCALE);
    REQUIRE(!bits || (t.scale_bits == FB_SCALE_ONE && t.zero_point == 0), FB_ERR_SCALE);
    REQUIRE(!bits || (i != model->input && i != model->output), FB_ERR_SHAPE);
    return FB_OK;
}

/* Whether `tensor` is the input or written by one of the first `count` operations. */
static bool written(const fb_model *model, unsigned count, uint32_t tensor) {
    const uint8_t *p = fb_op_record(model, 0);
    unsigned i;
    if (tensor == model->input) return true;
    for (i = 0; i < count; i++, p += FB_OP_SIZE) {
        if (fb_u16(p + FB_OP_OUTPUT) == tensor) return true;
    }
    return false;
}

/* Fields a kind does not use are 0; those it uses make sense. `p` is the record. */
static fb_status check_window(const uint8_t *p, const fb_traits *traits, const fb_layer *layer, uint32_t version) {
    bool kernel = traits->has & FB_KERNEL_FIELDS, stride = traits->has & FB_STRIDE_FIELDS;
    bool wide = traits->has & FB_WEIGHTS && !(layer->flags & FB_FLAG_BINARY); /* 64-bit products */
    bool weights_of_bits = traits->has & FB_WEIGHTS && traits->has & FB_READS_BITS;
    uint8_t down = p[FB_OP_KERNEL_H], across = p[FB_OP_KERNEL_W];
    int largest;
    REQUIRE((down != 0) == kernel && (across != 0) == kernel, FB_ERR_WINDOW);
    REQUIRE((p[FB_OP_STRIDE_H] != 0) == stride && (p[FB_OP_STRIDE_W] != 0) == stride, FB_ERR_WINDOW);
    if (!(traits->has & FB_PADDING_FIELDS) || (traits->has & FB_PADDING_NEW && version < 2))
        down = across = 1; /* no padding is smaller than that of 1 */
    REQUIRE(p[FB_OP_PAD_TOP] < down && p[FB_OP_PAD_BOTTOM] < down, FB_ERR_WINDOW);
    REQUIRE(p[FB_OP_PAD_LEFT] < across && p[FB_OP_PAD_RIGHT] < across, FB_ERR_WINDOW);
    /* Recalibrating looks at results with half the resolution, by a shift more. */
    largest = (wide ? 46 : 30) - (layer->flags & FB_FLAG_REFERENCES ? 1 : 0);
    REQUIRE(traits->has & FB_SHIFTS ? layer->shift >= 1 && layer->shift <= largest : layer->shift == 0, FB_ERR_SHIFT);
    REQUIRE(!weights_of_bits || layer->flags & FB_FLAG_BINARY, FB_ERR_FLAGS);
    if (layer->flags & FB_FLAG_CHUNKS) {
        REQUIRE(layer->flags & FB_FLAG_BINARY && layer->kernel_h == 3 && layer->kernel_w == 3, FB_ERR_FLAGS);
        REQUIRE(layer->in.channels % 16 == 0, FB_ERR_FLAGS);
    }
    return FB_OK;
}

static bool same_shape(const fb_tensor *a, const fb_tensor *b) {
    return a->rank == b->rank && a->height == b->height && a->width == b->width && a->channels == b->channels;
}

static fb_status check_shapes(const uint8_t *p, const fb_traits *traits, const fb_layer *layer) {
    const fb_tensor *in = &layer->in, *out = &layer->out;
    bool reads = traits->has & FB_READS_BITS, writes = traits->has & FB_WRITES_BITS;
    int32_t height, width;
    REQUIRE((in->rank == FB_RANK_BITS) == reads && (layer->in2.rank == FB_RANK_BITS) == reads, FB_ERR_SHAPE);
    REQUIRE((out->rank == FB_RANK_BITS) == writes, FB_ERR_SHAPE);
    switch (traits->shape) {
    case FB_SHAPE_WINDOWS:
        REQUIRE(in->rank == 3 || reads, FB_ERR_SHAPE);
        height = (int32_t)in->height + p[FB_OP_PAD_TOP] + p[FB_OP_PAD_BOTTOM] - layer->kernel_h;
        width = (int32_t)in->width + p[FB_OP_PAD_LEFT] + p[FB_OP_PAD_RIGHT] - layer->kernel_w;
        REQUIRE(height >= 0 && width >= 0, FB_ERR_SHAPE);
        REQUIRE(out->height == height / layer->stride_h + 1 && out->width == width / layer->stride_w + 1, FB_ERR_SHAPE);
        REQUIRE((traits->has & (FB_WEIGHTS | FB_PER_CHANNEL)) == FB_WEIGHTS || out->channels == in->channels,
                FB_ERR_SHAPE);
        REQUIRE(out->rank == 3 || writes || traits->has & FB_TO_VECTOR, FB_ERR_SHAPE); /* rank 1 is 1×1 */
        break;
    case FB_SHAPE_VECTORS: REQUIRE(in->rank == 1 && out->rank == 1, FB_ERR_SHAPE); break;
    case FB_SHAPE_FLAT: REQUIRE(in->rank == 3 && out->rank == 1 && in->size == out->size, FB_ERR_SHAPE); break;
    case FB_SHAPE_STRIDED:
        REQUIRE(in->rank == 3 && out->rank == 3 && out->channels >= in->channels, FB_ERR_SHAPE);
        REQUIRE(out->height == (in->height - 1) / layer->stride_h + 1, FB_ERR_SHAPE);
        REQUIRE(out->width == (in->width - 1) / layer->stride_w + 1, FB_ERR_SHAPE);
        break;
    case FB_SHAPE_BITS:
        REQUIRE(in->height == out->height && in->width == out->width && in->channels == out->channels, FB_ERR_SHAPE);
        break;
    case FB_SHAPE_SAME: REQUIRE(same_shape(in, out) && same_shape(&layer->in2, out), FB_ERR_SHAPE); break;
    case FB_SHAPE_JOINED:
        REQUIRE(in->rank == out->rank && layer->in2.rank == out->rank, FB_ERR_SHAPE);
        REQUIRE(in->height == out->height && layer->in2.height == out->height, FB_ERR_SHAPE);
        REQUIRE(in->width == out->width && layer->in2.width == out->width, FB_ERR_SHAPE);
        REQUIRE((uint32_t)in->channels + layer->in2.channels == out->channels, FB_ERR_SHAPE);
        break;
    default: return FB_ERR_KIND;
    }
    if (traits->has & FB_KEEPS_SCALE) {
        REQUIRE(in->zero_point == out->zero_point && in->scale_bits == out->scale_bits, FB_ERR_SCALE);
    }
    return FB_OK;
}

/* Multipliers, of sums over windows. */
static fb_status check_factors(const uint8_t *p, const fb_traits *traits, const fb_layer *layer) {
    uint32_t window = (uint32_t)layer->kernel_h * layer->kernel_w;
    uint64_t largest = 255 * ((uint64_t)window * layer->factor[0] + layer->factor[1]);
    unsigned i;
    /* Fewer pixels in a window over the border, and a multiplier that is rounded for them: fb_average_pool.c. */
    if (fb_u32(p + FB_OP_PAD_TOP) != 0) largest += 255 * (uint64_t)window;
    for (i = 0; i < 2; i++) {
        uint32_t factor = layer->factor[i];
        REQUIRE(i < traits->factors ? factor >= 1 && factor < 1u << 22 : factor == 0, FB_ERR_MULTIPLIER);
    }
    REQUIRE(!traits->factors || largest + (1u << layer->shift >> 1) <= INT31, FB_ERR_OVERFLOW);
    return FB_OK;
}

static uint32_t magnitude(int32_t v) { return v < 0 ? 0u - (uint32_t)v : (uint32_t)v; }

/* No input and no setting of the signs may overflow 32 bits. */
static fb_status check_binary(const fb_layer *layer) {
    bool bits = layer->in.rank == FB_RANK_BITS; /* inputs are ±1, or 0 */
    uint64_t reach = (uint64_t)layer->inputs * (bits ? 1u : 128u + 2u * magnitude(layer->in.zero_point));
    uint32_t half = layer->references ? 1u << layer->shift : 1u << layer->shift >> 1;
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
    fb_status status = check_slice(model, start, layer->factor[0], filter * layer->out.channels);
    if (status == FB_OK) status = check_slice(model, start, layer->factor[1], fb_params_size(layer));
    if (status != FB_OK) return status;
    fb_layer_weights(model, layer);
    return binary ? check_binary(layer) : check_int8(layer);
}

static fb_status check_table(const fb_model *model, uint32_t start, const fb_layer *layer) {
    REQUIRE(layer->factor[1] == 0, FB_ERR_MULTIPLIER);
    return check_slice(model, start, layer->factor[0], FB_TABLE_SIZE);
}

static fb_status check_thresholds(const fb_model *model, uint32_t start, fb_layer *layer) {
    unsigned channels = layer->in.channels, words = fb_words(channels), spare = 16 * words - channels, i;
    fb_status status;
    REQUIRE(layer->factor[0] == 0, FB_ERR_MULTIPLIER);
    status = check_slice(model, start, layer->factor[1], 2 * (uint64_t)(channels + words));
    if (status != FB_OK) return status;
    fb_layer_weights(model, layer);
    for (i = 0; i < channels; i++) {
        REQUIRE(layer->threshold[i] >= -128 && layer->threshold[i] <= 128, FB_ERR_MULTIPLIER);
    }
    REQUIRE(!spare || layer->inverted[words - 1] >> (16 - spare) == 0, FB_ERR_RESERVED);
    return FB_OK;
}

static fb_status check_op(const fb_model *model, uint32_t start, unsigned op) {
    const uint8_t *p = fb_op_record(model, op);
    const fb_traits *traits = fb_traits_of(p[FB_OP_KIND]);
    uint32_t input2 = fb_u16(p + FB_OP_INPUT2), output = fb_u16(p + FB_OP_OUTPUT);
    bool two = traits->inputs == 2;
    fb_layer layer;
    fb_status status;
    unsigned i;
    REQUIRE(traits->shape != FB_SHAPE_UNKNOWN && traits->version <= version_of(model->image), FB_ERR_KIND);
    for (i = FB_OP_RESERVED; i < FB_OP_FIRST; i++) REQUIRE(p[i] == 0, FB_ERR_RESERVED);
    REQUIRE((p[FB_OP_FLAGS] & ~(unsigned)traits->flags) == 0, FB_ERR_FLAGS);
    REQUIRE(version_of(model->image) >= 2 || !(p[FB_OP_FLAGS] & FB_FLAG_REFERENCES), FB_ERR_FLAGS);
    REQUIRE(two || input2 == FB_NO_TENSOR, FB_ERR_INDEX);
    REQUIRE(written(model, op, fb_u16(p + FB_OP_INPUT)), FB_ERR_INDEX);
    REQUIRE(!two || written(model, op, input2), FB_ERR_INDEX);
    REQUIRE(output < model->tensors && !written(model, op, output), FB_ERR_INDEX);
    fb_layer_fields(model, op, &layer);
    status = check_window(p, traits, &layer, version_of(model->image));
    if (status == FB_OK) status = check_shapes(p, traits, &layer);
    if (status != FB_OK) return status;
    if (traits->has & FB_LOOKS_UP) return check_table(model, start, &layer);
    if (traits->has & FB_THRESHOLDS) return check_thresholds(model, start, &layer);
    return traits->has & FB_WEIGHTS ? check_weights(model, start, &layer) : check_factors(p, traits, &layer);
}

fb_status fb_model_open(fb_model *model, const void *image, size_t size) {
    static const uint8_t magic[4] = {'F', 'B', 'I', 'T'}, zeros[4] = {0, 0, 0, 0};
    const uint8_t *p = image;
    uint32_t crc, start, at, length, flags;
    uint64_t tables;
    unsigned i;
    REQUIRE(model && image, FB_ERR_ARGUMENT);
    REQUIRE((uintptr_t)image % 4 == 0, FB_ERR_ALIGN);
    REQUIRE(size >= FB_HEADER_SIZE, FB_ERR_TRUNCATED);
    for (i = 0; i < 4; i++) REQUIRE(p[FB_HEADER_MAGIC + i] == magic[i], FB_ERR_MAGIC);
    REQUIRE(version_of(p) >= 1 && version_of(p) <= FB_FORMAT_VERSION, FB_ERR_VERSION);
    REQUIRE(fb_u32(p + FB_HEADER_LENGTH) == size && size % 4 == 0, FB_ERR_LENGTH);
    crc = fb_crc32(0, p, FB_HEADER_CRC);
    crc = fb_crc32(crc, zeros, sizeof zeros);
    crc = fb_crc32(crc, p + FB_HEADER_TENSORS, size - FB_HEADER_TENSORS);
    REQUIRE(crc == fb_u32(p + FB_HEADER_CRC), FB_ERR_CRC);
    flags = fb_u16(p + FB_HEADER_FLAGS);
    REQUIRE((flags & ~(version_of(p) > 1 ? (uint32_t)FB_HEADER_KNOWN_FLAGS : 0)) == 0, FB_ERR_RESERVED);
    model->image = p;
    model->size = (uint32_t)size;
    model->crc = crc;
    model->tensors = (uint16_t)fb_u16(p + FB_HEADER_TENSORS);
    model->ops = (uint16_t)fb_u16(p + FB_HEADER_OPS);
    model->input = (uint16_t)fb_u16(p + FB_HEADER_INPUT);
    model->output = (uint16_t)fb_u16(p + FB_HEADER_OUTPUT);
    tables = FB_HEADER_SIZE + FB_TENSOR_SIZE * (uint64_t)model->tensors + FB_OP_SIZE * (uint64_t)model->ops;
    if (flags & FB_HEADER_FRONT_END) tables += FB_FRONT_SIZE;
    REQUIRE(model->tensors >= 1 && model->ops >= 1 && tables <= size, FB_ERR_TABLE);
    REQUIRE(model->input < model->tensors && model->output < model->tensors, FB_ERR_INDEX);
    start = (uint32_t)tables;
    for (i = 0; i < model->tensors; i++) {
        fb_status status = check_tensor(model, i);
        if (status != FB_OK) return status;
    }
    if (flags & FB_HEADER_FRONT_END) {
        fb_status status = fb_front_end_check(model);
        if (status != FB_OK) return status;
    }
    at = fb_u32(p + FB_HEADER_METADATA);
    length = fb_u32(p + FB_HEADER_METADATA_LENGTH);
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
