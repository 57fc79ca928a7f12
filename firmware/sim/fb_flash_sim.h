/* A simulated flash for hosts: the port of a board that does not exist, under the real fb_store.c.
 *
 * It behaves as flash does, and worse: erasing sets a page to ones, programming only clears bits, pages wear out, and
 * power may fail in the middle of any operation. An operation is one unit programmed or one page erased; reads do not
 * count. After the failure nothing works until fb_flash_sim_on. Uses malloc: not for microcontrollers.
 *
 *     fb_flash_sim *sim = fb_flash_sim_new(16 * 1024, 1024, 4, 2, true, 1);
 *     fb_flash_sim_cut(sim, 17, FB_CUT_SOME);           // power fails in the 18th operation from now
 *     fb_store_open(&store, fb_flash_sim_port(sim));
 *     ...
 *     fb_flash_sim_on(sim);                             // and comes back: open the store again
 */
#ifndef FB_FLASH_SIM_H
#define FB_FLASH_SIM_H

#include "../core/include/fb_store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the operation that power cut off is left. */
typedef enum fb_cut {
    FB_CUT_NOTHING, /* as if it had not begun; yet the unit counts as programmed, the page as not erased */
    FB_CUT_DONE,    /* complete, but nobody was told */
    FB_CUT_SOME,    /* some bits changed, others not; reads the same each time */
    /* Cells in between: after each return of power they may read as 0, as 1, or differently from read to read, until
     * they are erased, or programmed again. Programming of flash that is programmed once only (ECC): as FB_CUT_SOME. */
    FB_CUT_WEAK,
    FB_CUT_UNREADABLE, /* reading fails until erased (ECC). Flash that may be programmed again: as FB_CUT_SOME. */
    FB_CUT_COUNT
} fb_cut;

/* How a worn page behaves. */
typedef enum fb_worn {
    FB_WORN_NOT,
    FB_WORN_ERASE,   /* a bit stays 0 when erased */
    FB_WORN_PROGRAM, /* a bit in each 64 bytes stays 1 when programmed */
    FB_WORN_SAYS_SO, /* both operations report failure and do nothing */
    FB_WORN_COUNT
} fb_worn;

/* What a read that goes wrong once gives: the cells hold what they held, and the next read is right. */
typedef enum fb_misread {
    FB_MISREAD_BIT,   /* a bit of it is turned */
    FB_MISREAD_ONES,  /* all ones: nobody drove the bus */
    FB_MISREAD_ZEROS, /* all zeros */
    FB_MISREAD_FAILS, /* the port reports an error */
    FB_MISREAD_COUNT
} fb_misread;

typedef struct fb_flash_counts {
    uint64_t operations;  /* units programmed and pages erased */
    uint64_t programmed;  /* units */
    uint64_t erased;      /* pages */
    uint64_t read;        /* bytes */
    uint64_t reads;       /* calls */
    uint32_t violations;  /* uses a real flash forbids: see fb_flash_sim_violation for the first */
    uint32_t worst_erase; /* erases of the page erased most */
    uint32_t off;         /* 1: power has failed */
} fb_flash_counts;

typedef struct fb_flash_sim fb_flash_sim;

/* Asked before each operation: `erase` tells which; returns true to let power fail in it. For budgets of energy. */
typedef bool (*fb_flash_watch)(void *context, bool erase, uint32_t offset);

/* NULL if the sizes make no sense. The content is random: what a board's last owner left. The seed also decides what
 * half-done operations leave. */
fb_flash_sim *fb_flash_sim_new(uint32_t size, uint32_t page, uint32_t unit, uint32_t slots, bool reprogram,
                               uint64_t seed);
void fb_flash_sim_free(fb_flash_sim *sim);

/* The port, for fb_store_open. */
const fb_flash *fb_flash_sim_port(const fb_flash_sim *sim);

/* Let power fail in the operation after `after` more of them, which is left as `outcome` says. */
void fb_flash_sim_cut(fb_flash_sim *sim, uint64_t after, fb_cut outcome);

/* Let `watch` decide when power fails, NULL: nobody. What it cuts off is left as `outcome` says. */
void fb_flash_sim_watch(fb_flash_sim *sim, fb_flash_watch watch, void *context, fb_cut outcome);

/* Power returns. Whatever cut was ordered is forgotten. */
void fb_flash_sim_on(fb_flash_sim *sim);

/* Let the read after `after` more of them go wrong, and the one after that be right again. */
void fb_flash_sim_misread(fb_flash_sim *sim, uint64_t after, fb_misread how);

/* Let a page be worn from now on; or any page after so many erases (0: never). */
void fb_flash_sim_wear(fb_flash_sim *sim, uint32_t page, fb_worn how);
void fb_flash_sim_endurance(fb_flash_sim *sim, uint32_t erases, fb_worn how);

/* Bits that turn without being asked: memory[offset] ^= bits. */
void fb_flash_sim_rot(fb_flash_sim *sim, uint32_t offset, uint8_t bits);

/* Cells as they are, half-done ones at their last fixed value. */
const uint8_t *fb_flash_sim_memory(const fb_flash_sim *sim);
uint32_t fb_flash_sim_erases(const fb_flash_sim *sim, uint32_t page);
void fb_flash_sim_counts(const fb_flash_sim *sim, fb_flash_counts *counts);

/* What the first violation was; "" if there was none. */
const char *fb_flash_sim_violation(const fb_flash_sim *sim);

#ifdef __cplusplus
}
#endif
#endif
