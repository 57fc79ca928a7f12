#include "fb_app_learning.h"

#include <string.h>

#define MAGIC 0x324C4246u   /* "FBL2" */
#define EARLIER 0x524C4246u /* "FBLR": another configuration follows, with no rule in it */

/* Offsets in a checkpoint's head. */
enum { AT_CONFIG = 4, AT_IMAGE = AT_CONFIG + FB_TRAIN_CONFIG_SIZE, AT_STATE = AT_IMAGE + 4 };

static uint32_t aligned(uint32_t size) { return (size + FB_ALIGN - 1) & ~(uint32_t)(FB_ALIGN - 1); }

static uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void set32(uint8_t *p, uint32_t v) {
    for (unsigned i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static bool is_packed(const fb_train_config *config, const uint8_t *packed) {
    uint8_t own[FB_TRAIN_CONFIG_SIZE];
    fb_train_config_pack(config, own);
    return memcmp(own, packed, sizeof own) == 0;
}

void fb_app_learning_start(fb_app_learning *learning, fb_ledger *ledger) {
    memset(learning, 0, sizeof *learning);
    learning->ledger = ledger;
    learning->kept = ledger->kept;
}

fb_status fb_app_learning_plan(const fb_model *model, const fb_train_config *config, uint32_t room,
                               fb_app_learning_needs *needs) {
    uint32_t run = (uint32_t)fb_arena_least(model), beside;
    fb_status status;
    memset(needs, 0, sizeof *needs);
    needs->image = aligned(model->size);
    status = fb_train_check(model, config);
    if (status != FB_OK) return status;
    needs->state = (uint32_t)fb_train_state_size(model, config);
    needs->least = (uint32_t)fb_train_arena_size(model, config, false);
    if (run == 0 || needs->state == 0 || needs->least == 0) return FB_ERR_ARGUMENT;
    needs->fast = (uint32_t)fb_train_arena_size(model, config, true);
    if (needs->least < run) needs->least = run; /* between steps the net runs in the same arena */
    if (needs->fast < needs->least) needs->fast = needs->least;
    beside = needs->image + needs->state;
    needs->total = beside + needs->least;
    room &= ~(uint32_t)(FB_ALIGN - 1);
    if (beside < needs->image || needs->total < beside || needs->total > room) return FB_ERR_ARENA;
    needs->arena = room - beside;
    return FB_OK;
}

/* What the store says it holds. */
typedef struct saved {
    uint8_t config[FB_TRAIN_CONFIG_SIZE]; /* packed */
    uint32_t image, state;
} saved;

static fb_status look(const fb_app_learning *learning, const fb_model *model, saved *found) {
    const fb_ledger *ledger = learning->ledger;
    uint8_t head[FB_CHECKPOINT_HEAD];
    fb_status status;
    if (ledger->checkpoint == 0) return FB_ERR_EMPTY;
    if (ledger->owner != model->crc) return FB_ERR_OWNER;
    if (ledger->checkpoint < sizeof head) return FB_ERR_STATE;
    status = fb_ledger_read(ledger, 0, head, sizeof head);
    if (status != FB_OK) return status;
    if (get32(head) == EARLIER) return FB_ERR_VERSION;
    memcpy(found->config, head + AT_CONFIG, sizeof found->config);
    found->image = get32(head + AT_IMAGE);
    found->state = get32(head + AT_STATE);
    if (get32(head) != MAGIC || found->image != model->size) return FB_ERR_STATE;
    return found->state == ledger->checkpoint - FB_CHECKPOINT_HEAD - found->image ? FB_OK : FB_ERR_STATE;
}

/* Cut the memory and fill it, from the store if `found`, and begin. */
static fb_status set_up(fb_app_learning *learning, const fb_model *model, const fb_train_config *config,
                        const saved *found, uint8_t *memory, uint32_t room) {
    fb_app_learning_needs needs;
    uint8_t *state;
    fb_status status = fb_app_learning_plan(model, config, room, &needs);
    if (status != FB_OK) return status;
    if (found && found->state != needs.state) return FB_ERR_STATE;
    learning->open = false; /* from here on its memory is used anew */
    state = memory + needs.image;
    if (found) {
        status = fb_ledger_read(learning->ledger, FB_CHECKPOINT_HEAD, memory, found->image);
        if (status == FB_OK) {
            status = fb_ledger_read(learning->ledger, FB_CHECKPOINT_HEAD + found->image, state, found->state);
        }
        if (status == FB_OK && get32(state) == 0) status = FB_ERR_STATE; /* would start from scratch */
    } else {
        memcpy(memory, model->image, model->size);
        memset(state, 0, 4);
    }
    if (status == FB_OK) {
        status = fb_train_open(&learning->train, memory, model->size, state, needs.state, state + needs.state,
                               needs.arena, config);
    }
    if (status != FB_OK) return status;
    learning->owner = model->crc;
    learning->open = learning->between = true;
    learning->changed = learning->follows = false;
    learning->saved = learning->resumed = found != NULL;
    return FB_OK;
}

fb_status fb_app_learning_open(fb_app_learning *learning, const fb_model *model, const fb_train_config *config,
                               bool fresh, uint8_t *memory, uint32_t room) {
    saved found;
    fb_status status = FB_ERR_EMPTY;
    if (learning->open && !fresh) {
        uint8_t asked[FB_TRAIN_CONFIG_SIZE];
        fb_train_config_pack(config, asked);
        if (!is_packed(&learning->train.config, asked)) return FB_ERR_STATE;
        learning->train.samples = 0; /* a pass that was begun is begun again */
        return FB_OK;
    }
    if (!fresh) status = look(learning, model, &found);
    if (status == FB_ERR_EMPTY) return set_up(learning, model, config, NULL, memory, room);
    if (status == FB_OK && !is_packed(config, found.config)) status = FB_ERR_STATE;
    return status == FB_OK ? set_up(learning, model, config, &found, memory, room) : status;
}

fb_status fb_app_learning_resume(fb_app_learning *learning, const fb_model *model, uint8_t *memory, uint32_t room) {
    saved found;
    fb_train_config config;
    fb_status status = look(learning, model, &found);
    learning->open = false;
    if (status == FB_OK) status = fb_train_config_unpack(&config, found.config);
    return status == FB_OK ? set_up(learning, model, &config, &found, memory, room) : status;
}

/* Learn anew from the image as it is: the state is not this device's, or not sound. */
static fb_status begin_anew(fb_app_learning *learning) {
    fb_train *train = &learning->train;
    fb_train_config config = train->config;
    fb_status status;
    memset(train->state, 0, 4);
    learning->follows = learning->saved = learning->open = false;
    status = fb_train_open(train, train->image, train->model.size, train->state, train->state_size, train->arena,
                           train->arena_size, &config);
    if (status != FB_OK) return status;
    learning->open = learning->between = learning->changed = true;
    return FB_OK;
}

fb_status fb_app_learning_leave(fb_app_learning *learning) { return learning->follows ? begin_anew(learning) : FB_OK; }

fb_status fb_app_learning_follow(fb_app_learning *learning, const uint8_t *plan, uint32_t size, uint32_t first) {
    fb_status status = fb_exchange_follow(&learning->train, plan, size, first), begun;
    learning->follows = status == FB_OK;
    learning->between = false;
    if (status == FB_OK) return FB_OK;
    begun = begin_anew(learning);
    return begun == FB_OK ? status : begun;
}

fb_status fb_app_learning_flip(fb_app_learning *learning, const uint32_t *places, uint32_t count) {
    fb_status status = fb_app_learning_leave(learning);
    if (status == FB_OK && count) status = fb_exchange_flip(&learning->train, places, count);
    if (status == FB_OK && count) {
        learning->changed = true;
        learning->saved = false;
    }
    return status;
}

fb_status fb_app_learning_begin(fb_app_learning *learning, uint32_t samples, uint32_t rate_bits, uint32_t rate_bias) {
    fb_status status = fb_train_begin(&learning->train, samples, rate_bits, rate_bias);
    if (status == FB_OK) learning->between = false; /* the state notes the size of the batch */
    return status;
}

fb_status fb_app_learning_sample(fb_app_learning *learning, const int8_t *input, unsigned label) {
    fb_train_result result = {0, 0};
    fb_status status = fb_train_sample(&learning->train, input, label, &result);
    learning->between = false; /* the first pass changes the state with every sample */
    learning->result = result;
    return status;
}

fb_status fb_app_learning_end_pass(fb_app_learning *learning) {
    fb_status status = fb_train_end_pass(&learning->train);
    if (status == FB_OK || status == FB_MORE) {
        learning->between = learning->changed = true;
        learning->saved = false;
    }
    return status;
}

uint32_t fb_app_learning_record_size(const fb_app_learning *learning) {
    return FB_CHECKPOINT_HEAD + learning->train.model.size + learning->train.state_size;
}

static fb_status write_record(fb_app_learning *learning) {
    const fb_train *train = &learning->train;
    fb_ledger *ledger = learning->ledger;
    uint8_t head[FB_CHECKPOINT_HEAD];
    fb_status status;
    set32(head, MAGIC);
    fb_train_config_pack(&train->config, head + AT_CONFIG);
    set32(head + AT_IMAGE, train->model.size);
    set32(head + AT_STATE, train->state_size);
    status = fb_ledger_begin(ledger, fb_app_learning_record_size(learning), learning->owner);
    if (status == FB_OK) status = fb_ledger_write(ledger, head, sizeof head);
    if (status == FB_OK) status = fb_ledger_write(ledger, train->image, train->model.size);
    if (status == FB_OK) status = fb_ledger_write(ledger, train->state, train->state_size);
    if (status == FB_OK) status = fb_ledger_commit(ledger);
    return status;
}

fb_status fb_app_learning_save(fb_app_learning *learning) {
    fb_status status;
    unsigned tries = 0;
    if (!learning->open || !learning->between) return FB_ERR_ORDER;
    if (!learning->kept) return FB_ERR_EMPTY;
    if (learning->saved) return FB_OK; /* nothing to wear the flash for */
    do { /* where a place turned out to be worn while it was written, the next attempt gets another */
        status = write_record(learning);
    } while (status == FB_ERR_FLASH && ++tries < learning->ledger->store.flash->slots);
    if (status == FB_OK) {
        learning->saved = true;
        learning->changed = false;
    }
    return status;
}

fb_status fb_app_learning_forget(fb_app_learning *learning) {
    fb_ledger *ledger = learning->ledger;
    fb_status status = FB_OK;
    for (unsigned tries = 0; ledger->checkpoint && tries < ledger->store.flash->slots; tries++) {
        status = fb_ledger_begin(ledger, 0, 0);
        if (status == FB_OK) status = fb_ledger_commit(ledger);
        if (status != FB_ERR_FLASH) break;
    }
    if (status != FB_OK) return status;
    learning->open = false;
    return FB_OK;
}
