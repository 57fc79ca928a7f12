/* Cuts power in fb_store.c, on the simulated flash: at every operation, or twice, at sampled ones.
 *
 *   store_power_loss geometries              one line for each kind of flash
 *   store_power_loss every GEOMETRY [MOST]   one loss, with every outcome, at every operation; if there are more than
 *                                            MOST of them, at those around the calls of the store and some between
 *   store_power_loss settling GEOMETRY       a loss that leaves weak cells at every operation, another soon after
 *   store_power_loss sampled COUNT SEED [N]  N losses (2) at random operations of random geometries
 *   store_power_loss replay ID               one case again, telling what happens
 *
 * An id says all of a case: GEOMETRY.SEED-OPERATION.OUTCOME-OPERATION.OUTCOME, operations counted from power on.
 *
 * The application saves steps 1, 2, ... of a run, now and then aborting one or asking for too much. After each loss it
 * opens the store, checks that it finds what it was promised, byte for byte, and goes on from there to the end. */
#include "power_loss.h"

#define OWNER 0xc0ffee11u

typedef struct geometry {
    uint32_t size, page, unit, slots;
    bool reprogram;
    uint32_t steps;
    uint32_t lengths[4]; /* of records, in turn; the last but one stands for as much as fits */
} geometry;

#define MOST UINT32_MAX

static const geometry geometries[] = {
    {1024, 256, 1, 2, true, 12, {0, 33, MOST, 100}},
    {1024, 256, 4, 2, true, 12, {0, 33, MOST, 100}},
    {1024, 256, 4, 2, false, 12, {0, 33, MOST, 100}},
    {1024, 256, 8, 4, true, 12, {1, 64, MOST, 9}},
    {1024, 256, 8, 4, false, 12, {1, 64, MOST, 9}},
    {1536, 256, 16, 3, true, 12, {15, 16, MOST, 17}},
    {1536, 256, 16, 3, false, 12, {15, 16, MOST, 17}},
    {2304, 256, 2, 2, true, 12, {5, 200, MOST, 31}}, /* nine pages: one is left over */
    {2304, 256, 32, 2, false, 12, {5, 200, MOST, 31}},
    {1632, 272, 16, 2, true, 12, {100, 1, 240, 0}},    /* pages no power of two, records across them */
    {4096, 1024, 4, 4, true, 12, {300, 77, MOST, 8}},  /* nRF51, nRF52 with small pages */
    {8192, 1024, 2, 3, false, 12, {99, 700, MOST, 8}}, /* STM32F1 */
    {8192, 2048, 8, 2, false, 12, {999, 50, MOST, 8}}, /* STM32L4 */
    {16384, 4096, 4, 2, true, 12, {500, 50, MOST, 8}}, /* serial NOR, nRF52840 */
    {32768, 16384, 4, 2, true, 12, {4000, 900, MOST, 8}},
    {262144, 131072, 4, 2, true, 5, {50000, 48, 90000, 8}}, /* STM32F4: resnet8's checkpoint and one too large to follow
                                                             * it
                                                             */
    {524288, 131072, 32, 3, false, 5, {50000, 48, 90000, 8}}, /* STM32H7 */
};
#define GEOMETRIES ((unsigned)(sizeof geometries / sizeof *geometries))

/* Operations counted when calls of the store began and ended. */
typedef struct boundaries {
    uint64_t at[128];
    unsigned count;
} boundaries;

static boundaries *noted; /* NULL: not asked for */

static uint8_t content[131072], readback[131072];

static uint32_t length_of(const fb_store *store, const geometry *g, uint32_t step) {
    uint32_t length = g->lengths[step % 4];
    return length == MOST ? store->capacity - step % 3 : length;
}

/* What is saved in a step: also all ones and all zeros, which look like empty flash and like marks. */
static const uint8_t *content_of(uint32_t step, uint32_t length) {
    static uint32_t step_there, length_there;
    if (step == step_there && length == length_there) return content;
    for (uint32_t i = 0; i < length; i++) content[i] = (uint8_t)random_of(step, i);
    if (step % 6 == 4) memset(content, 0xff, length);
    if (step % 6 == 5) memset(content, 0, length);
    step_there = step;
    length_there = length;
    return content;
}

static bool operation_told(void *context, bool erase, uint32_t offset) {
    (void)context;
    printf("  %s %u\n", erase ? "erase" : "program", offset);
    return false;
}

/* Which step does the store hold? 0: nothing. */
static uint32_t held(const trial *t, const fb_store *store) {
    const geometry *g = &geometries[t->geometry];
    uint32_t step = store->current.kind, length = store->current.length;
    if (!store->current.sequence) return 0;
    if (step < 1 || step > g->steps || length != length_of(store, g, step))
        fail(t, "a record nobody saved", step, length);
    if (fb_store_check(store, step, OWNER) != FB_OK) fail(t, "owner or kind lost", step, length);
    if (fb_store_read(store, 0, readback, length) != FB_OK) fail(t, "cannot read the current record", step, length);
    if (memcmp(readback, content_of(step, length), length) != 0) fail(t, "another content", step, length);
    return step;
}

typedef struct run {
    uint32_t promised;   /* the step that was committed or found last */
    uint32_t committing; /* the step whose commit was called, 0: none */
} run;

static void note(const fb_flash_sim *sim) {
    fb_flash_counts counts;
    if (!noted || noted->count == 128) return;
    fb_flash_sim_counts(sim, &counts);
    noted->at[noted->count++] = counts.operations;
}

/* Save one step. False if power failed. */
static bool save_step(const trial *t, fb_flash_sim *sim, fb_store *store, uint32_t step, run *r) {
    uint32_t length = length_of(store, &geometries[t->geometry], step), at = 0, chunk;
    const uint8_t *data = content_of(step, length);
    fb_flash_counts before, after;

    fb_flash_sim_counts(sim, &before);
    if (fb_store_begin(store, store->capacity + 1, step, OWNER) != FB_ERR_FULL) fail(t, "took too much", step, 0);
    if (fb_store_write(store, data, 1) != FB_ERR_ORDER) fail(t, "wrote without begin", step, 0);
    if (fb_store_commit(store) != FB_ERR_ORDER) fail(t, "committed without begin", step, 0);
    fb_flash_sim_counts(sim, &after);
    if (after.operations != before.operations) fail(t, "touched flash for a refused record", step, 0);

    if (step % 3 == 0) { /* a record that is given up half-way */
        fb_status status = fb_store_begin(store, 40, 99, OWNER);
        if (status == FB_OK) status = fb_store_write(store, "half of a record.......", 20);
        if (status == FB_OK && fb_store_commit(store) != FB_ERR_ORDER) fail(t, "committed half a record", step, 0);
        if (status != FB_OK) return false;
        fb_store_abort(store);
    }
    note(sim);
    if (fb_store_begin(store, length, step, OWNER) != FB_OK) return false;
    note(sim);
    if (fb_store_begin(store, length, step, OWNER) != FB_ERR_ORDER) fail(t, "began twice", step, 0);
    for (unsigned i = 0; at < length; i++, at += chunk) {
        chunk = step % 2 ? length : 1 + random_of(step, i) % (i % 5 ? 40 : 700);
        if (chunk > length - at) chunk = length - at;
        if (fb_store_write(store, data + at, chunk) != FB_OK) return false;
        if (t->geometry < 10 && r->promised) /* the old one is there all the time */
            if (held(t, store) != r->promised) fail(t, "the current record changed while writing", step, at);
        data = content_of(step, length);
    }
    if (fb_store_write(store, data, 1) != FB_ERR_ARGUMENT) fail(t, "took more than begun", step, 0);
    note(sim);
    r->committing = step;
    if (fb_store_commit(store) != FB_OK) return false;
    r->promised = step;
    r->committing = 0;
    return true;
}

/* From power on until the end of the run, or the loss of power. */
static bool live(const trial *t, fb_flash_sim *sim, run *r) {
    fb_store store;
    fb_flash_counts counts;
    uint32_t found;
    if (fb_store_open(&store, fb_flash_sim_port(sim)) != FB_OK) fail(t, "cannot open", 0, 0);
    fb_flash_sim_counts(sim, &counts);
    if (counts.off) return false;
    found = held(t, &store);
    if (t->tell) printf("opened: step %u, sequence %u, damaged %u\n", found, store.current.sequence, store.damaged);
    if (found != r->promised && found != (r->committing ? r->committing : r->promised))
        fail(t, "found another step than promised", found, r->promised);
    if (store.damaged) fail(t, "sees damage where there is none", found, store.damaged);
    r->promised = found;
    r->committing = 0;
    while (r->promised < geometries[t->geometry].steps) {
        uint32_t step = r->promised + 1;
        if (t->tell) printf("save step %u: %u bytes\n", step, length_of(&store, &geometries[t->geometry], step));
        if (!save_step(t, sim, &store, step, r)) {
            fb_flash_sim_counts(sim, &counts);
            if (!counts.off) fail(t, "saving failed with power on", step, 0);
            return false;
        }
        fb_flash_sim_counts(sim, &counts);
        if (counts.off) return false; /* in the last operation, after the mark: committed all the same */
        if (held(t, &store) != step) fail(t, "not the current record after commit", step, 0);
    }
    return true;
}

/* Counts kept in flash against the true ones. A loss in an erase forgets it, and those just before it of the same slot:
 * here there can be two, of a record that was aborted and of one before an earlier loss. Two losses can leave two slots
 * without headers, and their counts are then divided between them. */
static void check_wear(const trial *t, fb_flash_sim *sim) {
    fb_store store;
    fb_store_open(&store, fb_flash_sim_port(sim));
    for (uint32_t slot = 0; slot < store.flash->slots; slot++) {
        uint32_t kept = fb_store_wear(&store, slot);
        uint32_t real = fb_flash_sim_erases(sim, slot * store.slot_size / store.flash->page);
        if ((t->losses < 2 ? kept > real : kept > real + t->losses) || real > kept + 3 * t->losses)
            fail(t, "miscounts erases", kept, real);
    }
}

/* Returns the operations of the whole run. */
static uint64_t try_it(const trial *t) {
    const geometry *g = &geometries[t->geometry];
    fb_flash_sim *sim = fb_flash_sim_new(g->size, g->page, g->unit, g->slots, g->reprogram, t->seed);
    fb_flash_counts counts;
    run r = {0, 0};
    unsigned lost = 0;
    bool finished = false;
    if (!sim) fail(t, "no such flash", 0, 0);
    while (!finished) {
        fb_flash_sim_on(sim);
        if (lost < t->losses) fb_flash_sim_cut(sim, t->loss[lost].operation, t->loss[lost].outcome);
        if (t->tell) fb_flash_sim_watch(sim, operation_told, NULL, lost < t->losses ? t->loss[lost].outcome : 0);
        finished = live(t, sim, &r);
        if (!finished && t->tell) printf("power lost\n");
        lost += !finished;
        /* Whatever is found now is found each time, however the half-done cells read. */
        for (int i = 0; lost >= t->losses && i < 6; i++) {
            fb_store store;
            fb_flash_sim_on(sim);
            if (fb_store_open(&store, fb_flash_sim_port(sim)) != FB_OK) fail(t, "cannot open again", 0, 0);
            uint32_t found = held(t, &store);
            if (found != r.promised && (i > 0 || found != r.committing))
                fail(t, "opened again, found another step", found, r.promised);
            r.promised = found;
            r.committing = 0;
        }
    }
    if (r.promised != g->steps) fail(t, "did not come to the end", r.promised, 0);
    check_wear(t, sim);
    fb_flash_sim_counts(sim, &counts);
    if (counts.violations) {
        printf("%s\n", fb_flash_sim_violation(sim));
        fail(t, "used flash as it must not be", counts.violations, 0);
    }
    fb_flash_sim_free(sim);
    return counts.operations;
}

/* Where the run is long: around every call of the store, and at some operations between. */
static bool worth_a_cut(const boundaries *b, uint64_t operation, uint64_t operations) {
    if (operation % (operations / 20 + 1) == 0) return true;
    for (unsigned i = 0; i < b->count; i++)
        if (operation + 1 >= b->at[i] && operation < b->at[i] + 7) return true;
    return false;
}

static void every(unsigned geometry, uint64_t most) {
    static const struct {
        fb_cut outcome;
        unsigned seeds;
    } outcomes[] = {{FB_CUT_NOTHING, 1}, {FB_CUT_DONE, 1}, {FB_CUT_SOME, 2}, {FB_CUT_WEAK, 3}, {FB_CUT_UNREADABLE, 1}};
    boundaries b = {{0}, 0};
    trial t = {geometry, 1, 0, {{0, 0}}, false};
    uint64_t operations, cases = 0, cuts = 0;
    noted = &b;
    operations = try_it(&t);
    noted = NULL;
    t.losses = 1;
    for (uint64_t i = 0; i < operations; i++) {
        if (operations > most && !worth_a_cut(&b, i, operations)) continue;
        cuts++;
        for (size_t k = 0; k < sizeof outcomes / sizeof *outcomes; k++)
            for (t.seed = 1; t.seed <= (operations > most ? 1 : outcomes[k].seeds); t.seed++, cases++) {
                t.loss[0].operation = i;
                t.loss[0].outcome = outcomes[k].outcome;
                try_it(&t);
            }
    }
    printf("cut at %llu of %llu operations, %llu cases\n", (unsigned long long)cuts, (unsigned long long)operations,
           (unsigned long long)cases);
}

/* Weak cells, then a second loss while the restarted store settles them. */
static void settling(unsigned geometry) {
    trial t = {geometry, 1, 0, {{0, 0}}, false};
    uint64_t operations = try_it(&t), cases = 0;
    t.losses = 2;
    t.loss[0].outcome = FB_CUT_WEAK;
    for (t.loss[0].operation = 0; t.loss[0].operation < operations; t.loss[0].operation++)
        for (t.loss[1].operation = 0; t.loss[1].operation < 4; t.loss[1].operation++)
            for (int outcome = FB_CUT_NOTHING; outcome <= FB_CUT_WEAK; outcome++)
                for (t.seed = 1; t.seed <= 6; t.seed++, cases++) {
                    t.loss[1].outcome = (fb_cut)outcome;
                    try_it(&t);
                }
    printf("%llu cases\n", (unsigned long long)cases);
}

static void sampled(unsigned count, uint32_t seed, unsigned losses) {
    uint64_t operations[GEOMETRIES];
    uint32_t drawn = 0, again = 0;
    for (unsigned g = 0; g < GEOMETRIES; g++) {
        trial whole = {g, 1, 0, {{0, 0}}, false};
        operations[g] = try_it(&whole);
    }
    for (unsigned i = 0; i < count; i++) {
        trial t = {0, random_of(seed, drawn++), losses, {{0, 0}}, false};
        /* The large geometries are slow: one case in 64. */
        t.geometry = random_of(seed, drawn++) % (i % 64 ? GEOMETRIES - 3 : GEOMETRIES);
        for (unsigned k = 0; k < losses; k++) {
            /* A second loss soon after power returned meets what the first one left. */
            bool soon = k && random_of(seed, drawn++) % 2;
            t.loss[k].operation = random_of(seed, drawn++) % (soon ? 12 : operations[t.geometry]);
            t.loss[k].outcome = (fb_cut)(random_of(seed, drawn++) % FB_CUT_COUNT);
            again += soon;
        }
        try_it(&t);
    }
    printf("%u cases of %u losses, %u soon after power returned\n", count, losses, again);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    trial t;
    if (!strcmp(what, "geometries")) {
        for (unsigned i = 0; i < GEOMETRIES; i++)
            printf("%u: %u bytes, pages of %u, units of %u, %u slots, %s\n", i, geometries[i].size, geometries[i].page,
                   geometries[i].unit, geometries[i].slots, geometries[i].reprogram ? "reprogram" : "once");
    } else if (!strcmp(what, "every") && argc >= 3 && strtoul(argv[2], NULL, 10) < GEOMETRIES) {
        every((unsigned)strtoul(argv[2], NULL, 10), argc > 3 ? strtoull(argv[3], NULL, 10) : UINT64_MAX);
    } else if (!strcmp(what, "settling") && argc == 3 && strtoul(argv[2], NULL, 10) < GEOMETRIES) {
        settling((unsigned)strtoul(argv[2], NULL, 10));
    } else if (!strcmp(what, "sampled") && argc >= 4) {
        unsigned losses = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 2;
        sampled((unsigned)strtoul(argv[2], NULL, 10), (uint32_t)strtoul(argv[3], NULL, 10),
                losses < LOSSES ? losses : LOSSES);
    } else if (!strcmp(what, "replay") && argc == 3 && parse_trial(argv[2], GEOMETRIES, &t)) {
        try_it(&t);
        printf("passed\n");
    } else {
        fprintf(stderr, "usage: store_power_loss geometries | every GEOMETRY [MOST] | settling GEOMETRY | sampled "
                        "COUNT SEED [LOSSES] | replay ID\n");
        return 2;
    }
    return 0;
}
