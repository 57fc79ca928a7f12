/* The store: keeps one record (an image, a checkpoint of learning) in flash, and replaces it atomically.
 *
 *     static fb_store store;
 *     fb_status status = fb_store_open(&store, &board_flash);                  // finds what was committed last
 *     if (status == FB_OK) status = fb_store_check(&store, FB_KIND_CHECKPOINT, model.crc);
 *     if (status == FB_OK) status = fb_store_read(&store, 0, state, store.current.length);
 *     ...
 *     status = fb_store_begin(&store, sizeof state, FB_KIND_CHECKPOINT, model.crc);
 *     if (status == FB_OK) status = fb_store_write(&store, state, sizeof state); // in as many pieces as you like
 *     if (status == FB_OK) status = fb_store_commit(&store);                     // from here on it is the new one
 *
 * Power may fail at any instant. What the next fb_store_open finds is the last record for which fb_store_commit
 * returned FB_OK, or, if power failed inside fb_store_commit, that or the new one; never a mix, never neither. Once an
 * open has reported one of them, later opens report the same.
 *
 * A store holds one current record. To keep several things, put them into one record, so that they change together, or
 * open a store for each in its own region.
 * The design and the bytes are in docs/store.md.
 */
#ifndef FB_STORE_H
#define FB_STORE_H

#include "flipbit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Largest write unit of a flash, in bytes: a power of two, at least 32. Costs that much RAM in fb_store and twice that
 * much stack. */
#ifndef FB_STORE_UNIT_MAX
#define FB_STORE_UNIT_MAX 32
#endif

#define FB_STORE_SLOTS_MAX 32

/* A region of flash, described and driven by a board's port. Offsets count from the start of the region.
 *
 * The store calls `program` with offsets and sizes that are multiples of `unit` (and of 8), inside one page, and only
 * where a page was erased before; `erase` with the offset of a page. Functions return FB_OK, or any other status for a
 * failure, which the store takes for a worn place (program, erase) or for damaged data (read). The store reads back
 * what was programmed or erased: a port need not. */
typedef struct fb_flash {
    void *context; /* passed to the functions */

    /* Bytes of the region. What is left over after `slots` slots of whole pages is not used. */
    uint32_t size;

    /* Bytes that are erased together, a multiple of `unit` and of 8. Where sectors are unequal (STM32F4), let a page be
     * several of them, and `erase` erase them all. */
    uint32_t page;

    /* Bytes that are programmed together: a power of two, 1 to FB_STORE_UNIT_MAX. */
    uint16_t unit;

    /* Slots the region is divided into, 2 to FB_STORE_SLOTS_MAX, of size / page / slots pages each. A record must fit
     * into one slot (see fb_store.capacity). Two slots hold the largest records; more slots do not
     * spread wear better, but keep more old records in case a new one is damaged, and more places in case a page wears out. */
    uint8_t slots;

    /* 1: a unit may be programmed again, between erases, with the same data or with zeros (flash without ECC: nRF5x,
     * STM32F4, RP2040 and other serial NOR). Then cells that a power failure left half-programmed, and that read
     * sometimes as 0 and sometimes as 1, are settled when the store is opened; and records continue to be appended to a
     * slot after a restart.
     * 0: a unit may be programmed once only (flash with ECC: STM32L4, STM32H7; and STM32F1). Then a half-programmed
     * unit is expected to read the same each time, or to fail to read. After a restart the next record is put into a
     * newly erased slot: up to one more erase per restart. */
    uint8_t reprogram;

    /* Where the region can be read as memory, aligned to 8 bytes; NULL if it cannot. Only for fb_store_address. */
    const uint8_t *mapped;

    fb_status (*read)(void *context, uint32_t offset, void *data, uint32_t size);
    fb_status (*program)(void *context, uint32_t offset, const void *data, uint32_t size); /* clears bits */
    fb_status (*erase)(void *context, uint32_t offset);                                    /* one page, to ones */
} fb_flash;

/* Kinds the project uses; the store itself accepts any. */
#define FB_KIND_IMAGE 1u      /* a .fbit image, whole; its owner is its own CRC */
#define FB_KIND_CHECKPOINT 2u /* state of learning; its owner is the CRC of the image it started from */
#define FB_KIND_DEVICE 3u     /* all that a device keeps: firmware/app/fb_ledger.h */

typedef struct fb_record {
    uint32_t sequence; /* counts the records begun in this store, from 1; 0: there is none */
    uint32_t length;   /* bytes */
    uint32_t kind;
    uint32_t owner; /* CRC of the model it belongs to */
    uint32_t data;  /* offset of its bytes in the region, a multiple of 8 */
} fb_record;

/* An open store. Fields down to `damaged` are for reading. */
typedef struct fb_store {
    const fb_flash *flash;
    uint32_t slot_size; /* bytes */
    uint32_t capacity;  /* bytes of the longest record */
    fb_record current;  /* the committed record; sequence 0 if there is none */
    uint32_t damaged;   /* records found when opening that had been committed after `current`, and were unreadable */

    uint32_t step;   /* everything is padded to this many bytes: unit, at least 8 */
    uint32_t last;   /* highest sequence number given out */
    uint32_t head;   /* offset where the next record may start; 0: none, a slot must be erased */
    fb_record next;  /* being written; sequence 0 if none is */
    uint32_t filled; /* bytes of it that came */
    uint32_t crc;    /* of its header and these */
    uint8_t piece[FB_STORE_UNIT_MAX];
} fb_store;

/* Open: find the newest committed record. Reads each header and the newest record once. `flash` must stay.
 *
 *   FB_OK            opened, `store->current` says what is in it: nothing (sequence 0) if the flash is new, or holds
 *                    something else, which is erased when a record is saved. `store->damaged` is not 0 if newer
 *                    records were lost to damage and `current` is an older one.
 *   FB_ERR_ARGUMENT  the description of the flash is inconsistent
 *
 * Programs a few units if power failed in the last commit (see fb_flash.reprogram); nothing is erased. */
fb_status fb_store_open(fb_store *store, const fb_flash *flash);

/* Is the current record of this kind, and does it belong to this model? FB_OK, FB_ERR_EMPTY (there is none) or
 * FB_ERR_OWNER (of another model or kind; saving replaces it). */
fb_status fb_store_check(const fb_store *store, uint32_t kind, uint32_t owner);

/* Read from the current record, also while another is written. FB_ERR_EMPTY, FB_ERR_ARGUMENT (beyond its end),
 * FB_ERR_FLASH. */
fb_status fb_store_read(const fb_store *store, uint32_t offset, void *data, uint32_t size);

/* The current record in memory, to execute an image in place, aligned to 8 bytes. NULL if there is none or the flash
 * is not mapped. It stays there until another record is committed, and the next one begun after that. */
const void *fb_store_address(const fb_store *store);

/* Begin a record of `length` bytes. Finds a place, erasing the next slot if there is none, and tries other slots if one
 * is worn. The current record is not touched.
 *
 *   FB_ERR_FULL   longer than store->capacity, or 2^32 records were written; nothing was touched
 *   FB_ERR_FLASH  no slot left that could be erased and written
 *   FB_ERR_ORDER  another record is being written */
fb_status fb_store_begin(fb_store *store, uint32_t length, uint32_t kind, uint32_t owner);

/* Add bytes to the record that was begun. `data` need not be aligned.
 *
 *   FB_ERR_FLASH     what was programmed reads back wrong. The record is abandoned, the current one remains; the next
 *                    fb_store_begin chooses another place
 *   FB_ERR_ARGUMENT  more bytes than were announced to fb_store_begin; nothing was written
 *   FB_ERR_ORDER     no record was begun */
fb_status fb_store_write(fb_store *store, const void *data, uint32_t size);

/* Make the record the current one. FB_ERR_FLASH as above; FB_ERR_ORDER if bytes are missing (go on writing, or abort).
 */
fb_status fb_store_commit(fb_store *store);

/* Forget the record being written, if there is one. Its place stays used until its slot is erased. */
void fb_store_abort(fb_store *store);

/* Begin, write and commit in one call; retried as often as worn places make necessary. */
fb_status fb_store_save(fb_store *store, const void *data, uint32_t length, uint32_t kind, uint32_t owner);

/* How often a slot has been erased, and with it each of its pages. Erases that failed are not counted, and when power
 * fails between an erase and the next operation the count may come out a little wrong: that erase, and those of the
 * same slot just before it, may be missing. `slot` is below flash->slots. */
uint32_t fb_store_wear(const fb_store *store, uint32_t slot);

#ifdef __cplusplus
}
#endif
#endif
