/* The part of the board's storage that is for checkpoints of learning, as a flash for fb_store: all that the slots for
 * images leave. */
#ifndef FB_CHECKPOINT_FLASH_H
#define FB_CHECKPOINT_FLASH_H

#include "fb_slots.h"
#include "fb_store.h"

/* NULL if the board has no room for them. */
const fb_flash *fb_checkpoint_flash(void);

#endif
