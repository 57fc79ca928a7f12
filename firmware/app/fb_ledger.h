/* The ledger: all that a device keeps in flash beside the bytes of uploaded images, as one record of a store.
 *
 *     fb_ledger_open(&ledger, fb_ledger_flash());                       // at power-on: what was committed last
 *     directory = ledger.directory, directory.selected = 1;
 *     status = fb_ledger_note(&ledger, &directory);                         // from here on slot 1 is selected
 *
 * A record is of kind FB_KIND_DEVICE. Its owner is that of the checkpoint, 0 without:
 *
 *     "FBDV" | selected slot u32 | length u32, CRC u32 of slot 0 | of slot 1 | checkpoint of learning, if there is one
 *
 * So which image is used, which slots hold one and what was learned change together or not at all, whenever power
 * fails: docs/store.md. To change the directory the checkpoint is copied; directories change when somebody uploads or
 * selects an image, which is seldom.
 */
#ifndef FB_LEDGER_H
#define FB_LEDGER_H

#include "fb_store.h"

#define FB_LEDGER_SLOTS 2u
#define FB_LEDGER_HEAD (8u + 8u * FB_LEDGER_SLOTS)

/* Slot numbers that are none. */
enum { FB_SLOT_BUILT_IN = 0xFF, FB_SLOT_NONE = 0xFE };

typedef struct fb_directory {
    uint32_t selected; /* to be used after a start: a slot, or FB_SLOT_BUILT_IN */
    struct {
        uint32_t length; /* bytes of its image; 0: it holds none */
        uint32_t crc;    /* as in the image's header */
    } slot[FB_LEDGER_SLOTS];
} fb_directory;

/* For reading, but by the functions below. */
typedef struct fb_ledger {
    fb_store store;
    bool kept; /* there is a store */
    fb_directory directory;
    uint32_t checkpoint; /* bytes; 0: nothing is learned */
    uint32_t owner;      /* CRC of the image that learning started from */
    uint32_t at;         /* offset of the checkpoint in its record */
} fb_ledger;

/* After power-on. `flash` must stay; NULL: nothing is kept. */
void fb_ledger_open(fb_ledger *ledger, const fb_flash *flash);

/* Commit another directory; the checkpoint stays. FB_ERR_EMPTY if nothing is kept; FB_ERR_FLASH, FB_ERR_FULL as in
 * fb_store.h: then all is as before. */
fb_status fb_ledger_note(fb_ledger *ledger, const fb_directory *directory);

/* A new checkpoint of `length` bytes (0: none); the directory stays. Begin, write all of it, commit; as in fb_store.h. */
fb_status fb_ledger_begin(fb_ledger *ledger, uint32_t length, uint32_t owner);
fb_status fb_ledger_write(fb_ledger *ledger, const void *data, uint32_t size);
fb_status fb_ledger_commit(fb_ledger *ledger);

/* Bytes of the checkpoint. */
fb_status fb_ledger_read(const fb_ledger *ledger, uint32_t offset, void *data, uint32_t size);

/* Bytes of the longest checkpoint; 0 if nothing is kept. */
uint32_t fb_ledger_room(const fb_ledger *ledger);

#endif
