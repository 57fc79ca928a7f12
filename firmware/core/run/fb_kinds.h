/* What each kind of operation is: one row of a table, which every other file asks. Private to the core.
 *
 * runtime/image/kinds.py is the twin of this table; tests/test_kinds.py holds them equal, and walks every kind through
 * everything that has a branch for it. CONTRIBUTING.md says how to add one.
 */
#ifndef FB_KINDS_H
#define FB_KINDS_H

#include "fb_format.h"

/* Numbers in an image. One that is left out is no kind; FB_KIND_END is one more than the largest. */
enum fb_kind {
    FB_CONV = 1,
    FB_DENSE = 2,
    FB_MAX_POOL = 3,
    FB_AVERAGE_POOL = 4,
    FB_ADD = 5,
    FB_SHORTCUT = 6,
    FB_RELU = 7,
    FB_FLATTEN = 8,
    FB_DEPTHWISE = 9,
    FB_TABLE = 10,
    FB_CONCAT = 11,
    FB_BINARIZE = 13,
    FB_CONV_BITS = 14,
    FB_MAX_POOL_BITS = 15,
    FB_KIND_END
};

/* How the shape of the result follows from what is read. */
enum fb_shape {
    FB_SHAPE_UNKNOWN, /* of no kind */
    FB_SHAPE_WINDOWS, /* image to image, window by window; as many channels as before, or as filters */
    FB_SHAPE_VECTORS, /* vector to vector */
    FB_SHAPE_SAME,    /* value by value: all that is read and written has one shape */
    FB_SHAPE_STRIDED, /* every stride-th pixel, and channels that are added */
    FB_SHAPE_FLAT,    /* image to vector, in the order in which it lies */
    FB_SHAPE_JOINED,  /* the channels of the first, then those of the second */
    FB_SHAPE_BITS     /* value by value, to an image of packed bits; a vector becomes one of 1×1 */
};

/* Where the gradient of a result goes. */
enum fb_back {
    FB_BACK_NONE,    /* nowhere: no layer below is trained (FB_ERR_KIND) */
    FB_BACK_WEIGHTS, /* by way of the weights */
    FB_BACK_VALUES,  /* value by value */
    FB_BACK_WINDOW,  /* to all of its window */
    FB_BACK_LARGEST, /* to the largest of its window, which the forward pass notes */
    FB_BACK_CORNER,  /* to the first of its window */
    FB_BACK_SLOPE,   /* value by value, times the slope of the table there */
    FB_BACK_PARTS    /* each input takes its channels */
};

/* Where a result is cut off, so that its gradient is 0. */
enum fb_cut { FB_CUT_NONE, FB_CUT_ENDS /* at both ends of int8, or a fused ReLU */, FB_CUT_ZERO /* below zero */ };

/* What an operation has, or may do. */
enum fb_trait {
    FB_KERNEL_FIELDS = 1,   /* a window: kernel_h, kernel_w */
    FB_STRIDE_FIELDS = 2,   /* stride_h, stride_w */
    FB_PADDING_FIELDS = 4,  /* padding, smaller than the window */
    FB_WEIGHTS = 8,         /* offsets of weights and parameters */
    FB_SHIFTS = 16,         /* the result is requantized, by a shift */
    FB_KEEPS_SCALE = 32,    /* the result has the scale and zero point of the input */
    FB_TO_VECTOR = 64,      /* a result of 1×1 may be a vector */
    FB_IN_PLACE = 128,      /* the result may lie where an input was */
    FB_MOVES_NOTHING = 256, /* and there is nothing to do then */
    FB_PER_CHANNEL = 512,   /* a filter sees one channel, its own; as many channels as before */
    FB_LOOKS_UP = 1024,     /* the offset of a table of 256 values */
    FB_PADDING_NEW = 2048,  /* padding only from version 2 on */
    FB_THRESHOLDS = 4096,   /* the offset of a threshold per channel */
    FB_READS_BITS = 8192,   /* packed bits, not int8; and its weights, if any, are binary */
    FB_WRITES_BITS = 16384  /* likewise */
};

typedef struct fb_traits {
    uint16_t has;    /* of fb_trait */
    uint8_t shape;   /* fb_shape */
    uint8_t inputs;  /* tensors read: 1, 2 */
    uint8_t factors; /* multipliers: of each input, or none */
    uint8_t flags;   /* of fb_flag, that it may have */
    uint8_t back;    /* fb_back */
    uint8_t cut;     /* fb_cut */
    uint8_t version; /* of the format, from which on it is allowed */
} fb_traits;

/* The row of a kind. Of a number that is no kind: one with FB_SHAPE_UNKNOWN, and nothing else. */
const fb_traits *fb_traits_of(unsigned kind);

#endif
