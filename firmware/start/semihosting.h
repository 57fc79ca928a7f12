/* Text and exit status to a debugger or emulator (Arm semihosting, which RISC-V took over). Without one attached these
 * stop the core: for benchmarks and tests, not for firmware that is to run on its own. */
#ifndef START_SEMIHOSTING_H
#define START_SEMIHOSTING_H

#include <stdint.h>

void semihosting_write(const char *text);
__attribute__((noreturn)) void semihosting_exit(uint32_t status);

#endif
