/* A slot is a log of whole records; docs/store.md has the bytes and the reasons. Everything starts at a multiple of
 * `step` (s: the write unit, at least 8) and is padded with ones:
 *
 *   | slot header | start | header | data ... | mark | seal | lapse | start | header | data ... | mark | seal | (ones)
 *     24            s         24       length     8      s      s
 *
 *   slot header  magic, serial, wear, slot_size, step, crc     written when the slot was erased
 *   start        zeros: the place is used, however little of the rest is there
 *   header       magic, sequence, length, kind, owner, crc
 *   mark         crc, ~crc of header and data: committed. Half-programmed it never reads so: of each bit and its
 *                complement one must be cleared.
 *   seal         zeros: the mark was programmed to its end
 *   lapse        ones; zeros: the mark was found half-programmed, and the record given up
 */
#include "../include/fb_store.h"

#include <string.h>

#define SLOT_MAGIC 0x4c534246u   /* "FBSL" */
#define RECORD_MAGIC 0x43524246u /* "FBRC" */

#define WORDS 6 /* of either header */
#define HEADER (WORDS * 4u)
#define CHUNK 64u /* bytes read at a time: stack */

/* A record as it lies in flash. */
typedef struct entry {
    fb_record record;
    uint32_t mark; /* offsets */
    uint32_t seal;
    uint32_t lapse;
    uint32_t end;
    uint32_t crc; /* that the mark states */
    bool committed;
} entry;

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t padded(const fb_store *store, uint32_t size) { return (size + store->step - 1) & ~(store->step - 1); }

static uint32_t mark_of(const fb_store *store, const fb_record *record) {
    return record->data + padded(store, record->length);
}

/* Bytes a record takes beside its data. */
static uint32_t overhead(const fb_store *store) { return padded(store, HEADER) + 4 * store->step; }

static bool get(const fb_store *store, uint32_t at, void *data, uint32_t size) {
    const fb_flash *flash = store->flash;
    return flash->read(flash->context, at, data, size) == FB_OK;
}

/* Does flash hold these bytes, or, without data, `size` times `fill`? */
static bool holds(const fb_store *store, uint32_t at, const uint8_t *data, uint8_t fill, uint32_t size) {
    uint8_t chunk[CHUNK];
    while (size) {
        uint32_t n = least(size, CHUNK);
        if (!get(store, at, chunk, n)) return false;
        for (uint32_t i = 0; i < n; i++)
            if (chunk[i] != (data ? *data++ : fill)) return false;
        at += n;
        size -= n;
    }
    return true;
}

/* What a bus or a supply on its way up misread once is right when it is read again: nothing is taken for missing, blank
 * or damaged after one look. What was just programmed is not looked at so kindly. */
#define LOOKS 2

static bool seen(const fb_store *store, uint32_t at, uint8_t fill, uint32_t size) {
    for (unsigned look = 0; look < LOOKS; look++)
        if (holds(store, at, NULL, fill, size)) return true;
    return false;
}

/* Program whole steps, page by page, and read them back. */
static bool put(const fb_store *store, uint32_t at, const uint8_t *data, uint32_t size) {
    const fb_flash *flash = store->flash;
    while (size) {
        uint32_t n = least(size, flash->page - at % flash->page);
        if (flash->program(flash->context, at, data, n) != FB_OK) return false;
        if (!holds(store, at, data, 0, n)) return false;
        at += n;
        data += n;
        size -= n;
    }
    return true;
}

static bool put_zeros(const fb_store *store, uint32_t at) {
    uint8_t zeros[FB_STORE_UNIT_MAX];
    memset(zeros, 0, sizeof zeros);
    return put(store, at, zeros, store->step);
}

static bool put_mark(const fb_store *store, uint32_t at, uint32_t crc) {
    uint8_t piece[FB_STORE_UNIT_MAX];
    const uint32_t mark[2] = {crc, ~crc};
    memset(piece, 0xff, sizeof piece);
    memcpy(piece, mark, sizeof mark);
    /* What reads back right is committed, whatever the port said: the next open will see it so. */
    return put(store, at, piece, store->step) || holds(store, at, piece, 0, store->step);
}

/* The CRC of the header and its padding is the start of a record's. */
static bool put_header(const fb_store *store, uint32_t at, uint32_t words[WORDS], uint32_t *crc) {
    uint8_t piece[FB_STORE_UNIT_MAX];
    uint32_t size = padded(store, HEADER);
    words[WORDS - 1] = fb_crc32(0, words, HEADER - 4);
    memset(piece, 0xff, sizeof piece);
    memcpy(piece, words, HEADER);
    *crc = fb_crc32(0, piece, size);
    return put(store, at, piece, size);
}

static bool get_header(const fb_store *store, uint32_t at, uint32_t magic, uint32_t words[WORDS]) {
    for (unsigned look = 0; look < LOOKS; look++) {
        if (!get(store, at, words, HEADER)) continue;
        if (words[0] == magic && words[WORDS - 1] == fb_crc32(0, words, HEADER - 4)) return true;
    }
    return false;
}

/* The CRC that a mark states; false if it is none. */
static bool get_mark(const fb_store *store, uint32_t at, uint32_t *crc) {
    uint32_t mark[2];
    for (unsigned look = 0; look < LOOKS; look++) {
        if (!get(store, at, mark, sizeof mark) || mark[0] != ~mark[1]) continue;
        *crc = mark[0];
        return true;
    }
    *crc = 0;
    return false;
}

static bool get_slot(const fb_store *store, uint32_t slot, uint32_t words[WORDS]) {
    return get_header(store, slot * store->slot_size, SLOT_MAGIC, words) && words[3] == store->slot_size &&
           words[4] == store->step;
}

/* The record at `at`, of which `words` is the header. */
static entry entry_at(const fb_store *store, uint32_t at, const uint32_t words[WORDS]) {
    entry e;
    e.record.sequence = words[1];
    e.record.length = words[2];
    e.record.kind = words[3];
    e.record.owner = words[4];
    e.record.data = at + store->step + padded(store, HEADER);
    e.mark = mark_of(store, &e.record);
    e.seal = e.mark + store->step;
    e.lapse = e.seal + store->step;
    e.end = e.lapse + store->step;
    e.committed = get_mark(store, e.mark, &e.crc);
    return e;
}

/* Whether a is found before b: the highest sequence number comes first. Two of one number can be there only if one is in
 * a slot whose erase was cut off, and it is not committed; on a flash that something else wrote, any two. */
static bool precedes(const entry *a, const entry *b) {
    if (a->record.sequence != b->record.sequence) return a->record.sequence > b->record.sequence;
    if (a->committed != b->committed) return a->committed;
    return a->mark < b->mark;
}

/* Make of e the record, committed or not, that is found next after it. */
static bool next(const fb_store *store, entry *e) {
    uint32_t words[WORDS];
    entry found;
    memset(&found, 0, sizeof found);
    for (uint32_t slot = 0; slot < store->flash->slots; slot++) {
        uint32_t at = slot * store->slot_size + padded(store, HEADER);
        uint32_t end = (slot + 1) * store->slot_size;
        if (!get_slot(store, slot, words)) continue;
        while (end - at >= overhead(store) && seen(store, at, 0, store->step) &&
               get_header(store, at + store->step, RECORD_MAGIC, words) && words[2] <= end - at - overhead(store)) {
            entry other = entry_at(store, at, words);
            if (precedes(e, &other) && precedes(&other, &found)) found = other;
            at = other.end;
        }
    }
    *e = found;
    return e->record.sequence != 0;
}

static bool right_crc(const fb_store *store, const entry *e) {
    uint8_t chunk[CHUNK];
    uint32_t at = e->record.data - padded(store, HEADER), end = e->record.data + e->record.length, crc = 0;
    while (at < end) {
        uint32_t n = least(end - at, CHUNK);
        if (!get(store, at, chunk, n)) return false;
        crc = fb_crc32(crc, chunk, n);
        at += n;
    }
    return crc == e->crc;
}

/* The mark is read again with the data: its CRC may be what was misread. */
static bool intact(const fb_store *store, entry *e) {
    for (unsigned look = 0; look < LOOKS; look++) {
        if (right_crc(store, e)) return true;
        if (!get_mark(store, e->mark, &e->crc)) return false;
    }
    return false;
}

/* A record ends at `end`: the next may start there, unless the slot ends too. */
static uint32_t head_at(const fb_store *store, uint32_t end) { return end % store->slot_size ? end : 0; }

fb_status fb_store_open(fb_store *store, const fb_flash *flash) {
    entry e = {.record.sequence = UINT32_MAX, .committed = true}; /* before any */
    bool first = true;
    if (!store || !flash || !flash->read || !flash->program || !flash->erase) return FB_ERR_ARGUMENT;
    memset(store, 0, sizeof *store);
    store->flash = flash;
    store->step = flash->unit < 8 ? 8 : flash->unit;
    if (!flash->unit || (flash->unit & (flash->unit - 1)) || flash->unit > FB_STORE_UNIT_MAX) return FB_ERR_ARGUMENT;
    if (!flash->page || flash->page % store->step) return FB_ERR_ARGUMENT;
    if (flash->slots < 2 || flash->slots > FB_STORE_SLOTS_MAX) return FB_ERR_ARGUMENT;
    store->slot_size = flash->size / flash->page / flash->slots * flash->page;
    if (store->slot_size < padded(store, HEADER) + overhead(store)) return FB_ERR_ARGUMENT;
    store->capacity = store->slot_size - padded(store, HEADER) - overhead(store);

    /* Power can have failed only while the record with the highest number was written. Its mark may be half-programmed
     * and read now so, now so. Before it is believed it is programmed again, before it is disbelieved it is wiped; and
     * since a wipe that was begun must not be followed by belief, the lapse is programmed before it. */
    for (; next(store, &e); first = false) {
        bool settle = first && flash->reprogram;
        bool sealed = seen(store, e.seal, 0, store->step);
        bool lapsed = !sealed && !seen(store, e.lapse, 0xff, store->step);
        if (first) store->last = e.record.sequence;
        if (e.committed && !lapsed && intact(store, &e)) {
            store->current = e.record;
            if (settle && (sealed || (put_mark(store, e.mark, e.crc) && put_zeros(store, e.seal)))) {
                store->head = head_at(store, e.end);
                if (store->head && !holds(store, e.end, NULL, 0xff, store->slot_size - e.end % store->slot_size))
                    store->head = 0;
            }
            break;
        }
        if (sealed)
            store->damaged++;
        else if (settle && !holds(store, e.mark, NULL, 0, store->step) && put_zeros(store, e.lapse))
            (void)put_zeros(store, e.mark);
    }
    return FB_OK;
}

fb_status fb_store_check(const fb_store *store, uint32_t kind, uint32_t owner) {
    if (!store->current.sequence) return FB_ERR_EMPTY;
    return store->current.kind == kind && store->current.owner == owner ? FB_OK : FB_ERR_OWNER;
}

fb_status fb_store_read(const fb_store *store, uint32_t offset, void *data, uint32_t size) {
    const fb_record *record = &store->current;
    if (!record->sequence) return FB_ERR_EMPTY;
    if (offset > record->length || size > record->length - offset || (!data && size)) return FB_ERR_ARGUMENT;
    if (size == 0) return FB_OK;
    return get(store, record->data + offset, data, size) ? FB_OK : FB_ERR_FLASH;
}

const void *fb_store_address(const fb_store *store) {
    return store->current.sequence && store->flash->mapped ? store->flash->mapped + store->current.data : NULL;
}

typedef struct wear {
    uint32_t erases; /* of the slot asked for */
    uint32_t serial; /* erases of all slots */
    uint32_t recent; /* the slot erased last */
} wear;

/* The serial number in the slot header written last is the sum of all slots' counts: so a count that was lost with its
 * header, when power failed after an erase, is what the others leave of it; of several, an equal part. */
static wear wear_of(const fb_store *store, uint32_t slot) {
    uint32_t words[WORDS], sum = 0, lost = 0;
    bool known = false;
    wear w = {0, 0, store->flash->slots - 1u};
    for (uint32_t i = 0; i < store->flash->slots; i++) {
        if (!get_slot(store, i, words)) {
            lost++;
            continue;
        }
        sum += words[2];
        if (words[1] > w.serial) {
            w.serial = words[1];
            w.recent = i;
        }
        if (i == slot) {
            known = true;
            w.erases = words[2];
        }
    }
    if (!known && lost && w.serial > sum) w.erases = (w.serial - sum) / lost;
    return w;
}

uint32_t fb_store_wear(const fb_store *store, uint32_t slot) { return wear_of(store, slot).erases; }

/* Even a slot that reads as ones is erased: an erase that power cut off may look finished and not be. */
static bool erase_slot(const fb_store *store, uint32_t slot) {
    const fb_flash *flash = store->flash;
    wear w = wear_of(store, slot);
    uint32_t base = slot * store->slot_size, crc;
    uint32_t words[WORDS] = {SLOT_MAGIC, w.serial + 1, w.erases + 1, store->slot_size, store->step, 0};
    for (uint32_t at = 0; at < store->slot_size; at += flash->page)
        if (flash->erase(flash->context, base + at) != FB_OK) return false;
    return holds(store, base, NULL, 0xff, store->slot_size) && put_header(store, base, words, &crc);
}

/* Abandon the record being written. What follows goes into another slot. */
static fb_status give_up(fb_store *store) {
    store->next.sequence = 0;
    store->head = 0;
    return FB_ERR_FLASH;
}

/* Each attempt has a number of its own: two places must never claim the same. */
static bool start(fb_store *store, uint32_t at) {
    fb_record *next = &store->next;
    uint32_t words[WORDS] = {RECORD_MAGIC, ++store->last, next->length, next->kind, next->owner, 0};
    next->data = at + store->step + padded(store, HEADER);
    next->sequence = store->last;
    store->filled = 0;
    return put_zeros(store, at) && put_header(store, at + store->step, words, &store->crc);
}

fb_status fb_store_begin(fb_store *store, uint32_t length, uint32_t kind, uint32_t owner) {
    uint32_t slots = store->flash->slots, recent;
    if (store->next.sequence) return FB_ERR_ORDER;
    if (length > store->capacity || store->last > UINT32_MAX - 2 * FB_STORE_SLOTS_MAX) return FB_ERR_FULL;
    store->next.length = length;
    store->next.kind = kind;
    store->next.owner = owner;
    if (store->head && overhead(store) + padded(store, length) <= store->slot_size - store->head % store->slot_size) {
        if (start(store, store->head)) return FB_OK;
        (void)give_up(store);
    }

    /* Round and round: even wear, and a slot that failed is not the next to be tried. */
    recent = wear_of(store, 0).recent;
    for (uint32_t i = 1; i <= slots; i++) {
        uint32_t slot = (recent + i) % slots;
        if (store->current.sequence && store->current.data / store->slot_size == slot) continue;
        if (erase_slot(store, slot) && start(store, slot * store->slot_size + padded(store, HEADER))) return FB_OK;
    }
    return give_up(store);
}

fb_status fb_store_write(fb_store *store, const void *data, uint32_t size) {
    const uint8_t *from = data;
    if (!store->next.sequence) return FB_ERR_ORDER;
    if (size > store->next.length - store->filled || (!data && size)) return FB_ERR_ARGUMENT;
    store->crc = fb_crc32(store->crc, from, size);
    while (size) {
        uint32_t in_piece = store->filled % store->step, at = store->next.data + store->filled, n;
        bool ok = true;
        if (in_piece == 0 && size >= store->step) {
            n = size & ~(store->step - 1);
            ok = put(store, at, from, n);
        } else {
            n = least(size, store->step - in_piece);
            memcpy(store->piece + in_piece, from, n);
            if (in_piece + n == store->step) ok = put(store, at - in_piece, store->piece, store->step);
        }
        if (!ok) return give_up(store);
        store->filled += n;
        from += n;
        size -= n;
    }
    return FB_OK;
}

fb_status fb_store_commit(fb_store *store) {
    uint32_t in_piece = store->filled % store->step, mark = mark_of(store, &store->next);
    if (!store->next.sequence || store->filled != store->next.length) return FB_ERR_ORDER;
    if (in_piece) memset(store->piece + in_piece, 0xff, store->step - in_piece);
    if ((in_piece && !put(store, mark - store->step, store->piece, store->step)) || !put_mark(store, mark, store->crc))
        return give_up(store);
    store->current = store->next;
    store->damaged = 0;
    store->next.sequence = 0;
    store->head = put_zeros(store, mark + store->step) ? head_at(store, mark + 3 * store->step) : 0;
    return FB_OK;
}

void fb_store_abort(fb_store *store) {
    if (store->next.sequence) store->head = head_at(store, mark_of(store, &store->next) + 3 * store->step);
    store->next.sequence = 0;
}

fb_status fb_store_save(fb_store *store, const void *data, uint32_t length, uint32_t kind, uint32_t owner) {
    fb_status status = FB_ERR_FLASH;
    for (uint32_t i = 0; i <= store->flash->slots && status == FB_ERR_FLASH; i++) {
        status = fb_store_begin(store, length, kind, owner);
        if (status != FB_OK) return status;
        status = fb_store_write(store, data, length);
        if (status == FB_OK) status = fb_store_commit(store);
    }
    if (status != FB_OK) fb_store_abort(store);
    return status;
}
