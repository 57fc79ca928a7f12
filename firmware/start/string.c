/* Copies by words where both ends are aligned: Cortex-M0 cannot load unaligned words, and the tensors are aligned. */
#include "string.h"

#include <stdint.h>

typedef uint32_t __attribute__((may_alias)) word;

static int aligned(const void *a, const void *b) { return (((uintptr_t)a | (uintptr_t)b) & 3) == 0; }

/* From the first byte on: `to` may overlap `from` if it lies before it. */
static inline void *forwards(void *to, const void *from, size_t size) {
    uint8_t *d = to;
    const uint8_t *s = from;
    if (aligned(d, s)) {
        for (; size >= 16; size -= 16, d += 16, s += 16) {
            word a = ((const word *)s)[0], b = ((const word *)s)[1], c = ((const word *)s)[2], e = ((const word *)s)[3];
            ((word *)d)[0] = a, ((word *)d)[1] = b, ((word *)d)[2] = c, ((word *)d)[3] = e;
        }
        for (; size >= 4; size -= 4, d += 4, s += 4) *(word *)d = *(const word *)s;
    }
    while (size--) *d++ = *s++;
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t size) { return forwards(to, from, size); }

void *memmove(void *to, const void *from, size_t size) {
    uint8_t *d = (uint8_t *)to + size;
    const uint8_t *s = (const uint8_t *)from + size;
    if ((uintptr_t)to - (uintptr_t)from >= size) return forwards(to, from, size);
#ifndef FB_SMALL_CODE
    if (aligned(d, s)) {
        for (; size >= 16; size -= 16) {
            d -= 16, s -= 16;
            word a = ((const word *)s)[0], b = ((const word *)s)[1], c = ((const word *)s)[2], e = ((const word *)s)[3];
            ((word *)d)[3] = e, ((word *)d)[2] = c, ((word *)d)[1] = b, ((word *)d)[0] = a;
        }
        for (; size >= 4; size -= 4) d -= 4, s -= 4, *(word *)d = *(const word *)s;
    }
#endif
    while (size--) *--d = *--s;
    return to;
}

void *memset(void *to, int value, size_t size) {
    uint8_t *d = to;
    if (aligned(d, NULL)) {
        word w = 0x01010101u * (uint8_t)value;
        for (; size >= 16; size -= 16, d += 16) {
            ((word *)d)[0] = w, ((word *)d)[1] = w, ((word *)d)[2] = w, ((word *)d)[3] = w;
        }
        for (; size >= 4; size -= 4, d += 4) *(word *)d = w;
    }
    while (size--) *d++ = (uint8_t)value;
    return to;
}

int memcmp(const void *a, const void *b, size_t size) {
    const uint8_t *p = a, *q = b;
    for (; size--; p++, q++) {
        if (*p != *q) return *p - *q;
    }
    return 0;
}

size_t strlen(const char *s) {
    const char *end = s;
    while (*end) end++;
    return (size_t)(end - s);
}
