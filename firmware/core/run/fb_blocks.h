/* Tensors that lie at the two ends of a memory area. Private to the core. */
#ifndef FB_BLOCKS_H
#define FB_BLOCKS_H

#include "fb_layer.h"

typedef struct fb_block {
    uint32_t offset, size; /* from the block's end of the area; FB_OUTSIDE: it does not lie in it */
    uint16_t tensor;
    bool top;
} fb_block;

#define FB_OUTSIDE UINT32_MAX

typedef struct fb_blocks {
    unsigned count;
    fb_block block[FB_MAX_LIVE];
} fb_blocks;

/* Where `tensor` lies. */
fb_block fb_blocks_find(const fb_blocks *blocks, unsigned tensor);

/* Bytes in use at an end. */
uint32_t fb_blocks_extent(const fb_blocks *blocks, bool top);

/* Place `size` bytes for `tensor` as close to an end as there is room; FB_ERR_LIVE if there are too many blocks. */
fb_status fb_blocks_place(fb_blocks *blocks, unsigned tensor, uint32_t size, bool top, fb_block *placed);

/* Forget `tensor`, if it is there. */
void fb_blocks_drop(fb_blocks *blocks, unsigned tensor);

/* Let `tensor` take the place of `old`. */
fb_block fb_blocks_rename(fb_blocks *blocks, unsigned old, unsigned tensor);

/* Its address in an area of `size` bytes. */
static inline uint8_t *fb_block_address(const fb_block *block, uint8_t *area, uint32_t size) {
    return area + (block->top ? size - block->offset - block->size : block->offset);
}

#endif
