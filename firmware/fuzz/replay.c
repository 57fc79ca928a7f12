/* Runs files through the fuzz target without libFuzzer: for other compilers, other word sizes and emulators, and to
 * replay what a fuzzer found.
 *
 *     replay FILE…                 each file once
 *     replay --damage FILE…        what happens to files in the field: every flipped bit, every truncation and
 *                                  extensions must be refused; every change of one byte, with its CRC repaired, must be
 *                                  refused or run
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/fb_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void refuse(const char *what, size_t at, const uint8_t *image, size_t size) {
    fb_model model;
    uint8_t *copy = malloc(size ? size : 1); /* exact, for the address sanitizer */
    if (!copy) abort();
    memcpy(copy, image, size);
    if (fb_model_open(&model, copy, size) == FB_OK) {
        fprintf(stderr, "accepted: %s at %lu\n", what, (unsigned long)at);
        abort();
    }
    free(copy);
}

static void repair_crc(uint8_t *image, size_t size) {
    uint32_t crc;
    memset(image + FB_HEADER_CRC, 0, 4);
    crc = fb_crc32(0, image, size);
    memcpy(image + FB_HEADER_CRC, &crc, 4);
}

/* `image` has 8 spare bytes behind it. */
static unsigned long damage(uint8_t *image, size_t size) {
    unsigned long runs = 0;
    unsigned value;
    size_t at;
    for (at = 0; at < 8 * size; at++, runs++) {
        image[at / 8] ^= (uint8_t)(1u << at % 8);
        refuse("a flipped bit", at, image, size);
        image[at / 8] ^= (uint8_t)(1u << at % 8);
    }
    for (at = 0; at < size; at++, runs++) refuse("a truncation", at, image, at);
    for (at = size + 1; at <= size + 8; at++, runs++) refuse("an extension", at, image, at);
    for (at = 0; at < size; at++) {
        uint8_t original = image[at];
        for (value = 0; value < 256; value++, runs++) {
            image[at] = (uint8_t)value;
            repair_crc(image, size);
            LLVMFuzzerTestOneInput(image, size);
        }
        image[at] = original;
    }
    return runs;
}

/* Arguments that make no sense get a status of their own. */
static void check_misuse(void) {
    static uint32_t words[16];
    uint8_t *bytes = (uint8_t *)words;
    fb_model model;
    bool right =
        fb_model_open(NULL, bytes, 64) == FB_ERR_ARGUMENT && fb_model_open(&model, NULL, 64) == FB_ERR_ARGUMENT;
    right = right && fb_model_open(&model, bytes + 2, 32) == FB_ERR_ALIGN;
    right = right && fb_plan_layer(NULL, 64, 0, NULL) == FB_ERR_ARGUMENT;
    right = right && fb_invoke(NULL, bytes, 64, (int8_t *)bytes, (int8_t *)bytes, NULL) == FB_ERR_ARGUMENT;
    right = right && strcmp(fb_status_name(FB_ERR_CRC), "FB_ERR_CRC") == 0 &&
            strcmp(fb_status_name(FB_STATUS_COUNT), "FB_ERR_UNKNOWN") == 0;
    if (!right) {
        fprintf(stderr, "a call with arguments that make no sense was not refused\n");
        abort();
    }
}

int main(int argc, char **argv) {
    bool damaged = argc > 1 && strcmp(argv[1], "--damage") == 0;
    unsigned long runs = 0;
    int i;
    check_misuse();
    for (i = damaged ? 2 : 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        static uint8_t image[1 << 16];
        size_t size;
        if (!file) {
            fprintf(stderr, "%s: cannot be read\n", argv[i]);
            return 2;
        }
        size = fread(image, 1, sizeof image - 8, file);
        fclose(file);
        memset(image + size, 0, 8);
        LLVMFuzzerTestOneInput(image, size);
        runs += 1 + (damaged ? damage(image, size) : 0);
    }
    printf("%lu runs, no promise broken\n", runs);
    return 0;
}
