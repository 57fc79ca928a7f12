/* Slots: places for images in the board's storage, and a note of which one is in use.
 *
 * The storage (FB_SLOT_STORE bytes of it) is cut into FB_SLOT_COUNT equal parts of whole pages:
 *
 *     | records: image, selection, selection, … | image, executed where it lies | unused |
 *     0                                         FB_SLOT_HEAD
 *
 * A record has 16 bytes (u32 each) and starts at a multiple of FB_RECORD, as storage is programmed in units:
 *
 *     image       "FBim" | length | CRC of the image, as in its header | CRC-32 of these 12 bytes
 *     selection   "FBse" | number, rising | slot, or FB_SLOT_BUILT_IN  | CRC-32 of these 12 bytes
 *
 * The image record is first and written last, after the image has been checked: an upload that was interrupted leaves
 * no image. The selection with the highest number counts, in whichever slot it stands; one that was cut off has a
 * wrong CRC and does not count, so that a selection is made whole or not at all.
 */
#ifndef FB_SLOTS_H
#define FB_SLOTS_H

#include "board.h"
#include "fb_frame.h"
#include "flipbit.h"

/* Bytes of the storage that are for slots, from its start, a multiple of BOARD_STORE_PAGE: half of it. The rest is for
 * checkpoints of learning. */
#ifndef FB_SLOT_STORE
#define FB_SLOT_STORE (BOARD_STORE_SIZE / BOARD_STORE_PAGE / 2u * BOARD_STORE_PAGE)
#endif

#if FB_SLOT_STORE > 0
#define FB_SLOT_UNIT BOARD_STORE_UNIT
#define FB_SLOT_PAGE BOARD_STORE_PAGE
#define FB_SLOT_COUNT (FB_SLOT_STORE / BOARD_STORE_PAGE >= 2 ? 2u : 1u)
#define FB_SLOT_SIZE (FB_SLOT_STORE / BOARD_STORE_PAGE / FB_SLOT_COUNT * BOARD_STORE_PAGE)
#else
#define FB_SLOT_UNIT 4u
#define FB_SLOT_PAGE 4u
#define FB_SLOT_COUNT 0u
#define FB_SLOT_SIZE 0u
#endif
#define FB_RECORD (FB_SLOT_UNIT > 16u ? FB_SLOT_UNIT : 16u)
#define FB_RECORDS 16u /* of a slot: an image, 15 selections */
#define FB_SLOT_HEAD (FB_RECORD * FB_RECORDS)
#define FB_SLOT_ROOM (FB_SLOT_SIZE > FB_SLOT_HEAD ? FB_SLOT_SIZE - FB_SLOT_HEAD : 0u) /* for an image */

/* Slot numbers that are none. */
enum { FB_SLOT_BUILT_IN = 0xFF, FB_SLOT_NONE = 0xFE };

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

/* The image in a slot, with its length; NULL if its record is missing or wrong. What the image holds is not checked. */
const uint8_t *fb_slot_image(unsigned slot, uint32_t *length);

/* The slot to use after start-up, FB_SLOT_BUILT_IN if none was ever selected. */
unsigned fb_slot_selected(void);

/* Note that `slot` is to be used from now on. */
fb_reply fb_slot_select(unsigned slot, uint32_t *detail);

/* Erase a slot and begin an upload. */
fb_reply fb_upload_begin(fb_upload *upload, unsigned slot, uint32_t length, uint32_t crc, uint32_t *detail);

/* The next piece. One that came already is compared with what was stored: sending a piece again does no harm. */
fb_reply fb_upload_piece(fb_upload *upload, uint32_t offset, const uint8_t *data, uint32_t size, uint32_t *detail);

/* Check the whole image and make it selectable. */
fb_reply fb_upload_finish(fb_upload *upload, uint32_t *detail);

#endif
