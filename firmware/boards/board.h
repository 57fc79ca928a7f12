/* What a board gives to the programs that run on it: a UART, a counter, storage for images, memory for the arena.
 *
 *     board_init();
 *     for (;;) {
 *         int byte = board_read();
 *         if (byte >= 0) board_write((uint8_t)byte);
 *     }
 *
 * One folder per board: board.toml has the facts (memory map, compiler flags, emulator, how to flash), board.c the
 * drivers. The build makes board_profile.h out of the facts, the BOARD_… macros below. No interrupts are used and
 * nothing is allocated. How to add a board is in docs/boards.md.
 */
#ifndef BOARD_H
#define BOARD_H

#include <stdbool.h>
#include <stdint.h>

/* Made from board.toml at build time:
 *
 *     BOARD_NAME        "microbit": the folder's name
 *     BOARD_CHIP        "nRF51822"
 *     BOARD_CORE        "cortex-m0"
 *     BOARD_CLOCK_HZ    of the core, once board_init has run
 *     BOARD_FLASH_SIZE  bytes of program memory, with the storage if that is flash as well
 *     BOARD_RAM_SIZE    bytes
 *     BOARD_BAUD        of the UART; 8 data bits, no parity, 1 stop bit
 *     BOARD_TICK_HZ     rate of board_ticks; 0 if they tell no time
 *     BOARD_STORE_BASE  address of the storage, a multiple of BOARD_STORE_PAGE
 *     BOARD_STORE_SIZE  bytes, a multiple of BOARD_STORE_PAGE; 0: there is none
 *     BOARD_STORE_PAGE  bytes that are erased at a time
 *     BOARD_STORE_UNIT  bytes that are programmed at a time: 2, 4, 8 or 256
 *     BOARD_STORE_REPROGRAM  1 if a unit may be programmed again before it is erased, with the same data or zeros
 *     BOARD_STORE_RAM   1 if the storage is RAM that stands in for flash: it survives board_reset, not power-off
 */
#include "board_profile.h"

/* Clocks, pins, UART and counter. Called once, first thing in main. */
void board_init(void);

/* The next byte from the UART, or -1 if there is none yet. Bytes that come faster than they are read are lost after the
 * UART's own buffer (1 byte on STM32): a protocol must not send before it is asked to. */
int board_read(void);

/* Send a byte; waits until the UART can take it. */
void board_write(uint8_t byte);

/* A counter that runs at BOARD_TICK_HZ and wraps: cycles of the core where it can count them, time otherwise. 0 where
 * there is none, and on emulated Cortex-M3 and up, whose cycle counter QEMU does not model. */
uint32_t board_ticks(void);

/* Start again, as after power-on. Waits for the last byte sent first. */
__attribute__((noreturn)) void board_reset(void);

/* Called after a CPU fault (bad access, undefined instruction). The default resets the board; programs may define their
 * own. */
__attribute__((noreturn)) void board_fault(void);

/* Whether the board agrees, at this moment, that whoever is on the line changes it: a button held, a jumper set. Asked
 * only by firmware built with LOCKED=1, before each command that needs consent. The default never agrees; a board.c that
 * has such a thing defines its own. */
bool board_consents(void);

/* The key that was linked into the program with KEY_FILE=…, of size 0 without: another way to consent. */
extern const uint8_t board_key[], board_key_end[];

/* Storage for images: read it at BOARD_STORE_BASE, as memory. Erased bytes are 0xFF. Between two erasures a unit is
 * programmed at most once, unless BOARD_STORE_REPROGRAM. Both functions read back what they did; that is how storage
 * that cannot be written (flash that an emulator ignores, a locked chip) shows up, as BOARD_ERR_VERIFY. */
typedef enum board_status {
    BOARD_OK = 0,
    BOARD_ERR_RANGE,  /* reaches outside the storage */
    BOARD_ERR_ALIGN,  /* offset or size is no multiple of the page or the unit */
    BOARD_ERR_DEVICE, /* the flash controller reported an error or did not finish */
    BOARD_ERR_VERIFY, /* what is there now is not what was to be written */
} board_status;

/* Erase `size` bytes at `offset` into the storage; both multiples of BOARD_STORE_PAGE. Takes up to seconds. */
board_status board_store_erase(uint32_t offset, uint32_t size);

/* Program `size` bytes at `offset` into the storage; both multiples of BOARD_STORE_UNIT. `data` may lie anywhere but in
 * the storage itself, at any alignment. */
board_status board_store_program(uint32_t offset, const void *data, uint32_t size);

/* RAM that nothing else uses, for the arena: from the end of the program's variables to the stack. Aligned to 8. */
extern uint8_t board_arena[], board_arena_end[];
#define BOARD_ARENA_SIZE ((uint32_t)((uintptr_t)board_arena_end - (uintptr_t)board_arena))

/* The stack grows down from board_stack_top, by board.toml's memory.stack bytes at most. */
extern uint8_t board_stack[], board_stack_top[];

/* The image that was linked into the program with MODEL=…; of size 0 without. Aligned to 8. */
extern const uint8_t board_model[], board_model_end[];
#define BOARD_MODEL_SIZE ((uint32_t)((uintptr_t)board_model_end - (uintptr_t)board_model))

/* What each board.c does for the two storage functions above, which have checked range and alignment. `address` is
 * absolute. Answer BOARD_OK or BOARD_ERR_DEVICE. */
board_status board_flash_erase_page(uint32_t address);
board_status board_flash_program_unit(uint32_t address, const uint8_t *data);

#endif
