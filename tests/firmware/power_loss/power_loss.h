/* A trial of power loss: which flash, and where power fails. What store_power_loss.c and learning_power_loss.c share.
 *
 * An id says all of a trial: GEOMETRY.SEED-OPERATION.OUTCOME-OPERATION.OUTCOME, operations counted from power on. */
#ifndef POWER_LOSS_H
#define POWER_LOSS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fb_flash_sim.h"

enum { LOSSES = 4 }; /* at most */

typedef struct loss {
    uint64_t operation; /* after power on */
    fb_cut outcome;
} loss;

typedef struct trial {
    unsigned geometry;
    uint64_t seed;
    unsigned losses;
    loss loss[LOSSES];
    bool tell;
} trial;

static inline void name_trial(const trial *t, char *name, size_t size) {
    int n = snprintf(name, size, "%u.%llu", t->geometry, (unsigned long long)t->seed);
    for (unsigned i = 0; i < t->losses; i++)
        n += snprintf(name + n, size - (size_t)n, "-%llu.%d", (unsigned long long)t->loss[i].operation,
                      (int)t->loss[i].outcome);
}

static inline void fail(const trial *t, const char *what, unsigned a, unsigned b) {
    char name[160];
    name_trial(t, name, sizeof name);
    printf("FAILED %s: %s (%u, %u)\n", name, what, a, b);
    exit(1);
}

static inline uint32_t random_of(uint32_t a, uint32_t b) {
    uint32_t x = a * 2654435761u ^ b * 2246822519u ^ 0x9e3779b9u;
    x = (x ^ x >> 15) * 2246822519u;
    x = (x ^ x >> 13) * 3266489917u;
    return x ^ x >> 16;
}

/* False if `id` is none, or of another geometry. */
static inline bool parse_trial(const char *id, unsigned geometries, trial *t) {
    char *end;
    memset(t, 0, sizeof *t);
    t->geometry = (unsigned)strtoul(id, &end, 10);
    if (*end++ != '.' || t->geometry >= geometries) return false;
    t->seed = strtoull(end, &end, 10);
    for (; *end == '-' && t->losses < LOSSES; t->losses++) {
        t->loss[t->losses].operation = strtoull(end + 1, &end, 10);
        if (*end++ != '.') return false;
        t->loss[t->losses].outcome = (fb_cut)strtoul(end, &end, 10);
    }
    t->tell = true;
    return *end == 0;
}

#endif
