/* The fuzz target of the store: whatever a flash holds, fb_store finds nothing or a whole record, touches nothing beside
 * its region, and what it saves it finds again (fb_store.h).
 *
 *     data: geometry, 4 bytes | commands
 *
 * Flash is filled by the store itself and by forgeries: bytes, and headers and marks whose CRCs are right. It starts as
 * ones. Commands are a byte and what they need; they end with the data.
 */
#include "fb_store.h"
#include "fuzz.h"

enum { SAVE, OPEN, BYTE, SLOT_HEADER, RECORD_HEADER, MARK, COMMANDS };
enum { HEADER = 24, MOST_SAVES = 24 };

typedef struct device {
    fb_flash flash;
    fb_store store;
    uint8_t *bytes;
} device;

typedef struct source {
    const uint8_t *at, *end;
} source;

static uint32_t take(source *s, unsigned bytes) {
    uint32_t v = 0;
    for (unsigned i = 0; i < bytes; i++) v |= s->at < s->end ? (uint32_t)*s->at++ << 8 * i : 0;
    return v;
}

static fb_status read_flash(void *context, uint32_t offset, void *data, uint32_t size) {
    const device *d = context;
    REQUIRE(offset <= d->flash.size && size <= d->flash.size - offset);
    memcpy(data, d->bytes + offset, size);
    return FB_OK;
}

static fb_status program(void *context, uint32_t offset, const void *data, uint32_t size) {
    const device *d = context;
    const uint8_t *from = data;
    uint32_t unit = d->flash.unit < 8 ? 8 : d->flash.unit;
    REQUIRE(size && offset <= d->flash.size && size <= d->flash.size - offset);
    REQUIRE(offset % unit == 0 && size % unit == 0);
    REQUIRE(offset / d->flash.page == (offset + size - 1) / d->flash.page);
    for (uint32_t i = 0; i < size; i++) d->bytes[offset + i] &= from[i];
    return FB_OK;
}

static fb_status erase(void *context, uint32_t offset) {
    const device *d = context;
    REQUIRE(offset % d->flash.page == 0 && offset < d->flash.size && d->flash.page <= d->flash.size - offset);
    memset(d->bytes + offset, 0xFF, d->flash.page);
    return FB_OK;
}

/* A region of at most 4 KB. */
static void set_up(device *d, source *s) {
    memset(d, 0, sizeof *d);
    d->flash.unit = (uint16_t)(1u << take(s, 1) % 6);
    d->flash.page = 64u << take(s, 1) % 4;
    d->flash.slots = (uint8_t)(2 + take(s, 1) % 3);
    d->flash.size = d->flash.page * (d->flash.slots + take(s, 1) % 5);
    d->flash.reprogram = (uint8_t)(d->flash.size / d->flash.page % 2);
    d->flash.context = d;
    d->flash.read = read_flash;
    d->flash.program = program;
    d->flash.erase = erase;
    d->bytes = allocate(d->flash.size); /* not a byte longer */
    memset(d->bytes, 0xFF, d->flash.size);
    d->flash.mapped = d->bytes;
}

/* What was found is whole, and is found again: `open` programs at most what settles it. */
static void check(const device *d) {
    const fb_record *record = &d->store.current;
    const uint8_t *bytes = fb_store_address(&d->store);
    fb_store again;
    uint8_t *copy;
    if (!record->sequence) {
        REQUIRE(!bytes && fb_store_read(&d->store, 0, &again, 1) == FB_ERR_EMPTY);
        REQUIRE(fb_store_check(&d->store, 0, 0) == FB_ERR_EMPTY);
    } else {
        REQUIRE(record->length <= d->store.capacity && record->data % 8 == 0);
        REQUIRE(record->data / d->store.slot_size == (record->data + record->length) / d->store.slot_size);
        REQUIRE(fb_store_check(&d->store, record->kind, record->owner) == FB_OK);
        copy = allocate(record->length);
        REQUIRE(fb_store_read(&d->store, 0, copy, record->length) == FB_OK);
        REQUIRE(memcmp(copy, bytes, record->length) == 0);
        REQUIRE(fb_store_read(&d->store, 1, copy, record->length) == FB_ERR_ARGUMENT);
        REQUIRE(fb_store_read(&d->store, record->length + 1, copy, 0) == FB_ERR_ARGUMENT);
        free(copy);
    }
    REQUIRE(fb_store_open(&again, &d->flash) == FB_OK);
    REQUIRE(memcmp(&again.current, record, sizeof *record) == 0);
    for (uint32_t slot = 0; slot < d->flash.slots; slot++) (void)fb_store_wear(&d->store, slot);
}

static void save(device *d, source *s) {
    uint32_t size = take(s, 1) * d->store.capacity / 255, fill = take(s, 1), sequence;
    uint8_t *data = allocate(size), *copy = allocate(size);
    fb_status status;
    REQUIRE(fb_store_open(&d->store, &d->flash) == FB_OK); /* it cannot know what was forged since */
    sequence = d->store.current.sequence;
    for (uint32_t i = 0; i < size; i++) data[i] = (uint8_t)(fill + i * 7);
    REQUIRE(fb_store_begin(&d->store, d->store.capacity + 1, 1, 1) == FB_ERR_FULL);
    status = fb_store_save(&d->store, data, size, fill, size);
    if (status != FB_OK) {
        REQUIRE(status == FB_ERR_FULL && d->store.last > UINT32_MAX - 100); /* forged numbers leave no larger ones */
        free(data);
        free(copy);
        return;
    }
    REQUIRE(d->store.current.sequence > sequence);
    REQUIRE(fb_store_open(&d->store, &d->flash) == FB_OK); /* power fails, and comes back */
    REQUIRE(fb_store_check(&d->store, fill, size) == FB_OK && d->store.current.length == size);
    REQUIRE(fb_store_read(&d->store, 0, copy, size) == FB_OK && memcmp(copy, data, size) == 0);
    free(data);
    free(copy);
}

/* Somewhere in the region, where something of `size` bytes may start. */
static uint32_t place(const device *d, source *s, uint32_t size) {
    uint32_t at = take(s, 2) * d->store.step % d->flash.size;
    return at + size <= d->flash.size ? at : 0;
}

static void forge_header(device *d, source *s, uint32_t magic, bool slot) {
    uint32_t at = place(d, s, HEADER), words[6], crc;
    memcpy(words, d->bytes + at, HEADER);
    words[0] = magic;
    for (unsigned i = 1; i < 5; i++) {
        uint32_t how = take(s, 1), v = take(s, 1);
        if (how % 4 == 1) words[i] = v;
        if (how % 4 == 2) words[i] = 0u - v;
        if (how % 4 == 3) words[i] += v - 128;
    }
    if (slot) { /* or it is no slot of this store */
        words[3] = d->store.slot_size;
        words[4] = d->store.step;
    }
    words[5] = crc = fb_crc32(0, words, HEADER - 4);
    memcpy(d->bytes + at, words, HEADER);
    if (!slot && at >= d->store.step) memset(d->bytes + at - d->store.step, 0, d->store.step); /* the start */
}

/* A mark for the record whose header is at `at`, if its length makes sense, and a seal. */
static void forge_mark(device *d, source *s) {
    uint32_t at = place(d, s, HEADER), step = d->store.step, padded = (HEADER + step - 1) & ~(step - 1), length, end;
    uint32_t mark[2], how = take(s, 1);
    memcpy(&length, d->bytes + at + 8, 4);
    if (length > d->flash.size) return;
    end = at + padded + ((length + step - 1) & ~(step - 1));
    if (end + 3 * step > d->flash.size) return;
    mark[0] = fb_crc32(0, d->bytes + at, padded + length);
    mark[1] = ~mark[0];
    memcpy(d->bytes + end, mark, sizeof mark);
    memset(d->bytes + end + step, how & 1 ? 0 : 0xFF, step);
    memset(d->bytes + end + 2 * step, how & 2 ? 0 : 0xFF, step);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    source s = {data, data + size};
    device d;
    unsigned saves = 0;
    set_up(&d, &s);
    if (fb_store_open(&d.store, &d.flash) != FB_OK) { /* slots too small for a record */
        free(d.bytes);
        return 0;
    }
    while (s.at < s.end) {
        switch (take(&s, 1) % COMMANDS) {
        case SAVE:
            if (saves++ < MOST_SAVES) save(&d, &s);
            break;
        case BYTE: d.bytes[take(&s, 2) % d.flash.size] = (uint8_t)take(&s, 1); break;
        case SLOT_HEADER: forge_header(&d, &s, 0x4c534246u, true); break;
        case RECORD_HEADER: forge_header(&d, &s, 0x43524246u, false); break;
        case MARK: forge_mark(&d, &s); break;
        default: REQUIRE(fb_store_open(&d.store, &d.flash) == FB_OK); check(&d);
        }
    }
    REQUIRE(fb_store_open(&d.store, &d.flash) == FB_OK);
    check(&d);
    if (saves < MOST_SAVES) save(&d, &s);
    free(d.bytes);
    return 0;
}
