/* The part of <string.h> that the core and the programs use, so that the compilers alone are enough to build firmware.
 * With -fbuiltin, GCC still turns small copies into single instructions. */
#ifndef START_STRING_H
#define START_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
int memcmp(const void *a, const void *b, size_t size);
size_t strlen(const char *s);

#endif
