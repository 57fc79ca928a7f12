#include <string.h>

#include "fb_plan.h"

static int8_t *place(const fb_block *block, uint8_t *arena, uint32_t size, uint8_t *outside) {
    return (int8_t *)(block->offset == FB_OUTSIDE ? outside : fb_block_address(block, arena, size));
}

/* The caller's buffer for a tensor that is not in the arena. Inputs are only read. */
static uint8_t *caller(const fb_model *model, unsigned tensor, const int8_t *input, int8_t *output) {
    return (uint8_t *)(tensor == model->input ? (uintptr_t)input : (uintptr_t)output);
}

fb_status fb_walk_run(fb_walk *walk, uint8_t *arena, uint32_t size, const int8_t *input, int8_t *output,
                      const fb_hooks *hooks) {
    const fb_model *model = walk->model;
    fb_layer layer;
    fb_places places;
    while (walk->op < walk->end) {
        unsigned op = walk->op;
        const fb_kernel *kernel;
        const int8_t *in, *in2;
        int8_t *out;
        uint32_t scratch, live;
        fb_status status = fb_walk_next(walk, &layer, &places);
        if (status != FB_OK) return status;
        live = fb_sum(places.bottom, places.top);
        if (live > size) return FB_ERR_ARENA;
        kernel = fb_choose(&layer, size - live, &scratch);
        if (!kernel) return FB_ERR_ARENA;
        in = place(&places.in, arena, size, caller(model, layer.input, input, output));
        in2 = place(&places.in2, arena, size, caller(model, places.in2.tensor, input, output));
        out = place(&places.out, arena, size, (uint8_t *)output);
        if (hooks && hooks->before) hooks->before(hooks->context, op);
        kernel->run(&layer, in, in2, out, arena + places.bottom);
        if (walk->look) walk->look(walk->context, op, &layer, in, out, arena + places.bottom, size - live);
        if (hooks && hooks->after) hooks->after(hooks->context, op, layer.output, out, layer.out.size);
    }
    return FB_OK;
}

fb_status fb_invoke(const fb_model *model, void *arena, size_t arena_size, const int8_t *input, int8_t *output,
                    const fb_hooks *hooks) {
    fb_walk walk;
    fb_blocks live;
    uint32_t size = arena_size > UINT32_MAX ? UINT32_MAX : (uint32_t)arena_size;
    fb_status status;
    if (!model || !arena || !input || !output) return FB_ERR_ARGUMENT;
    if ((uintptr_t)arena % FB_ALIGN) return FB_ERR_ALIGN;
    fb_walk_start(&walk, model, &live);
    status = fb_walk_run(&walk, arena, size & ~(uint32_t)(FB_ALIGN - 1), input, output, hooks);
    if (status != FB_OK) return status;
    if (model->input == model->output) memcpy(output, input, fb_model_tensor(model, model->output).size);
    return FB_OK;
}

unsigned fb_argmax(const int8_t *values, unsigned count) {
    unsigned best = 0, i;
    for (i = 1; i < count; i++) {
        if (values[i] > values[best]) best = i;
    }
    return best;
}
