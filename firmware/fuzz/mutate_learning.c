/* Mutation for fuzz_learning.c: the image by its meaning, or bytes of the script behind it. */
#include <string.h>

#include "fuzz_learning.h"
#include "mutate.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    static const uint8_t usual[SCRIPT] = {1, 3, 1, 3, 1, 0, 0xFF, 64, 64, 128, 2, 1};
    uint8_t script[SCRIPT];
    memcpy(script, usual, SCRIPT);
    if (max_size < SCRIPT) return size;
    if (size >= SCRIPT) memcpy(script, data + (size -= SCRIPT), SCRIPT);
    if (seed % 2) {
        size = mutate_image(data, size, max_size - SCRIPT, seed / 2);
    } else {
        LLVMFuzzerMutate(script, SCRIPT, SCRIPT);
    }
    memcpy(data + size, script, SCRIPT);
    return size + SCRIPT;
}
