/* Where the fields of a .fbit image lie: docs/fbit-format.md, byte by byte. Private to the core. */
#ifndef FB_FORMAT_H
#define FB_FORMAT_H

#include "../include/flipbit.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "flipbit reads images in place: it needs a little-endian machine"
#endif

/* header | tensors | operations | front end, if any | weights and parameters | metadata */
enum fb_header_field {
    FB_HEADER_MAGIC = 0,
    FB_HEADER_VERSION = 4,
    FB_HEADER_FLAGS = 6,
    FB_HEADER_LENGTH = 8,
    FB_HEADER_CRC = 12, /* of the whole image, with these four bytes taken as 0 */
    FB_HEADER_TENSORS = 16,
    FB_HEADER_OPS = 18,
    FB_HEADER_INPUT = 20,
    FB_HEADER_OUTPUT = 22,
    FB_HEADER_METADATA = 24,
    FB_HEADER_METADATA_LENGTH = 28,
    FB_HEADER_SIZE = 32
};

enum fb_tensor_field {
    FB_TENSOR_HEIGHT = 0,
    FB_TENSOR_WIDTH = 2,
    FB_TENSOR_CHANNELS = 4,
    FB_TENSOR_ZERO_POINT = 6,
    FB_TENSOR_RANK = 7,
    FB_TENSOR_SCALE = 8,
    FB_TENSOR_SIZE = 12
};

enum fb_op_field {
    FB_OP_KIND = 0,
    FB_OP_FLAGS = 1,
    FB_OP_INPUT = 2,
    FB_OP_INPUT2 = 4,
    FB_OP_OUTPUT = 6,
    FB_OP_KERNEL_H = 8,
    FB_OP_KERNEL_W = 9,
    FB_OP_STRIDE_H = 10,
    FB_OP_STRIDE_W = 11,
    FB_OP_PAD_TOP = 12,
    FB_OP_PAD_BOTTOM = 13,
    FB_OP_PAD_LEFT = 14,
    FB_OP_PAD_RIGHT = 15,
    FB_OP_SHIFT = 16,
    FB_OP_RESERVED = 17, /* three bytes */
    FB_OP_FIRST = 20,    /* offset of the weights, or a multiplier */
    FB_OP_SECOND = 24,   /* offset of the parameters, or a multiplier */
    FB_OP_SIZE = 28
};

/* Flags of the header, from version 2 on. */
enum fb_header_flag { FB_HEADER_FRONT_END = 1, FB_HEADER_KNOWN_FLAGS = 1 };

/* What recordings become the input by, behind the operations. */
enum fb_front_field {
    FB_FRONT_KIND = 0,
    FB_FRONT_CHANNELS = 1,
    FB_FRONT_HOP = 2,
    FB_FRONT_RATE = 4,
    /* audio */
    FB_FRONT_WINDOW = 8,
    FB_FRONT_ROW_HOP = 10,
    FB_FRONT_FFT = 12,
    FB_FRONT_BANDS = 14,
    FB_FRONT_LOW = 16,
    FB_FRONT_HIGH = 18,
    FB_FRONT_FLOOR = 20,
    FB_FRONT_GAIN = 21,
    FB_FRONT_AUDIO_END = 22,
    /* signal */
    FB_FRONT_FLAGS = 8,
    FB_FRONT_SHIFT = 9,
    FB_FRONT_FRACTION = 10,
    FB_FRONT_MULTIPLIERS = 12, /* six of two bytes */
    FB_FRONT_ZEROS = 24,       /* six of one byte */
    FB_FRONT_SIGNAL_END = 30,
    FB_FRONT_SIZE = 32
};

enum fb_front_flag { FB_FRONT_PER_CHANNEL = 1 };

enum fb_flag {
    FB_FLAG_RELU = 1,
    FB_FLAG_BINARY = 2,
    FB_FLAG_CHUNKS = 4,
    FB_FLAG_TRAINABLE = 8,
    FB_FLAG_REFERENCES = 16, /* version 2: parameters are followed by what recalibrating compares with */
    FB_FLAG_ONES = 32        /* of a convolution of bits: padding is +1, not 0 */
};
#define FB_NO_TENSOR 0xFFFFu

/* The rank of an image of packed bits: 3, and the highest bit. Its zero point is 0, its scale 1. */
enum { FB_RANK_BITS = 0x83, FB_SCALE_ONE = 0x3F800000 };

/* Bytes of a channel's parameters: bias and multiplier; and of its reference: mean and deviation. */
enum { FB_PARAMS_BINARY = 6, FB_PARAMS_INT8 = 8, FB_REFERENCE_SIZE = 4 };

enum { FB_TABLE_SIZE = 256 };

static inline uint32_t fb_u16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static inline uint32_t fb_u32(const uint8_t *p) { return fb_u16(p) | fb_u16(p + 2) << 16; }

/* The record of operation `op`. */
static inline const uint8_t *fb_op_record(const fb_model *model, unsigned op) {
    return model->image + FB_HEADER_SIZE + FB_TENSOR_SIZE * (size_t)model->tensors + FB_OP_SIZE * (size_t)op;
}

#endif
