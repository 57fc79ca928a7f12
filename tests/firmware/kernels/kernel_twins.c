/* Random layers through every scalar kernel, against the reference twin and against the formulas of docs/numerics.md.
 * See twins.h.
 */
#include "kernels/fb_kernels_scalar.h"
#include "twins.h"

static const fb_kernel conv_kernels[] = {FB_CONV_BINARY_SCALAR FB_KERNELS_END};
static const fb_kernel bits_kernels[] = {FB_CONV_BITS_SCALAR FB_KERNELS_END};
static const fb_kernel dense_kernels[] = {FB_DENSE_BINARY_SCALAR FB_ENTRY(fb_dense_bin), FB_KERNELS_END};
static const fb_kernel conv_int8_kernels[] = {FB_CONV_INT8_SCALAR FB_ENTRY(fb_conv_int8), FB_KERNELS_END};
static const fb_kernel dense_int8_kernels[] = {FB_DENSE_INT8_SCALAR FB_ENTRY(fb_dense_int8), FB_KERNELS_END};
static const fb_kernel depthwise_kernels[] = {FB_DEPTHWISE_BINARY_SCALAR FB_ENTRY(fb_depthwise_bin), FB_KERNELS_END};
static const fb_kernel depthwise_int8_kernels[] = {FB_DEPTHWISE_INT8_SCALAR FB_ENTRY(fb_depthwise_int8),
                                                   FB_KERNELS_END};
static const fb_kernel add_kernels[] = {FB_ADD_SCALAR FB_ENTRY(fb_add), FB_KERNELS_END};
static const fb_kernel average_kernels[] = {FB_AVERAGE_POOL_SCALAR FB_ENTRY(fb_average_pool), FB_KERNELS_END};
static const fb_kernel max_kernels[] = {FB_MAX_POOL_SCALAR FB_ENTRY(fb_max_pool), FB_KERNELS_END};

static void set_relu(fb_layer *layer) {
    if (below(2)) layer->flags |= FB_FLAG_RELU;
    layer->low = layer->flags & FB_FLAG_RELU ? layer->out.zero_point : (int8_t)-128;
}

/* The largest multiplier for which (reach + |bias|) · multiplier + half fits 31 bits. */
static void draw_scaling(fb_layer *layer, int32_t *bias, int16_t *mult) {
    uint32_t zero = (uint32_t)(layer->in.zero_point < 0 ? -layer->in.zero_point : layer->in.zero_point);
    uint32_t reach = layer->inputs * (layer->in.rank == FB_RANK_BITS ? 1 : 128u + 2u * zero);
    uint32_t largest, o;
    layer->shift = (uint8_t)(1 + below(30));
    for (o = 0; o < layer->out.channels; o++) {
        uint32_t size = below(4) ? below(2 * reach + 1) : 0;
        largest = (0x7FFFFFFFu - (1u << layer->shift >> 1)) / (reach + size);
        if (largest > 32767) largest = 32767;
        if (!largest) largest = 1; /* only where reach is huge: not drawn here */
        mult[o] = (int16_t)(below(3) ? largest - below(largest < 16 ? 1 : 16) : 1 + below(largest));
        bias[o] = below(2) ? -(int32_t)size : (int32_t)size;
    }
}

/* Every kernel of a list that takes the layer against `expected`. `in_place` writes over the input. */
static int compare(const fb_kernel *kernels, const fb_layer *layer, const int8_t *in, const int8_t *in2,
                   const int8_t *expected, uint32_t number, bool in_place) {
    int bad = 0;
    for (; kernels->name; kernels++) {
        uint32_t size = kernels->scratch(layer);
        int8_t *out;
        void *scratch;
        if (size == FB_NOT_FOR_THIS) continue;
        out = take(layer->out.size);
        scratch = take(size);
        memset(out, 99, layer->out.size);
        memset(scratch, 0xA5, size);
        if (in_place) {
            memcpy(out, in, layer->out.size);
            in = out;
        }
        kernels->run(layer, in, in2, out, scratch);
        bad += differ(kernels->name, number, out, expected, layer->out.size);
        give(scratch);
        give(out);
        if (in_place) break;
    }
    return bad;
}

static int binary_conv(uint32_t number) {
    static const uint8_t channels[] = {1, 2, 3, 5, 13, 16, 17, 32, 48, 100}, chunked[] = {16, 16, 32, 48, 64};
    static const uint8_t filters[] = {1, 2, 3, 8, 16, 17, 33};
    fb_layer layer = {0};
    int8_t *in, *expected;
    uint16_t *bits;
    int32_t *bias;
    int16_t *mult;
    bool chunks = below(2);
    int bad;
    layer.kind = FB_CONV;
    layer.flags = FB_FLAG_BINARY;
    layer.kernel_h = (uint8_t)(chunks ? 3 : 1 + below(7));
    layer.kernel_w = (uint8_t)(chunks || below(2) ? layer.kernel_h : 1 + below(7));
    layer.stride_h = (uint8_t)(1 + below(3));
    layer.stride_w = below(4) ? layer.stride_h : (uint8_t)(1 + below(3));
    if (chunks) layer.flags |= FB_FLAG_CHUNKS;
    draw_window(&layer, chunks ? among(chunked, sizeof chunked) : among(channels, sizeof channels),
                among(filters, sizeof filters), true);
    set_relu(&layer);
    in = take(layer.in.size);
    bits = take(2 * layer.words * layer.out.channels);
    bias = take(sizeof *bias * layer.out.channels);
    mult = take(sizeof *mult * layer.out.channels);
    expected = take(layer.out.size);
    draw_values(in, layer.in.size, layer.in.zero_point);
    draw_bits(bits, &layer);
    draw_scaling(&layer, bias, mult);
    layer.bits = bits;
    layer.bias = bias;
    layer.mult = mult;
    fb_conv_bin_reference(&layer, in, NULL, expected, NULL);
    bad = compare(conv_kernels, &layer, in, NULL, expected, number, false);
    give(expected);
    give(mult);
    give(bias);
    give(bits);
    give(in);
    return bad;
}

/* Bits that are spare are 0, as fb_binarize leaves them. */
static void draw_packed(uint16_t *words, const fb_tensor *t) {
    uint32_t plane = (uint32_t)t->height * t->width, kind = below(6), c, i;
    for (c = 0; c < t->channels; c += 16) {
        uint32_t count = t->channels - c < 16u ? t->channels - c : 16u;
        for (i = 0; i < plane; i++) {
            uint32_t word = kind == 0 ? 0xFFFF : kind == 1 ? 0 : draw() >> 9;
            *words++ = (uint16_t)(word & ((1u << count) - 1));
        }
    }
}

static int bits_conv(uint32_t number) {
    static const uint8_t channels[] = {1, 3, 13, 16, 17, 32, 100}, chunked[] = {16, 32, 48, 64, 128};
    static const uint8_t filters[] = {1, 2, 3, 8, 17, 33};
    fb_layer layer = {0};
    uint16_t *in, *bits;
    int8_t *expected;
    int32_t *bias;
    int16_t *mult;
    bool chunks = below(4);
    int bad;
    layer.kind = FB_CONV_BITS;
    layer.flags = FB_FLAG_BINARY;
    if (below(2)) layer.flags |= FB_FLAG_ONES;
    if (chunks) layer.flags |= FB_FLAG_CHUNKS;
    layer.kernel_h = (uint8_t)(chunks ? 3 : 1 + below(5));
    layer.kernel_w = (uint8_t)(chunks ? 3 : 1 + below(5));
    layer.stride_h = (uint8_t)(1 + below(3));
    layer.stride_w = below(4) ? layer.stride_h : (uint8_t)(1 + below(3));
    draw_window(&layer, chunks ? among(chunked, sizeof chunked) : among(channels, sizeof channels),
                among(filters, sizeof filters), true);
    layer.in.rank = FB_RANK_BITS;
    layer.in.zero_point = 0;
    layer.in.size = 2u * layer.in.height * layer.in.width * fb_words(layer.in.channels);
    set_relu(&layer);
    in = take(layer.in.size);
    bits = take(2 * layer.words * layer.out.channels);
    bias = take(sizeof *bias * layer.out.channels);
    mult = take(sizeof *mult * layer.out.channels);
    expected = take(layer.out.size);
    draw_packed(in, &layer.in);
    draw_bits(bits, &layer);
    draw_scaling(&layer, bias, mult);
    layer.bits = bits;
    layer.bias = bias;
    layer.mult = mult;
    fb_conv_bits_reference(&layer, (const int8_t *)in, NULL, expected, NULL);
    bad = compare(bits_kernels, &layer, (const int8_t *)in, NULL, expected, number, false);
    give(expected);
    give(mult);
    give(bias);
    give(bits);
    give(in);
    return bad;
}

static int binary_dense(uint32_t number) {
    fb_layer layer = {0};
    int8_t *in, *expected;
    uint16_t *bits;
    int32_t *bias;
    int16_t *mult;
    uint32_t o, i;
    int bad;
    layer.kind = FB_DENSE;
    layer.flags = FB_FLAG_BINARY;
    layer.kernel_h = layer.kernel_w = layer.stride_h = layer.stride_w = 1;
    draw_tensor(&layer.in, 1, 1, 1 + below(700));
    draw_tensor(&layer.out, 1, 1, 1 + below(20));
    layer.inputs = layer.in.channels;
    layer.words = (layer.inputs + 15) / 16;
    set_relu(&layer);
    in = take(layer.in.size);
    bits = take(2 * layer.words * layer.out.channels);
    bias = take(sizeof *bias * layer.out.channels);
    mult = take(sizeof *mult * layer.out.channels);
    expected = take(layer.out.size);
    draw_values(in, layer.in.size, layer.in.zero_point);
    draw_bits(bits, &layer);
    draw_scaling(&layer, bias, mult);
    layer.bits = bits;
    layer.bias = bias;
    layer.mult = mult;
    for (o = 0; o < layer.out.channels; o++) {
        int32_t sum = bias[o];
        for (i = 0; i < layer.inputs; i++) sum += bits[o * layer.words + i / 16] >> i % 16 & 1 ? in[i] : -in[i];
        expected[o] = formula((int64_t)sum * mult[o], layer.shift, layer.out.zero_point, layer.low);
    }
    bad = compare(dense_kernels, &layer, in, NULL, expected, number, false);
    give(expected);
    give(mult);
    give(bias);
    give(bits);
    give(in);
    return bad;
}

static int int8_layer(uint32_t number, bool dense) {
    static const uint8_t channels[] = {1, 2, 3, 4, 7, 8, 12, 16, 24};
    fb_layer layer = {0};
    int8_t *in, *weights, *expected;
    int32_t *bias, *mult, y, x, ky, kx;
    uint32_t o, c, i;
    int bad;
    layer.kind = dense ? FB_DENSE : FB_CONV;
    layer.kernel_h = layer.kernel_w = layer.stride_h = layer.stride_w = 1;
    if (dense) {
        draw_tensor(&layer.in, 1, 1, 1 + below(200));
        draw_tensor(&layer.out, 1, 1, 1 + below(20));
        layer.inputs = layer.in.channels;
    } else {
        layer.kernel_h = (uint8_t)(below(4) ? 1 + below(3) : 1 + below(7));
        layer.kernel_w = (uint8_t)(below(2) ? layer.kernel_h : 1 + below(5));
        layer.stride_h = (uint8_t)(1 + below(3));
        layer.stride_w = below(4) ? layer.stride_h : (uint8_t)(1 + below(3));
        draw_window(&layer, among(channels, sizeof channels), 1 + below(6), true);
    }
    set_relu(&layer);
    layer.shift = (uint8_t)(below(4) ? 33 + below(14) : 1 + below(46));
    in = take(layer.in.size);
    weights = take(layer.inputs * layer.out.channels);
    bias = take(sizeof *bias * layer.out.channels);
    mult = take(sizeof *mult * layer.out.channels);
    expected = take(layer.out.size);
    draw_values(in, layer.in.size, layer.in.zero_point);
    draw_values(weights, layer.inputs * layer.out.channels, 0);
    for (o = 0; o < layer.out.channels; o++) {
        bias[o] = (int32_t)(draw() >> below(31));
        bias[o] = below(2) ? -(bias[o] / 2) : bias[o] / 2;
        mult[o] = (int32_t)(1 + (draw() >> 1 >> below(31)) % 0x7FFFFFFEu);
    }
    layer.weights = weights;
    layer.bias = bias;
    layer.mult_int8 = mult;
    for (o = 0, i = 0; o < layer.out.channels; o++) {
        for (y = 0; y < layer.out.height; y++) {
            for (x = 0; x < layer.out.width; x++) {
                const int8_t *w = weights + o * layer.inputs;
                int32_t sum = bias[o];
                for (ky = 0; ky < layer.kernel_h; ky++) {
                    for (kx = 0; kx < layer.kernel_w; kx++) {
                        for (c = 0; c < layer.in.channels; c++) {
                            sum += *w++ * at(&layer, in, c, y * layer.stride_h - layer.pad_top + ky,
                                             x * layer.stride_w - layer.pad_left + kx, layer.in.zero_point);
                        }
                    }
                }
                expected[i++] = formula((int64_t)sum * mult[o], layer.shift, layer.out.zero_point, layer.low);
            }
        }
    }
    bad = compare(dense ? dense_int8_kernels : conv_int8_kernels, &layer, in, NULL, expected, number, false);
    give(expected);
    give(mult);
    give(bias);
    give(weights);
    give(in);
    return bad;
}

/* Each channel by itself, of either kind of weights. */
static int depthwise(uint32_t number) {
    bool binary = below(2);
    fb_layer layer = {0};
    int8_t *in, *weights, *expected;
    uint16_t *bits;
    int32_t *bias, *wide, y, x, ky, kx;
    int16_t *mult;
    uint32_t c, i = 0;
    int bad;
    layer.kind = FB_DEPTHWISE;
    layer.flags = binary ? FB_FLAG_BINARY : 0;
    layer.kernel_h = (uint8_t)(below(2) ? 3 : 1 + below(6));
    layer.kernel_w = (uint8_t)(below(2) ? layer.kernel_h : 1 + below(11));
    layer.stride_h = (uint8_t)(1 + below(3));
    layer.stride_w = below(4) ? layer.stride_h : (uint8_t)(1 + below(3));
    draw_window(&layer, 1 + below(5), 1, true);
    layer.out.channels = layer.in.channels;
    layer.out.size = (uint32_t)layer.out.height * layer.out.width * layer.out.channels;
    layer.inputs = (uint32_t)layer.kernel_h * layer.kernel_w;
    layer.words = (layer.inputs + 15) / 16;
    set_relu(&layer);
    in = take(layer.in.size);
    weights = take(layer.inputs * layer.out.channels);
    bits = take(2 * layer.words * layer.out.channels);
    bias = take(sizeof *bias * layer.out.channels);
    mult = take(sizeof *mult * layer.out.channels);
    wide = take(sizeof *wide * layer.out.channels);
    expected = take(layer.out.size);
    draw_values(in, layer.in.size, layer.in.zero_point);
    draw_values(weights, layer.inputs * layer.out.channels, 0);
    draw_bits(bits, &layer);
    draw_scaling(&layer, bias, mult);
    for (c = 0; c < layer.out.channels; c++) wide[c] = (int32_t)(1 + (draw() >> 1 >> below(31)) % 0x7FFFFFFEu);
    if (!binary) layer.shift = (uint8_t)(below(4) ? 33 + below(14) : 1 + below(46));
    layer.bits = binary ? bits : NULL;
    layer.weights = binary ? NULL : weights;
    layer.bias = bias;
    layer.mult = binary ? mult : NULL;
    layer.mult_int8 = binary ? NULL : wide;
    for (c = 0; c < layer.out.channels; c++) {
        for (y = 0; y < layer.out.height; y++) {
            for (x = 0; x < layer.out.width; x++) {
                int32_t sum = bias[c];
                uint32_t tap = 0;
                for (ky = 0; ky < layer.kernel_h; ky++) {
                    for (kx = 0; kx < layer.kernel_w; kx++, tap++) {
                        int32_t w = binary ? (bits[c * layer.words + tap / 16] >> tap % 16 & 1 ? 1 : -1)
                                           : weights[c * layer.inputs + tap];
                        sum += w * at(&layer, in, c, y * layer.stride_h - layer.pad_top + ky,
                                      x * layer.stride_w - layer.pad_left + kx, layer.in.zero_point);
                    }
                }
                expected[i++] =
                    formula((int64_t)sum * (binary ? mult[c] : wide[c]), layer.shift, layer.out.zero_point, layer.low);
            }
        }
    }
    bad = compare(binary ? depthwise_kernels : depthwise_int8_kernels, &layer, in, NULL, expected, number, false);
    give(expected);
    give(wide);
    give(mult);
    give(bias);
    give(bits);
    give(weights);
    give(in);
    return bad;
}

static int addition(uint32_t number) {
    fb_layer layer = {0};
    int8_t *in, *in2, *expected;
    uint32_t limit, i;
    int bad;
    layer.kind = FB_ADD;
    draw_tensor(&layer.in, 1 + below(9), 1 + below(9), 1 + below(9));
    layer.in2 = layer.out = layer.in;
    layer.in2.zero_point = draw_zero();
    layer.out.zero_point = draw_zero();
    set_relu(&layer);
    layer.shift = (uint8_t)(1 + below(30));
    limit = (0x7FFFFFFFu - (1u << layer.shift >> 1)) / 255; /* first + second */
    layer.factor[0] = 1 + below(limit - 1 < (1u << 22) - 1 ? limit - 1 : (1u << 22) - 1);
    limit -= layer.factor[0];
    layer.factor[1] = limit < (1u << 22) - 1 ? limit : (1u << 22) - 1;
    if (below(2)) layer.factor[1] = 1 + below(layer.factor[1]);
    in = take(layer.in.size);
    in2 = take(layer.in.size);
    expected = take(layer.out.size);
    draw_values(in, layer.in.size, layer.in.zero_point);
    draw_values(in2, layer.in.size, layer.in2.zero_point);
    for (i = 0; i < layer.out.size; i++) {
        int64_t sum = (int64_t)(in[i] - layer.in.zero_point) * layer.factor[0] +
                      (int64_t)(in2[i] - layer.in2.zero_point) * layer.factor[1];
        expected[i] = formula(sum, layer.shift, layer.out.zero_point, layer.low);
    }
    bad = compare(add_kernels, &layer, in, in2, expected, number, false);
    bad += compare(add_kernels, &layer, in, in2, expected, number, true);
    give(expected);
    give(in2);
    give(in);
    return bad;
}

static int pooling(uint32_t number) {
    bool average = below(2);
    fb_layer layer = {0};
    int8_t *in, *expected;
    uint32_t c, i = 0;
    int32_t y, x, ky, kx;
    int bad;
    layer.kind = average ? FB_AVERAGE_POOL : FB_MAX_POOL;
    layer.kernel_h = (uint8_t)(1 + below(8));
    layer.kernel_w = (uint8_t)(below(3) ? layer.kernel_h : 1 + below(8));
    layer.stride_h = (uint8_t)(1 + below(3));
    layer.stride_w = below(3) ? layer.stride_h : (uint8_t)(1 + below(3));
    draw_window(&layer, 1 + below(5), 1, below(2));
    layer.out.channels = layer.in.channels;
    layer.out.size = (uint32_t)layer.out.height * layer.out.width * layer.out.channels;
    if (!average) layer.out.zero_point = layer.in.zero_point;
    layer.low = -128;
    layer.shift = (uint8_t)(average ? 1 + below(30) : 0);
    if (average) {
        uint32_t limit = (0x7FFFFFFFu - (1u << layer.shift >> 1)) / (255u * layer.kernel_h * layer.kernel_w);
        if (!fb_all_inside(&layer) && limit > 1) limit--;
        if (limit > (1u << 22) - 1) limit = (1u << 22) - 1;
        layer.factor[0] = below(2) ? limit : 1 + below(limit);
    }
    in = take(layer.in.size);
    expected = take(layer.out.size);
    draw_values(in, layer.in.size, layer.in.zero_point);
    for (c = 0; c < layer.out.channels; c++) {
        for (y = 0; y < layer.out.height; y++) {
            for (x = 0; x < layer.out.width; x++) {
                int32_t sum = 0, most = -128, n = 0, window = layer.kernel_h * layer.kernel_w;
                for (ky = 0; ky < layer.kernel_h; ky++) {
                    for (kx = 0; kx < layer.kernel_w; kx++) {
                        int32_t yy = y * layer.stride_h - layer.pad_top + ky;
                        int32_t xx = x * layer.stride_w - layer.pad_left + kx;
                        int32_t v = at(&layer, in, c, yy, xx, -128);
                        if (v > most) most = v;
                        if (yy < 0 || yy >= layer.in.height || xx < 0 || xx >= layer.in.width) continue;
                        sum += v - layer.in.zero_point;
                        n++;
                    }
                }
                expected[i++] = average ? formula((int64_t)sum * (((int32_t)layer.factor[0] * window + n / 2) / n),
                                                  layer.shift, layer.out.zero_point, -128)
                                        : (int8_t)most;
            }
        }
    }
    bad = compare(average ? average_kernels : max_kernels, &layer, in, NULL, expected, number, false);
    give(expected);
    give(in);
    return bad;
}

static int twin(uint32_t number) {
    switch (number % 16) {
    case 0: return addition(number);
    case 1:
    case 9: return pooling(number);
    case 2: return binary_dense(number);
    case 10: return int8_layer(number, true);
    case 3:
    case 4: return int8_layer(number, false);
    case 5:
    case 6: return depthwise(number);
    case 8:
    case 12: return bits_conv(number);
    default: return binary_conv(number);
    }
}
