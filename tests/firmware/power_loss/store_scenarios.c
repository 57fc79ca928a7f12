/* What can happen to a store besides the loss of power, one function each. `store_scenarios` lists them, with a name it
 * runs one. */
#include "fb_flash_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL 0x1234abcdu

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: not so: %s\n", __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

static uint8_t text[4096];

static const uint8_t *text_of(uint32_t version, uint32_t length) {
    for (uint32_t i = 0; i < length; i++) text[i] = (uint8_t)(version * 167 + i * 31 + (i >> 8));
    return text;
}

static fb_status save(fb_store *store, uint32_t version, uint32_t length) {
    return fb_store_save(store, text_of(version, length), length, FB_KIND_CHECKPOINT, MODEL);
}

static bool contains(const fb_store *store, uint32_t version, uint32_t length) {
    static uint8_t found[4096];
    return fb_store_check(store, FB_KIND_CHECKPOINT, MODEL) == FB_OK && store->current.length == length &&
           fb_store_read(store, 0, found, length) == FB_OK && !memcmp(found, text_of(version, length), length);
}

static fb_flash_sim *board(uint32_t pages, uint32_t slots, bool reprogram) {
    fb_flash_sim *sim = fb_flash_sim_new(pages * 1024, 1024, 4, slots, reprogram, 5);
    CHECK(sim != NULL);
    return sim;
}

static void reopen(fb_store *store, fb_flash_sim *sim) {
    fb_flash_sim_on(sim);
    CHECK(fb_store_open(store, fb_flash_sim_port(sim)) == FB_OK);
}

static fb_flash_counts counts_of(const fb_flash_sim *sim) {
    fb_flash_counts counts;
    fb_flash_sim_counts(sim, &counts);
    return counts;
}

static void done(fb_flash_sim *sim) {
    CHECK(!strcmp(fb_flash_sim_violation(sim), ""));
    fb_flash_sim_free(sim);
}

/* ---- */

static void alien_data_is_an_empty_store_and_is_not_touched_by_opening(void) {
    for (int once = 0; once < 2; once++) {
        fb_flash_sim *sim = board(4, 2, !once);
        fb_store store;
        uint8_t byte;
        reopen(&store, sim);
        CHECK(counts_of(sim).operations == 0);
        CHECK(store.current.sequence == 0 && store.damaged == 0);
        CHECK(fb_store_check(&store, FB_KIND_CHECKPOINT, MODEL) == FB_ERR_EMPTY);
        CHECK(fb_store_read(&store, 0, &byte, 1) == FB_ERR_EMPTY);
        CHECK(fb_store_address(&store) == NULL);
        CHECK(save(&store, 1, 100) == FB_OK);
        reopen(&store, sim);
        CHECK(contains(&store, 1, 100));
        done(sim);
    }
}

static void another_geometry_finds_an_empty_store(void) {
    fb_flash_sim *sim = board(8, 2, true);
    fb_flash other = *fb_flash_sim_port(sim);
    fb_store store;
    reopen(&store, sim);
    CHECK(save(&store, 1, 100) == FB_OK);
    other.slots = 4;
    CHECK(fb_store_open(&store, &other) == FB_OK && store.current.sequence == 0);
    reopen(&store, sim);
    CHECK(contains(&store, 1, 100));
    done(sim);
}

static void senseless_flash_is_refused(void) {
    fb_flash_sim *sim = board(4, 2, true);
    const fb_flash good = *fb_flash_sim_port(sim);
    fb_flash bad[10];
    fb_store store;
    for (int i = 0; i < 10; i++) bad[i] = good;
    bad[0].unit = 0;
    bad[1].unit = 3;
    bad[2].unit = 64;
    bad[3].page = 0;
    bad[4].page = 1028;
    bad[5].slots = 1;
    bad[6].slots = 33;
    bad[7].slots = 5;
    bad[8].erase = NULL;
    bad[9].size = 100;
    CHECK(fb_store_open(&store, &good) == FB_OK);
    for (int i = 0; i < 10; i++) CHECK(fb_store_open(&store, &bad[i]) == FB_ERR_ARGUMENT);
    CHECK(fb_store_open(NULL, &good) == FB_ERR_ARGUMENT && fb_store_open(&store, NULL) == FB_ERR_ARGUMENT);
    done(sim);
}

static void a_record_too_large_is_refused_before_flash_is_touched(void) {
    fb_flash_sim *sim = board(4, 2, true);
    fb_store store;
    reopen(&store, sim);
    CHECK(save(&store, 1, store.capacity) == FB_OK);
    uint64_t before = counts_of(sim).operations;
    CHECK(save(&store, 2, store.capacity + 1) == FB_ERR_FULL);
    CHECK(fb_store_begin(&store, UINT32_MAX, FB_KIND_CHECKPOINT, MODEL) == FB_ERR_FULL);
    CHECK(counts_of(sim).operations == before);
    reopen(&store, sim);
    CHECK(contains(&store, 1, store.capacity));
    done(sim);
}

static void a_record_of_another_model_or_kind_says_so_and_stays(void) {
    fb_flash_sim *sim = board(4, 2, true);
    fb_store store;
    reopen(&store, sim);
    CHECK(save(&store, 1, 100) == FB_OK);
    CHECK(fb_store_check(&store, FB_KIND_CHECKPOINT, MODEL ^ 1) == FB_ERR_OWNER);
    CHECK(fb_store_check(&store, FB_KIND_IMAGE, MODEL) == FB_ERR_OWNER);
    CHECK(contains(&store, 1, 100));
    done(sim);
}

static void an_image_is_executed_in_place(void) {
    fb_flash_sim *sim = board(4, 2, true);
    fb_store store;
    reopen(&store, sim);
    for (uint32_t version = 1; version < 9; version++) {
        CHECK(save(&store, version, 301) == FB_OK);
        const uint8_t *address = fb_store_address(&store);
        CHECK(address && (uintptr_t)address % 8 == 0);
        CHECK(!memcmp(address, text_of(version, 301), 301));
    }
    done(sim);
}

static void reading_beyond_the_end_is_refused(void) {
    fb_flash_sim *sim = board(4, 2, true);
    fb_store store;
    uint8_t bytes[16];
    reopen(&store, sim);
    CHECK(save(&store, 1, 100) == FB_OK);
    CHECK(fb_store_read(&store, 84, bytes, 16) == FB_OK && !memcmp(bytes, text_of(1, 100) + 84, 16));
    CHECK(fb_store_read(&store, 100, bytes, 0) == FB_OK);
    CHECK(fb_store_read(&store, 85, bytes, 16) == FB_ERR_ARGUMENT);
    CHECK(fb_store_read(&store, 101, bytes, 0) == FB_ERR_ARGUMENT);
    CHECK(fb_store_read(&store, UINT32_MAX, bytes, 2) == FB_ERR_ARGUMENT);
    CHECK(fb_store_read(&store, 0, NULL, 2) == FB_ERR_ARGUMENT);
    done(sim);
}

static void small_records_share_a_slot_and_erases_are_few_and_even(void) {
    fb_flash_sim *sim = board(6, 3, true);
    fb_store store;
    reopen(&store, sim);
    for (uint32_t version = 0; version < 288; version++) {
        CHECK(save(&store, version, 100) == FB_OK);
        if (version % 7 == 0) reopen(&store, sim); /* restarts do not stop the sharing */
        CHECK(contains(&store, version, 100));
    }
    /* A record takes 104 + 56 bytes, a slot of 2048 holds 12: 288 records, 24 slots, 2 pages each. */
    CHECK(counts_of(sim).erased == 48);
    for (uint32_t page = 0; page < 6; page++) CHECK(fb_flash_sim_erases(sim, page) == 8);
    for (uint32_t slot = 0; slot < 3; slot++) CHECK(fb_store_wear(&store, slot) == 8);
    done(sim);
}

static void flash_that_is_programmed_once_gets_a_fresh_slot_after_each_restart(void) {
    fb_flash_sim *sim = board(2, 2, false);
    fb_store store;
    for (uint32_t version = 0; version < 10; version++) {
        reopen(&store, sim);
        CHECK(save(&store, version, 50) == FB_OK);
        CHECK(save(&store, version, 60) == FB_OK);
    }
    CHECK(counts_of(sim).erased == 10);
    CHECK(fb_store_wear(&store, 0) == 5 && fb_store_wear(&store, 1) == 5);
    done(sim);
}

/* Bits turn in the newest record; all of its parts, one after the other. */
static void a_rotten_record_gives_way_to_the_older_one(void) {
    for (uint32_t bit = 0; bit < 8 * (8 + 24 + 104 + 8); bit++) {
        fb_flash_sim *sim = board(4, 2, true);
        fb_store store;
        reopen(&store, sim);
        CHECK(save(&store, 1, 100) == FB_OK);
        CHECK(save(&store, 2, 104) == FB_OK);
        uint32_t data = store.current.data, at = data - 32 + bit / 8;
        fb_flash_sim_rot(sim, at, (uint8_t)(1 << bit % 8));
        reopen(&store, sim);
        CHECK(contains(&store, 1, 100));
        /* A damaged header hides that there was a record. */
        CHECK(store.damaged == (at >= data));
        CHECK(save(&store, 3, 100) == FB_OK && store.damaged == 0);
        reopen(&store, sim);
        CHECK(contains(&store, 3, 100));
        done(sim);
    }
}

static void rot_in_one_slot_falls_back_to_the_other(void) {
    fb_flash_sim *sim = board(2, 2, false);
    fb_store store;
    reopen(&store, sim);
    CHECK(save(&store, 1, 600) == FB_OK);
    CHECK(save(&store, 2, 600) == FB_OK);
    fb_flash_sim_rot(sim, store.current.data + 300, 4);
    reopen(&store, sim);
    CHECK(contains(&store, 1, 600) && store.damaged == 1);
    uint32_t kept = store.current.data;
    CHECK(save(&store, 3, 600) == FB_OK); /* over the rotten one */
    CHECK(store.current.data != kept);
    reopen(&store, sim);
    CHECK(contains(&store, 3, 600) && store.damaged == 0);
    done(sim);
}

static void a_worn_page_is_passed_over_when_there_is_another_place(void) {
    for (int how = FB_WORN_ERASE; how < FB_WORN_COUNT; how++)
        for (uint32_t page = 0; page < 8; page++) {
            fb_flash_sim *sim = board(8, 4, false);
            fb_store store;
            reopen(&store, sim);
            CHECK(save(&store, 0, 1500) == FB_OK);
            fb_flash_sim_wear(sim, page, (fb_worn)how);
            for (uint32_t version = 1; version < 9; version++) {
                CHECK(save(&store, version, 1500) == FB_OK);
                CHECK(contains(&store, version, 1500));
            }
            reopen(&store, sim);
            CHECK(contains(&store, 8, 1500));
            done(sim);
        }
}

static void a_worn_page_without_another_place_is_an_error_and_the_record_stays(void) {
    for (int how = FB_WORN_ERASE; how < FB_WORN_COUNT; how++) {
        fb_flash_sim *sim = board(4, 2, true);
        fb_store store;
        reopen(&store, sim);
        CHECK(save(&store, 1, 1500) == FB_OK);
        fb_flash_sim_wear(sim, 3, (fb_worn)how);
        for (int i = 0; i < 3; i++) {
            CHECK(save(&store, 2, 1500) == FB_ERR_FLASH);
            CHECK(contains(&store, 1, 1500));
        }
        reopen(&store, sim);
        CHECK(contains(&store, 1, 1500));
        CHECK(save(&store, 2, 300) == FB_OK); /* this fits behind the old one */
        CHECK(contains(&store, 2, 300));
        fb_flash_sim_wear(sim, 3, FB_WORN_NOT); /* an accident, then */
        CHECK(save(&store, 3, 1500) == FB_OK);
        CHECK(contains(&store, 3, 1500));
        done(sim);
    }
}

static void flash_is_used_to_its_last_erase_and_keeps_the_last_record(void) {
    for (int how = FB_WORN_ERASE; how < FB_WORN_COUNT; how++) {
        fb_flash_sim *sim = board(4, 4, true);
        fb_store store;
        uint32_t version = 0;
        fb_status status = FB_OK;
        fb_flash_sim_endurance(sim, 20, (fb_worn)how);
        reopen(&store, sim);
        while (status == FB_OK && version < 1000) {
            status = save(&store, version + 1, 700);
            version += status == FB_OK;
        }
        CHECK(status == FB_ERR_FLASH && version >= 4 * 20);
        reopen(&store, sim);
        CHECK(contains(&store, version, 700));
        done(sim);
    }
}

static void a_port_that_fails_to_read_loses_nothing(void) {
    fb_flash_sim *sim = board(2, 2, false);
    fb_store store;
    uint8_t byte;
    reopen(&store, sim);
    CHECK(save(&store, 1, 600) == FB_OK);
    /* The second record's first data unit is left unreadable by a loss of power. */
    fb_flash_sim_cut(sim, 1 + 6 + 2 + 6, FB_CUT_UNREADABLE);
    CHECK(save(&store, 2, 600) == FB_ERR_FLASH);
    CHECK(fb_store_read(&store, 0, &byte, 1) == FB_ERR_FLASH);
    reopen(&store, sim);
    CHECK(contains(&store, 1, 600));
    CHECK(save(&store, 2, 600) == FB_OK && contains(&store, 2, 600));
    done(sim);
}

/* An aborted record leaves the old one, and what follows it is found again. */
static void what_is_saved_after_an_abort_is_found(void) {
    fb_flash_sim *sim = board(4, 2, true);
    fb_store store;
    reopen(&store, sim);
    CHECK(save(&store, 1, 100) == FB_OK);
    CHECK(fb_store_begin(&store, 200, FB_KIND_CHECKPOINT, MODEL) == FB_OK);
    CHECK(fb_store_write(&store, text_of(9, 150), 150) == FB_OK);
    fb_store_abort(&store);
    fb_store_abort(&store);
    CHECK(contains(&store, 1, 100));
    CHECK(fb_store_commit(&store) == FB_ERR_ORDER);
    CHECK(save(&store, 2, 100) == FB_OK);
    CHECK(counts_of(sim).erased == 2); /* in the same slot of two pages */
    reopen(&store, sim);
    CHECK(contains(&store, 2, 100));
    done(sim);
}

static void the_count_of_erases_survives_the_loss_of_a_slot_header(void) {
    fb_flash_sim *sim = board(3, 3, true);
    fb_store store;
    reopen(&store, sim);
    for (uint32_t version = 0; version < 14; version++) CHECK(save(&store, version, 800) == FB_OK);
    CHECK(fb_store_wear(&store, 0) == 5 && fb_store_wear(&store, 1) == 5 && fb_store_wear(&store, 2) == 4);
    fb_flash_sim_cut(sim, 1, FB_CUT_NOTHING); /* slot 2 is erased, its header not written */
    CHECK(save(&store, 14, 800) == FB_ERR_FLASH);
    reopen(&store, sim);
    CHECK(fb_store_wear(&store, 2) == 4);
    CHECK(save(&store, 14, 800) == FB_OK);
    CHECK(fb_store_wear(&store, 0) == 5 && fb_store_wear(&store, 1) == 5 && fb_store_wear(&store, 2) == 5);
    CHECK(contains(&store, 14, 800));
    done(sim);
}

/* Before a caller has streamed a record that it would have to stream again. */
static void a_page_that_does_not_erase_is_noticed_by_begin(void) {
    fb_flash_sim *sim = board(6, 3, true);
    fb_store store;
    reopen(&store, sim);
    CHECK(save(&store, 1, 1500) == FB_OK);
    fb_flash_sim_wear(sim, 3, FB_WORN_ERASE); /* in slot 1 */
    CHECK(fb_store_begin(&store, 1500, FB_KIND_CHECKPOINT, MODEL) == FB_OK);
    CHECK(store.next.data / store.slot_size == 2);
    CHECK(fb_store_write(&store, text_of(2, 1500), 1500) == FB_OK);
    CHECK(fb_store_commit(&store) == FB_OK && contains(&store, 2, 1500));
    done(sim);
}

static void poke(fb_flash_sim *sim, uint32_t at, const void *bytes, uint32_t size) {
    for (uint32_t i = 0; i < size; i++)
        fb_flash_sim_rot(sim, at + i, (uint8_t)(fb_flash_sim_memory(sim)[at + i] ^ ((const uint8_t *)bytes)[i]));
}

/* Change a word of a record's header, and its CRC with it. */
static void forge_header(fb_flash_sim *sim, const fb_record *record, unsigned word, uint32_t value) {
    uint32_t words[6], at = record->data - 24;
    memcpy(words, fb_flash_sim_memory(sim) + at, sizeof words);
    words[word] = value;
    words[5] = fb_crc32(0, words, 20);
    poke(sim, at, words, sizeof words);
}

static void a_forged_length_leads_nowhere(void) {
    static const uint32_t lengths[] = {0x7fffffff, 0xffffffff, 0xfffffff8, 0xffffffd0, 4096, 2049 - 24 - 48, 1900};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        fb_flash_sim *sim = board(4, 2, true);
        fb_store store;
        reopen(&store, sim);
        CHECK(save(&store, 1, 100) == FB_OK);
        CHECK(save(&store, 2, 100) == FB_OK);
        forge_header(sim, &store.current, 2, lengths[i]);
        reopen(&store, sim);
        CHECK(contains(&store, 1, 100));
        done(sim);
    }
}

/* As an erase that power cut off could leave it. */
static void an_unfinished_record_of_the_same_number_hides_nothing(void) {
    for (unsigned first = 0; first < 2; first++) {
        fb_flash_sim *sim = board(4, 4, true);
        fb_record records[2];
        fb_store store;
        reopen(&store, sim);
        for (uint32_t i = 0; i < 2; i++) {
            CHECK(save(&store, i, 700) == FB_OK);
            records[i] = store.current;
        }
        forge_header(sim, &records[first], 1, 7);
        forge_header(sim, &records[!first], 1, 7);
        poke(sim, records[first].data + 704, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16);
        /* The forged header is part of what the mark vouches for. */
        uint32_t crc = fb_crc32(0, fb_flash_sim_memory(sim) + records[!first].data - 24, 724), mark[2] = {crc, ~crc};
        poke(sim, records[!first].data + 704, mark, 8);
        reopen(&store, sim);
        CHECK(store.current.sequence == 7 && contains(&store, !first, 700));
        done(sim);
    }
}

/* Save `before` records, open with read number `misread` gone wrong, save once more: is that found from then on? Returns
 * whether there was such a read. */
static bool survives_misread(uint32_t slots, bool reprogram, uint32_t before, uint64_t number, fb_misread how) {
    fb_flash_sim *sim = fb_flash_sim_new(4096, 1024, 4, slots, reprogram, number * 7 + how);
    fb_flash_counts counts;
    fb_store store;
    uint64_t from;
    uint32_t version;
    CHECK(sim != NULL);
    CHECK(fb_store_open(&store, fb_flash_sim_port(sim)) == FB_OK);
    for (version = 1; version <= before; version++) CHECK(save(&store, version, 100 + version * 37 % 300) == FB_OK);
    fb_flash_sim_on(sim);
    fb_flash_sim_counts(sim, &counts);
    from = counts.reads;
    fb_flash_sim_misread(sim, number, how);
    CHECK(fb_store_open(&store, fb_flash_sim_port(sim)) == FB_OK);
    fb_flash_sim_counts(sim, &counts);
    fb_flash_sim_on(sim); /* reads are right from here on */
    CHECK(contains(&store, before, 100 + before * 37 % 300));
    for (; version <= before + 4; version++) {
        CHECK(save(&store, version, 50) == FB_OK);
        CHECK(fb_store_open(&store, fb_flash_sim_port(sim)) == FB_OK);
        CHECK(contains(&store, version, 50) && store.damaged == 0);
    }
    done(sim);
    return number < counts.reads - from;
}

static void a_read_that_goes_wrong_once_while_opening_costs_nothing(void) {
    uint32_t cases = 0;
    for (uint32_t before = 1; before <= 9; before++)
        for (unsigned flash = 0; flash < 4; flash++)
            for (unsigned how = 0; how < FB_MISREAD_COUNT; how++)
                for (uint64_t number = 0;
                     survives_misread(flash & 1 ? 2 : 4, flash & 2, before, number, (fb_misread)how); number++)
                    cases++;
    CHECK(cases > 3000);
    printf("%u cases\n", cases);
}

/* ---- */

#define SCENARIO(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    SCENARIO(alien_data_is_an_empty_store_and_is_not_touched_by_opening),
    SCENARIO(another_geometry_finds_an_empty_store),
    SCENARIO(senseless_flash_is_refused),
    SCENARIO(a_record_too_large_is_refused_before_flash_is_touched),
    SCENARIO(a_record_of_another_model_or_kind_says_so_and_stays),
    SCENARIO(an_image_is_executed_in_place),
    SCENARIO(reading_beyond_the_end_is_refused),
    SCENARIO(small_records_share_a_slot_and_erases_are_few_and_even),
    SCENARIO(flash_that_is_programmed_once_gets_a_fresh_slot_after_each_restart),
    SCENARIO(a_rotten_record_gives_way_to_the_older_one),
    SCENARIO(rot_in_one_slot_falls_back_to_the_other),
    SCENARIO(a_worn_page_is_passed_over_when_there_is_another_place),
    SCENARIO(a_worn_page_without_another_place_is_an_error_and_the_record_stays),
    SCENARIO(flash_is_used_to_its_last_erase_and_keeps_the_last_record),
    SCENARIO(a_port_that_fails_to_read_loses_nothing),
    SCENARIO(what_is_saved_after_an_abort_is_found),
    SCENARIO(the_count_of_erases_survives_the_loss_of_a_slot_header),
    SCENARIO(a_page_that_does_not_erase_is_noticed_by_begin),
    SCENARIO(a_forged_length_leads_nowhere),
    SCENARIO(an_unfinished_record_of_the_same_number_hides_nothing),
    SCENARIO(a_read_that_goes_wrong_once_while_opening_costs_nothing),
};

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (argc < 2)
            printf("%s\n", scenarios[i].name);
        else if (!strcmp(argv[1], scenarios[i].name)) {
            scenarios[i].run();
            return 0;
        }
    }
    return argc < 2 ? 0 : 2;
}
