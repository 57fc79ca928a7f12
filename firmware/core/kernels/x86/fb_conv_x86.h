/* What the convolutions for x86-64 share: how activations lie for them, and the loop over bands and filters. Private to
 * the core.
 *
 * Four input channels of a pixel are one 32-bit word, as the dot product instructions expect them, with 128 added so that
 * bytes are unsigned. For each column of the kernel there is a copy of the image that holds just the pixels this column
 * meets, rows sorted by their remainder ("phase") when divided by the stride:
 *
 *     planes: uint32_t [group of 4 channels][kernel column][phase][row][output column]
 *
 * so that output pixels p, p + 1, … of a band (some rows of the output) find their inputs at consecutive words, at
 * `offset of (group, tap)` + p, whatever the stride, the padding and the width. A filter is a row of such words too, of
 * ±1 or int8; its order is the order of the image's weights, and the table of offsets follows it.
 *
 *     scratch: | planes, slack | offsets | one row of pixels | filters of a block |
 */
#ifndef FB_CONV_X86_H
#define FB_CONV_X86_H

#include "../fb_kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)

enum { FB_X86_FILTERS = 32 }; /* most filters of a block */

/* A block of filters over the pixels of a band. With fewer filters than a block has, the last one is repeated. */
typedef struct fb_x86_block {
    const fb_layer *layer;
    const uint32_t *planes, *offsets;
    uint32_t terms;   /* words of a filter = offsets */
    uint32_t pixels;  /* the planes have 32 more words than these need */
    uint32_t filters; /* that exist */
    size_t distance;  /* from filter to filter, bytes, where they are expanded */
    const int8_t *filter[FB_X86_FILTERS];
    int32_t bias[FB_X86_FILTERS]; /* with the 128 that activations are too large by taken back */
    int32_t multiplier[FB_X86_FILTERS];
    int8_t *out[FB_X86_FILTERS];
} fb_x86_block;

/* What differs between instruction sets. */
typedef struct fb_x86_conv {
    uint32_t filters; /* of a block */
    uint32_t
        share; /* groups of channels that stand side by side for a tap in layout `chunks`: 4, or more expanded so */
    void (*block)(const fb_x86_block *block);
    int32_t (*expand)(const fb_layer *layer, const uint16_t *bits, int8_t *to); /* bits to ±1; their sum */
} fb_x86_conv;

uint32_t fb_conv_x86_scratch(const fb_layer *layer, uint32_t filters);
void fb_conv_x86_run(const fb_layer *layer, const int8_t *in, int8_t *out, void *scratch, const fb_x86_conv *conv);

#endif
#endif
