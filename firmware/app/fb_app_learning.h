/* Learning on a device: the memory it takes, and checkpoints that survive any loss of power.
 *
 *     fb_ledger_open(&ledger, fb_ledger_flash());                       // at power-on
 *     fb_app_learning_start(&learning, &ledger);
 *     fb_app_learning_resume(&learning, &model, memory, room);                  // go on from what was saved last
 *     if (!learning.open) fb_app_learning_open(&learning, &model, &config, false, memory, room);
 *     fb_app_learning_begin(&learning, samples, rate_bits, rate_bias);          // then as in fb_train.h
 *     ...
 *     fb_app_learning_save(&learning);                                          // after any pass
 *
 * The net learns in a copy of its image, cut with all else out of one piece of RAM:
 *
 *     memory   | image | state | arena of training, and of inference between steps          | memory + room
 *
 * A checkpoint is part of the ledger's one record, so that image and state are always of the same pass:
 *
 *     "FBL2" | configuration, packed as in fb_train.h | image size u32 | state size u32 | image | state
 *
 * Earlier firmware wrote "FBLR" and another configuration; such a checkpoint is refused with FB_ERR_VERSION.
 *
 * Its owner is the CRC of the image that learning started from: a checkpoint of another model is never applied, and
 * replaced only when that is asked for.
 */
#ifndef FB_APP_LEARNING_H
#define FB_APP_LEARNING_H

#include "fb_exchange.h"
#include "fb_ledger.h"
#include "fb_train.h"

#define FB_CHECKPOINT_HEAD (4u + FB_TRAIN_CONFIG_SIZE + 8u)

typedef struct fb_app_learning {
    fb_train train; /* if open */
    fb_ledger *ledger;
    uint32_t owner; /* CRC of the image that learning started from */
    fb_train_result result;
    bool kept;    /* the ledger has a store */
    bool open;    /* there is a net that learns; all below is about it */
    bool between; /* image and state are a checkpoint: no pass has begun */
    bool changed; /* passes were done that are not saved */
    bool saved;   /* the store holds what is in RAM */
    bool resumed; /* it went on from the store */
    bool follows; /* its state is another device's, which leads: nothing to go on from */
} fb_app_learning;

/* Bytes of RAM that learning needs and gets. */
typedef struct fb_app_learning_needs {
    uint32_t image, state;
    uint32_t least; /* arena */
    uint32_t fast;  /* arena for one pass per step and the fastest kernels */
    uint32_t total; /* image, state and the least arena */
    uint32_t arena; /* what `room` leaves for it; 0 if it does not fit */
} fb_app_learning_needs;

/* After power-on. `ledger` is where checkpoints are kept and must stay. */
void fb_app_learning_start(fb_app_learning *learning, fb_ledger *ledger);

/* Sizes for a net and a configuration in `room` bytes. FB_ERR_ARENA: not enough room, `needs` says how much; others as
 * fb_train_check. */
fb_status fb_app_learning_plan(const fb_model *model, const fb_train_config *config, uint32_t room,
                               fb_app_learning_needs *needs);

/* Let the net learn. Goes on from RAM if it learns already, else from the store, else starts with `model`.
 *
 *   FB_ERR_OWNER  the store holds a checkpoint of another model
 *   FB_ERR_STATE  it learns, or did when it was saved, with another configuration; or the checkpoint is damaged
 *   FB_ERR_VERSION  earlier firmware saved the checkpoint
 *   FB_ERR_ARENA, FB_ERR_ARGUMENT  as above
 *
 * With `fresh` it starts with `model` in any case; what is in the store stays there until the next save. `model` is
 * outside `memory`, which is aligned to FB_ALIGN. After an error everything is as before. */
fb_status fb_app_learning_open(fb_app_learning *learning, const fb_model *model, const fb_train_config *config,
                               bool fresh, uint8_t *memory, uint32_t room);

/* Go on from the store with the configuration saved there. FB_ERR_EMPTY if nothing is; FB_ERR_OWNER, FB_ERR_STATE,
 * FB_ERR_VERSION as above; FB_ERR_ARGUMENT if that configuration is of later firmware; or the status of the saved image if
 * that is damaged. Nothing is open after an error. */
fb_status fb_app_learning_resume(fb_app_learning *learning, const fb_model *model, uint8_t *memory, uint32_t room);

/* As in fb_train.h, keeping account of when a checkpoint may be taken. */
fb_status fb_app_learning_begin(fb_app_learning *learning, uint32_t samples, uint32_t rate_bits, uint32_t rate_bias);
fb_status fb_app_learning_sample(fb_app_learning *learning, const int8_t *input, unsigned label);
fb_status fb_app_learning_end_pass(fb_app_learning *learning);

/* Take part in another device's pass, or flip bits: fb_exchange.h. Both leave a state that is the device's own: after a
 * pass of another's, and after a plan that is refused, it learns anew from the image as it is. */
fb_status fb_app_learning_follow(fb_app_learning *learning, const uint8_t *plan, uint32_t size, uint32_t first);
fb_status fb_app_learning_flip(fb_app_learning *learning, const uint32_t *places, uint32_t count);

/* End following, if it does. */
fb_status fb_app_learning_leave(fb_app_learning *learning);

/* Save image and state as one record. FB_ERR_ORDER in the middle of a pass, FB_ERR_EMPTY if there is no store,
 * FB_ERR_FULL and FB_ERR_FLASH as in fb_store.h: then what was saved before is still there, and learning goes on. */
fb_status fb_app_learning_save(fb_app_learning *learning);

/* Bytes of that record. */
uint32_t fb_app_learning_record_size(const fb_app_learning *learning);

/* Stop learning, and forget what was saved of it. */
fb_status fb_app_learning_forget(fb_app_learning *learning);

/* Whether the arena holds sums of gradients, so that nothing else may use it. */
static inline bool fb_app_learning_busy(const fb_app_learning *learning) {
    return learning->open && learning->train.samples;
}

#endif
