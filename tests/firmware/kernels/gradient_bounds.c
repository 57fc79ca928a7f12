/* Kernels of the backward pass at the bounds of fb_train.h, with the largest values there are: results must be those of
 * 64-bit sums. Compiled with the undefined-behaviour sanitizer, which stops at the first overflow. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "learn/fb_train_internal.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: not so: %s\n", __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

static void *filled(size_t size, int value) {
    void *p = malloc(size);
    CHECK(p);
    return memset(p, value, size);
}

static fb_tensor tensor(uint32_t height, uint32_t width, uint32_t channels, int8_t zero_point) {
    fb_tensor t = {(uint16_t)height, (uint16_t)width, (uint16_t)channels, zero_point, 3, 0x3F800000u, 0};
    t.size = height * width * channels;
    return t;
}

/* A convolution of one input channel, padded to keep the size of the image. */
static fb_layer convolution(uint32_t height, uint32_t width, uint32_t filters, int8_t zero_point) {
    fb_layer layer;
    memset(&layer, 0, sizeof layer);
    layer.kind = FB_CONV;
    layer.kernel_h = (uint8_t)height;
    layer.kernel_w = (uint8_t)width;
    layer.stride_h = layer.stride_w = 1;
    layer.pad_top = (uint8_t)(height / 2);
    layer.pad_left = (uint8_t)(width / 2);
    layer.in = layer.in2 = tensor(height, width, 1, zero_point);
    layer.out = tensor(height, width, filters, 0);
    layer.inputs = height * width;
    layer.words = (layer.inputs + 15) / 16;
    return layer;
}

/* The pixel in the middle meets every place of the kernel: all products of a weight of 127 or 1 and a gradient of −128 or
 * 127. */
static void check_input(const fb_layer *layer, int64_t product) {
    uint32_t scratch = fb_grad_input_scratch(layer, FB_FASTEST),
             middle = layer->in.height / 2u * layer->in.width + layer->in.width / 2u;
    int64_t sum = product * (int64_t)layer->inputs * layer->out.channels, half = 1 << 29;
    int8_t *h = filled(layer->out.size, product < 0 ? -128 : 127), *out = filled(layer->in.size, 0);
    void *room = filled(scratch + 1, 0);
    int64_t expected = (sum + (sum < 0 ? -half : half)) / (2 * half);
    fb_grad_input(layer, h, out, 30, NULL, 0);
    CHECK(out[middle] == expected);
    fb_grad_input(layer, h, out, 30, room, scratch);
    CHECK(out[middle] == expected);
    free(h);
    free(out);
    free(room);
}

static void gradients_of_inputs_of_int8_layers(void) {
    fb_layer layer = convolution(3, 3, 10922, 0); /* 98,298 products */
    layer.weights = filled(layer.inputs * layer.out.channels, 127);
    check_input(&layer, -128 * 127);
    free((void *)(uintptr_t)layer.weights);
    layer.weights = filled(layer.inputs * layer.out.channels, 127);
    check_input(&layer, 127 * 127);
    free((void *)(uintptr_t)layer.weights);
}

static void gradients_of_inputs_of_binary_layers(void) {
    fb_layer layer = convolution(8, 12, 65535, 0); /* 6,291,360 products */
    layer.flags = FB_FLAG_BINARY;
    layer.bits = filled(2u * layer.words * layer.out.channels, 0xFF);
    check_input(&layer, 127);
    free((void *)(uintptr_t)layer.bits);
}

/* 65,536 pixels, all as far from the zero point as they can be. */
static void gradients_of_weights(void) {
    fb_layer layer = convolution(1, 1, 2, 127);
    int8_t *h, *in;
    void *room;
    int32_t sums[2] = {0, 0};
    fb_grad_sums to = {(uint8_t *)sums, 4, 1, 0, 0, 4};
    uint32_t size;
    layer.in = tensor(256, 256, 1, 127);
    layer.out = tensor(256, 256, 2, 0);
    size = fb_grad_weights_scratch(&layer);
    h = filled(layer.out.size, 127);
    in = filled(layer.in.size, -128);
    room = filled(size, 0);
    fb_grad_weights(&layer, h, in, 0, &to, 2, room, size);
    CHECK(sums[0] == -127 * 255 * 65536 && sums[1] == sums[0]);
    sums[0] = 0;
    fb_grad_weights(&layer, h, in, 0, &to, 1, NULL, 0);
    CHECK(sums[0] == -127 * 255 * 65536);
    free(h);
    free(in);
    free(room);
}

/* 40 samples of the largest gradients that a batch may have: the last exponent, and no more than it holds. */
static void narrow_sums_at_their_end(void) {
    static const int32_t largest[] = {INT32_MAX / 40, -(INT32_MAX / 40)};
    for (uint8_t bytes = 1; bytes <= 2; bytes++) {
        uint32_t memory[4] = {0};
        int32_t wide[2];
        fb_grad_sums to = {(uint8_t *)memory, 8, 2, 0, 0, bytes};
        for (uint32_t sample = 0; sample < 60; sample++) { /* and 20 too many */
            to.key = sample;
            fb_grad_add_narrow(&to, 0, 0, largest, 2);
        }
        fb_grad_widen(memory, 2, bytes, wide);
        CHECK(wide[0] == (bytes == 2 ? 32767 * 65536 : 127 * 16777216) && wide[1] == -wide[0]);
    }
}

/* What is small is not lost: the mean of many sums is what was added. */
static void narrow_sums_on_average(void) {
    int64_t total = 0;
    for (uint32_t run = 0; run < 4000; run++) {
        uint32_t memory[2] = {0};
        int32_t wide[3], values[3] = {100000, 100, -37};
        fb_grad_sums to = {(uint8_t *)memory, 8, 3, fb_grad_key(7, run), 0, 1};
        fb_grad_add_narrow(&to, 0, 0, values, 3);
        fb_grad_widen(memory, 3, 1, wide);
        CHECK(wide[1] % 1024 == 0 && wide[2] % 1024 == 0);
        total += wide[1] - 3 * wide[2];
    }
    CHECK(total > 4000 * 180 && total < 4000 * 242); /* 211, deviation of the mean 11 */
}

static void softmax_of_equal_scores(void) {
    static int8_t scores[FB_TRAIN_OUTPUTS], gradient[FB_TRAIN_OUTPUTS];
    uint32_t loss = fb_softmax_gradient(scores, FB_TRAIN_OUTPUTS, 0x3F800000u, 7, gradient);
    CHECK(gradient[7] == -127 && gradient[0] == 0 && gradient[FB_TRAIN_OUTPUTS - 1] == 0);
    CHECK(loss > 11 << 16 && loss < 12 << 16); /* ln 65536 = 11.09 */
}

int main(void) {
    gradients_of_inputs_of_int8_layers();
    gradients_of_inputs_of_binary_layers();
    gradients_of_weights();
    softmax_of_equal_scores();
    narrow_sums_at_their_end();
    narrow_sums_on_average();
    puts("all right");
    return 0;
}
