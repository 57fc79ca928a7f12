/* Mutators, and what libFuzzer gives and wants of them. */
#ifndef MUTATE_H
#define MUTATE_H

#include <stddef.h>
#include <stdint.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* Another image of at most `max_size` bytes in place of the one at `data`; its size. */
size_t mutate_image(uint8_t *data, size_t size, size_t max_size, unsigned seed);

#endif
