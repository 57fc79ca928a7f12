/* Runs the linked model and reports over semihosting, for firmware/count/bench.py and the tests:
 *
 *     model SIZE CRC                    of the image
 *     arena SIZE LEAST BEST             given, and what fb_arena_least and fb_arena_size say
 *     layer OP CRC KERNEL               CRC-32 of a layer's output, which kernel computed it
 *     output CRC
 *     stack BYTES                       the most that fb_invoke and what it calls had on the stack
 *     done
 *
 * The marker functions are what the counting plugin looks for: a layer lies between count_layer_begin and
 * count_layer_end, and a whole fb_invoke without hooks between count_run_begin and count_run_end. The input is made by
 * next_value; bench.py makes the same.
 */
#include <string.h>

#include "board.h"
#include "flipbit.h"
#include "report.h"

/* For input, output and arena. */
#ifndef BENCH_RAM
#define BENCH_RAM BOARD_ARENA_SIZE
#endif

/* Marker functions: empty, but called. */
__attribute__((noinline)) void count_layer_begin(void) { __asm__ volatile(""); }
__attribute__((noinline)) void count_layer_end(void) { __asm__ volatile(""); }
__attribute__((noinline)) void count_run_begin(void) { __asm__ volatile(""); }
__attribute__((noinline)) void count_run_end(void) { __asm__ volatile(""); }

static void write_name(const char *name) {
    semihosting_write(" ");
    semihosting_write(name);
}

typedef struct bench {
    const fb_model *model;
    uint32_t arena_size;
} bench;

static void before(void *context, unsigned op) {
    (void)context, (void)op;
    count_layer_begin();
}

static void after(void *context, unsigned op, unsigned tensor, const int8_t *values, uint32_t size) {
    const bench *b = context;
    fb_layer_plan plan;
    count_layer_end();
    (void)tensor;
    fb_plan_layer(b->model, b->arena_size, op, &plan);
    semihosting_write("layer");
    report_number(op);
    report_number(fb_crc32(0, values, size));
    write_name(plan.kernel[0] ? plan.kernel : "nothing");
    semihosting_write("\n");
}

int main(void) {
    fb_model model;
    bench context;
    fb_hooks hooks = {NULL, before, after};
    fb_status status;
    int8_t *input = (int8_t *)board_arena, *output;
    uint8_t *arena;
    uint32_t state = 1, i, in_size, out_size;

    board_init();
    status = fb_model_open(&model, board_model, BOARD_MODEL_SIZE);
    if (status != FB_OK) report_failure(status);
    in_size = (fb_model_tensor(&model, model.input).size + 7) & ~7u;
    out_size = (fb_model_tensor(&model, model.output).size + 7) & ~7u;
    if (BENCH_RAM > BOARD_ARENA_SIZE || in_size + out_size > BENCH_RAM) report_failure(FB_ERR_ARENA);
    output = input + in_size;
    arena = board_arena + in_size + out_size;
    context.model = &model;
    context.arena_size = BENCH_RAM - in_size - out_size;
    hooks.context = &context;
    semihosting_write("model");
    report_number(model.size);
    report_number(model.crc);
    semihosting_write("\narena");
    report_number(context.arena_size);
    report_number((uint32_t)fb_arena_least(&model));
    report_number((uint32_t)fb_arena_size(&model));
    semihosting_write("\n");
    for (i = 0; i < in_size; i++) input[i] = next_value(&state);

    status = fb_invoke(&model, arena, context.arena_size, input, output, &hooks);
    if (status != FB_OK) report_failure(status);
    memset(output, 0, out_size);
    paint_stack();
    count_run_begin();
    status = fb_invoke(&model, arena, context.arena_size, input, output, NULL);
    count_run_end();
    if (status != FB_OK) report_failure(status);
    semihosting_write("output");
    report_number(fb_crc32(0, output, fb_model_tensor(&model, model.output).size));
    semihosting_write("\nstack");
    report_number(stack_used((const uint8_t *)__builtin_frame_address(0)));
    semihosting_write("\ndone\n");
    semihosting_exit(0);
}
