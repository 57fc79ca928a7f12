/* Trains the linked model by one step on LEARN_SAMPLES samples and reports over semihosting, for firmware/count/learn.py:
 *
 *     model SIZE CRC                    of the image
 *     ram STATE LEAST FAST INPUT        bytes: fb_train_state_size, fb_train_arena_size, of a sample
 *     arena SIZE                        a run with this arena, from the linked image
 *     pass HIGH LOW FIRST END           operations and filters a pass sums up
 *     sample CLASS LOSS
 *     step FLIPS CRC                    of the image after the update
 *     stack BYTES                       the most that training had on the stack
 *     done
 *
 * The first run has all the arena that is useful (or all there is) and makes a whole step: a pass that finds the scales
 * of gradients, passes that measure them, passes that update. Runs with the arenas in LEARN_ARENAS, bytes separated by
 * commas, end after the measuring passes: those that update take their samples in the same way.
 *
 * LEARN_WHAT says what is trained, as initializers of fb_train_config.
 *
 * The marker functions are what the counting plugin looks for: samples, and ends of passes. The sample is made by
 * next_value; learn.py makes the same.
 */
#include <string.h>

#include "board.h"
#include "fb_train.h"
#include "report.h"

#ifndef LEARN_ARENAS
#define LEARN_ARENAS 0
#endif
/* What learns: fields of fb_train_config. */
#ifndef LEARN_WHAT
#define LEARN_WHAT .bits = true
#endif
/* Samples of a step; the last one is counted. Narrow sums are divided most often in the first samples. */
#ifndef LEARN_SAMPLES
#define LEARN_SAMPLES 1
#endif
#define LABEL 1
#define RATE FB_RATE(0.05)

/* Marker functions: empty, but called. */
__attribute__((noinline)) void count_sample_begin(void) { __asm__ volatile(""); }
__attribute__((noinline)) void count_sample_end(void) { __asm__ volatile(""); }
__attribute__((noinline)) void count_pass_begin(void) { __asm__ volatile(""); }
__attribute__((noinline)) void count_pass_end(void) { __asm__ volatile(""); }

static void line(const char *name, const uint32_t *values, unsigned count) {
    semihosting_write(name);
    for (unsigned i = 0; i < count; i++) report_number(values[i]);
    semihosting_write("\n");
}

static void check(fb_status status) {
    if (status != FB_OK && status != FB_MORE) report_failure(status);
}

/* In RAM, one behind the other. */
typedef struct places {
    uint8_t *image, *state, *arena;
    int8_t *input;
    uint32_t state_size, input_size, room;
} places;

static const fb_train_config config = {.seed = 1, .last_op = 0xFFFF, LEARN_WHAT};

/* The sample that starts from this number. */
static void fill(const places *at, uint32_t number) {
    for (uint32_t i = 0; i < at->input_size; i++) at->input[i] = next_value(&number);
}

/* One step, or with `measure` only what comes before its update. */
static void run(const places *at, uint32_t arena, bool measure) {
    static fb_train train;
    fb_train_result result;
    fb_status status;
    unsigned sweeps = 0;
    line("arena", &arena, 1);
    memcpy(at->image, board_model, BOARD_MODEL_SIZE);
    memset(at->state, 0, at->state_size);
    check(fb_train_open(&train, at->image, BOARD_MODEL_SIZE, at->state, at->state_size, at->arena, arena, &config));
    check(fb_train_begin(&train, LEARN_SAMPLES, RATE, RATE));
    do {
        uint32_t pass[4] = {train.pass.high_op, train.pass.low_op, train.pass.first_filter, train.pass.end_filter};
        uint32_t found[2];
        static uint32_t top;
        if (train.passes == 1) top = pass[0];
        if (train.passes >= 1 && pass[0] == top && pass[2] == 0) sweeps++;
        if (measure && sweeps == 2 && !config.recalibrate) return;
        line("pass", pass, 4);
        for (uint32_t i = LEARN_SAMPLES; i > 1; i--) {
            fill(at, i);
            check(fb_train_sample(&train, at->input, LABEL, &result));
        }
        fill(at, 1);
        count_sample_begin();
        status = fb_train_sample(&train, at->input, LABEL, &result);
        count_sample_end();
        check(status);
        found[0] = result.predicted;
        found[1] = result.loss;
        line("sample", found, 2);
        count_pass_begin();
        status = fb_train_end_pass(&train);
        count_pass_end();
        check(status);
    } while (status == FB_MORE);
    {
        uint32_t found[2] = {train.flips, train.model.crc};
        line("step", found, 2);
    }
}

int main(void) {
    static const uint32_t arenas[] = {LEARN_ARENAS};
    fb_model model;
    places at;
    uint32_t fast, least, input, used, i;

    board_init();
    check(fb_model_open(&model, board_model, BOARD_MODEL_SIZE));
    input = fb_model_tensor(&model, model.input).size;
    at.state_size = (uint32_t)fb_train_state_size(&model, &config);
    least = (uint32_t)fb_train_arena_size(&model, &config, false);
    fast = (uint32_t)fb_train_arena_size(&model, &config, true);
    {
        uint32_t sizes[2] = {model.size, model.crc}, ram[4] = {at.state_size, least, fast, input};
        line("model", sizes, 2);
        line("ram", ram, 4);
    }
    at.image = board_arena;
    at.state = at.image + ((BOARD_MODEL_SIZE + 7) & ~7u);
    at.input = (int8_t *)at.state + ((at.state_size + 7) & ~7u);
    at.arena = (uint8_t *)at.input + ((input + 7) & ~7u);
    used = (uint32_t)(at.arena - board_arena);
    if (used + least > BOARD_ARENA_SIZE) check(FB_ERR_ARENA);
    at.room = BOARD_ARENA_SIZE - used;
    at.input_size = input;
    paint_stack();
    run(&at, fast < at.room ? fast : at.room, false);
    used = stack_used((const uint8_t *)__builtin_frame_address(0));
    for (i = 0; i < sizeof arenas / sizeof arenas[0]; i++) {
        if (arenas[i] >= least && arenas[i] < fast && arenas[i] < at.room) run(&at, arenas[i], true);
    }
    line("stack", &used, 1);
    semihosting_write("done\n");
    semihosting_exit(0);
}
