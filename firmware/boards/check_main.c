/* Tries out a board's port and reports over semihosting; the first program to run on a new board:
 *
 *     make BOARD=NAME PROGRAM=check
 *
 * Writes "flipbit" to the UART, then: variables right|wrong, arena BYTES, ticks run|stand, and the board_status of
 * storage operations that should succeed (erase, program, again) or be refused (range, align). Storage that cannot be
 * written, as in some emulators, answers 4, BOARD_ERR_VERIFY. Ends after a reset, which has to leave RAM as it was.
 */
#include <stdbool.h>
#include <string.h>

#include "board.h"
#include "semihosting.h"

#define BEEN_HERE 0x46424954u

static uint32_t initialized = 0x12345678u;
static uint32_t zeroed;

static void write_number(const char *name, uint32_t value) {
    char text[12], *at = text + sizeof text - 1;
    *at = 0;
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    semihosting_write(name);
    semihosting_write(" ");
    semihosting_write(at);
    semihosting_write("\n");
}

static void write_either(const char *name, bool which, const char *yes, const char *no) {
    semihosting_write(name);
    semihosting_write(which ? yes : no);
}

void board_fault(void) {
    semihosting_write("fault\n");
    semihosting_exit(139);
}

static bool ticks_run(void) {
    uint32_t start = board_ticks();
    volatile uint32_t turns;
    for (turns = 0; turns < 10000; turns++) {
    }
    return board_ticks() != start;
}

static void try_storage(void) {
    static uint8_t unit[2 * BOARD_STORE_UNIT + 1];
    const uint32_t last = BOARD_STORE_SIZE - BOARD_STORE_PAGE;
    uint32_t i;
    for (i = 0; i < sizeof unit; i++) unit[i] = (uint8_t)(i * 37 + 1);
    write_number("erase", board_store_erase(0, BOARD_STORE_PAGE));
    write_number("erase-last", board_store_erase(last, BOARD_STORE_PAGE));
    write_number("program", board_store_program(0, unit, BOARD_STORE_UNIT));
    write_number("program-unaligned-data", board_store_program(BOARD_STORE_UNIT, unit + 1, 2 * BOARD_STORE_UNIT));
    write_number("program-last", board_store_program(BOARD_STORE_SIZE - BOARD_STORE_UNIT, unit, BOARD_STORE_UNIT));
    write_number("program-other-bits", board_store_program(0, unit + 1, BOARD_STORE_UNIT));
    write_number("erase-again", board_store_erase(0, BOARD_STORE_PAGE));
    write_number("range-erase", board_store_erase(BOARD_STORE_SIZE, BOARD_STORE_PAGE));
    write_number("range-program", board_store_program(BOARD_STORE_SIZE - BOARD_STORE_UNIT, unit, 2 * BOARD_STORE_UNIT));
    write_number("range-wraps", board_store_program(BOARD_STORE_UNIT, unit, 0u - BOARD_STORE_UNIT));
    write_number("align-erase", board_store_erase(0, BOARD_STORE_PAGE / 2));
    write_number("align-program", board_store_program(1, unit, BOARD_STORE_UNIT));
}

int main(void) {
    volatile uint32_t *mark = (volatile uint32_t *)(uintptr_t)board_arena;
    const char *text;
    board_init();
    if (*mark == BEEN_HERE) {
        *mark = 0;
        semihosting_write("reset\ndone\n");
        semihosting_exit(0);
    }
    for (text = "flipbit\n"; *text; text++) board_write((uint8_t)*text);
    write_either("variables ", initialized == 0x12345678u && zeroed == 0, "right\n", "wrong\n");
    initialized++, zeroed++;
    write_number("arena", BOARD_ARENA_SIZE);
    write_either("ticks ", ticks_run(), "run\n", "stand\n");
    if (BOARD_STORE_SIZE) try_storage();
    *mark = BEEN_HERE;
    board_reset();
}
