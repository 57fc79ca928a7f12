/* The core as a WebAssembly module: one net per instance, numbers in and numbers out. flipbit.js is the other side.
 *
 * The caller owns the memory from __heap_base up: it places image, input, output, state and arena there, aligned to
 * FB_ALIGN, and grows the memory when they need more. Everything else is the core's, as it is. Facts about an image are
 * returned in `facts`, which the next call overwrites; flipbit.js knows their order.
 */
#include "../core/include/fb_train.h"
#include "../core/run/fb_layer.h"

#define EXPORT(name) __attribute__((export_name(name)))

/* Of the host: called with the output of each operation while invoke() runs, if it was asked for. */
__attribute__((import_module("host"), import_name("layer"))) void fb_wasm_host_layer(uint32_t op, const int8_t *values,
                                                                                     uint32_t size);

static fb_model model;
static fb_train train;
static fb_train_config config;
static fb_train_result result;
static uint32_t facts[20];

EXPORT("version") const char *fb_wasm_version(void) { return FB_VERSION; }
EXPORT("status_name") const char *fb_wasm_status_name(fb_status status) { return fb_status_name(status); }
EXPORT("crc32") uint32_t fb_wasm_crc32(uint32_t crc, const void *data, uint32_t size) {
    return fb_crc32(crc, data, size);
}

EXPORT("open") fb_status fb_wasm_open(const void *image, uint32_t size) { return fb_model_open(&model, image, size); }

/* Of the opened image: format version, tensors, operations, input, output, CRC, offset and length of the metadata,
 * least arena, arena of the fastest kernels. */
EXPORT("model_facts") const uint32_t *fb_wasm_model_facts(void) {
    const uint8_t *header = model.image;
    facts[0] = fb_u16(header + FB_HEADER_VERSION);
    facts[1] = model.tensors;
    facts[2] = model.ops;
    facts[3] = model.input;
    facts[4] = model.output;
    facts[5] = model.crc;
    facts[6] = fb_u32(header + FB_HEADER_METADATA);
    facts[7] = fb_u32(header + FB_HEADER_METADATA_LENGTH);
    facts[8] = (uint32_t)fb_arena_least(&model);
    facts[9] = (uint32_t)fb_arena_size(&model);
    return facts;
}

/* Height, width, channels, zero point, rank, bits of the scale, values. */
EXPORT("tensor_facts") const uint32_t *fb_wasm_tensor_facts(uint32_t index) {
    fb_tensor t = fb_model_tensor(&model, index);
    facts[0] = t.height;
    facts[1] = t.width;
    facts[2] = t.channels;
    facts[3] = (uint32_t)(int32_t)t.zero_point;
    facts[4] = t.rank;
    facts[5] = t.scale_bits;
    facts[6] = t.size;
    return facts;
}

/* Kind, flags, tensors read (two) and written, kernel and stride down and across (0 where it has none); weights: how many, where, bytes;
 * parameters, table or thresholds: where, bytes; then its plan in an arena of that size: status, name of the kernel, live, scratch. */
EXPORT("op_facts") const uint32_t *fb_wasm_op_facts(uint32_t op, uint32_t arena_size) {
    fb_layer layer;
    fb_layer_plan plan = {NULL, 0, 0};
    const uint8_t *record = fb_op_record(&model, op);
    bool weighted, binary;
    uint32_t has;
    fb_layer_decode(&model, op, &layer);
    has = fb_traits_of(layer.kind)->has;
    weighted = has & FB_WEIGHTS;
    binary = layer.flags & FB_FLAG_BINARY;
    facts[0] = layer.kind;
    facts[1] = layer.flags;
    facts[2] = layer.input;
    facts[3] = layer.input2;
    facts[4] = layer.output;
    facts[5] = record[FB_OP_KERNEL_H];
    facts[6] = record[FB_OP_KERNEL_W];
    facts[7] = record[FB_OP_STRIDE_H];
    facts[8] = record[FB_OP_STRIDE_W];
    facts[9] = weighted ? layer.out.channels * layer.inputs : 0; /* inside an image: fits */
    facts[10] = weighted ? layer.factor[0] : 0;
    facts[11] = weighted ? layer.out.channels * (binary ? 2 * layer.words : layer.inputs) : 0;
    facts[12] = weighted ? layer.factor[1] : has & (FB_LOOKS_UP | FB_THRESHOLDS) ? layer.factor[0] : 0;
    facts[13] = has & FB_LOOKS_UP ? FB_TABLE_SIZE : 0;
    if (has & FB_THRESHOLDS) facts[13] = 2 * (layer.in.channels + fb_words(layer.in.channels));
    if (weighted) facts[13] = layer.out.channels * (uint32_t)(binary ? FB_PARAMS_BINARY : FB_PARAMS_INT8);
    facts[14] = fb_plan_layer(&model, arena_size, op, &plan);
    facts[15] = (uint32_t)(uintptr_t)plan.kernel;
    facts[16] = plan.live;
    facts[17] = plan.scratch;
    return facts;
}

static void after(void *context, unsigned op, unsigned tensor, const int8_t *values, uint32_t size) {
    (void)context;
    (void)tensor;
    fb_wasm_host_layer(op, values, size);
}

EXPORT("invoke")
fb_status fb_wasm_invoke(void *arena, uint32_t arena_size, const int8_t *input, int8_t *output, bool show) {
    fb_hooks hooks = {NULL, NULL, after};
    return fb_invoke(&model, arena, arena_size, input, output, show ? &hooks : NULL);
}

/* ---- learning: of the opened image, with a configuration of FB_TRAIN_CONFIG_SIZE bytes ---- */

EXPORT("train_configure") fb_status fb_wasm_train_configure(const uint8_t *packed) {
    fb_status status = fb_train_config_unpack(&config, packed);
    return status == FB_OK ? fb_train_check(&model, &config) : status;
}

EXPORT("train_state_size") uint32_t fb_wasm_train_state_size(void) {
    return (uint32_t)fb_train_state_size(&model, &config);
}

EXPORT("train_arena_size") uint32_t fb_wasm_train_arena_size(bool fast) {
    return (uint32_t)fb_train_arena_size(&model, &config, fast);
}

EXPORT("train_open")
fb_status fb_wasm_train_open(void *image, uint32_t image_size, void *state, uint32_t state_size, void *arena,
                             uint32_t arena_size) {
    return fb_train_open(&train, image, image_size, state, state_size, arena, arena_size, &config);
}

EXPORT("train_begin") fb_status fb_wasm_train_begin(uint32_t samples, uint32_t rate_bits, uint32_t rate_bias) {
    return fb_train_begin(&train, samples, rate_bits, rate_bias);
}

EXPORT("train_sample") fb_status fb_wasm_train_sample(const int8_t *input, uint32_t label) {
    return fb_train_sample(&train, input, label, &result);
}

EXPORT("train_predicted") uint32_t fb_wasm_train_predicted(void) { return result.predicted; }
EXPORT("train_loss") uint32_t fb_wasm_train_loss(void) { return result.loss; }
EXPORT("train_end_pass") fb_status fb_wasm_train_end_pass(void) { return fb_train_end_pass(&train); }
EXPORT("train_steps") uint32_t fb_wasm_train_steps(void) { return fb_train_steps(&train); }
EXPORT("train_flips") uint32_t fb_wasm_train_flips(void) { return train.flips; }
