/* Where activations lie in the arena, operation by operation. Private to the core.
 *
 * The net's input and output stay in the caller's buffers. Every other tensor lies at the bottom or at the top of the
 * arena, at the end its first input is not, as close to it as there is room; what is left between is the kernel's
 * scratch:
 *
 *     | in  | ........ scratch ........ | out |          a chain: input and output change ends with each layer
 *     | in  | shortcut | .. scratch ... | out |          a residual branch waits
 *
 * Additions and ReLU write over an input that nobody reads any more; flattening is then nothing at all. Nothing of this
 * is stored: walking through the operations gives the same places each time.
 */
#ifndef FB_PLAN_H
#define FB_PLAN_H

#include "../kernels/fb_kernels.h"
#include "fb_blocks.h"

/* Called after each operation has run, while its input still lies where it was; `room` bytes of scratch are free. */
typedef void fb_look_function(void *context, unsigned op, const fb_layer *layer, const int8_t *in, const int8_t *out,
                              uint8_t *scratch, uint32_t room);

typedef struct fb_walk {
    const fb_model *model;
    unsigned op;            /* the next one */
    unsigned end;           /* behind the last one to run */
    fb_blocks *live;        /* the caller's, so that who wants them after the walk has one copy */
    const uint8_t *keep;    /* bits of tensors that stay until the end, for learning; NULL: none */
    fb_look_function *look; /* for recalibrating; NULL: none */
    void *context;          /* of look */
} fb_walk;

/* Where the tensors of an operation are. A block of FB_OUTSIDE is the caller's input or output. */
typedef struct fb_places {
    fb_block in, in2, out;
    bool in_place;   /* out is where in (or in2) was */
    uint32_t bottom; /* bytes in use at each end while it runs */
    uint32_t top;
} fb_places;

void fb_walk_start(fb_walk *walk, const fb_model *model, fb_blocks *live);

/* Places for the next operation, which is decoded into `layer`; FB_ERR_LIVE if there are too many activations,
 * FB_ERR_KIND if it is no operation. */
fb_status fb_walk_next(fb_walk *walk, fb_layer *layer, fb_places *places);

/* Bytes of arena for the next operation with such a kernel; UINT32_MAX if it cannot run. */
uint32_t fb_walk_step(fb_walk *walk, fb_choice choice);

/* The same for all operations from here on; 0 if it cannot run. What is kept lies in `live` then. */
uint32_t fb_walk_arena(fb_walk *walk, fb_choice choice);

/* Bytes of scratch that such a kernel takes for a layer. */
uint32_t fb_scratch_of(const fb_layer *layer, fb_choice choice);

/* Run the operations from here to `end`: all, unless it was changed. */
fb_status fb_walk_run(fb_walk *walk, uint8_t *arena, uint32_t size, const int8_t *input, int8_t *output,
                      const fb_hooks *hooks);

/* The fastest kernel for a layer that has `room` bytes of scratch; NULL if none fits. */
const fb_kernel *fb_choose(const fb_layer *layer, uint32_t room, uint32_t *scratch);

#endif
