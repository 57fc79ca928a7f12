#include "fb_flash_sim.h"

#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX

/* What is known of a unit besides its bits. */
enum { BLANK = 0, PROGRAMMED = 1, UNKNOWN = 2, UNREADABLE = 4 };

struct fb_flash_sim {
    fb_flash port;
    uint8_t *memory;
    uint8_t *weak;     /* bits of cells in between */
    uint8_t *intended; /* what each unit was last told to hold */
    uint8_t *state;    /* per unit */
    uint32_t *erases;  /* per page */
    uint8_t *worn;     /* per page, fb_worn */
    fb_flash_counts counts;
    uint64_t cut_at;     /* number of the operation in which power fails */
    uint64_t misread_at; /* number of the read that goes wrong */
    fb_misread misread;
    uint64_t random;
    fb_flash_watch watch;
    void *watch_context;
    const char *violation;
    uint32_t weak_bytes; /* that have any */
    bool unreadable;     /* some unit is, or was */
    uint32_t endurance;
    fb_worn wears_to;
    fb_cut outcome;
    uint8_t weak_reads; /* since power returned: 0 as zeros, 1 as ones, 2 as they like */
};

/* splitmix64 */
static uint64_t draw(fb_flash_sim *sim) {
    uint64_t z = sim->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint8_t draw_byte(fb_flash_sim *sim) { return (uint8_t)(draw(sim) >> 56); }

static void violate(fb_flash_sim *sim, const char *what) {
    if (!sim->counts.violations++) sim->violation = what;
}

static bool inside(const fb_flash_sim *sim, uint32_t offset, uint32_t size) {
    return offset <= sim->port.size && size <= sim->port.size - offset;
}

static void set_weak(fb_flash_sim *sim, uint32_t at, uint8_t bits) {
    sim->weak_bytes += (bits != 0);
    sim->weak_bytes -= (sim->weak[at] != 0);
    sim->weak[at] = bits;
}

/* Count an operation. Does power fail in it? */
static bool fails(fb_flash_sim *sim, bool erase, uint32_t offset) {
    bool cut = sim->counts.operations++ == sim->cut_at;
    if (sim->watch && sim->watch(sim->watch_context, erase, offset)) cut = true;
    if (erase)
        sim->counts.erased++;
    else
        sim->counts.programmed++;
    if (cut) sim->counts.off = 1;
    return cut;
}

/* A read that goes wrong once. */
static fb_status misread(fb_flash_sim *sim, uint8_t *to, uint32_t size) {
    uint64_t bit = draw(sim) % (8 * (uint64_t)size);
    if (sim->misread == FB_MISREAD_FAILS) return FB_ERR_FLASH;
    if (sim->misread == FB_MISREAD_BIT)
        to[bit / 8] ^= (uint8_t)(1u << bit % 8);
    else
        memset(to, sim->misread == FB_MISREAD_ONES ? 0xff : 0, size);
    return FB_OK;
}

static fb_status sim_read(void *context, uint32_t offset, void *data, uint32_t size) {
    fb_flash_sim *sim = context;
    uint8_t *to = data;
    if (sim->counts.off) return FB_ERR_FLASH;
    if (!inside(sim, offset, size)) {
        violate(sim, "read outside the region");
        return FB_ERR_ARGUMENT;
    }
    sim->counts.read += size;
    if (size == 0) return FB_OK;
    bool wrong = sim->counts.reads++ == sim->misread_at;
    for (uint32_t unit = offset / sim->port.unit; sim->unreadable && unit <= (offset + size - 1) / sim->port.unit;
         unit++)
        if (sim->state[unit] & UNREADABLE) return FB_ERR_FLASH;
    memcpy(to, sim->memory + offset, size);
    for (uint32_t i = 0; sim->weak_bytes && i < size; i++) {
        uint8_t weak = sim->weak[offset + i];
        if (!weak) continue;
        if (sim->weak_reads == 2) weak &= draw_byte(sim);
        if (sim->weak_reads == 0)
            to[i] &= (uint8_t)~weak;
        else
            to[i] = (uint8_t)((to[i] & ~sim->weak[offset + i]) | weak);
    }
    return wrong ? misread(sim, to, size) : FB_OK;
}

/* Is the unit free to be programmed with this, by the rules of real flash? */
static void judge(fb_flash_sim *sim, uint32_t offset, const uint8_t *data) {
    uint32_t size = sim->port.unit;
    uint8_t state = sim->state[offset / size];
    bool zeros = true, same = true;
    for (uint32_t i = 0; i < size; i++) {
        zeros &= data[i] == 0;
        same &= data[i] == sim->intended[offset + i];
    }
    if ((state & UNKNOWN) && !(zeros && sim->port.reprogram))
        violate(sim, "programmed a unit whose page was not erased to the end");
    if ((state & PROGRAMMED) && !sim->port.reprogram) violate(sim, "programmed a unit twice");
    if ((state & PROGRAMMED) && !zeros && !same) violate(sim, "programmed a unit twice, with something else");
}

static void program_unit(fb_flash_sim *sim, uint32_t offset, const uint8_t *data, bool cut) {
    uint32_t size = sim->port.unit;
    fb_cut outcome = cut ? sim->outcome : FB_CUT_DONE;
    if (outcome == FB_CUT_WEAK && !sim->port.reprogram) outcome = FB_CUT_SOME;
    if (outcome == FB_CUT_UNREADABLE && sim->port.reprogram) outcome = FB_CUT_SOME;
    judge(sim, offset, data);
    sim->state[offset / size] |= PROGRAMMED;
    if (outcome == FB_CUT_UNREADABLE) {
        sim->state[offset / size] |= UNREADABLE;
        sim->unreadable = true;
    }
    bool all_weak = draw(sim) & 1;
    for (uint32_t i = 0; i < size; i++) {
        uint32_t at = offset + i;
        uint8_t cleared = (uint8_t)~data[i]; /* the bits that are to become 0 */
        sim->intended[at] = data[i];
        if (outcome == FB_CUT_NOTHING) continue;
        if (sim->worn[at / sim->port.page] == FB_WORN_PROGRAM && at % 64 == 21) cleared &= 0xfe;
        if (outcome == FB_CUT_SOME || outcome == FB_CUT_UNREADABLE) cleared &= draw_byte(sim);
        if (outcome == FB_CUT_WEAK) {
            uint8_t between =
                (uint8_t)((all_weak ? 0xff : draw_byte(sim)) & cleared & (sim->memory[at] | sim->weak[at]));
            set_weak(sim, at, (uint8_t)((sim->weak[at] & ~cleared) | between));
            cleared &= (uint8_t)~between;
        } else {
            set_weak(sim, at, sim->weak[at] & (uint8_t)~cleared);
        }
        sim->memory[at] &= (uint8_t)~cleared;
    }
}

static fb_status sim_program(void *context, uint32_t offset, const void *data, uint32_t size) {
    fb_flash_sim *sim = context;
    const uint8_t *from = data;
    uint32_t unit = sim->port.unit;
    if (sim->counts.off) return FB_ERR_FLASH;
    if (!inside(sim, offset, size) || offset % unit || size % unit || size == 0 ||
        offset / sim->port.page != (offset + size - 1) / sim->port.page) {
        violate(sim, "programmed outside the region, across pages, or not in whole units");
        return FB_ERR_ARGUMENT;
    }
    if (sim->worn[offset / sim->port.page] == FB_WORN_SAYS_SO) return FB_ERR_FLASH;
    for (uint32_t i = 0; i < size; i += unit) {
        bool cut = fails(sim, false, offset + i);
        program_unit(sim, offset + i, from + i, cut);
        if (cut) return FB_ERR_FLASH;
    }
    return FB_OK;
}

static fb_status sim_erase(void *context, uint32_t offset) {
    fb_flash_sim *sim = context;
    uint32_t size = sim->port.page, page = offset / size;
    if (sim->counts.off) return FB_ERR_FLASH;
    if (!inside(sim, offset, size) || offset % size) {
        violate(sim, "erased outside the region, or not a page");
        return FB_ERR_ARGUMENT;
    }
    if (sim->worn[page] == FB_WORN_SAYS_SO) return FB_ERR_FLASH;
    bool cut = fails(sim, true, offset);
    fb_cut outcome = cut ? sim->outcome : FB_CUT_DONE;
    uint32_t changed = (draw(sim) & 1) ? (uint32_t)(draw(sim) % size) : size; /* bytes that the erase came to */
    sim->erases[page]++;
    if (sim->erases[page] > sim->counts.worst_erase) sim->counts.worst_erase = sim->erases[page];
    if (sim->endurance && sim->erases[page] > sim->endurance) sim->worn[page] = (uint8_t)sim->wears_to;
    if (outcome == FB_CUT_DONE) memset(sim->memory + offset, 0xff, size);
    for (uint32_t at = offset; at < offset + size; at++) {
        if (outcome == FB_CUT_WEAK)
            set_weak(sim, at, sim->weak[at] | (uint8_t)~sim->memory[at]);
        else if (outcome == FB_CUT_DONE && sim->weak_bytes)
            set_weak(sim, at, 0);
        else if ((outcome == FB_CUT_SOME || outcome == FB_CUT_UNREADABLE) && at - offset < changed)
            sim->memory[at] |= changed == size ? draw_byte(sim) : 0xff;
    }
    /* Done or not: a cut erase was reported by nobody, so its page may not be relied on. */
    uint8_t state = cut ? UNKNOWN | PROGRAMMED : BLANK;
    if (outcome == FB_CUT_UNREADABLE && !sim->port.reprogram) {
        state |= UNREADABLE;
        sim->unreadable = true;
    }
    memset(sim->state + offset / sim->port.unit, state, size / sim->port.unit);
    if (sim->worn[page] == FB_WORN_ERASE) sim->memory[offset + size / 3] &= 0xef;
    return cut ? FB_ERR_FLASH : FB_OK;
}

fb_flash_sim *fb_flash_sim_new(uint32_t size, uint32_t page, uint32_t unit, uint32_t slots, bool reprogram,
                               uint64_t seed) {
    if (!unit || unit > UINT16_MAX || !page || page % unit || !size || size % page || slots > UINT8_MAX) return NULL;
    fb_flash_sim *sim = calloc(1, sizeof *sim);
    if (!sim) return NULL;
    sim->port = (fb_flash){.context = sim,
                           .size = size,
                           .page = page,
                           .unit = (uint16_t)unit,
                           .slots = (uint8_t)slots,
                           .reprogram = reprogram,
                           .read = sim_read,
                           .program = sim_program,
                           .erase = sim_erase};
    sim->memory = malloc(size);
    sim->weak = calloc(size, 1);
    sim->intended = malloc(size);
    sim->state = malloc(size / unit);
    sim->erases = calloc(size / page, sizeof *sim->erases);
    sim->worn = calloc(size / page, 1);
    if (!sim->memory || !sim->weak || !sim->intended || !sim->state || !sim->erases || !sim->worn) {
        fb_flash_sim_free(sim);
        return NULL;
    }
    sim->random = seed;
    sim->cut_at = NEVER;
    sim->misread_at = NEVER;
    sim->violation = "";
    sim->port.mapped = sim->memory;
    for (uint32_t i = 0; i < size; i += 8) {
        uint64_t bits = draw(sim);
        memcpy(sim->memory + i, &bits, size - i < 8 ? size - i : 8);
    }
    memcpy(sim->intended, sim->memory, size);
    memset(sim->state, UNKNOWN | PROGRAMMED, size / unit);
    return sim;
}

void fb_flash_sim_free(fb_flash_sim *sim) {
    if (!sim) return;
    free(sim->memory);
    free(sim->weak);
    free(sim->intended);
    free(sim->state);
    free(sim->erases);
    free(sim->worn);
    free(sim);
}

const fb_flash *fb_flash_sim_port(const fb_flash_sim *sim) { return &sim->port; }

void fb_flash_sim_cut(fb_flash_sim *sim, uint64_t after, fb_cut outcome) {
    sim->cut_at = sim->counts.operations + after;
    sim->outcome = outcome;
}

void fb_flash_sim_watch(fb_flash_sim *sim, fb_flash_watch watch, void *context, fb_cut outcome) {
    sim->watch = watch;
    sim->watch_context = context;
    sim->outcome = outcome;
}

void fb_flash_sim_on(fb_flash_sim *sim) {
    sim->counts.off = 0;
    sim->cut_at = NEVER;
    sim->misread_at = NEVER;
    sim->weak_reads = (uint8_t)(draw(sim) % 3);
}

void fb_flash_sim_misread(fb_flash_sim *sim, uint64_t after, fb_misread how) {
    sim->misread_at = sim->counts.reads + after;
    sim->misread = how;
}

void fb_flash_sim_wear(fb_flash_sim *sim, uint32_t page, fb_worn how) {
    if (page < sim->port.size / sim->port.page) sim->worn[page] = (uint8_t)how;
}

void fb_flash_sim_endurance(fb_flash_sim *sim, uint32_t erases, fb_worn how) {
    sim->endurance = erases;
    sim->wears_to = how;
}

void fb_flash_sim_rot(fb_flash_sim *sim, uint32_t offset, uint8_t bits) {
    if (offset < sim->port.size) sim->memory[offset] ^= bits;
}

const uint8_t *fb_flash_sim_memory(const fb_flash_sim *sim) { return sim->memory; }

uint32_t fb_flash_sim_erases(const fb_flash_sim *sim, uint32_t page) {
    return page < sim->port.size / sim->port.page ? sim->erases[page] : 0;
}

void fb_flash_sim_counts(const fb_flash_sim *sim, fb_flash_counts *counts) { *counts = sim->counts; }

const char *fb_flash_sim_violation(const fb_flash_sim *sim) { return sim->violation; }
