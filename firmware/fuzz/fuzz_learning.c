/* The fuzz target of learning: whatever image, configuration and saved state it is given, training refuses them or keeps
 * its promises (fb_train.h).
 *
 *     data: image | script of SCRIPT bytes (fuzz_learning.h)
 *
 * Image, state and arena are allocations of exactly the size asked for. A net is trained for two steps in the least arena,
 * or, where that would take too many passes, in one for one pass per step; then
 *
 *     arena    another one gives the same bits and the same state
 *     resume   so does going on from a copy of image and state that was taken after some pass
 *     forged   a state that was changed is refused; with its CRC repaired it is refused, or training goes on and leaves a
 *              valid image
 */
#include "fuzz_learning.h"
#include "fuzz.h"
#include "learn/fb_train_internal.h"

/* A net may have many channels, or many pixels, or take many passes over many samples; not all of them. In
 * multiply-accumulates of a training, forwards only. */
#ifndef FUZZ_MAX_WORK
#define FUZZ_MAX_WORK 1500000u
#endif
#define FUZZ_MAX_MEMORY 4000000u
#define STEPS 2u
#define FEW_PASSES 4u /* of two steps in the fast arena: calibration, measurement, two updates */

typedef struct task {
    const uint8_t *image, *script;
    uint32_t image_size, state_size, samples, rate_bits, rate_bias, most_passes;
    fb_train_config config;
    int8_t *input;
    unsigned outputs;
} task;

/* Memory of one training. */
typedef struct run {
    fb_train train;
    uint8_t *image, *state, *arena;
    size_t arena_size;
} run;

static run make_run(const task *t, const uint8_t *image, const uint8_t *state, size_t arena_size) {
    run r;
    r.image = allocate(t->image_size);
    r.state = allocate(t->state_size);
    r.arena = allocate(arena_size);
    r.arena_size = arena_size;
    memcpy(r.image, image, t->image_size);
    if (state) {
        memcpy(r.state, state, t->state_size);
    } else {
        memset(r.state, 0, 4); /* from scratch */
    }
    return r;
}

static void free_run(run *r) {
    free(r->image);
    free(r->state);
    free(r->arena);
}

static fb_status open_run(const task *t, run *r) {
    return fb_train_open(&r->train, r->image, t->image_size, r->state, t->state_size, r->arena, r->arena_size,
                         &t->config);
}

/* A pass over the batch. Its samples are the same in each pass, as fb_train.h asks. */
static fb_status pass(const task *t, run *r) {
    fb_train_result result;
    for (uint32_t i = 0; i < t->samples; i++) {
        fb_status status = fb_train_sample(&r->train, t->input, (i + t->script[SEED]) % t->outputs, &result);
        if (status != FB_OK) return status;
        REQUIRE(result.predicted < t->outputs);
        REQUIRE(result.predicted == fb_argmax(fb_train_scores(&r->train), t->outputs));
        REQUIRE(fb_train_drift(&r->train) <= 8 * 65536u); /* 4 each of mean and deviation */
    }
    REQUIRE(fb_train_sample(&r->train, t->input, 0, NULL) == FB_ERR_ARGUMENT); /* one too many */
    return fb_train_end_pass(&r->train);
}

static void require_valid_image(const task *t, const run *r) {
    fb_model model;
    REQUIRE(fb_model_open(&model, r->image, t->image_size) == FB_OK);
    REQUIRE(model.crc == r->train.model.crc);
}

/* Train up to the end of step `steps`, or until `passes` are done; what is left of them. */
static unsigned train(const task *t, run *r, uint32_t steps, unsigned passes) {
    while (fb_train_steps(&r->train) < steps && passes) {
        fb_status status = FB_MORE;
        REQUIRE(fb_train_begin(&r->train, t->samples, t->rate_bits, t->rate_bias) == FB_OK);
        for (; status == FB_MORE && passes; passes--) status = pass(t, r);
        REQUIRE(status == FB_OK || status == FB_MORE);
        require_valid_image(t, r);
    }
    return passes;
}

static void require_same(const task *t, const run *a, const run *b) {
    REQUIRE(memcmp(a->image, b->image, t->image_size) == 0);
    REQUIRE(memcmp(a->state, b->state, t->state_size) == 0);
}

static uint32_t forge(const task *t, uint8_t *state) {
    uint32_t crc, before = fb_crc32(0, state + 4, t->state_size - 4);
    for (unsigned i = 0; i < t->script[FORGERIES] % 7u; i++) {
        const uint8_t *p = t->script + FORGED + 4 * (size_t)i;
        uint8_t *at = state + 4 + fb_u16(p) % (t->state_size - 4), old = *at;
        *at = (uint8_t)(p[2] % 3 == 0 ? p[3] : p[2] % 3 == 1 ? old ^ p[3] : old + p[3]);
    }
    if (t->script[TRAINED] & 4) return fb_crc32(0, state + 4, t->state_size - 4) != before; /* or changed back */
    crc = fb_crc32(0, state + 8, t->state_size - 8);
    memcpy(state + 4, &crc, 4);
    return 0;
}

/* Any status will do but a pass without end. */
static void train_forged(const task *t, run *r) {
    uint32_t steps = fb_train_steps(&r->train);
    unsigned passes = STEPS * t->most_passes;
    while (fb_train_steps(&r->train) - steps < STEPS && passes) {
        fb_status status = fb_train_begin(&r->train, t->samples, t->rate_bits, t->rate_bias);
        if (status == FB_OK) status = FB_MORE;
        for (; status == FB_MORE && passes; passes--) status = pass(t, r);
        if (status != FB_OK) break;
        require_valid_image(t, r);
    }
    REQUIRE(passes);
}

/* Trains in arenas of `first` bytes, and of `between`. */
static void run_all(const task *t, size_t first, size_t between) {
    unsigned passes = STEPS * t->most_passes;
    run a = make_run(t, t->image, NULL, first), b = make_run(t, t->image, NULL, between), c, forged;
    fb_status status = open_run(t, &a);
    if (status != FB_OK) { /* weights that two operations share cannot be trained */
        REQUIRE(status == FB_ERR_OFFSET);
        free_run(&a);
        free_run(&b);
        return;
    }
    train(t, &a, STEPS, t->script[STOP] % 16u);
    c = make_run(t, a.image, a.state, between);
    forged = make_run(t, a.image, a.state, first);
    REQUIRE(train(t, &a, STEPS, passes));
    REQUIRE(open_run(t, &b) == FB_OK);
    REQUIRE(train(t, &b, STEPS, passes));
    require_same(t, &a, &b);
    REQUIRE(open_run(t, &c) == FB_OK);
    REQUIRE(train(t, &c, STEPS, passes));
    require_same(t, &a, &c);
    if (forge(t, forged.state)) {
        REQUIRE(open_run(t, &forged) == FB_ERR_STATE);
    } else if (open_run(t, &forged) == FB_OK) {
        train_forged(t, &forged);
    }
    free_run(&a);
    free_run(&b);
    free_run(&c);
    free_run(&forged);
}

/* Bytes that are read as a configuration are written as the same bytes. */
static void unpack_any(const uint8_t *packed) {
    uint8_t again[FB_TRAIN_CONFIG_SIZE];
    fb_train_config config;
    if (fb_train_config_unpack(&config, packed) != FB_OK) return;
    fb_train_config_pack(&config, again);
    REQUIRE(memcmp(again, packed, sizeof again) == 0);
}

/* A configuration that training accepts is read again from its bytes. */
static void pack_and_unpack(const fb_train_config *config, bool accepted) {
    uint8_t packed[FB_TRAIN_CONFIG_SIZE];
    fb_train_config again;
    fb_train_config_pack(config, packed);
    unpack_any(packed);
    if (accepted) REQUIRE(fb_train_config_unpack(&again, packed) == FB_OK);
}

/* What the script says of training this model. */
static task read_script(const fb_model *model, const uint8_t *script) {
    task t;
    memset(&t, 0, sizeof t);
    t.script = script;
    t.config.seed = script[SEED] * 0x01010101u;
    t.config.buffer_bits = script[BUFFER_BITS] % 10;
    t.config.sums = script[BUFFER_BITS] / 10 % 4;
    t.config.start = script[START] == 0xFF ? 0xFF : (uint8_t)(script[START] & ((1u << t.config.buffer_bits) - 1));
    t.config.bits = script[TRAINED] & 1;
    t.config.bias = script[TRAINED] & 2;
    t.config.gain = script[TRAINED] & 8;
    t.config.recalibrate = script[TRAINED] >> 4 & 1;
    t.config.prior = t.config.recalibrate ? script[SEED] : 0;
    t.config.augment = (uint8_t)((script[TRAINED] >> 5 & 3) | (script[TRAINED] & 128 ? FB_AUGMENT_MIRROR : 0));
    t.config.first_op = script[FIRST_OP];
    t.config.last_op = script[LAST_OP] == 0xFF ? 0xFFFF : script[LAST_OP];
    t.samples = 1u + script[SAMPLES] % 4;
    t.rate_bits = script[RATE_BITS] * (FB_RATE_MAX / 255);
    t.rate_bias = script[RATE_BIAS] * (FB_RATE_MAX / 255);
    t.outputs = fb_model_tensor(model, model->output).size;
    return t;
}

/* At worst each filter has a pass of its own, twice in the first step, and one calibrates. */
static uint32_t passes_at_most(const fb_model *model) {
    uint32_t filters = 0;
    for (unsigned op = 0; op < model->ops; op++) {
        fb_layer layer;
        fb_layer_decode(model, op, &layer);
        if (fb_weighted(&layer)) filters += layer.out.channels;
    }
    return 2 + 2 * filters + model->ops; /* as many turns to recalibrate, at most */
}

static void try_arenas(const task *t, const fb_model *model, size_t least, size_t fast) {
    uint64_t work = work_of(model) * t->samples;
    if (fast < least) fast = least;
    if (work * STEPS * t->most_passes <= FUZZ_MAX_WORK) {
        run_all(t, least, least + (fast - least) * t->script[ARENA] / 255);
    } else if (work * (FEW_PASSES + (t->config.recalibrate ? model->ops : 0u)) <=
               FUZZ_MAX_WORK) { /* and with up to a fourth less: passes stay few */
        run_all(t, fast, fast - (fast - least) * t->script[ARENA] / 1020);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *image;
    fb_model model;
    task t;
    if (size < SCRIPT) return 0;
    size -= SCRIPT;
    image = allocate(size);
    memcpy(image, data, size);
    if (fb_model_open(&model, image, size) == FB_OK) {
        size_t least, fast;
        t = read_script(&model, data + size);
        t.image = image;
        t.image_size = model.size;
        t.state_size = (uint32_t)fb_train_state_size(&model, &t.config);
        least = fb_train_arena_size(&model, &t.config, false);
        fast = fb_train_arena_size(&model, &t.config, true);
        t.most_passes = passes_at_most(&model);
        unpack_any(t.script);
        pack_and_unpack(&t.config, t.state_size != 0);
        if (t.state_size == 0) {
            uint64_t memory[16] = {0};
            REQUIRE(fb_train_open(&(fb_train){0}, image, size, memory, sizeof memory, memory, sizeof memory,
                                  &t.config) != FB_OK);
        } else if (least && t.state_size < FUZZ_MAX_MEMORY && least < FUZZ_MAX_MEMORY && fast < FUZZ_MAX_MEMORY &&
                   fb_model_tensor(&model, model.input).size < FUZZ_MAX_MEMORY) {
            t.input = make_input(&model);
            try_arenas(&t, &model, least, fast);
            free_tensor(t.input);
        }
    }
    free(image);
    return 0;
}
