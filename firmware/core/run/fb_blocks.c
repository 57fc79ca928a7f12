#include "fb_blocks.h"

fb_block fb_blocks_find(const fb_blocks *blocks, unsigned tensor) {
    fb_block none = {FB_OUTSIDE, 0, 0, false};
    unsigned i;
    none.tensor = (uint16_t)tensor;
    for (i = 0; i < blocks->count; i++) {
        if (blocks->block[i].tensor == tensor) return blocks->block[i];
    }
    return none;
}

uint32_t fb_blocks_extent(const fb_blocks *blocks, bool top) {
    uint32_t most = 0;
    unsigned i;
    for (i = 0; i < blocks->count; i++) {
        const fb_block *b = &blocks->block[i];
        uint32_t end = fb_sum(b->offset, b->size);
        if (b->top == top && end > most) most = end;
    }
    return most;
}

static bool is_free(const fb_blocks *blocks, bool top, uint32_t start, uint32_t size) {
    unsigned i;
    for (i = 0; i < blocks->count; i++) {
        const fb_block *b = &blocks->block[i];
        if (b->top == top && start < fb_sum(b->offset, b->size) && b->offset < fb_sum(start, size)) return false;
    }
    return true;
}

/* The lowest offset with room: 0 or behind a block. */
static uint32_t first_fit(const fb_blocks *blocks, bool top, uint32_t size) {
    uint32_t best = fb_blocks_extent(blocks, top);
    unsigned i;
    if (is_free(blocks, top, 0, size)) return 0;
    for (i = 0; i < blocks->count; i++) {
        const fb_block *b = &blocks->block[i];
        uint32_t start = fb_sum(b->offset, b->size);
        if (b->top == top && start < best && is_free(blocks, top, start, size)) best = start;
    }
    return best;
}

fb_status fb_blocks_place(fb_blocks *blocks, unsigned tensor, uint32_t size, bool top, fb_block *placed) {
    if (blocks->count == FB_MAX_LIVE) return FB_ERR_LIVE;
    placed->size = fb_aligned(size);
    placed->offset = first_fit(blocks, top, placed->size);
    placed->tensor = (uint16_t)tensor;
    placed->top = top;
    blocks->block[blocks->count++] = *placed;
    return FB_OK;
}

void fb_blocks_drop(fb_blocks *blocks, unsigned tensor) {
    unsigned i;
    for (i = 0; i < blocks->count; i++) {
        if (blocks->block[i].tensor == tensor) blocks->block[i--] = blocks->block[--blocks->count];
    }
}

fb_block fb_blocks_rename(fb_blocks *blocks, unsigned old, unsigned tensor) {
    unsigned i;
    for (i = 0; i < blocks->count; i++) {
        if (blocks->block[i].tensor == old) blocks->block[i].tensor = (uint16_t)tensor;
    }
    return fb_blocks_find(blocks, tensor);
}
