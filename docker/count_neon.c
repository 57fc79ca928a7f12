/* Runs an image once on Linux, for docker/count_neon.py: prints the CRC-32 of each layer's output and its kernel. What the
 * counting plugin counts lies between the two marker functions. The input is that of firmware/count/bench_main.c. */
#include <stdio.h>
#include <stdlib.h>

#include "flipbit.h"

void count_run_begin(void);
void count_run_end(void);
__attribute__((noinline)) void count_run_begin(void) { __asm__ volatile(""); }
__attribute__((noinline)) void count_run_end(void) { __asm__ volatile(""); }

typedef struct bench {
    const fb_model *model;
    size_t arena_size;
} bench;

static void after(void *context, unsigned op, unsigned tensor, const int8_t *values, uint32_t size) {
    const bench *b = context;
    fb_layer_plan plan;
    (void)tensor;
    if (fb_plan_layer(b->model, b->arena_size, op, &plan) != FB_OK) exit(1);
    printf("%08lx %s\n", (unsigned long)fb_crc32(0, values, size), plan.kernel[0] ? plan.kernel : "nothing");
}

int main(int count, char **arguments) {
    static _Alignas(64) uint8_t image[1 << 22];
    static int8_t input[1 << 20], output[1 << 16];
    fb_model model;
    bench b = {&model, 0};
    fb_hooks hooks = {&b, NULL, after};
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
    uint32_t state = 1;
    size_t size, i;
    void *arena;
    if (!file) return 2;
    size = fread(image, 1, sizeof image, file);
    fclose(file);
    if (fb_model_open(&model, image, size) != FB_OK) return 2;
    b.arena_size = fb_arena_size(&model);
    arena = aligned_alloc(64, (b.arena_size + 63) / 64 * 64);
    if (!arena) return 2;
    for (i = 0; i < sizeof input; i++) {
        state = state * 1664525u + 1013904223u;
        input[i] = (int8_t)(state >> 24);
    }
    if (fb_invoke(&model, arena, b.arena_size, input, output, &hooks) != FB_OK) return 2;
    count_run_begin();
    (void)fb_invoke(&model, arena, b.arena_size, input, output, NULL);
    count_run_end();
    free(arena);
    return 0;
}
