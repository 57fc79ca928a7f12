/* The part of the board's storage that is for the ledger, with what was learned, as a flash for fb_store: all that the
 * slots for images leave. */
#ifndef FB_LEDGER_FLASH_H
#define FB_LEDGER_FLASH_H

#include "fb_slots.h"
#include "fb_store.h"

/* NULL if the board has no room for it. */
const fb_flash *fb_ledger_flash(void);

#endif
