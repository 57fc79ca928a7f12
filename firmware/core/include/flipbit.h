/* flipbit: runs .fbit images (nets with one-bit weights) in integers, without malloc, float or libc.
 *
 *     static fb_model model;
 *     static uint8_t arena[60000] __attribute__((aligned(8)));
 *     int8_t input[3 * 32 * 32], output[10];
 *
 *     fb_status status = fb_model_open(&model, image, image_size);
 *     if (status == FB_OK) status = fb_invoke(&model, arena, sizeof arena, input, output, NULL);
 *     if (status == FB_OK) class = fb_argmax(output, 10);
 *
 * An image is executed where it lies, in flash or in a file's memory; it must stay there while the model is in use. The
 * library keeps no state: a model may be used from several threads, each with its own arena. Nothing is trusted:
 * fb_model_open checks every offset, size, product and index of an image, and what it accepts cannot make fb_invoke
 * read or write outside the image, the arena, the input and the output.
 *
 * Compiled with FB_SMALL_CODE the core is about 9 KB smaller (Cortex-M3): the fast kernels for int8 weights, depthwise
 * convolutions and packed bits are left out, and their layers run on reference kernels, with the same bits. Boards set it
 * among the flags of their profile, where `flipbit info --board` sees it, too.
 *
 * The format is in docs/fbit-format.md, what the integers mean in docs/numerics.md. C99, little-endian.
 */
#ifndef FLIPBIT_H
#define FLIPBIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FB_VERSION "0.1.0"
#define FB_FORMAT_VERSION 2 /* the newest that it opens; it opens all before it too */

/* Activations that may be alive at one time; a net with more gets FB_ERR_LIVE. A plain chain needs 2, a residual net 3.
 * Costs 12 bytes of stack each, in fb_invoke and the functions below that plan. */
#ifndef FB_MAX_LIVE
#define FB_MAX_LIVE 16
#endif

/* The arena and its pieces start at multiples of this. */
#define FB_ALIGN 8

typedef enum fb_status {
    FB_OK = 0,
    /* of an image */
    FB_ERR_TRUNCATED,  /* fewer bytes than a header has */
    FB_ERR_MAGIC,      /* not a .fbit image */
    FB_ERR_VERSION,    /* of a later format version */
    FB_ERR_LENGTH,     /* its length is not the one it states, or not a multiple of 4 */
    FB_ERR_CRC,        /* damaged */
    FB_ERR_RESERVED,   /* a reserved field or an unused bit is not 0 */
    FB_ERR_TABLE,      /* tables reach beyond the image */
    FB_ERR_INDEX,      /* a tensor that does not exist, is not written yet, or is written twice */
    FB_ERR_SHAPE,      /* shapes do not agree */
    FB_ERR_SCALE,      /* a scale is not positive, or changes where it must not */
    FB_ERR_METADATA,   /* metadata without a place */
    FB_ERR_ALIGN,      /* an offset is not a multiple of 4, or the image or arena is at an unaligned address */
    FB_ERR_OFFSET,     /* weights, parameters or metadata lie outside the image */
    FB_ERR_KIND,       /* an operation this version does not know, or that learning cannot go through */
    FB_ERR_FLAGS,      /* flags an operation does not have */
    FB_ERR_WINDOW,     /* kernel, stride or padding are invalid */
    FB_ERR_SHIFT,      /* out of range */
    FB_ERR_MULTIPLIER, /* out of range */
    FB_ERR_OVERFLOW,   /* sums could exceed 32 bits */
    /* of its use */
    FB_ERR_LIVE,     /* more than FB_MAX_LIVE activations at a time */
    FB_ERR_ARENA,    /* the arena is too small: see fb_arena_least */
    FB_ERR_ARGUMENT, /* a null pointer, an index out of range */
    FB_ERR_FLASH,    /* a place in flash is worn: what was written or erased reads back wrong */
    FB_ERR_FULL,     /* longer than what a slot in flash holds */
    FB_ERR_EMPTY,    /* nothing was saved yet */
    FB_ERR_OWNER,    /* what was saved belongs to another model, or is of another kind */
    FB_ERR_ORDER,    /* a call out of order */
    FB_ERR_STATE,    /* a learner's state is damaged, or belongs to another net or configuration */
    FB_MORE,         /* not an error: learning needs another pass over its samples, a row of sound more samples */
    FB_STATUS_COUNT
} fb_status;

/* "FB_ERR_CRC" and so on. */
const char *fb_status_name(fb_status status);

/* An opened image. Fields are for reading. */
typedef struct fb_model {
    const uint8_t *image;
    uint32_t size;    /* bytes */
    uint32_t crc;     /* of the image: tells models apart */
    uint16_t tensors; /* how many */
    uint16_t ops;
    uint16_t input; /* index of a tensor */
    uint16_t output;
} fb_model;

/* Check an image and make a model of it. `image` must be aligned to 4 bytes; `size` is its size in bytes, and must equal
 * the length in its header. Reads the whole image once, for the CRC. */
fb_status fb_model_open(fb_model *model, const void *image, size_t size);

/* An int8 activation: value = scale · (int8 − zero_point). Lies plane by plane: channel, row, column. */
typedef struct fb_tensor {
    uint16_t height; /* 1 for a vector */
    uint16_t width;
    uint16_t channels;
    int8_t zero_point;
    uint8_t rank;        /* 3 image, 1 vector, 131 image of packed bits: [channels / 16][height][width] of uint16_t */
    uint32_t scale_bits; /* the scale, as the bits of a float32; the core does not use it */
    uint32_t size;       /* bytes; of int8, as many as values */
} fb_tensor;

/* `index` must be below model->tensors. */
fb_tensor fb_model_tensor(const fb_model *model, unsigned index);

/* Bytes of arena with which every layer runs its fastest kernel. 0 if the net cannot run: FB_ERR_LIVE, or it needs more
 * than 4 GB. */
size_t fb_arena_size(const fb_model *model);

/* The least arena in which the net runs, with slower kernels that need fewer tables. 0 as above. */
size_t fb_arena_least(const fb_model *model);

/* What a layer does with an arena of a given size. */
typedef struct fb_layer_plan {
    const char *kernel; /* name of its function */
    uint32_t live;      /* bytes of activations while it runs, input and output of the net not counted */
    uint32_t scratch;   /* bytes of tables and sums of the kernel */
} fb_layer_plan;

/* Plan of the operation `op`; FB_ERR_ARENA if it does not fit. The peak of live + scratch over all operations is what
 * the net needs of the arena. */
fb_status fb_plan_layer(const fb_model *model, size_t arena_size, unsigned op, fb_layer_plan *plan);

/* Called by fb_invoke; any may be NULL. For timing layers, counting, showing progress, and looking at tensors. */
typedef struct fb_hooks {
    void *context;
    void (*before)(void *context, unsigned op);
    void (*after)(void *context, unsigned op, unsigned tensor, const int8_t *values, uint32_t size);
} fb_hooks;

/* Run the net once. `arena` is aligned to FB_ALIGN; its content does not matter before and is undefined after. `input`
 * has as many values as the input tensor, `output` as the output tensor; they may not overlap each other or the arena.
 */
fb_status fb_invoke(const fb_model *model, void *arena, size_t arena_size, const int8_t *input, int8_t *output,
                    const fb_hooks *hooks);

/* Index of the largest value, the lowest among equals. `count` is at least 1. */
unsigned fb_argmax(const int8_t *values, unsigned count);

/* CRC-32 (IEEE 802.3, as in zlib) of more bytes: start with 0, then pass the result on. */
uint32_t fb_crc32(uint32_t crc, const void *data, size_t size);

#ifdef __cplusplus
}
#endif
#endif
