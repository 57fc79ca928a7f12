/* Host program: the RAM that an image needs, as "input output arena" in bytes, the arena being the least. Compiled from
 * the core itself, which needs as much on every machine; only what faster kernels take on top depends on the machine.
 */
#include <stdio.h>
#include <stdlib.h>

#include "flipbit.h"

static unsigned long aligned(size_t size) { return (unsigned long)((size + FB_ALIGN - 1) / FB_ALIGN * FB_ALIGN); }

int main(int count, char **arguments) {
    static uint64_t image[1 << 20]; /* 8 MB, aligned: more than any of the boards could hold */
    fb_model model;
    fb_status status;
    size_t size;
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
    if (!file) {
        fprintf(stderr, "usage: arena_needs MODEL.fbit (a file that can be read)\n");
        return 2;
    }
    size = fread(image, 1, sizeof image, file);
    fclose(file);
    status = fb_model_open(&model, image, size);
    if (status == FB_OK && !fb_arena_least(&model)) status = FB_ERR_LIVE;
    if (status != FB_OK) {
        fprintf(stderr, "%s: %s: not an image that this firmware can run\n", arguments[1], fb_status_name(status));
        return 2;
    }
    printf("%lu %lu %lu\n", aligned(fb_model_tensor(&model, model.input).size),
           aligned(fb_model_tensor(&model, model.output).size), (unsigned long)fb_arena_least(&model));
    return 0;
}
