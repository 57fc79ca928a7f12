/* What the fuzz targets share: promises, memory of exactly the size asked for, and inputs. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/fb_layer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition) \
    do { \
        if (!(condition)) broken(#condition, __FILE__, __LINE__); \
    } while (0)

static inline void broken(const char *promise, const char *file, int line) {
    fprintf(stderr, "%s:%d: broken promise: %s\n", file, line, promise);
    abort();
}

static inline uint8_t *allocate(size_t size) {
    uint8_t *p = malloc(size ? size : 1);
    REQUIRE(p);
    memset(p, 0xA5, size); /* what a kernel finds in memory must not matter */
    return p;
}

/* A tensor as badly aligned as a kernel may find it (fb_kernels.h): at an odd address, packed bits at an even one. */
static inline int8_t *allocate_tensor(const fb_tensor *tensor) {
    size_t before = tensor->rank == FB_RANK_BITS ? 2 : 1;
    return (int8_t *)(allocate(before + tensor->size) + before);
}

static inline void free_tensor(int8_t *p) {
    if (p) free(p - ((uintptr_t)p % 2 ? 1 : 2));
}

/* Multiply-accumulates and bytes moved, about. */
static inline uint64_t work_of(const fb_model *model) {
    uint64_t work = fb_model_tensor(model, model->input).size;
    unsigned op;
    for (op = 0; op < model->ops; op++) {
        fb_layer layer;
        bool weighted;
        fb_layer_decode(model, op, &layer);
        weighted = fb_traits_of(layer.kind)->has & FB_WEIGHTS;
        work += layer.out.size * (uint64_t)(weighted ? layer.inputs : (uint32_t)layer.kernel_h * layer.kernel_w);
    }
    return work;
}

/* Inputs from the image's own CRC: the same bytes always run the same way. Extremes are as likely as all the rest. */
static inline int8_t *make_input(const fb_model *model) {
    fb_tensor tensor = fb_model_tensor(model, model->input);
    int8_t *input = allocate_tensor(&tensor);
    uint32_t state = model->crc | 1, i;
    for (i = 0; i < tensor.size; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        switch (model->crc % 4) {
        case 0: input[i] = -128; break;
        case 1: input[i] = state & 64 ? 127 : -128; break;
        default: input[i] = (int8_t)(state >> 11 & 255);
        }
    }
    return input;
}

#endif
