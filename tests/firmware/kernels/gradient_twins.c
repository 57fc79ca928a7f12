/* Random layers through the kernels of learning, against what they are defined to be, in any scratch they may be given.
 * See twins.h.
 */
#include "kernels/gradient/fb_gradient.h"
#include "twins.h"

static void draw_conv(fb_layer *layer) {
    static const uint8_t channels[] = {1, 2, 3, 5, 16, 16, 17, 32}, filters[] = {1, 2, 3, 7, 16, 16, 33};
    layer->kind = FB_CONV;
    layer->flags = FB_FLAG_BINARY;
    layer->kernel_h = (uint8_t)(below(2) ? 3 : 1 + below(5));
    layer->kernel_w = (uint8_t)(below(3) ? layer->kernel_h : 1 + below(5));
    layer->stride_h = (uint8_t)(1 + below(3));
    layer->stride_w = below(4) ? layer->stride_h : (uint8_t)(1 + below(3));
    draw_window(layer, among(channels, sizeof channels), among(filters, sizeof filters), below(4) != 0);
    if (below(8) == 0) { /* fb_grad_strided */
        static const uint8_t widths[] = {8, 8, 16, 24}, some[] = {1, 3, 16, 17, 32}, many[] = {16, 32, 48, 64};
        uint32_t height = 1 + below(5), width = among(widths, sizeof widths);
        layer->kernel_h = layer->kernel_w = 3;
        layer->stride_h = layer->stride_w = 2;
        layer->pad_top = layer->pad_left = (uint8_t)below(2);
        draw_tensor(&layer->in, 2 * height, 2 * width, among(some, sizeof some));
        draw_tensor(&layer->out, height, width, among(many, sizeof many));
        layer->inputs = 9u * layer->in.channels;
        layer->words = (layer->inputs + 15) / 16;
    }
    if (below(8) == 0) { /* as a dense layer */
        layer->kernel_h = layer->kernel_w = layer->stride_h = layer->stride_w = 1;
        layer->pad_top = layer->pad_left = 0;
        draw_tensor(&layer->in, 1, 1, 1 + below(90));
        draw_tensor(&layer->out, 1, 1, 1 + below(20));
        layer->inputs = layer->in.channels;
        layer->words = (layer->inputs + 15) / 16;
    }
    if (layer->kernel_h == 3 && layer->kernel_w == 3 && layer->in.channels % 16 == 0) layer->flags |= FB_FLAG_CHUNKS;
}

/* None, all that helps, or anything between. */
static uint32_t draw_room(uint32_t most) {
    uint32_t kind = below(3);
    return kind == 0 ? most : kind == 1 ? below(most + 1) : most / 2;
}

/* Σ h · (x − zero point) of one weight. */
static int32_t weight_sum(const fb_layer *layer, const int8_t *h, const int8_t *in, uint32_t c, int32_t ky,
                          int32_t kx) {
    int32_t sum = 0, z = layer->in.zero_point;
    for (int32_t y = 0; y < layer->out.height; y++) {
        for (int32_t x = 0; x < layer->out.width; x++) {
            sum += *h++ * (at(layer, in, c, y * layer->stride_h - layer->pad_top + ky,
                              x * layer->stride_w - layer->pad_left + kx, z) -
                           z);
        }
    }
    return sum;
}

static int of_weights(uint32_t number) {
    fb_layer layer = {0};
    uint32_t filters, stride, first, plane, o, c, i, trial;
    unsigned shift;
    int8_t *in, *h;
    int32_t *expected, *sums;
    int bad = 0;
    draw_conv(&layer);
    plane = (uint32_t)layer.out.height * layer.out.width;
    filters = 1 + below(layer.out.channels);
    first = below(layer.out.channels - filters + 1);
    stride = layer.inputs + below(2);
    shift = below(2) ? 0 : below(12);
    in = take(layer.in.size);
    h = take(layer.out.size);
    expected = take(4 * filters * stride);
    sums = take(4 * filters * stride);
    draw_values(in, layer.in.size, layer.in.zero_point);
    draw_values(h, layer.out.size, 0);
    for (i = 0; i < filters * stride; i++) expected[i] = (int32_t)i - 1000;
    for (o = 0; o < filters; o++) {
        int32_t *to = expected + o * stride;
        for (c = 0; c < layer.in.channels; c++) {
            for (i = 0; i < (uint32_t)layer.kernel_h * layer.kernel_w; i++) {
                int32_t sum = weight_sum(&layer, h + (first + o) * plane, in, c, (int32_t)(i / layer.kernel_w),
                                         (int32_t)(i % layer.kernel_w));
                *to++ += shift ? (int32_t)((sum + ((int64_t)1 << (shift - 1))) >> shift) : sum;
            }
        }
    }
    for (trial = 0; trial < 3; trial++) {
        uint32_t room = trial == 0 ? 0 : trial == 1 ? fb_grad_weights_scratch(&layer) : 0;
        fb_grad_sums to = {(uint8_t *)sums, 4 * stride, layer.inputs, 0, 0, 4};
        void *scratch;
        if (trial == 2) room = draw_room(fb_grad_weights_scratch(&layer));
        scratch = take(room);
        memset(scratch, 0xA5, room);
        for (i = 0; i < filters * stride; i++) sums[i] = (int32_t)i - 1000;
        fb_grad_weights(&layer, h + first * plane, in, shift, &to, filters, scratch, room);
        bad += differ("fb_grad_weights", number, sums, expected, 4 * filters * stride);
        give(scratch);
    }
    give(sums);
    give(expected);
    give(h);
    give(in);
    return bad;
}

/* Narrow sums of two samples: the same bytes with any scratch and however filters are divided, and about those of 32
 * bits. A sum is rounded in each sample, and when it is divided: by less than four of its last digits in all. */
static int of_narrow_sums(uint32_t number) {
    fb_layer layer = {0};
    uint32_t plane, each, size, trial, o, i, room;
    uint8_t bytes = (uint8_t)(1 + below(2));
    int64_t limit = bytes == 2 ? 32767 : 127;
    int8_t *in, *h;
    int32_t *wide, *exact;
    uint8_t *expected, *sums;
    int bad = 0;
    draw_conv(&layer);
    plane = (uint32_t)layer.out.height * layer.out.width;
    each = fb_grad_sums_size(layer.inputs, bytes);
    size = each * layer.out.channels;
    in = take(2 * layer.in.size);
    h = take(2 * layer.out.size);
    exact = take(4 * layer.inputs * layer.out.channels);
    wide = take(4 * layer.inputs);
    expected = take(size);
    sums = take(size);
    draw_values(in, 2 * layer.in.size, layer.in.zero_point);
    draw_values(h, 2 * layer.out.size, 0);
    memset(exact, 0, 4 * (size_t)layer.inputs * layer.out.channels);
    for (trial = 0; trial < 3; trial++) {
        uint32_t half = trial == 2 ? below(layer.out.channels + 1u) : layer.out.channels;
        void *scratch;
        room = trial == 0 ? 0 : draw_room(fb_grad_weights_scratch(&layer));
        scratch = take(room);
        memset(sums, 0, size);
        for (i = 0; i < 2; i++) { /* samples */
            const int8_t *his = h + i * layer.out.size;
            fb_grad_sums to = {sums, each, layer.inputs, fb_grad_key(number, i), 0, bytes};
            fb_grad_sums all = {(uint8_t *)exact, 4 * layer.inputs, layer.inputs, 0, 0, 4};
            if (half) fb_grad_weights(&layer, his, in + i * layer.in.size, 0, &to, half, scratch, room);
            to.at += half * each;
            to.first = (uint16_t)half;
            if (half < layer.out.channels) {
                fb_grad_weights(&layer, his + half * plane, in + i * layer.in.size, 0, &to, layer.out.channels - half,
                                scratch, room);
            }
            if (trial == 0) {
                fb_grad_weights(&layer, his, in + i * layer.in.size, 0, &all, layer.out.channels, scratch, room);
            }
        }
        if (trial == 0) memcpy(expected, sums, size);
        bad += differ("narrow sums", number, sums, expected, size);
        give(scratch);
    }
    for (o = 0; o < layer.out.channels; o++) {
        const uint8_t *filter = expected + o * each;
        uint32_t digit = 1u << filter[(size_t)bytes * layer.inputs];
        fb_grad_widen(filter, layer.inputs, bytes, wide);
        for (i = 0; i < layer.inputs; i++) {
            int64_t error = (int64_t)wide[i] - exact[o * layer.inputs + i];
            if (error < 0) error = -error;
            if (error >= 4 * (int64_t)digit || wide[i] / (int64_t)digit > limit) {
                bad += different("a narrow sum", number);
            }
        }
    }
    give(sums);
    give(expected);
    give(wide);
    give(exact);
    give(h);
    give(in);
    return bad;
}

/* Σ over filters and taps of ±h, at one place of the input. */
static int32_t input_sum(const fb_layer *layer, const int8_t *h, uint32_t c, int32_t y, int32_t x) {
    int32_t sum = 0;
    for (int32_t i = 0; i < layer->kernel_h * layer->kernel_w; i++) {
        int32_t down = y + layer->pad_top - i / layer->kernel_w, across = x + layer->pad_left - i % layer->kernel_w;
        if (down < 0 || across < 0 || down % layer->stride_h || across % layer->stride_w) continue;
        down /= layer->stride_h;
        across /= layer->stride_w;
        if (down >= layer->out.height || across >= layer->out.width) continue;
        for (uint32_t o = 0; o < layer->out.channels; o++) {
            uint32_t from = (o * layer->out.height + (uint32_t)down) * layer->out.width + (uint32_t)across;
            sum += fb_bit(layer->bits + o * layer->words, fb_bit_index(layer, (uint32_t)i, c)) ? h[from] : -h[from];
        }
    }
    return sum;
}

static int of_input(uint32_t number) {
    fb_layer layer = {0};
    int8_t *h, *expected, *out, *to;
    uint16_t *bits;
    unsigned shift = 1 + below(12);
    uint32_t trial, c;
    int bad = 0;
    draw_conv(&layer);
    h = take(layer.out.size);
    bits = take(2 * layer.words * layer.out.channels);
    expected = take(layer.in.size);
    out = take(layer.in.size);
    draw_values(h, layer.out.size, 0);
    for (trial = 0; trial < layer.out.size; trial++) h[trial] = (int8_t)(h[trial] == -128 ? -127 : h[trial]);
    draw_bits(bits, &layer);
    layer.bits = bits;
    to = expected;
    for (c = 0; c < layer.in.channels; c++) {
        for (int32_t y = 0; y < layer.in.height; y++) {
            for (int32_t x = 0; x < layer.in.width; x++) {
                *to++ = formula(input_sum(&layer, h, c, y, x), shift, 0, -128);
            }
        }
    }
    for (trial = 0; trial < 3; trial++) {
        uint32_t most = fb_grad_input_scratch(&layer, (fb_choice)below(4)), room = trial == 0   ? 0
                                                                                   : trial == 1 ? most
                                                                                                : draw_room(most);
        void *scratch = take(room);
        memset(scratch, 0xA5, room);
        memset(out, 99, layer.in.size);
        fb_grad_input(&layer, h, out, shift, scratch, room);
        bad += differ("fb_grad_input", number, out, expected, layer.in.size);
        give(scratch);
    }
    give(out);
    give(expected);
    give(bits);
    give(h);
    return bad;
}

/* v · factor / 2^shift to the nearest, ties away from zero; nothing above 2^31. */
static int64_t scaled(int32_t v, int32_t factor, int32_t shift) {
    int64_t product = (int64_t)v * factor, size = product < 0 ? -product : product;
    if (shift > 30) return 0;
    if (shift > 0) size = (2 * size + ((int64_t)1 << shift)) >> (shift + 1);
    if (shift <= 0) size = size == 0 ? 0 : size > 127 || shift < -16 ? 128 : size << -shift;
    return product < 0 ? -size : size;
}

static int of_scales(uint32_t number) {
    fb_tensor shape;
    fb_factors factors = {NULL, NULL, 0, NULL};
    fb_count counts = {5, 3}, expected_counts = {5, 3};
    bool join = below(2), masked = below(3) != 0, few = below(2), in_place;
    int32_t shift = below(8) ? 1 + (int32_t)below(30) : (int32_t)below(60) - 25, wide[12];
    int16_t narrow[12];
    int8_t *from, *to, *expected;
    uint8_t *mask;
    uint32_t i, plane, cut = 0;
    int bad = 0;
    if (below(2)) {
        draw_tensor(&shape, 1 + below(9), 1 + below(20), 1 + below(12));
    } else { /* four at a time */
        draw_tensor(&shape, 4 * (1 + below(3)), 2 * (1 + below(10)), 1 + below(12));
    }
    plane = (uint32_t)shape.height * shape.width;
    for (i = 0; i < 12; i++) {
        wide[i] = (int32_t)(draw() >> 1 >> below(15));
        narrow[i] = (int16_t)(1 + (draw() >> 8) % 32767);
    }
    factors.one = 1 + (int32_t)(draw() >> 8 >> below(20)) % 0xFFFFFF;
    if (below(4) == 0) { /* as gradients are joined */
        factors.one = 1;
        shift = 0;
    }
    if (below(3) == 0) factors.wide = wide;
    if (!factors.wide && below(2)) factors.narrow = narrow;
    from = take(shape.size);
    to = take(shape.size);
    expected = take(shape.size);
    mask = take(shape.size / 8 + 1);
    draw_values(from, shape.size, 0);
    draw_values(to, shape.size, 0);
    for (i = 0; few && i < shape.size; i++) { /* seldom large, as gradients are */
        if (from[i] % 16) from[i] = (int8_t)(from[i] / 4);
        if (to[i] % 16) to[i] = (int8_t)(to[i] / 3);
    }
    in_place = !join && below(2);
    if (in_place) memcpy(to, from, shape.size);
    fb_grad_mask(to, shape.size, -20, 100, mask);
    for (i = 0; i < shape.size; i++) {
        bool pass = to[i] > -20 && to[i] < 100;
        int32_t factor = factors.narrow ? narrow[i / plane] : factors.wide ? wide[i / plane] >> 16 : factors.one;
        int64_t v = !masked || pass ? scaled(from[i], factor, shift) : 0;
        if ((mask[i / 8] >> i % 8 & 1) != pass) bad += different("fb_grad_mask", number);
        if (join) v += to[i];
        cut += v > 127 || v < -127;
        v = v > 127 ? 127 : v < -127 ? -127 : v;
        expected[i] = (int8_t)v;
        expected_counts.large += v >= 64 || v <= -64;
        expected_counts.saturated += v == 127 || v == -127;
    }
    for (i = cut > 2 ? cut - 2 : 0; i < cut + 2; i++) {
        bool more = fb_grad_cuts_off(from, to, &shape, &factors, shift, masked ? mask : NULL, join, i);
        if (more != (cut > i)) bad += different("fb_grad_cuts_off", number);
    }
    fb_grad_scale(in_place ? to : from, to, &shape, &factors, shift, masked ? mask : NULL, join, &counts);
    bad += differ("fb_grad_scale", number, to, expected, shape.size);
    fb_grad_count(&counts, to, shape.size);
    expected_counts.large += expected_counts.large - 5;
    expected_counts.saturated += expected_counts.saturated - 3;
    bad += differ("its counts", number, &counts, &expected_counts, sizeof counts);
    give(mask);
    give(expected);
    give(to);
    give(from);
    return bad;
}

/* Sums of a channel's gradients: all of them, and with results of which 4 bits are kept. */
static int of_channels(uint32_t number) {
    uint32_t height = 1 + below(12), width = below(2) ? 4 * (1 + below(5)) : 1 + below(20), plane = height * width;
    uint32_t channels = 1 + below(4), each = (height + 1) / 2 * ((width + 1) / 2), c, x, y;
    int32_t zero_point = (int32_t)below(256) - 128;
    int8_t *h = take(channels * plane), *results = take(channels * plane);
    uint8_t *kept = take(channels * each / 2 + 1);
    int bad = 0;
    draw_values(h, channels * plane, 0);
    draw_values(results, channels * plane, 0);
    for (c = 0; c < channels; c++) fb_grad_keep(results + c * plane, height, width, c * each, kept);
    for (c = 0; c < channels; c++) {
        int32_t sum = 0, gain = 0;
        for (y = 0; y < height; y++) {
            for (x = 0; x < width; x++) {
                int32_t g = h[c * plane + y * width + x], result = results[c * plane + y * width + x];
                sum += g;
                if (y % 2 == 0 && x % 2 == 0) gain += g * ((result + 128) / 16 * 16 + 8 - 128 - zero_point);
            }
        }
        if (fb_grad_sum(h + c * plane, plane) != sum) bad += different("fb_grad_sum", number);
        if (fb_grad_gain(h + c * plane, height, width, c * each, kept, zero_point) != gain) {
            bad += different("fb_grad_gain", number);
        }
    }
    give(kept);
    give(results);
    give(h);
    return bad;
}

static int twin(uint32_t number) {
    if (number % 20 == 3) return of_channels(number);
    switch (number % 5) {
    case 0: return of_scales(number);
    case 1: return of_input(number);
    case 2: return of_narrow_sums(number);
    default: return of_weights(number);
    }
}
