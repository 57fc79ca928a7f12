/* Slots: places for images in the board's storage. What they hold, and which is used, is noted in the ledger.
 *
 * The storage is cut in two: FB_SLOT_STORE bytes for FB_SLOT_COUNT slots of whole pages, and the rest, at least two
 * pages, for the ledger:
 *
 *     | image, executed where it lies | unused | image | unused | ledger: fb_ledger.h, a store as in docs/store.md |
 *     0                                        FB_SLOT_SIZE     FB_SLOT_STORE                       BOARD_STORE_SIZE
 *
 * A slot has no header. An upload first notes that the slot is empty, then erases and programs it, and notes the image
 * after it has been checked: one that was interrupted leaves no image, and what an interrupted erase left is never read.
 */
#ifndef FB_SLOTS_H
#define FB_SLOTS_H

#include "board.h"
#include "fb_frame.h"
#include "fb_ledger.h"
#include "flipbit.h"

/* Bytes of the storage that are for slots, from its start: half of its pages, if that leaves two for the ledger. */
#define FB_STORE_PAGES (BOARD_STORE_SIZE / BOARD_STORE_PAGE)
#ifndef FB_SLOT_STORE
#define FB_SLOT_STORE \
    (BOARD_STORE_PAGE * (FB_STORE_PAGES >= 4u ? FB_STORE_PAGES / 2u : FB_STORE_PAGES > 2u ? FB_STORE_PAGES - 2u : 0u))
#endif

#if FB_SLOT_STORE > 0
#define FB_SLOT_UNIT BOARD_STORE_UNIT
#define FB_SLOT_PAGE BOARD_STORE_PAGE
#define FB_SLOT_COUNT (FB_SLOT_STORE / BOARD_STORE_PAGE >= FB_LEDGER_SLOTS ? FB_LEDGER_SLOTS : 1u)
#define FB_SLOT_SIZE (FB_SLOT_STORE / BOARD_STORE_PAGE / FB_SLOT_COUNT * BOARD_STORE_PAGE) /* the longest image */
#else
#define FB_SLOT_UNIT 4u
#define FB_SLOT_PAGE 4u
#define FB_SLOT_COUNT 0u
#define FB_SLOT_SIZE 0u
#endif

/* An upload on its way. */
typedef struct fb_upload {
    bool begun;
    uint8_t slot;
    uint32_t length, crc;       /* announced */
    uint32_t received;          /* bytes, those in `unit` with them */
    uint8_t unit[FB_SLOT_UNIT]; /* what does not fill a unit yet */
} fb_upload;

/* How many there are. A function, as compilers warn of "slot < 0u" on boards that have none. */
static inline unsigned fb_slots(void) { return FB_SLOT_COUNT; }

/* The image in a slot, with its length; NULL if it holds none. What the image holds is not checked. */
const uint8_t *fb_slot_image(const fb_ledger *ledger, unsigned slot, uint32_t *length);

/* The slot to use after start-up, FB_SLOT_BUILT_IN if none was ever selected. */
unsigned fb_slot_selected(const fb_ledger *ledger);

/* Note that `slot` is to be used from now on. */
fb_reply fb_slot_select(fb_ledger *ledger, unsigned slot, uint32_t *detail);

/* Erase a slot and begin an upload. */
fb_reply fb_upload_begin(fb_upload *upload, fb_ledger *ledger, unsigned slot, uint32_t length, uint32_t crc,
                         uint32_t *detail);

/* The next piece. One that came already is compared with what was stored: sending a piece again does no harm. */
fb_reply fb_upload_piece(fb_upload *upload, uint32_t offset, const uint8_t *data, uint32_t size, uint32_t *detail);

/* Check the whole image and make it selectable. */
fb_reply fb_upload_finish(fb_upload *upload, fb_ledger *ledger, uint32_t *detail);

#endif
