/* Cuts power in a net that learns and saves: firmware/app/fb_app_learning.c on the simulated flash, at every operation, or
 * twice, at sampled ones.
 *
 *   learning_power_loss IMAGE OTHER geometries             one line for each kind of flash
 *   learning_power_loss IMAGE OTHER every GEOMETRY         one loss, with every outcome, at every operation
 *   learning_power_loss IMAGE OTHER each GEOMETRY          one loss, with one outcome after the other, at every operation
 *   learning_power_loss IMAGE OTHER sampled COUNT SEED     two losses at random operations of random geometries
 *   learning_power_loss IMAGE OTHER replay ID              one case again, telling what happens
 *   learning_power_loss IMAGE OTHER scenarios [NAME]       their names, or one of them
 *
 * An id says all of a case: GEOMETRY.SEED-OPERATION.OUTCOME-OPERATION.OUTCOME, operations counted from power on. OTHER is
 * the image of another net.
 *
 * A net learns for STEPS steps of SAMPLES samples and is saved after each pass. First without loss of power, noting
 * image and state after each pass. Then, after each loss, what the device finds must be, byte for byte, what was
 * committed last (or was being committed); and from there every pass must end with the same bytes as the first time. */
#include "fb_app_learning.h"
#include "power_loss.h"

enum { STEPS = 3, SAMPLES = 2, PASSES_MAX = 40, IMAGE_MAX = 16384, STATE_MAX = 16384, ROOM = 65536 };

typedef struct geometry {
    uint32_t size, page, unit, slots;
    bool reprogram;
} geometry;

static const geometry geometries[] = {
    {8192, 1024, 4, 2, true},    /* nRF51, nRF52 with small pages */
    {2048, 512, 4, 2, true},     /* a record a slot: each save erases */
    {8192, 1024, 2, 4, false},   /* STM32F1 */
    {8192, 2048, 8, 2, false},   /* STM32L4 */
    {16384, 4096, 4, 4, true},   /* serial NOR */
    {65536, 32768, 4, 2, true},  /* STM32F4: all in one slot */
    {16384, 4096, 32, 2, false}, /* STM32H7 */
};
#define GEOMETRIES ((unsigned)(sizeof geometries / sizeof *geometries))

/* Image and state after `pass` passes of the run without loss. */
typedef struct snapshot {
    uint8_t image[IMAGE_MAX], state[STATE_MAX];
} snapshot;

static uint8_t image[IMAGE_MAX] __attribute__((aligned(8))), other[IMAGE_MAX] __attribute__((aligned(8)));
static uint8_t memory[ROOM] __attribute__((aligned(8)));
static fb_model model, other_model;
static snapshot *first_run[PASSES_MAX];
static unsigned passes; /* of the whole run */
static uint32_t room;   /* so little that a step takes several passes */
static int8_t inputs[SAMPLES][4096];
static const fb_train_config config = {
    .seed = 7, .buffer_bits = 2, .start = 1, .bits = true, .bias = true, .last_op = 0xFFFF};

static fb_ledger ledger;

static void power_on(fb_app_learning *learns, const fb_flash *flash) {
    fb_ledger_open(&ledger, flash);
    fb_app_learning_start(learns, &ledger);
}

/* One pass over the samples, as a host does it: a step is begun when none is under way. */
static fb_status one_pass(fb_app_learning *learning) {
    fb_status status = FB_OK;
    uint32_t step = fb_train_steps(&learning->train);
    if (!fb_app_learning_busy(learning)) {
        status = fb_app_learning_begin(learning, SAMPLES, FB_RATE(0.2) >> step, FB_RATE(0.1) >> step);
    }
    for (unsigned i = 0; i < SAMPLES && status == FB_OK; i++) {
        if (i && fb_app_learning_save(learning) != FB_ERR_ORDER) return FB_ERR_STATE; /* not in the middle of a pass */
        status = fb_app_learning_sample(learning, inputs[i], i % 3);
    }
    return status == FB_OK ? fb_app_learning_end_pass(learning) : status;
}

static bool is_snapshot(const fb_app_learning *learning, unsigned pass) {
    const fb_train *train = &learning->train;
    return !memcmp(train->image, first_run[pass]->image, train->model.size) &&
           !memcmp(train->state, first_run[pass]->state, train->state_size);
}

static void take_snapshot(const fb_app_learning *learning, unsigned pass) {
    first_run[pass] = calloc(1, sizeof(snapshot));
    memcpy(first_run[pass]->image, learning->train.image, learning->train.model.size);
    memcpy(first_run[pass]->state, learning->train.state, learning->train.state_size);
}

static void run_without_loss(void) {
    static fb_app_learning learning;
    power_on(&learning, NULL);
    if (fb_app_learning_open(&learning, &model, &config, false, memory, room) != FB_OK) exit(3);
    take_snapshot(&learning, 0);
    while (fb_train_steps(&learning.train) < STEPS) {
        fb_status status = one_pass(&learning);
        if ((status != FB_OK && status != FB_MORE) || passes + 1 == PASSES_MAX) exit(3);
        take_snapshot(&learning, ++passes);
    }
}

typedef struct run {
    unsigned promised;   /* the pass that was committed or found last */
    unsigned committing; /* the pass whose save was called, 0: none */
} run;

static bool power_is_off(const fb_flash_sim *sim) {
    fb_flash_counts counts;
    fb_flash_sim_counts(sim, &counts);
    return counts.off;
}

/* From power on until the end of the run, or the loss of power. */
static bool live(const trial *t, fb_flash_sim *sim, run *r) {
    static fb_app_learning learning;
    fb_status status;
    unsigned pass;
    memset(memory, 0xA5, sizeof memory); /* RAM is gone */
    power_on(&learning, fb_flash_sim_port(sim));
    if (power_is_off(sim)) return false;
    if (!learning.kept) fail(t, "cannot open the store", 0, 0);
    status = fb_app_learning_resume(&learning, &model, memory, room);
    if (status == FB_ERR_EMPTY) {
        if (r->promised) fail(t, "what was saved is gone", r->promised, 0);
        status = fb_app_learning_open(&learning, &model, &config, false, memory, room);
    }
    if (status != FB_OK) fail(t, "cannot go on", status, r->promised);
    pass = r->committing && is_snapshot(&learning, r->committing) ? r->committing : r->promised;
    if (!is_snapshot(&learning, pass))
        fail(t, "found a mix, or another pass than promised", r->promised, r->committing);
    if (ledger.store.damaged) fail(t, "sees damage where there is none", pass, ledger.store.damaged);
    if (t->tell) printf("goes on after pass %u, step %u\n", pass, fb_train_steps(&learning.train));
    r->promised = pass;
    r->committing = 0;
    while (fb_train_steps(&learning.train) < STEPS) {
        status = one_pass(&learning);
        if (status != FB_OK && status != FB_MORE) fail(t, "a pass failed", pass, status);
        if (!is_snapshot(&learning, ++pass)) fail(t, "other bits than without loss", pass, 0);
        r->committing = pass;
        status = fb_app_learning_save(&learning);
        if (power_is_off(sim)) return false;
        if (status != FB_OK) fail(t, "saving failed with power on", pass, status);
        if (t->tell) printf("saved pass %u\n", pass);
        r->promised = pass;
        r->committing = 0;
    }
    return true;
}

/* The whole run with its losses; the operations from power on to the end or the first loss. */
static uint64_t try_it(const trial *t) {
    const geometry *g = &geometries[t->geometry];
    fb_flash_sim *sim = fb_flash_sim_new(g->size, g->page, g->unit, g->slots, g->reprogram, t->seed);
    run r = {0, 0};
    fb_flash_counts counts;
    uint64_t before;
    unsigned k = 0;
    bool done;
    if (!sim) exit(3);
    do {
        fb_flash_sim_counts(sim, &counts);
        before = counts.operations;
        if (k < t->losses) fb_flash_sim_cut(sim, t->loss[k].operation, t->loss[k].outcome);
        done = live(t, sim, &r);
        if (!done) {
            if (t->tell) printf("power lost after pass %u\n", r.committing ? r.committing : r.promised);
            fb_flash_sim_on(sim);
            k++;
        }
    } while (!done);
    fb_flash_sim_on(sim);
    live(t, sim, &r); /* a last start finds the end */
    if (r.promised != passes) fail(t, "did not end where it should", r.promised, passes);
    if (*fb_flash_sim_violation(sim)) {
        printf("%s\n", fb_flash_sim_violation(sim));
        fail(t, "used the flash as it must not be", 0, 0);
    }
    fb_flash_sim_counts(sim, &counts);
    fb_flash_sim_free(sim);
    return counts.operations - before;
}

static void every(unsigned geometry, bool all) {
    trial t = {geometry, 1, 0, {{0, FB_CUT_NOTHING}}, false};
    uint64_t operations = try_it(&t), cases = 0;
    t.losses = 1;
    for (t.loss[0].operation = 0; t.loss[0].operation < operations; t.loss[0].operation++) {
        for (unsigned outcome = 0; outcome < FB_CUT_COUNT; outcome++) {
            if (!all && outcome != t.loss[0].operation % FB_CUT_COUNT) continue;
            t.loss[0].outcome = (fb_cut)outcome;
            t.seed = ++cases;
            try_it(&t);
        }
    }
    printf("cut at %llu operations of %u passes: %llu cases\n", (unsigned long long)operations, passes,
           (unsigned long long)cases);
}

static void sampled(unsigned count, uint32_t seed) {
    uint64_t operations[GEOMETRIES];
    uint32_t drawn = 0;
    for (unsigned g = 0; g < GEOMETRIES; g++) {
        trial whole = {g, 1, 0, {{0, FB_CUT_NOTHING}}, false};
        operations[g] = try_it(&whole);
    }
    for (unsigned i = 0; i < count; i++) {
        trial t = {0, 0, 2, {{0, FB_CUT_NOTHING}}, false};
        t.geometry = random_of(seed, drawn++) % GEOMETRIES;
        t.seed = random_of(seed, drawn++);
        for (unsigned k = 0; k < 2; k++) {
            bool soon = k && random_of(seed, drawn++) % 3 == 0; /* while the store is settled, or at the next save */
            t.loss[k].operation = random_of(seed, drawn++) % (soon ? 12 : operations[t.geometry]);
            t.loss[k].outcome = (fb_cut)(random_of(seed, drawn++) % FB_CUT_COUNT);
        }
        try_it(&t);
    }
    printf("%u cases of 2 losses\n", count);
}

/* ---- what else can go wrong ---- */

static int failures;
#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            failures++; \
        } \
    } while (0)

static fb_app_learning learning;

static fb_flash_sim *flash_of(uint32_t size, uint32_t page, uint32_t slots) {
    return fb_flash_sim_new(size, page, 4, slots, true, 1);
}

/* Power on, open, learn until `pass`, saving after each if `save`. */
static void learn_until(const fb_flash_sim *sim, unsigned pass, bool save) {
    power_on(&learning, fb_flash_sim_port(sim));
    CHECK(fb_app_learning_open(&learning, &model, &config, false, memory, room) == FB_OK);
    for (unsigned i = 1; i <= pass; i++) {
        fb_status status = one_pass(&learning);
        CHECK(status == FB_OK || status == FB_MORE);
        if (save) CHECK(fb_app_learning_save(&learning) == FB_OK);
    }
}

static unsigned resumed_pass(const fb_flash_sim *sim) {
    memset(memory, 0x5A, sizeof memory);
    power_on(&learning, fb_flash_sim_port(sim));
    if (fb_app_learning_resume(&learning, &model, memory, room) != FB_OK) return UINT32_MAX;
    for (unsigned pass = 0; pass <= passes; pass++)
        if (is_snapshot(&learning, pass)) return pass;
    return UINT32_MAX;
}

static void to_the_end(unsigned pass) {
    while (fb_train_steps(&learning.train) < STEPS) {
        fb_status status = one_pass(&learning);
        CHECK(status == FB_OK || status == FB_MORE);
        pass++;
    }
    CHECK(pass == passes && is_snapshot(&learning, passes));
}

static void a_record_that_is_too_long_is_refused_and_learning_goes_on(void) {
    fb_flash_sim *sim = flash_of(1024, 512, 2);
    learn_until(sim, 2, false);
    CHECK(fb_app_learning_save(&learning) == FB_ERR_FULL);
    CHECK(learning.changed && !learning.saved);
    to_the_end(2);
    fb_flash_sim_free(sim);
}

static void worn_flash_keeps_what_was_saved_and_learning_goes_on(void) {
    for (int how = FB_WORN_ERASE; how < FB_WORN_COUNT; how++) {
        fb_flash_sim *sim = flash_of(2048, 512, 2); /* a record a slot: each save erases */
        learn_until(sim, 2, true);
        for (uint32_t page = 0; page < 4; page++) fb_flash_sim_wear(sim, page, (fb_worn)how);
        CHECK(one_pass(&learning) != FB_ERR_ARGUMENT);
        CHECK(fb_app_learning_save(&learning) == FB_ERR_FLASH);
        CHECK(fb_app_learning_save(&learning) == FB_ERR_FLASH);
        to_the_end(3);
        CHECK(resumed_pass(sim) == 2);
        to_the_end(2);
        fb_flash_sim_free(sim);
    }
}

static void a_worn_page_is_passed_over(void) {
    for (int how = FB_WORN_ERASE; how < FB_WORN_COUNT; how++) {
        fb_flash_sim *sim = flash_of(8192, 1024, 4);
        fb_flash_sim_wear(sim, 3, (fb_worn)how);
        learn_until(sim, passes, true);
        CHECK(resumed_pass(sim) == passes);
        fb_flash_sim_free(sim);
    }
}

static void a_checkpoint_of_another_model_is_neither_applied_nor_lost(void) {
    fb_flash_sim *sim = flash_of(16384, 1024, 2);
    learn_until(sim, 3, true);
    power_on(&learning, fb_flash_sim_port(sim));
    CHECK(fb_app_learning_resume(&learning, &other_model, memory, ROOM) == FB_ERR_OWNER);
    CHECK(!learning.open);
    CHECK(fb_app_learning_open(&learning, &other_model, &config, false, memory, ROOM) == FB_ERR_OWNER);
    CHECK(!learning.open && fb_app_learning_save(&learning) == FB_ERR_ORDER);
    CHECK(ledger.store.current.owner == model.crc);
    CHECK(resumed_pass(sim) == 3); /* back to its own model */
    to_the_end(3);
    power_on(&learning, fb_flash_sim_port(sim));
    CHECK(fb_app_learning_open(&learning, &other_model, &config, true, memory, ROOM) == FB_OK); /* when asked for */
    CHECK(ledger.store.current.owner == model.crc); /* not before it saves */
    CHECK(fb_app_learning_save(&learning) == FB_OK);
    CHECK(ledger.store.current.owner == other_model.crc);
    CHECK(resumed_pass(sim) == UINT32_MAX);
    fb_flash_sim_free(sim);
}

static void another_configuration_is_refused_and_nothing_is_lost(void) {
    fb_flash_sim *sim = flash_of(8192, 1024, 2);
    fb_train_config changed = config;
    changed.seed++;
    learn_until(sim, 2, true);
    one_pass(&learning);
    CHECK(fb_app_learning_open(&learning, &model, &changed, false, memory, room) == FB_ERR_STATE);
    CHECK(learning.open && learning.changed && is_snapshot(&learning, 3));
    power_on(&learning, fb_flash_sim_port(sim));
    CHECK(fb_app_learning_open(&learning, &model, &changed, false, memory, room) == FB_ERR_STATE);
    CHECK(resumed_pass(sim) == 2);
    fb_flash_sim_free(sim);
}

static void put(const void *head, uint32_t size, uint32_t length) {
    static const uint8_t zeros[64];
    CHECK(fb_ledger_begin(&ledger, length, model.crc) == FB_OK && fb_ledger_write(&ledger, head, size) == FB_OK);
    for (uint32_t left = length - size, n; left; left -= n) {
        n = left < sizeof zeros ? left : (uint32_t)sizeof zeros;
        CHECK(fb_ledger_write(&ledger, zeros, n) == FB_OK);
    }
    CHECK(fb_ledger_commit(&ledger) == FB_OK);
}

/* As it was written before configurations had a rule: their bytes would be read as another one. */
static void a_checkpoint_of_earlier_firmware_is_recognised_and_refused(void) {
    fb_flash_sim *sim = flash_of(16384, 1024, 2);
    fb_app_learning_needs needs;
    uint8_t head[24] = {'F', 'B', 'L', 'R', 7, 0, 0, 0, 2, 1, 1, 1, 0, 0, 0xFF, 0xFF};
    CHECK(fb_app_learning_plan(&model, &config, ROOM, &needs) == FB_OK);
    for (unsigned i = 0; i < 4; i++) {
        head[16 + i] = (uint8_t)(model.size >> 8 * i);
        head[20 + i] = (uint8_t)(needs.state >> 8 * i);
    }
    power_on(&learning, fb_flash_sim_port(sim));
    put(head, sizeof head, (uint32_t)sizeof head + model.size + needs.state);
    power_on(&learning, fb_flash_sim_port(sim));
    CHECK(ledger.checkpoint == sizeof head + model.size + needs.state);
    CHECK(fb_app_learning_resume(&learning, &model, memory, room) == FB_ERR_VERSION && !learning.open);
    CHECK(fb_app_learning_open(&learning, &model, &config, false, memory, room) == FB_ERR_VERSION && !learning.open);
    CHECK(fb_app_learning_open(&learning, &model, &config, true, memory, room) == FB_OK); /* anew, when asked for */
    CHECK(fb_app_learning_save(&learning) == FB_OK);
    CHECK(resumed_pass(sim) == 0);
    fb_flash_sim_free(sim);
}

static void a_checkpoint_of_a_rule_to_come_is_refused(void) {
    fb_flash_sim *sim = flash_of(16384, 1024, 2);
    fb_app_learning_needs needs;
    fb_train_config later = config;
    uint8_t head[FB_CHECKPOINT_HEAD] = {'F', 'B', 'L', '2'};
    CHECK(fb_app_learning_plan(&model, &config, ROOM, &needs) == FB_OK);
    later.rule = 1;
    CHECK(fb_app_learning_plan(&model, &later, ROOM, &needs) == FB_ERR_ARGUMENT);
    CHECK(fb_app_learning_plan(&model, &config, ROOM, &needs) == FB_OK);
    fb_train_config_pack(&later, head + 4);
    for (unsigned i = 0; i < 4; i++) {
        head[4 + FB_TRAIN_CONFIG_SIZE + i] = (uint8_t)(model.size >> 8 * i);
        head[8 + FB_TRAIN_CONFIG_SIZE + i] = (uint8_t)(needs.state >> 8 * i);
    }
    power_on(&learning, fb_flash_sim_port(sim));
    put(head, sizeof head, (uint32_t)sizeof head + model.size + needs.state);
    power_on(&learning, fb_flash_sim_port(sim));
    CHECK(fb_app_learning_resume(&learning, &model, memory, room) == FB_ERR_ARGUMENT && !learning.open);
    CHECK(fb_app_learning_open(&learning, &model, &config, false, memory, room) == FB_ERR_STATE && !learning.open);
    fb_flash_sim_free(sim);
}

static void too_little_memory_is_said_and_changes_nothing(void) {
    fb_flash_sim *sim = flash_of(8192, 1024, 2);
    fb_app_learning_needs needs;
    CHECK(fb_app_learning_plan(&model, &config, 0, &needs) == FB_ERR_ARENA && needs.arena == 0);
    CHECK(fb_app_learning_plan(&model, &config, needs.total, &needs) == FB_OK && needs.arena == needs.least);
    CHECK(fb_app_learning_plan(&model, &config, needs.total - 1, &needs) == FB_ERR_ARENA);
    learn_until(sim, 2, true);
    memset(memory, 0xCC, sizeof memory);
    power_on(&learning, fb_flash_sim_port(sim));
    CHECK(fb_app_learning_resume(&learning, &model, memory, needs.total - 1) == FB_ERR_ARENA);
    CHECK(!learning.open && memory[0] == 0xCC && memory[ROOM - 1] == 0xCC);
    CHECK(resumed_pass(sim) == 2);
    fb_flash_sim_free(sim);
}

static void a_damaged_checkpoint_gives_the_one_before(void) {
    fb_flash_sim *sim = flash_of(16384, 1024, 2);
    learn_until(sim, 4, true);
    fb_flash_sim_rot(sim, ledger.store.current.data + 100, 1);
    CHECK(resumed_pass(sim) == 3);
    CHECK(ledger.store.damaged == 1);
    to_the_end(3);
    fb_flash_sim_free(sim);
}

static void forgetting_survives_a_restart(void) {
    fb_flash_sim *sim = flash_of(8192, 1024, 2);
    learn_until(sim, 3, true);
    CHECK(fb_app_learning_forget(&learning) == FB_OK && !learning.open);
    CHECK(resumed_pass(sim) == UINT32_MAX);
    CHECK(fb_app_learning_resume(&learning, &model, memory, room) == FB_ERR_EMPTY);
    CHECK(fb_app_learning_open(&learning, &model, &config, false, memory, room) == FB_OK);
    CHECK(is_snapshot(&learning, 0) && !learning.resumed);
    to_the_end(0);
    fb_flash_sim_free(sim);
}

static void saving_twice_writes_once(void) {
    fb_flash_sim *sim = flash_of(8192, 1024, 2);
    fb_flash_counts before, after;
    learn_until(sim, 1, true);
    fb_flash_sim_counts(sim, &before);
    CHECK(fb_app_learning_save(&learning) == FB_OK);
    fb_flash_sim_counts(sim, &after);
    CHECK(before.operations == after.operations);
    fb_flash_sim_free(sim);
}

static void a_pass_that_was_cut_off_by_the_host_begins_again(void) {
    fb_flash_sim *sim = flash_of(8192, 1024, 2);
    for (unsigned pass = 0; pass < passes; pass++) {
        learn_until(sim, pass, false);
        if (!fb_app_learning_busy(&learning)) CHECK(fb_app_learning_begin(&learning, SAMPLES, 0, 0) == FB_OK);
        CHECK(fb_app_learning_sample(&learning, inputs[0], 0) == FB_OK);
        CHECK(fb_app_learning_open(&learning, &model, &config, false, memory, room) == FB_OK);
        CHECK(!fb_app_learning_busy(&learning));
        to_the_end(pass);
    }
    fb_flash_sim_free(sim);
}

typedef struct scenario {
    const char *name;
    void (*run)(void);
} scenario;
#define SCENARIO(name) {#name, name}
static const scenario scenarios[] = {
    SCENARIO(a_record_that_is_too_long_is_refused_and_learning_goes_on),
    SCENARIO(worn_flash_keeps_what_was_saved_and_learning_goes_on),
    SCENARIO(a_worn_page_is_passed_over),
    SCENARIO(a_checkpoint_of_another_model_is_neither_applied_nor_lost),
    SCENARIO(another_configuration_is_refused_and_nothing_is_lost),
    SCENARIO(a_checkpoint_of_earlier_firmware_is_recognised_and_refused),
    SCENARIO(a_checkpoint_of_a_rule_to_come_is_refused),
    SCENARIO(too_little_memory_is_said_and_changes_nothing),
    SCENARIO(a_damaged_checkpoint_gives_the_one_before),
    SCENARIO(forgetting_survives_a_restart),
    SCENARIO(saving_twice_writes_once),
    SCENARIO(a_pass_that_was_cut_off_by_the_host_begins_again),
};

static void read_image(const char *path, uint8_t *to, fb_model *opened) {
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(to, 1, IMAGE_MAX, file) : 0;
    if (file) fclose(file);
    if (fb_model_open(opened, to, size) != FB_OK) {
        fprintf(stderr, "%s: not an image\n", path);
        exit(2);
    }
}

static void prepare(void) {
    fb_app_learning_needs needs;
    fb_app_learning_plan(&model, &config, ROOM, &needs);
    room = needs.total + (needs.fast - needs.least) / 6;
    for (unsigned i = 0; i < SAMPLES; i++)
        for (unsigned j = 0; j < sizeof inputs[i]; j++) inputs[i][j] = (int8_t)random_of(i, j);
    run_without_loss();
}

int main(int argc, char **argv) {
    const char *what = argc > 3 ? argv[3] : "";
    const char *more = argc > 4 ? argv[4] : "";
    trial t;
    if (argc > 3) {
        read_image(argv[1], image, &model);
        read_image(argv[2], other, &other_model);
        prepare();
    }
    if (!strcmp(what, "geometries")) {
        for (unsigned i = 0; i < GEOMETRIES; i++)
            printf("%u: %u bytes, pages of %u, units of %u, %u slots, %s\n", i, geometries[i].size, geometries[i].page,
                   geometries[i].unit, geometries[i].slots, geometries[i].reprogram ? "reprogram" : "once");
    } else if ((!strcmp(what, "every") || !strcmp(what, "each")) && strtoul(more, NULL, 10) < GEOMETRIES) {
        every((unsigned)strtoul(more, NULL, 10), !strcmp(what, "every"));
    } else if (!strcmp(what, "sampled") && argc == 6) {
        sampled((unsigned)strtoul(more, NULL, 10), (uint32_t)strtoul(argv[5], NULL, 10));
    } else if (!strcmp(what, "replay") && parse_trial(more, GEOMETRIES, &t)) {
        try_it(&t);
        printf("passed\n");
    } else if (!strcmp(what, "scenarios")) {
        for (unsigned i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
            if (!*more) printf("%s\n", scenarios[i].name);
            if (!strcmp(more, scenarios[i].name)) scenarios[i].run();
        }
        return failures != 0;
    } else {
        fprintf(
            stderr,
            "usage: learning_power_loss IMAGE OTHER geometries | every GEOMETRY | each GEOMETRY | sampled COUNT SEED | "
            "replay ID | scenarios [NAME]\n");
        return 2;
    }
    return 0;
}
