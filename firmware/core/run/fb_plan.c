#include "fb_plan.h"

#define LARGEST_ARENA (UINT32_MAX & ~(uint32_t)(FB_ALIGN - 1))

void fb_walk_start(fb_walk *walk, const fb_model *model, fb_blocks *live) {
    walk->model = model;
    walk->op = 0;
    walk->end = model->ops;
    walk->live = live;
    live->count = 0;
    walk->keep = NULL;
    walk->look = NULL;
    walk->context = NULL;
}

/* Whether an operation after this one reads `tensor`, or it is kept. */
static bool wanted(const fb_walk *walk, unsigned tensor) {
    const fb_model *model = walk->model;
    const uint8_t *p = fb_op_record(model, walk->op + 1);
    unsigned i;
    if (walk->keep && (walk->keep[tensor / 8] >> tensor % 8 & 1)) return true;
    for (i = walk->op + 1; i < model->ops; i++, p += FB_OP_SIZE) {
        if (fb_u16(p + FB_OP_INPUT) == tensor || fb_u16(p + FB_OP_INPUT2) == tensor) return true;
    }
    return false;
}

static bool outside(const fb_model *model, unsigned tensor) {
    return tensor == model->input || tensor == model->output;
}

/* The input whose place the output may take: one that is in the arena and that nobody reads any more. Of two, the one
 * nearer to its end of the arena, so that less is in use when the other is gone. */
static const fb_block *reusable(const fb_walk *walk, const fb_layer *layer, const fb_places *places, bool two) {
    bool first = places->in.offset != FB_OUTSIDE && !wanted(walk, layer->input);
    bool second = two && places->in2.offset != FB_OUTSIDE && !wanted(walk, layer->input2);
    if (first && second) return places->in2.offset < places->in.offset ? &places->in2 : &places->in;
    return first ? &places->in : second ? &places->in2 : NULL;
}

fb_status fb_walk_next(fb_walk *walk, fb_layer *layer, fb_places *places) {
    const fb_model *model = walk->model;
    const fb_block *old = NULL;
    const fb_traits *traits;
    bool two;
    fb_layer_decode(model, walk->op, layer);
    traits = fb_traits_of(layer->kind);
    if (traits->shape == FB_SHAPE_UNKNOWN) return FB_ERR_KIND;
    two = traits->inputs == 2;
    places->in = fb_blocks_find(walk->live, layer->input);
    places->in2 = fb_blocks_find(walk->live, two ? layer->input2 : layer->input);
    places->out = fb_blocks_find(walk->live, layer->output); /* outside, so far */
    if (traits->has & FB_IN_PLACE && !outside(model, layer->output)) old = reusable(walk, layer, places, two);
    places->in_place = old != NULL;
    if (old) {
        places->out = fb_blocks_rename(walk->live, old->tensor, layer->output);
    } else if (!outside(model, layer->output)) {
        bool top = places->in.offset != FB_OUTSIDE && !places->in.top;
        fb_status status = fb_blocks_place(walk->live, layer->output, layer->out.size, top, &places->out);
        if (status != FB_OK) return status;
    }
    places->bottom = fb_blocks_extent(walk->live, false);
    places->top = fb_blocks_extent(walk->live, true);
    if (!wanted(walk, layer->input)) fb_blocks_drop(walk->live, layer->input);
    if (two && !wanted(walk, layer->input2)) fb_blocks_drop(walk->live, layer->input2);
    if (!wanted(walk, layer->output)) fb_blocks_drop(walk->live, layer->output);
    walk->op++;
    return FB_OK;
}

const fb_kernel *fb_choose(const fb_layer *layer, uint32_t room, uint32_t *scratch) {
    const fb_kernel *k;
    for (k = fb_kernels_of(layer); k->name; k++) {
        *scratch = k->scratch(layer);
        if (*scratch != FB_NOT_FOR_THIS && *scratch <= room) return k;
    }
    return NULL;
}

uint32_t fb_scratch_of(const fb_layer *layer, fb_choice choice) {
    const fb_kernel *k;
    uint32_t found = FB_NOT_FOR_THIS;
    const bool all = choice == FB_LEAST, lean = choice == FB_LEAN || choice == FB_SMALL;
    for (k = fb_kernels_of(layer); k->name; k++) {
        uint32_t scratch = k->scratch(layer);
        if ((choice == FB_SMALL) & k->large) continue;
        if (found != FB_NOT_FOR_THIS && !(all | (lean & k->lean))) break;
        if (scratch < found) found = scratch;
    }
    return found;
}

uint32_t fb_walk_step(fb_walk *walk, fb_choice choice) {
    fb_layer layer;
    fb_places places;
    uint32_t live, room, scratch;
    if (fb_walk_next(walk, &layer, &places) != FB_OK) return UINT32_MAX;
    live = fb_sum(places.bottom, places.top);
    if (live > LARGEST_ARENA) return UINT32_MAX;
    room = LARGEST_ARENA - live;
    if (choice != FB_FASTEST) {
        scratch = fb_scratch_of(&layer, choice);
    } else if (!fb_choose(&layer, room, &scratch)) {
        return UINT32_MAX;
    }
    return scratch > room ? UINT32_MAX : live + fb_aligned(scratch);
}

uint32_t fb_walk_arena(fb_walk *walk, fb_choice choice) {
    uint32_t most = FB_ALIGN; /* never 0: that says it cannot run */
    while (walk->op < walk->end) {
        uint32_t need = fb_walk_step(walk, choice);
        if (need == UINT32_MAX) return 0;
        if (need > most) most = need;
    }
    return most;
}

size_t fb_arena_size(const fb_model *model) {
    fb_walk walk;
    fb_blocks live;
    fb_walk_start(&walk, model, &live);
    return fb_walk_arena(&walk, FB_FASTEST);
}

size_t fb_arena_least(const fb_model *model) {
    fb_walk walk;
    fb_blocks live;
    fb_walk_start(&walk, model, &live);
    return fb_walk_arena(&walk, FB_LEAST);
}

fb_status fb_plan_layer(const fb_model *model, size_t arena_size, unsigned op, fb_layer_plan *plan) {
    fb_walk walk;
    fb_blocks live;
    fb_layer layer;
    fb_places places;
    const fb_kernel *kernel;
    uint32_t size = arena_size > UINT32_MAX ? UINT32_MAX : (uint32_t)arena_size;
    if (!model || !plan || op >= model->ops) return FB_ERR_ARGUMENT;
    fb_walk_start(&walk, model, &live);
    do {
        fb_status status = fb_walk_next(&walk, &layer, &places);
        if (status != FB_OK) return status;
    } while (walk.op <= op);
    size &= ~(uint32_t)(FB_ALIGN - 1);
    plan->live = fb_sum(places.bottom, places.top);
    plan->kernel = "";
    plan->scratch = 0;
    if (plan->live > size) return FB_ERR_ARENA;
    if (places.in_place && fb_traits_of(layer.kind)->has & FB_MOVES_NOTHING) return FB_OK;
    kernel = fb_choose(&layer, size - plan->live, &plan->scratch);
    if (!kernel) return FB_ERR_ARENA;
    plan->kernel = kernel->name;
    return FB_OK;
}
