/* Cuts power in uploads, selections and what is learned: firmware/app/fb_slots.c and fb_ledger.c on the simulated flash.
 *
 *   slots_power_loss IMAGE OTHER every           one loss, with every outcome, at every operation
 *   slots_power_loss IMAGE OTHER sampled N SEED  two losses at random operations
 *   slots_power_loss IMAGE OTHER replay ID       one case again, telling what happens
 *
 * Compiled with BOARD_… macros of one kind of flash (host_board/board_profile.h). One simulated flash is the whole
 * storage: slots through board_store_…, the ledger through a port of its own.
 *
 * A device goes through a script of steps. Each is committed when its call returns FB_REPLY_OK; after a loss the
 * directory and the checkpoint must be those after the last committed step, or, if power failed inside one, those at
 * some moment of it; the image of every slot that is said to hold one must be whole; and the script goes on to its end. */
#include "fb_ledger_flash.h"
#include "fb_slots.h"
#include "power_loss.h"

enum { IMAGE_MAX = 4096, CHECKPOINT_MAX = 512 };

uint8_t *host_store;
static fb_flash_sim *sim;
static uint8_t images[2][IMAGE_MAX] __attribute__((aligned(8)));
static uint32_t sizes[2];

/* ---- the board ---- */

static const fb_flash *whole(void) { return fb_flash_sim_port(sim); }

board_status board_store_erase(uint32_t offset, uint32_t size) {
    for (uint32_t at = 0; at < size; at += BOARD_STORE_PAGE)
        if (whole()->erase(whole()->context, offset + at) != FB_OK) return BOARD_ERR_DEVICE;
    return BOARD_OK;
}

board_status board_store_program(uint32_t offset, const void *data, uint32_t size) {
    return whole()->program(whole()->context, offset, data, size) == FB_OK ? BOARD_OK : BOARD_ERR_DEVICE;
}

static fb_status read_bytes(void *context, uint32_t offset, void *data, uint32_t size) {
    (void)context;
    return whole()->read(whole()->context, FB_SLOT_STORE + offset, data, size);
}

static fb_status program_bytes(void *context, uint32_t offset, const void *data, uint32_t size) {
    (void)context;
    return whole()->program(whole()->context, FB_SLOT_STORE + offset, data, size);
}

static fb_status erase_page(void *context, uint32_t offset) {
    (void)context;
    return whole()->erase(whole()->context, FB_SLOT_STORE + offset);
}

static const fb_flash ledger_flash = {
    .size = BOARD_STORE_SIZE - FB_SLOT_STORE,
    .page = BOARD_STORE_PAGE,
    .unit = BOARD_STORE_UNIT,
    .slots = 2,
    .reprogram = BOARD_STORE_REPROGRAM,
    .read = read_bytes,
    .program = program_bytes,
    .erase = erase_page,
};

/* ---- the script ---- */

enum action { UPLOAD, SELECT, LEARN, FORGET };
typedef struct step {
    enum action action;
    unsigned slot, image; /* SELECT: of the slot; LEARN: `image` is the length */
} step;

static const step script[] = {
    {UPLOAD, 0, 0},    {SELECT, 0, 0},  {UPLOAD, 1, 1}, {SELECT, 1, 0},    {LEARN, 0, 300}, {UPLOAD, 0, 1},
    {SELECT, 0xFF, 0}, {SELECT, 0, 0},  {LEARN, 0, 77}, {SELECT, 1, 0},    {UPLOAD, 0, 0},  {FORGET, 0, 0},
    {SELECT, 0, 0},    {LEARN, 0, 500}, {UPLOAD, 1, 0}, {SELECT, 0xFF, 0}, {SELECT, 1, 0},  {SELECT, 0, 0},
    {SELECT, 1, 0},    {SELECT, 0, 0},  {SELECT, 1, 0}, {SELECT, 0, 0},    {UPLOAD, 1, 1},  {SELECT, 0xFF, 0},
};
#define STEPS ((unsigned)(sizeof script / sizeof *script))

/* What should be in flash. */
typedef struct facts {
    fb_directory directory;
    uint32_t checkpoint; /* its length tells which it is */
} facts;

static uint32_t crc_of(unsigned image) { return fb_get32(images[image] + 12); }

static facts after(facts f, const step *s) {
    if (s->action == SELECT) f.directory.selected = s->slot;
    if (s->action == LEARN) f.checkpoint = s->image;
    if (s->action == FORGET) f.checkpoint = 0;
    if (s->action == UPLOAD) {
        f.directory.slot[s->slot].length = sizes[s->image];
        f.directory.slot[s->slot].crc = crc_of(s->image);
    }
    return f;
}

/* An upload has a moment in which its slot is empty. */
static facts between(facts f, const step *s) {
    if (s->action == UPLOAD) f.directory.slot[s->slot].length = f.directory.slot[s->slot].crc = 0;
    return f;
}

static uint8_t learned(uint32_t length, uint32_t i) { return (uint8_t)random_of(length, i); }

static bool same(const fb_ledger *ledger, const facts *f) {
    return !memcmp(&ledger->directory, &f->directory, sizeof f->directory) && ledger->checkpoint == f->checkpoint;
}

static bool off(void) {
    fb_flash_counts counts;
    fb_flash_sim_counts(sim, &counts);
    return counts.off;
}

static bool do_step(const trial *t, fb_ledger *ledger, const step *s) {
    static fb_upload upload; /* of this life: an upload that power cut off is begun again */
    uint32_t detail = 0;
    uint8_t data[CHECKPOINT_MAX];
    fb_reply reply = FB_REPLY_OK;
    fb_status status = FB_OK;
    switch (s->action) {
    case SELECT: reply = fb_slot_select(ledger, s->slot, &detail); break;
    case UPLOAD:
        reply = fb_upload_begin(&upload, ledger, s->slot, sizes[s->image], crc_of(s->image), &detail);
        for (uint32_t at = 0, n; at < sizes[s->image] && reply == FB_REPLY_OK; at += n) {
            n = sizes[s->image] - at < 101 ? sizes[s->image] - at : 101;
            reply = fb_upload_piece(&upload, at, images[s->image] + at, n, &detail);
        }
        if (reply == FB_REPLY_OK) reply = fb_upload_finish(&upload, ledger, &detail);
        break;
    case LEARN:
    case FORGET:
        for (uint32_t i = 0; i < s->image; i++) data[i] = learned(s->image, i);
        status = fb_ledger_begin(ledger, s->image, 0x1234);
        if (status == FB_OK && s->image) status = fb_ledger_write(ledger, data, s->image);
        if (status == FB_OK) status = fb_ledger_commit(ledger);
    }
    if (reply == FB_REPLY_OK && status == FB_OK) return true;
    if (!off()) fail(t, "a step failed with power on", (unsigned)(s - script), detail);
    return false;
}

static void check_contents(const trial *t, const fb_ledger *ledger, unsigned at) {
    uint8_t data[CHECKPOINT_MAX];
    for (unsigned slot = 0; slot < FB_LEDGER_SLOTS; slot++) {
        uint32_t length;
        const uint8_t *image = fb_slot_image(ledger, slot, &length);
        fb_model model;
        if (!image) continue;
        if (fb_model_open(&model, image, length) != FB_OK || model.crc != ledger->directory.slot[slot].crc)
            fail(t, "a slot holds less than is said", at, slot);
    }
    if (ledger->checkpoint && fb_ledger_read(ledger, 0, data, ledger->checkpoint) != FB_OK)
        fail(t, "what was learned cannot be read", at, ledger->checkpoint);
    for (uint32_t i = 0; i < ledger->checkpoint; i++)
        if (data[i] != learned(ledger->checkpoint, i)) fail(t, "another checkpoint", at, i);
}

/* ---- trials ---- */

typedef struct run {
    unsigned next; /* step */
    facts now;
    bool inside; /* power failed inside the step `next` */
} run;

/* From power on until the end of the script, or the loss of power. */
static bool live(const trial *t, run *r) {
    static fb_ledger ledger;
    fb_ledger_open(&ledger, &ledger_flash);
    if (off()) return false;
    if (!ledger.kept) fail(t, "cannot open", 0, 0);
    if (ledger.store.damaged) fail(t, "sees damage where there is none", r->next, ledger.store.damaged);
    if (!same(&ledger, &r->now)) {
        facts done = after(r->now, &script[r->next]), half = between(r->now, &script[r->next]);
        if (!r->inside) fail(t, "lost what was committed", r->next, ledger.directory.selected);
        if (same(&ledger, &done))
            r->now = done, r->next++;
        else if (same(&ledger, &half))
            r->now = half;
        else
            fail(t, "found what nobody committed", r->next, ledger.directory.selected);
    }
    r->inside = false;
    check_contents(t, &ledger, r->next);
    while (r->next < STEPS) {
        r->inside = true;
        if (!do_step(t, &ledger, &script[r->next])) return false;
        r->now = after(r->now, &script[r->next++]);
        r->inside = false;
        if (!same(&ledger, &r->now)) fail(t, "RAM says something else than flash", r->next, 0);
        if (off()) return false; /* in the last operation, after the mark: committed all the same */
    }
    return true;
}

/* The whole script with its losses; operations from power on to the end or the first loss. */
static uint64_t try_it(const trial *t) {
    run r = {0, {{FB_SLOT_BUILT_IN, {{0, 0}, {0, 0}}}, 0}, false};
    fb_flash_counts counts;
    uint64_t before;
    unsigned k = 0;
    bool done;
    sim = fb_flash_sim_new(BOARD_STORE_SIZE, BOARD_STORE_PAGE, BOARD_STORE_UNIT, 2, BOARD_STORE_REPROGRAM, t->seed);
    if (!sim) exit(3);
    host_store = (uint8_t *)(uintptr_t)fb_flash_sim_memory(sim);
    do {
        fb_flash_sim_counts(sim, &counts);
        before = counts.operations;
        if (k < t->losses) fb_flash_sim_cut(sim, t->loss[k].operation, t->loss[k].outcome);
        done = live(t, &r);
        if (!done) {
            if (t->tell) printf("power lost in step %u\n", r.next);
            fb_flash_sim_on(sim);
            k++;
        }
    } while (!done);
    fb_flash_sim_on(sim);
    live(t, &r); /* a last start finds the end */
    if (*fb_flash_sim_violation(sim)) {
        printf("%s\n", fb_flash_sim_violation(sim));
        fail(t, "used the flash as it must not be", 0, 0);
    }
    fb_flash_sim_counts(sim, &counts);
    fb_flash_sim_free(sim);
    return counts.operations - before;
}

static void every(void) {
    trial t = {0, 1, 0, {{0, FB_CUT_NOTHING}}, false};
    uint64_t operations = try_it(&t), cases = 0;
    t.losses = 1;
    for (t.loss[0].operation = 0; t.loss[0].operation < operations; t.loss[0].operation++) {
        for (unsigned outcome = 0; outcome < FB_CUT_COUNT; outcome++) {
            t.loss[0].outcome = (fb_cut)outcome;
            t.seed = ++cases;
            try_it(&t);
        }
    }
    printf("cut at %llu operations of %u steps: %llu cases\n", (unsigned long long)operations, STEPS,
           (unsigned long long)cases);
}

static void sampled(unsigned count, uint32_t seed) {
    trial once = {0, 1, 0, {{0, FB_CUT_NOTHING}}, false};
    uint64_t operations = try_it(&once);
    uint32_t drawn = 0;
    for (unsigned i = 0; i < count; i++) {
        trial t = {0, random_of(seed, drawn++), 2, {{0, FB_CUT_NOTHING}}, false};
        for (unsigned k = 0; k < 2; k++) {
            bool soon = k && random_of(seed, drawn++) % 2 == 0;
            t.loss[k].operation = random_of(seed, drawn++) % (soon ? 12 : operations);
            t.loss[k].outcome = (fb_cut)(random_of(seed, drawn++) % FB_CUT_COUNT);
        }
        try_it(&t);
    }
    printf("%u cases of 2 losses\n", count);
}

static void read_image(const char *name, unsigned i) {
    FILE *file = fopen(name, "rb");
    if (!file) exit(3);
    sizes[i] = (uint32_t)fread(images[i], 1, IMAGE_MAX, file);
    fclose(file);
}

int main(int argc, char **argv) {
    trial t;
    if (argc < 4) return 2;
    read_image(argv[1], 0);
    read_image(argv[2], 1);
    if (!strcmp(argv[3], "every"))
        every();
    else if (!strcmp(argv[3], "sampled") && argc == 6)
        sampled((unsigned)strtoul(argv[4], NULL, 10), (uint32_t)strtoul(argv[5], NULL, 10));
    else if (!strcmp(argv[3], "replay") && argc == 5 && parse_trial(argv[4], 1, &t))
        try_it(&t), puts("passed");
    else
        return 2;
    return 0;
}
