/* The part of the board's storage that is for checkpoints of learning, as a flash for fb_store: all that the slots for
 * images leave. */
#ifndef FB_CHECKPOINT_FLASH_H
#define FB_CHECKPOINT_FLASH_H

#include "fb_slots.h"
#include "fb_store.h"

/* Whether a unit may be programmed again between erases, with the same data or with zeros (fb_flash.reprogram). A board
 * whose profile does not say: flash of the kinds that take 2 or 8 bytes at a time (STM32F1, STM32L4) refuses. */
#ifndef BOARD_STORE_REPROGRAM
#define BOARD_STORE_REPROGRAM (BOARD_STORE_UNIT == 4u || BOARD_STORE_UNIT == 256u)
#endif

/* NULL if the board has no room for them. */
const fb_flash *fb_checkpoint_flash(void);

#endif
