/* The fuzz target: bytes that the core accepts as an image must run within its promises (flipbit.h, fb_kernels.h).
 *
 * Each tensor, each kernel's scratch and each arena is its own allocation of exactly the size asked for, so that the
 * address sanitizer sees the first byte read or written beside it. And three ways must give the same bits:
 *
 *     reference   the last kernel of each list, tensors apart, no planner
 *     kernels     every other kernel that takes the layer, on the same input
 *     arena       fb_invoke with the full arena, the least one, and one in between
 *
 * Tensors and the caller's buffers lie at odd addresses: only the arena promises alignment. Packed bits are always in
 * the arena (fb_open.c refuses them as input and output); where tensors are apart they lie at an address that is even
 * and no more.
 */
#include "fb_front_end.h"
#include "fuzz.h"
#include "run/fb_plan.h"

/* A valid image may ask for hours of work or gigabytes; larger nets than this are only opened and planned. */
#ifndef FUZZ_MAX_WORK
#define FUZZ_MAX_WORK 6000u
#endif

/* Every kernel that takes the layer gives the bits of the last one, its reference. */
static void run_layer(const fb_layer *layer, int8_t **tensors) {
    const int8_t *in = tensors[layer->input];
    const int8_t *in2 = fb_traits_of(layer->kind)->inputs == 2 ? tensors[layer->input2] : in;
    const fb_kernel *first = fb_kernels_of(layer), *k = first;
    int8_t *expected = allocate_tensor(&layer->out);
    uint8_t *scratch;
    REQUIRE(k->name); /* a kind that the core opens has a kernel */
    while (k[1].name) k++;
    REQUIRE(k->scratch(layer) <= UINT32_MAX / 2);
    scratch = allocate(k->scratch(layer));
    k->run(layer, in, in2, expected, scratch);
    free(scratch);
    for (; first < k; first++) {
        uint32_t need = first->scratch(layer);
        int8_t *out;
        if (need == FB_NOT_FOR_THIS) continue;
        out = allocate_tensor(&layer->out);
        scratch = allocate(need);
        first->run(layer, in, in2, out, scratch);
        if (memcmp(out, expected, layer->out.size) != 0) {
            fprintf(stderr, "%s differs from %s\n", first->name, k->name);
            abort();
        }
        free(scratch);
        free_tensor(out);
    }
    tensors[layer->output] = expected;
}

static void compare(void *context, unsigned op, unsigned tensor, const int8_t *values, uint32_t size) {
    int8_t *const *tensors = context;
    (void)op;
    REQUIRE(memcmp(values, tensors[tensor], size) == 0);
}

static void run_in_arena(const fb_model *model, size_t size, int8_t **tensors) {
    fb_hooks hooks = {NULL, NULL, compare};
    fb_tensor out = fb_model_tensor(model, model->output);
    uint8_t *arena = allocate(size);
    int8_t *output = allocate_tensor(&out);
    hooks.context = tensors;
    REQUIRE(fb_invoke(model, arena, size, tensors[model->input], output, &hooks) == FB_OK);
    REQUIRE(memcmp(output, tensors[model->output], out.size) == 0);
    REQUIRE(fb_argmax(output, out.size) < out.size);
    free_tensor(output);
    free(arena);
}

/* Plans agree with the sizes: the peak of all layers is the arena. */
static void check_plans(const fb_model *model, size_t size) {
    fb_layer_plan plan;
    uint32_t peak = FB_ALIGN, need;
    unsigned op;
    for (op = 0; op < model->ops; op++) {
        REQUIRE(fb_plan_layer(model, size, op, &plan) == FB_OK);
        REQUIRE(plan.kernel);
        need = fb_aligned(fb_sum(plan.live, plan.scratch));
        if (need > peak) peak = need;
    }
    REQUIRE(peak == size);
    REQUIRE(fb_plan_layer(model, size, op, &plan) == FB_ERR_ARGUMENT);
}

static void check_too_small(const fb_model *model, size_t size, const int8_t *input) {
    fb_tensor out = fb_model_tensor(model, model->output);
    uint8_t *arena = allocate(size);
    int8_t *output = allocate_tensor(&out);
    fb_layer_plan plan;
    unsigned op = 0;
    while (fb_plan_layer(model, size, op, &plan) == FB_OK) op++;
    REQUIRE(op < model->ops); /* which has no room */
    REQUIRE(fb_plan_layer(model, size, op, &plan) == FB_ERR_ARENA);
    REQUIRE(fb_invoke(model, arena, size, input, output, NULL) == FB_ERR_ARENA);
    REQUIRE(fb_invoke(model, NULL, 0, input, output, NULL) == FB_ERR_ARGUMENT);
    REQUIRE(fb_invoke(model, arena + 1, size, input, output, NULL) == FB_ERR_ALIGN);
    free_tensor(output);
    free(arena);
}

static void run(const fb_model *model, size_t full, size_t least) {
    int8_t **tensors = calloc(model->tensors, sizeof *tensors);
    unsigned i;
    REQUIRE(tensors);
    tensors[model->input] = make_input(model);
    for (i = 0; i < model->ops; i++) {
        fb_layer layer;
        fb_layer_decode(model, i, &layer);
        run_layer(&layer, tensors);
    }
    run_in_arena(model, full, tensors);
    if (full != least) run_in_arena(model, least, tensors);
    if (full - least > FB_ALIGN) run_in_arena(model, least + (full - least) / 2 + 1, tensors);
    if (least > FB_ALIGN) check_too_small(model, least - 1, tensors[model->input]);
    for (i = 0; i < model->tensors; i++) free_tensor(tensors[i]);
    free(tensors);
}

/* A front end that the image has is one that fb_audio takes, or one whose values fit the input. */
static void check_front_end(const fb_model *model) {
    fb_tensor in = fb_model_tensor(model, model->input);
    fb_front_end found;
    fb_status status = fb_front_end_of(model, &found);
    unsigned i;
    REQUIRE(status == FB_OK || status == FB_ERR_EMPTY);
    if (status != FB_OK) return;
    REQUIRE(found.hop && found.rate && found.channels && found.length);
    if (found.kind == FB_FRONT_AUDIO) {
        status = fb_audio_check(&found.audio);
        REQUIRE(status == FB_OK || status == FB_ERR_SHAPE);
        REQUIRE((uint32_t)found.length * found.audio.bands == in.size);
        return;
    }
    REQUIRE(found.kind == FB_FRONT_SIGNAL && (uint32_t)found.length * found.channels == in.size);
    for (i = 0; i < found.channels; i++) {
        int8_t low = fb_signal_value(&found.signal, i, -32768), high = fb_signal_value(&found.signal, i, 32767);
        REQUIRE(low <= high);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fb_model model;
    size_t full, least;
    uint8_t *image = allocate(size); /* aligned, and not a byte longer */
    memcpy(image, data, size);
    if (fb_model_open(&model, image, size) == FB_OK) {
        check_front_end(&model);
        full = fb_arena_size(&model);
        least = fb_arena_least(&model);
        REQUIRE(least <= full && (least == 0) == (full == 0));
        if (full) check_plans(&model, full);
        if (least != full) check_plans(&model, least);
        if (full && work_of(&model) <= FUZZ_MAX_WORK) run(&model, full, least);
    }
    free(image);
    return 0;
}
