/* Copies of samples that are mirrored and shifted by chance: more to learn from.
 *
 * What happens to a sample follows from seed, step and its place in the batch alone, so that every pass of a step sees
 * the same. Pixels beyond the edge are those of the edge. */
#include <string.h>

#include "fb_train_internal.h"

static uint32_t mixed(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    return x ^ x >> 16;
}

uint32_t fb_copy_size(const fb_train *train) {
    return train->config.augment ? fb_aligned(fb_model_tensor(&train->model, train->model.input).size) : 0;
}

static int32_t within(int32_t v, int32_t size) { return v < 0 ? 0 : v >= size ? size - 1 : v; }

const int8_t *fb_augmented(const fb_train *train, const int8_t *input, int8_t *copy) {
    const fb_head *head = (const fb_head *)(const void *)train->state;
    fb_tensor t = fb_model_tensor(&train->model, train->model.input);
    uint32_t chance = mixed(mixed(train->config.seed + 0x9E3779B9u * head->step) + train->seen);
    int32_t most = train->config.augment & FB_AUGMENT_SHIFT, height = t.height, width = t.width, down, across;
    bool mirror = train->config.augment & FB_AUGMENT_MIRROR && chance & 1;
    if (!train->config.augment) return input;
    down = (int32_t)((chance >> 1 & 0x7FFF) % (2 * (uint32_t)most + 1)) - most;
    across = (int32_t)((chance >> 16) % (2 * (uint32_t)most + 1)) - most;
    for (uint32_t c = 0; c < t.channels; c++, input += (size_t)height * (size_t)width) {
        for (int32_t y = 0; y < height; y++) {
            const int8_t *row = input + (size_t)within(y + down, height) * (size_t)width;
            for (int32_t x = 0; x < width; x++) {
                int32_t from = within(x + across, width);
                *copy++ = row[mirror ? width - 1 - from : from];
            }
        }
    }
    return copy - t.size;
}
