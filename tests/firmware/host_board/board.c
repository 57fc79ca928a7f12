/* The drivers of the host board.
 *
 *     app STORE [CUT]
 *
 * STORE is a file that plays the flash: erasing gives ones, programming clears bits, and a unit is programmed once
 * between two erasures, as the strictest chips want it, unless BOARD_STORE_REPROGRAM. Power fails in the middle of flash operation number CUT (from
 * 0): half of it is done, and the process ends with status 75. A reset starts the program anew, with what the flash
 * holds.
 */
#define _GNU_SOURCE
#include "board.h"

#include <stdbool.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef HOST_ARENA
#define HOST_ARENA 131072
#endif
#define TEXT(x) #x
#define VALUE(x) TEXT(x)

enum { POWER_LOST = 75 };

uint8_t board_arena[HOST_ARENA] __attribute__((aligned(8)));
/* The linker gives these on a real board. */
uint8_t board_stack[2048];
__asm__(".globl board_stack_top\n.set board_stack_top, board_stack + 2048");
__asm__(".globl board_arena_end\n.set board_arena_end, board_arena + " VALUE(HOST_ARENA));
__asm__(".section .rodata\n.globl board_key, board_key_end\nboard_key:\n"
#ifdef HOST_KEY
        ".incbin " VALUE(HOST_KEY) "\n"
#endif
                                   "board_key_end:\n.text\n");
__asm__(".section .rodata\n.balign 8\n.globl board_model\nboard_model:\n"
#ifdef HOST_MODEL
        ".incbin " VALUE(HOST_MODEL) "\n"
#endif
                                     ".globl board_model_end\nboard_model_end:\n.balign 8\n.byte 0\n.text\n");

uint8_t *host_store;
static long cut = -1, operations;
static char **arguments;

/* Before main, which has no arguments on a board. */
__attribute__((constructor)) static void power_on(int argc, char **argv) {
    int file;
    arguments = argv;
    if (argc < 2) exit(2);
    file = open(argv[1], O_RDWR);
    if (file < 0) exit(2);
    host_store = mmap(NULL, BOARD_STORE_SIZE ? BOARD_STORE_SIZE : 1, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (host_store == MAP_FAILED) exit(2);
    close(file);
    if (argc > 2) cut = strtol(argv[2], NULL, 10);
}

void board_init(void) {}

/* Bytes are read in blocks, as a system call for each would make noise slow to send. */
int board_read(void) {
    static uint8_t block[4096];
    static ssize_t size, at;
    if (at == size) {
        size = read(STDIN_FILENO, block, sizeof block);
        at = 0;
        if (size <= 0) exit(0); /* unplugged */
    }
    return block[at++];
}

void board_write(uint8_t byte) {
    static uint8_t block[512];
    static size_t size;
    block[size++] = byte;
    if (byte != 0 && size < sizeof block) return;
    if (write(STDOUT_FILENO, block, size) < 0) exit(0);
    size = 0;
}

uint32_t board_ticks(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
}

void board_reset(void) {
    execv("/proc/self/exe", arguments);
    exit(2);
}

void board_fault(void) { abort(); }

/* The jumper is a file beside the store. */
bool board_consents(void) {
    char name[4096];
    snprintf(name, sizeof name, "%s.jumper", arguments[1]);
    return access(name, F_OK) == 0;
}

static board_status erase_page(uint32_t offset) {
    bool fails = operations++ == cut;
    memset(host_store + offset, 0xFF, fails ? BOARD_STORE_PAGE / 2 : BOARD_STORE_PAGE);
    if (fails) _exit(POWER_LOST);
    return BOARD_OK;
}

static board_status program_unit(uint32_t offset, const uint8_t *data) {
    bool fails = operations++ == cut;
    uint32_t i;
    for (i = 0; i < BOARD_STORE_UNIT; i++) {
        uint8_t there = host_store[offset + i];
        if (BOARD_STORE_REPROGRAM ? (there & data[i]) != data[i] : there != 0xFF) return BOARD_ERR_DEVICE;
    }
    for (i = 0; i < (fails ? BOARD_STORE_UNIT / 2 : BOARD_STORE_UNIT); i++) host_store[offset + i] &= data[i];
    if (fails) _exit(POWER_LOST);
    return memcmp(host_store + offset, data, BOARD_STORE_UNIT) ? BOARD_ERR_VERIFY : BOARD_OK;
}

board_status board_store_erase(uint32_t offset, uint32_t size) {
    uint32_t at;
    if (offset % BOARD_STORE_PAGE || size % BOARD_STORE_PAGE) return BOARD_ERR_ALIGN;
    if (offset > BOARD_STORE_SIZE || size > BOARD_STORE_SIZE - offset) return BOARD_ERR_RANGE;
    for (at = 0; at < size; at += BOARD_STORE_PAGE) erase_page(offset + at);
    return BOARD_OK;
}

board_status board_store_program(uint32_t offset, const void *data, uint32_t size) {
    uint32_t at;
    if (offset % BOARD_STORE_UNIT || size % BOARD_STORE_UNIT) return BOARD_ERR_ALIGN;
    if (offset > BOARD_STORE_SIZE || size > BOARD_STORE_SIZE - offset) return BOARD_ERR_RANGE;
    for (at = 0; at < size; at += BOARD_STORE_UNIT) {
        board_status status = program_unit(offset + at, (const uint8_t *)data + at);
        if (status != BOARD_OK) return status;
    }
    return BOARD_OK;
}
