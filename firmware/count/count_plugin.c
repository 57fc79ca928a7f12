/* A QEMU plugin that counts executed instructions between two places of a program.
 *
 *     qemu-system-arm … -plugin libcount.so,out=FILE,region=NAME:BEGIN:END,region=…
 *
 * BEGIN and END are addresses of guest instructions, usually of empty marker functions. Each time END is reached after
 * BEGIN, a record is written, with a line for every instruction that was executed in between:
 *
 *     region NAME TOTAL
 *     ADDRESS CODE COUNT TAKEN          hexadecimal, hexadecimal, decimal, decimal
 *
 * TAKEN is how often the instruction ended a block of code and something other than the next instruction followed: how
 * often a branch was taken. The instructions at BEGIN are counted, those at END are not; markers add their call and
 * return. Regions may not overlap in time. Counts are exact: the addition is compiled into the translated code.
 *
 * Works with one CPU, and with QEMU's plugin interface version 1, as in QEMU 7.2; later versions of the interface count
 * by other functions. Its declarations are repeated here, because Debian ships no header for them:
 *
 *     cc -O2 -shared -fPIC -o libcount.so count_plugin.c
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- QEMU's interface ---- */

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct qemu_info_t {
    const char *target_name;
    struct {
        int min, cur;
    } version;
    bool system_emulation;
    int smp_vcpus, max_vcpus;
} qemu_info_t;
enum { QEMU_PLUGIN_CB_NO_REGS = 0, QEMU_PLUGIN_INLINE_ADD_U64 = 0 };
typedef void (*vcpu_callback)(unsigned cpu, void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
                                           void (*callback)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, vcpu_callback callback, int flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, vcpu_callback callback, int flags,
                                            void *data);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn, int operation, void *counter,
                                                uint64_t value);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*callback)(qemu_plugin_id_t id, void *data), void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);

#define EXPORTED __attribute__((visibility("default")))
EXPORTED extern int qemu_plugin_version;
EXPORTED int qemu_plugin_version = 1;
EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments);

/* ---- Instructions: a hash table by address ---- */

enum { CODE_MAX = 4, BUCKETS = 1 << 16, REGIONS = 8 };

typedef struct instruction {
    uint64_t count, taken;               /* since the program started */
    uint64_t count_before, taken_before; /* when the region began */
    uint64_t address;
    size_t size;
    uint8_t code[CODE_MAX];
    struct instruction *next, *next_of_all;
} instruction;

static instruction *buckets[BUCKETS], *all;

static void *allocate(size_t size) {
    void *p = calloc(1, size);
    if (p == NULL) {
        fprintf(stderr, "count_plugin: out of memory\n");
        exit(1);
    }
    return p;
}

/* A piece of code may be translated several times, into blocks that overlap; it is counted at one place. */
static instruction *instruction_at(uint64_t address) {
    instruction **bucket = &buckets[address / 2 % BUCKETS], *i;
    for (i = *bucket; i; i = i->next) {
        if (i->address == address) return i;
    }
    i = allocate(sizeof *i);
    i->address = address;
    i->next = *bucket;
    *bucket = i;
    i->next_of_all = all;
    all = i;
    return i;
}

/* ---- Regions ---- */

typedef struct region {
    char name[32];
    uint64_t begin, end;
} region;

static region regions[REGIONS];
static size_t region_count;
static const region *inside;
static FILE *out;

static void enter(unsigned cpu, void *data) {
    instruction *i;
    (void)cpu;
    inside = data;
    for (i = all; i; i = i->next_of_all) {
        i->count_before = i->count;
        i->taken_before = i->taken;
    }
}

static void leave(unsigned cpu, void *data) {
    uint64_t total = 0;
    const instruction *i;
    size_t k;
    (void)cpu;
    if (inside != data) return;
    inside = NULL;
    for (i = all; i; i = i->next_of_all) total += i->count - i->count_before;
    fprintf(out, "region %s %llu\n", ((const region *)data)->name, (unsigned long long)total);
    for (i = all; i; i = i->next_of_all) {
        if (i->count == i->count_before) continue;
        fprintf(out, "%llx ", (unsigned long long)i->address);
        for (k = 0; k < i->size; k++) fprintf(out, "%02x", i->code[k]);
        fprintf(out, " %llu %llu\n", (unsigned long long)(i->count - i->count_before),
                (unsigned long long)(i->taken - i->taken_before));
    }
}

/* ---- Translated blocks ---- */

typedef struct block {
    uint64_t start, end; /* end: the address behind the last instruction */
    instruction *last;
} block;

static const block *previous;
static bool thumb;

static void block_executed(unsigned cpu, void *data) {
    const block *b = data;
    (void)cpu;
    if (previous && previous->end != b->start) previous->last->taken++;
    previous = b;
}

/* QEMU 7.2 reports a wrong size for a Thumb instruction that is the last on a page. */
static size_t size_of(const struct qemu_plugin_insn *insn) {
    const uint8_t *code = qemu_plugin_insn_data(insn);
    if (!thumb) return qemu_plugin_insn_size(insn);
    return code[1] >> 3 >= 0x1D ? 4 : 2;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    block *b = allocate(sizeof *b);
    size_t k, r, count = qemu_plugin_tb_n_insns(tb);
    (void)id;
    for (k = 0; k < count; k++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, k);
        instruction *i = instruction_at(qemu_plugin_insn_vaddr(insn));
        i->size = size_of(insn) < CODE_MAX ? size_of(insn) : CODE_MAX;
        memcpy(i->code, qemu_plugin_insn_data(insn), i->size);
        for (r = 0; r < region_count; r++) {
            if (i->address == regions[r].end) {
                qemu_plugin_register_vcpu_insn_exec_cb(insn, leave, QEMU_PLUGIN_CB_NO_REGS, &regions[r]);
            }
            if (i->address == regions[r].begin) {
                qemu_plugin_register_vcpu_insn_exec_cb(insn, enter, QEMU_PLUGIN_CB_NO_REGS, &regions[r]);
            }
        }
        qemu_plugin_register_vcpu_insn_exec_inline(insn, QEMU_PLUGIN_INLINE_ADD_U64, &i->count, 1);
        if (k == 0) b->start = i->address;
        b->end = i->address + i->size;
        b->last = i;
    }
    qemu_plugin_register_vcpu_tb_exec_cb(tb, block_executed, QEMU_PLUGIN_CB_NO_REGS, b);
}

static void finish(qemu_plugin_id_t id, void *data) {
    (void)id, (void)data;
    fclose(out);
}

/* NAME:BEGIN:END. The lowest bit of a Thumb function's address only says that it is one. */
static bool read_region(const char *text) {
    region *r = &regions[region_count];
    long long begin, end;
    if (region_count == REGIONS || sscanf(text, "%31[^:]:%lli:%lli", r->name, &begin, &end) != 3) return false;
    r->begin = (uint64_t)begin & ~(uint64_t)thumb;
    r->end = (uint64_t)end & ~(uint64_t)thumb;
    region_count++;
    return true;
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count, char **arguments) {
    int k;
    thumb = strcmp(info->target_name, "arm") == 0;
    for (k = 0; k < count; k++) {
        const char *text = arguments[k];
        bool good = false;
        if (strncmp(text, "out=", 4) == 0) good = (out = fopen(text + 4, "w")) != NULL;
        if (strncmp(text, "region=", 7) == 0) good = read_region(text + 7);
        if (!good) fprintf(stderr, "count_plugin: cannot use '%s'\n", text);
        if (!good) return 1;
    }
    if (!out || !region_count) {
        fprintf(stderr, "count_plugin: needs out=FILE and region=NAME:BEGIN:END\n");
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, finish, NULL);
    return 0;
}
