/* A board that is a process on this machine: its UART is standard input and output, its storage a file. */
#ifndef BOARD_PROFILE_H
#define BOARD_PROFILE_H

#include <stdint.h>

#define BOARD_NAME "host"
#define BOARD_CHIP "process"
#define BOARD_CORE "host"
#define BOARD_CLOCK_HZ 1000000000u
#define BOARD_TICK_HZ 1000000000u
#define BOARD_FLASH_SIZE 0x100000u
#define BOARD_RAM_SIZE 0x20000u
#define BOARD_BAUD 115200u

#ifndef BOARD_STORE_SIZE
#define BOARD_STORE_SIZE 0x20000u
#endif
#ifndef BOARD_STORE_UNIT
#define BOARD_STORE_UNIT 4u
#endif
#ifndef BOARD_STORE_PAGE
#define BOARD_STORE_PAGE 1024u
#endif
#define BOARD_STORE_RAM 0
#ifndef BOARD_STORE_REPROGRAM
#define BOARD_STORE_REPROGRAM 0
#endif

extern uint8_t *host_store;
#define BOARD_STORE_BASE ((uintptr_t)host_store)

#endif
