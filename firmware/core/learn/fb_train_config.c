/* What learns and how: the one place that knows the bytes of a configuration (fb_train.h). */
#include <string.h>

#include "fb_train_internal.h"

enum { SEED = 0, RULE = 4, BUFFER_BITS = 5, START = 6, LEARNS = 7, FIRST_OP = 8, LAST_OP = 10 };
enum { RECALIBRATE = 12, AUGMENT = 13, PRIOR = 14 };
enum { LEARNS_BITS = 1, LEARNS_BIAS = 2, LEARNS_GAIN = 4, SUMS = 8 };

bool fb_config_known(const fb_train_config *config) {
    return config->rule == FB_RULE_STOCHASTIC && config->buffer_bits <= FB_BUFFER_BITS_MAX &&
           config->start >> config->buffer_bits == 0 && config->augment < 2 * FB_AUGMENT_MIRROR &&
           (config->recalibrate || !config->prior) && config->sums <= (config->bits ? FB_SUMS_8 : FB_SUMS_32);
}

void fb_train_config_pack(const fb_train_config *config, uint8_t *packed) {
    memset(packed, 0, FB_TRAIN_CONFIG_SIZE);
    for (unsigned i = 0; i < 4; i++) packed[SEED + i] = (uint8_t)(config->seed >> 8 * i);
    packed[RULE] = config->rule;
    packed[BUFFER_BITS] = config->buffer_bits;
    packed[START] = config->start;
    packed[LEARNS] = (uint8_t)((config->bits ? LEARNS_BITS : 0) | (config->bias ? LEARNS_BIAS : 0) |
                               (config->gain ? LEARNS_GAIN : 0) | config->sums * SUMS);
    for (unsigned i = 0; i < 2; i++) {
        packed[FIRST_OP + i] = (uint8_t)(config->first_op >> 8 * i);
        packed[LAST_OP + i] = (uint8_t)(config->last_op >> 8 * i);
        packed[PRIOR + i] = (uint8_t)(config->prior >> 8 * i);
    }
    packed[RECALIBRATE] = config->recalibrate;
    packed[AUGMENT] = config->augment;
}

fb_status fb_train_config_unpack(fb_train_config *config, const uint8_t *packed) {
    fb_train_config read;
    memset(&read, 0, sizeof read);
    read.seed = fb_u32(packed + SEED);
    read.rule = packed[RULE];
    read.buffer_bits = packed[BUFFER_BITS];
    read.start = packed[START];
    read.bits = (packed[LEARNS] & LEARNS_BITS) != 0;
    read.bias = (packed[LEARNS] & LEARNS_BIAS) != 0;
    read.gain = (packed[LEARNS] & LEARNS_GAIN) != 0;
    read.sums = packed[LEARNS] / SUMS;
    read.first_op = (uint16_t)fb_u16(packed + FIRST_OP);
    read.last_op = (uint16_t)fb_u16(packed + LAST_OP);
    read.recalibrate = packed[RECALIBRATE];
    read.augment = packed[AUGMENT];
    read.prior = (uint16_t)fb_u16(packed + PRIOR);
    if (!fb_config_known(&read)) return FB_ERR_ARGUMENT;
    *config = read;
    return FB_OK;
}

uint32_t fb_config_crc(const fb_train_config *config) {
    uint8_t packed[FB_TRAIN_CONFIG_SIZE];
    fb_train_config_pack(config, packed);
    return fb_crc32(0, packed, sizeof packed);
}
