/* Structure-aware mutation for libFuzzer: takes an image apart, changes what it means, and puts it together again with
 * shapes that agree, weights where offsets say, and the right CRC. Random bytes would end at the CRC; these reach the
 * last check, and mostly run.
 *
 *     parse ─► change a few things ─► repair ─► encode ─► damage, sometimes ─► length and CRC
 *
 * Each repair is left out now and then, so that every check also sees what it must refuse.
 */
#include <stdlib.h>
#include <string.h>

#include "mutate.h"
#include "run/fb_front_end.h"
#include "run/fb_layer.h"

enum { MOST = 40 }; /* tensors and operations; more are cut off */

typedef struct net_op {
    uint8_t kind, flags;
    uint16_t input, input2, output;
    uint8_t kernel[2], stride[2], padding[4]; /* down, across; top, bottom, left, right */
    uint8_t shift;
    uint32_t first, second;
} net_op;

typedef struct net {
    unsigned tensor_count, op_count, input, output;
    fb_tensor tensors[MOST];
    net_op ops[MOST];
    bool has_front_end;
    uint8_t front_end[FB_FRONT_SIZE];
} net;

/* A writer that stops at the end. */
typedef struct sink {
    uint8_t *data;
    size_t size, limit;
} sink;

static uint32_t state;

static uint32_t draw(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return (state >> 4) % below;
}

static bool one_in(uint32_t n) { return draw(n) == 0; }

static uint32_t pick(const uint32_t *from, uint32_t count) { return from[draw(count)]; }
#define PICK(...) pick((const uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / 4)

/* ---- parse ---- */

static void parse(net *n, const uint8_t *data, size_t size) {
    fb_model model = {NULL, 0, 0, 0, 0, 0, 0};
    size_t at = FB_HEADER_SIZE;
    unsigned tensors = 0, ops = 0, i;
    memset(n, 0, sizeof *n);
    model.image = data;
    if (size >= FB_HEADER_SIZE) {
        tensors = fb_u16(data + FB_HEADER_TENSORS);
        ops = fb_u16(data + FB_HEADER_OPS);
        n->input = fb_u16(data + FB_HEADER_INPUT);
        n->output = fb_u16(data + FB_HEADER_OUTPUT);
    }
    for (i = 0; i < tensors && at + FB_TENSOR_SIZE <= size; i++, at += FB_TENSOR_SIZE) {
        if (i < MOST) n->tensors[n->tensor_count++] = fb_model_tensor(&model, i);
    }
    for (i = 0; i < ops && i < MOST && at + FB_OP_SIZE <= size; i++, at += FB_OP_SIZE) {
        const uint8_t *p = data + at;
        net_op *op = &n->ops[n->op_count++];
        op->kind = p[FB_OP_KIND];
        op->flags = p[FB_OP_FLAGS];
        op->input = (uint16_t)fb_u16(p + FB_OP_INPUT);
        op->input2 = (uint16_t)fb_u16(p + FB_OP_INPUT2);
        op->output = (uint16_t)fb_u16(p + FB_OP_OUTPUT);
        memcpy(op->kernel, p + FB_OP_KERNEL_H, 2);
        memcpy(op->stride, p + FB_OP_STRIDE_H, 2);
        memcpy(op->padding, p + FB_OP_PAD_TOP, 4);
        op->shift = p[FB_OP_SHIFT];
        op->first = fb_u32(p + FB_OP_FIRST);
        op->second = fb_u32(p + FB_OP_SECOND);
    }
    n->has_front_end = at + FB_FRONT_SIZE <= size && fb_u16(data + FB_HEADER_FLAGS) & FB_HEADER_FRONT_END;
    if (n->has_front_end) memcpy(n->front_end, data + at, FB_FRONT_SIZE);
}

/* ---- change ---- */

static void put_u16(uint8_t *p, uint32_t value) {
    p[0] = (uint8_t)value;
    p[1] = (uint8_t)(value >> 8);
}

static void put_u32(uint8_t *p, uint32_t value) {
    put_u16(p, value);
    put_u16(p + 2, value >> 16);
}

/* A front end of one kind or the other; repair_front_end makes the input fit. */
static void new_front_end(uint8_t *p) {
    unsigned i;
    memset(p, 0, FB_FRONT_SIZE);
    p[FB_FRONT_KIND] = (uint8_t)(1 + draw(2));
    put_u16(p + FB_FRONT_HOP, 1 + draw(8));
    if (p[FB_FRONT_KIND] == FB_FRONT_AUDIO) {
        uint32_t fft = 64u << draw(5), window = 32 + draw(fft - 31);
        p[FB_FRONT_CHANNELS] = 1;
        put_u32(p + FB_FRONT_RATE, FB_AUDIO_RATE * 1000u);
        put_u16(p + FB_FRONT_WINDOW, window);
        put_u16(p + FB_FRONT_ROW_HOP, 1 + draw(window));
        put_u16(p + FB_FRONT_FFT, fft);
        put_u16(p + FB_FRONT_BANDS, 1 + draw(one_in(4) ? 64 : 8));
        put_u16(p + FB_FRONT_LOW, draw(300));
        put_u16(p + FB_FRONT_HIGH, 300 + draw(7701));
        p[FB_FRONT_FLOOR] = (uint8_t)draw(49);
        p[FB_FRONT_GAIN] = (uint8_t)(1 + draw(255));
        return;
    }
    p[FB_FRONT_CHANNELS] = (uint8_t)(1 + draw(one_in(8) ? 255 : 6));
    put_u32(p + FB_FRONT_RATE, 1 + draw(1u << 27));
    p[FB_FRONT_FLAGS] = (uint8_t)(p[FB_FRONT_CHANNELS] <= FB_SIGNAL_SCALES && draw(2));
    p[FB_FRONT_SHIFT] = (uint8_t)(1 + draw(30));
    p[FB_FRONT_FRACTION] = (uint8_t)(draw(47) - 16);
    for (i = 0; i < (p[FB_FRONT_FLAGS] ? p[FB_FRONT_CHANNELS] : 1u); i++) {
        put_u16(p + FB_FRONT_MULTIPLIERS + 2 * i, one_in(4) ? 32767 : 1 + draw(32767));
        p[FB_FRONT_ZEROS + i] = (uint8_t)draw(256);
    }
}

static void change_front_end(net *n) {
    switch (draw(4)) {
    case 0: n->has_front_end = false; break;
    case 1:
        if (n->has_front_end) n->front_end[draw(FB_FRONT_SIZE)] ^= (uint8_t)(1u << draw(8));
        break;
    default: n->has_front_end = true; new_front_end(n->front_end);
    }
}

static uint16_t side(void) {
    if (one_in(30)) return (uint16_t)PICK(0, 255, 256, 1000, 65535);
    return (uint16_t)(1 + draw(one_in(4) ? 20 : 9));
}

static uint16_t channels(void) {
    if (one_in(30)) return (uint16_t)PICK(0, 100, 257, 65535);
    return (uint16_t)(one_in(2) ? PICK(1, 3, 4, 8, 15, 16, 17, 32, 48) : 1 + draw(12));
}

static void change_tensor(fb_tensor *t) {
    switch (draw(6)) {
    case 0: t->height = side(); break;
    case 1: t->width = side(); break;
    case 2: t->channels = channels(); break;
    case 3: t->zero_point = (int8_t)(one_in(2) ? (int)PICK(0, 1, 127, 128, 129) : (int)draw(256)); break;
    case 4: t->rank = (uint8_t)PICK(0, 1, 1, 2, 3, 3, FB_RANK_BITS); break;
    default: t->scale_bits = PICK(0, 1, 0x3F800000, 0x3C000000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x80000000);
    }
}

static void change_window(net_op *op) {
    static const uint8_t usual[][8] = {
        /* kernel, stride, padding */
        {3, 3, 1, 1, 1, 1, 1, 1}, {3, 3, 2, 2, 0, 1, 0, 1}, {3, 3, 2, 2, 1, 1, 1, 1}, {3, 3, 1, 1, 0, 0, 0, 0},
        {1, 1, 1, 1, 0, 0, 0, 0}, {1, 1, 2, 2, 0, 0, 0, 0}, {5, 5, 1, 1, 2, 2, 2, 2}, {2, 2, 2, 2, 0, 0, 0, 0},
    };
    unsigned i, which = draw(2 * sizeof usual / 8);
    for (i = 0; i < 2; i++) {
        op->kernel[i] = (uint8_t)(one_in(20) ? draw(256) : 1 + draw(5));
        op->stride[i] = (uint8_t)(one_in(20) ? draw(256) : 1 + draw(3));
    }
    for (i = 0; i < 4; i++) op->padding[i] = (uint8_t)(one_in(20) ? draw(256) : draw(3));
    if (which < sizeof usual / 8) {
        memcpy(op->kernel, usual[which], 2);
        memcpy(op->stride, usual[which] + 2, 2);
        memcpy(op->padding, usual[which] + 4, 4);
    }
}

static uint8_t any_kind(void) {
    unsigned kind;
    do kind = draw(FB_KIND_END);
    while (fb_traits_of(kind)->shape == FB_SHAPE_UNKNOWN);
    return (uint8_t)kind;
}

static void change_op(net *n, net_op *op) {
    switch (draw(8)) {
    case 0: op->kind = (uint8_t)draw(FB_KIND_END + 1); break;
    case 1: op->flags ^= (uint8_t)(one_in(16) ? 1u << draw(8) : 1u << draw(6)); break;
    case 2: op->input = (uint16_t)draw(n->tensor_count + 1); break;
    case 3: op->input2 = (uint16_t)(one_in(3) ? FB_NO_TENSOR : draw(n->tensor_count + 1)); break;
    case 4: op->output = (uint16_t)draw(n->tensor_count + 1); break;
    case 5: op->shift = (uint8_t)(one_in(3) ? PICK(0, 1, 30, 31, 46, 47, 255) : 1 + draw(30)); break;
    case 6: op->first = draw(1u << 23), op->second = draw(one_in(2) ? 4u : 1u << 23); break;
    default: change_window(op);
    }
}

static void new_op(net *n, unsigned at) {
    net_op op = {0};
    if (n->op_count == MOST) return;
    op.kind = any_kind();
    op.flags = (uint8_t)draw(64);
    op.input = (uint16_t)draw(n->tensor_count + 1);
    op.input2 = (uint16_t)draw(n->tensor_count + 1);
    op.output = FB_NO_TENSOR;
    op.shift = (uint8_t)(1 + draw(20));
    op.first = op.second = 1 + draw(1u << 20);
    change_window(&op);
    memmove(n->ops + at + 1, n->ops + at, (n->op_count - at) * sizeof op);
    n->ops[at] = op;
    n->op_count++;
    if (one_in(2)) n->output = FB_NO_TENSOR; /* the last one, once repaired */
}

static void change(net *n) {
    unsigned at = n->op_count ? draw(n->op_count) : 0;
    if (one_in(10)) change_front_end(n);
    switch (n->op_count && n->tensor_count ? draw(10) : 9) {
    case 0:
    case 1: change_tensor(&n->tensors[draw(n->tensor_count)]); break;
    case 2: n->input = draw(n->tensor_count + 1); break;
    case 3: n->output = draw(n->tensor_count + 1); break;
    case 4:
        memmove(n->ops + at, n->ops + at + 1, (n->op_count - at - 1) * sizeof *n->ops);
        n->op_count--;
        break;
    case 5: new_op(n, at); break;
    case 9: new_op(n, n->op_count); break;
    default: change_op(n, &n->ops[at]);
    }
}

/* ---- repair ---- */

static bool lenient(void) { return one_in(24); }

static fb_tensor *tensor(net *n, unsigned i) { return &n->tensors[i < MOST ? i : 0]; }

static unsigned new_tensor(net *n) {
    fb_tensor t = {1, 1, 1, 0, 3, 0x3C000000, 1};
    if (n->tensor_count == MOST) return 0;
    t.height = side();
    t.width = side();
    t.channels = channels();
    t.zero_point = (int8_t)(one_in(2) ? -128 : (int)draw(256));
    n->tensors[n->tensor_count] = t;
    return n->tensor_count++;
}

static bool alike(const fb_tensor *a, const fb_tensor *b) {
    return a->height == b->height && a->width == b->width && a->channels == b->channels && a->rank == b->rank;
}

/* A tensor that has a value; `like` another if there is one. */
static unsigned readable(net *n, const bool *written, const fb_tensor *like) {
    unsigned start = draw(n->tensor_count), i, any = n->input;
    for (i = 0; i < n->tensor_count; i++) {
        unsigned t = (start + i) % n->tensor_count;
        if (!written[t]) continue;
        any = t;
        if (!like || alike(&n->tensors[t], like)) break;
    }
    return any;
}

static bool pads(const net_op *op) { return op->padding[0] || op->padding[1] || op->padding[2] || op->padding[3]; }

static void repair_window(net_op *op, const fb_traits *traits, const fb_tensor *in) {
    const uint16_t length[2] = {in->height, in->width};
    unsigned i;
    for (i = 0; i < 2; i++) {
        uint8_t *pad = op->padding + 2 * i;
        if (!op->kernel[i]) op->kernel[i] = 1;
        if (!op->stride[i]) op->stride[i] = 1;
        if (!(traits->has & FB_PADDING_FIELDS)) pad[0] = pad[1] = 0;
        if (traits->has & FB_TO_VECTOR && one_in(2) && length[i] - 1u < 255u) op->kernel[i] = (uint8_t)length[i];
        if (pad[0] >= op->kernel[i]) pad[0] = (uint8_t)(op->kernel[i] - 1);
        if (pad[1] >= op->kernel[i]) pad[1] = (uint8_t)(op->kernel[i] - 1);
        if (length[i] + pad[0] + pad[1] < op->kernel[i]) {
            op->kernel[i] = (uint8_t)(length[i] ? length[i] : 1);
            pad[0] = pad[1] = 0;
        }
    }
}

static uint16_t windows(unsigned length, unsigned padding, unsigned kernel, unsigned stride) {
    return (uint16_t)((length + padding - kernel) / stride + 1);
}

static void repair_shape(net_op *op, const fb_traits *traits, const fb_tensor *in, const fb_tensor *in2,
                         fb_tensor *out) {
    switch (traits->shape) {
    case FB_SHAPE_WINDOWS:
        repair_window(op, traits, in);
        out->height = windows(in->height, op->padding[0] + op->padding[1], op->kernel[0], op->stride[0]);
        out->width = windows(in->width, op->padding[2] + op->padding[3], op->kernel[1], op->stride[1]);
        out->rank = 3;
        if (traits->has & FB_TO_VECTOR && out->height == 1 && out->width == 1) out->rank = (uint8_t)PICK(1, 3);
        if ((traits->has & (FB_WEIGHTS | FB_PER_CHANNEL)) != FB_WEIGHTS) out->channels = in->channels;
        break;
    case FB_SHAPE_VECTORS:
        out->height = out->width = 1;
        out->rank = 1;
        break;
    case FB_SHAPE_FLAT:
        out->height = out->width = 1;
        out->channels = (uint16_t)((uint32_t)in->height * in->width * in->channels);
        out->rank = 1;
        break;
    case FB_SHAPE_STRIDED:
        if (!op->stride[0]) op->stride[0] = 1;
        if (!op->stride[1]) op->stride[1] = 1;
        out->height = (uint16_t)((in->height - 1) / op->stride[0] + 1);
        out->width = (uint16_t)((in->width - 1) / op->stride[1] + 1);
        if (out->channels < in->channels) out->channels = in->channels;
        out->rank = 3;
        break;
    case FB_SHAPE_BITS:
        out->height = in->height;
        out->width = in->width;
        out->channels = in->channels;
        break;
    case FB_SHAPE_SAME:
        out->height = in->height;
        out->width = in->width;
        out->channels = in->channels;
        out->rank = in->rank;
        break;
    case FB_SHAPE_JOINED:
        out->height = in->height;
        out->width = in->width;
        out->channels = (uint16_t)(in->channels + in2->channels);
        out->rank = in->rank;
        break;
    default: abort(); /* a shape that this mutator does not know */
    }
    if (traits->has & FB_WRITES_BITS) {
        out->rank = FB_RANK_BITS;
        out->zero_point = 0;
        out->scale_bits = FB_SCALE_ONE;
    }
    if (traits->has & FB_KEEPS_SCALE) {
        out->zero_point = in->zero_point;
        out->scale_bits = in->scale_bits;
    }
    if (!out->channels) out->channels = 1;
}

/* Fields that a kind does not use are 0; those it uses are in range. Factors of sums are made to fit 31 bits. */
static void repair_fields(net_op *op, const fb_traits *traits, const fb_tensor *in) {
    bool window = traits->has & FB_KERNEL_FIELDS, weighted = traits->has & FB_WEIGHTS;
    unsigned most = weighted && !(op->flags & FB_FLAG_BINARY) ? 46 : 30;
    uint32_t limit;
    op->flags &= traits->flags;
    if (op->flags & FB_FLAG_CHUNKS || (weighted && traits->has & FB_READS_BITS)) op->flags |= FB_FLAG_BINARY;
    if (op->flags & FB_FLAG_REFERENCES) most--;
    if (in->channels % 16 || op->kernel[0] != 3 || op->kernel[1] != 3) op->flags &= (uint8_t)~FB_FLAG_CHUNKS;
    if (!window) memset(op->kernel, 0, 2);
    if (!(traits->has & FB_STRIDE_FIELDS)) memset(op->stride, 0, 2);
    if (!(traits->has & FB_PADDING_FIELDS)) memset(op->padding, 0, 4);
    if (!(traits->has & FB_SHIFTS)) {
        op->shift = 0;
    } else if (op->shift < 1 || op->shift > most) {
        op->shift = (uint8_t)(1 + draw(most));
    }
    if (weighted || traits->has & FB_LOOKS_UP) return;
    if (traits->has & FB_THRESHOLDS) {
        op->first = 0;
        return;
    }
    if (!traits->factors) {
        op->first = op->second = 0;
        return;
    }
    limit = 0x7FFFFFFFu - (1u << op->shift >> 1);
    limit /= 255u * traits->factors * (window ? (uint32_t)op->kernel[0] * op->kernel[1] : 1);
    if (window && pads(op) && limit > 1) limit--; /* windows over the border have their own multipliers */
    if (limit > (1u << 22) - 1) limit = (1u << 22) - 1;
    if (!op->first || op->first > limit) op->first = one_in(2) ? limit : 1 + draw(limit ? limit : 1);
    if (!op->second || op->second > limit) op->second = one_in(2) ? limit : 1 + draw(limit ? limit : 1);
    if (traits->factors < 2) op->second = 0;
}

/* The input takes what the front end makes. */
static void repair_front_end(const uint8_t *p, fb_tensor *in) {
    uint16_t count = p[FB_FRONT_CHANNELS] ? p[FB_FRONT_CHANNELS] : 1;
    in->rank = 3;
    if (p[FB_FRONT_KIND] == FB_FRONT_AUDIO) {
        in->width = (uint16_t)(fb_u16(p + FB_FRONT_BANDS) % 128);
        in->channels = 1;
    } else if (one_in(3)) {
        in->width = count;
        in->channels = 1;
    } else {
        in->channels = count;
        if (one_in(2)) in->height = 1;
        if (in->height != 1) in->width = 1;
    }
}

static void repair(net *n) {
    bool written[MOST] = {false};
    unsigned i, last;
    if (!n->tensor_count) new_tensor(n);
    if (n->input >= n->tensor_count && !lenient()) n->input = 0;
    last = n->input;
    if (n->input < MOST) written[n->input] = true;
    for (i = 0; i < n->tensor_count; i++) {
        fb_tensor *t = &n->tensors[i];
        if (lenient()) continue;
        if (!t->height) t->height = 1;
        if (!t->width) t->width = 1;
        if (!t->channels) t->channels = 1;
        if (t->rank != 1) t->rank = 3;
        if (t->rank == 1) t->height = t->width = 1;
        if (!t->scale_bits || t->scale_bits >= 0x7F800000u) t->scale_bits = 0x3C000000;
    }
    if (n->has_front_end && !lenient()) repair_front_end(n->front_end, tensor(n, n->input));
    for (i = 0; i < n->op_count; i++) {
        net_op *op = &n->ops[i];
        const fb_traits *traits;
        if (lenient()) continue;
        if (fb_traits_of(op->kind)->shape == FB_SHAPE_UNKNOWN) op->kind = any_kind();
        if (op->input >= n->tensor_count || !written[op->input]) {
            op->input = (uint16_t)(one_in(3) ? readable(n, written, NULL) : last);
        }
        traits = fb_traits_of(op->kind);
        if (tensor(n, op->input)->rank == FB_RANK_BITS) {
            if (!(traits->has & FB_READS_BITS)) op->kind = (uint8_t)PICK(FB_CONV_BITS, FB_MAX_POOL_BITS);
        } else if (traits->has & FB_READS_BITS) {
            op->kind = FB_BINARIZE;
        } else if (tensor(n, op->input)->rank == 3 && traits->shape == FB_SHAPE_VECTORS) {
            op->kind = (uint8_t)PICK(FB_FLATTEN, FB_CONV);
        } else if (tensor(n, op->input)->rank == 1 && traits->shape != FB_SHAPE_SAME &&
                   traits->shape != FB_SHAPE_JOINED && traits->shape != FB_SHAPE_BITS) {
            op->kind = FB_DENSE;
        }
        traits = fb_traits_of(op->kind);
        if (traits->inputs < 2) op->input2 = FB_NO_TENSOR;
        if (traits->inputs == 2 && (op->input2 >= n->tensor_count || !written[op->input2] ||
                                    !alike(tensor(n, op->input), tensor(n, op->input2)))) {
            op->input2 = (uint16_t)readable(n, written, tensor(n, op->input));
            if (!alike(tensor(n, op->input), tensor(n, op->input2))) op->input2 = op->input;
        }
        if (op->output >= n->tensor_count || written[op->output]) op->output = (uint16_t)new_tensor(n);
        repair_shape(op, traits, tensor(n, op->input), tensor(n, op->input2), tensor(n, op->output));
        repair_fields(op, traits, tensor(n, op->input));
        written[op->output] = true;
        if (!(traits->has & FB_WRITES_BITS)) last = op->output;
    }
    if (n->output >= n->tensor_count || !written[n->output] || n->tensors[n->output].rank == FB_RANK_BITS) {
        if (!lenient()) n->output = last;
    }
}

/* ---- encode ---- */

static void put(sink *s, uint32_t value, unsigned bytes) {
    for (; bytes; bytes--, value >>= 8) {
        if (s->size < s->limit) s->data[s->size] = (uint8_t)value;
        s->size++;
    }
}

static void align(sink *s) {
    while (s->size % 4) put(s, 0, 1);
}

/* Bytes of the old image from `at`, and random ones when it ends. */
static void put_old(sink *s, const uint8_t *old, size_t old_size, uint32_t at, uint64_t count) {
    for (; count && s->size <= s->limit; count--, at++) put(s, at < old_size ? old[at] : draw(256), 1);
}

static int32_t old_number(const uint8_t *old, size_t old_size, uint64_t at, unsigned bytes) {
    if (at + bytes > old_size) return (int32_t)draw(1000) - 500;
    return bytes == 2 ? (int16_t)fb_u16(old + at) : (int32_t)fb_u32(old + at);
}

/* Biases and multipliers within the bounds that a reader checks, now and then exactly on them. */
static void put_parameters(sink *s, const net_op *op, const fb_tensor *in, unsigned filters, uint64_t inputs,
                           const uint8_t *old, size_t old_size) {
    bool binary = op->flags & FB_FLAG_BINARY;
    bool referenced = op->flags & FB_FLAG_REFERENCES;
    uint32_t most = binary ? 0x7FFFFFFFu - (1u << op->shift % 31 >> !referenced) : 0x7FFFFFFFu;
    uint64_t zero = (uint64_t)(in->zero_point < 0 ? -in->zero_point : in->zero_point);
    uint64_t reach = inputs * (in->rank == FB_RANK_BITS ? 1 : binary ? 128 + 2 * zero : 128 * 128);
    uint32_t room = reach < most ? (uint32_t)(most - reach) : 0; /* of a bias, at multiplier 1 */
    int32_t bias[64];
    unsigned o;
    for (o = 0; o < filters && s->size <= s->limit; o++) {
        int32_t b = old_number(old, old_size, op->second + 4 * (uint64_t)o, 4);
        if (one_in(16)) b = (int32_t)room;
        if (one_in(16)) b = -(int32_t)room;
        if (b == INT32_MIN || (uint32_t)abs(b) > room) b = room ? b % (int32_t)room : 0;
        put(s, (uint32_t)b, 4);
        if (o < 64) bias[o] = b;
    }
    for (o = 0; o < filters && s->size <= s->limit; o++) {
        unsigned width = binary ? 2 : 4;
        int32_t m = old_number(old, old_size, op->second + 4 * (uint64_t)filters + width * (uint64_t)o, width);
        uint64_t sum = reach + (uint64_t)(o < 64 ? abs(bias[o]) : 0);
        int32_t bound = binary ? 32767 : INT32_MAX;
        if (binary && sum && most / sum < 32767) bound = (int32_t)(most / sum);
        if (m < 1 || m > bound || one_in(16)) m = bound;
        put(s, (uint32_t)m, width);
    }
    if (referenced) {
        uint64_t at = op->second + (uint64_t)filters * (binary ? FB_PARAMS_BINARY : FB_PARAMS_INT8);
        put_old(s, old, old_size, at > UINT32_MAX ? UINT32_MAX : (uint32_t)at, FB_REFERENCE_SIZE * (uint64_t)filters);
    }
    align(s);
}

static void put_weights(sink *s, net_op *op, const fb_tensor *in, unsigned filters, const uint8_t *old,
                        size_t old_size) {
    uint64_t taps = op->kernel[0] ? (uint64_t)op->kernel[0] * op->kernel[1] : 1;
    bool own = fb_traits_of(op->kind)->has & FB_PER_CHANNEL;
    uint64_t inputs = taps * (own ? 1 : in->channels), words = (inputs + 15) / 16;
    uint32_t start = (uint32_t)s->size;
    unsigned o;
    if (op->flags & FB_FLAG_BINARY) {
        bool clean = inputs % 16 && !lenient();
        put_old(s, old, old_size, op->first, 2 * words * filters);
        for (o = 1; clean && o <= filters && start + 2 * words * o <= s->limit; o++) {
            uint8_t *last = s->data + start + 2 * words * o - 2;
            uint32_t word = fb_u16(last) & ((1u << inputs % 16) - 1);
            last[0] = (uint8_t)word;
            last[1] = (uint8_t)(word >> 8);
        }
    } else {
        put_old(s, old, old_size, op->first, inputs * filters);
    }
    align(s);
    op->first = start;
    start = (uint32_t)s->size;
    put_parameters(s, op, in, filters, inputs, old, old_size);
    op->second = start;
}

static void put_table(sink *s, net_op *op, const uint8_t *old, size_t old_size) {
    uint32_t start = (uint32_t)s->size;
    put_old(s, old, old_size, op->first, FB_TABLE_SIZE);
    op->first = start;
    op->second = 0;
}

/* Thresholds, in range, and a bit per channel that inverts it. */
static void put_thresholds(sink *s, net_op *op, unsigned channels, const uint8_t *old, size_t old_size) {
    uint32_t start = (uint32_t)s->size;
    unsigned c;
    for (c = 0; c < channels && s->size <= s->limit; c++) {
        int32_t t = old_number(old, old_size, op->second + 2 * (uint64_t)c, 2);
        if (one_in(16)) t = (int32_t)PICK(128, (uint32_t)-128, 0);
        if (t < -128 || t > 128) t = (int32_t)draw(257) - 128;
        put(s, (uint32_t)t, 2);
    }
    for (c = 0; c < channels && s->size <= s->limit; c += 16) {
        unsigned count = channels - c < 16 && !lenient() ? channels - c : 16;
        put(s, draw(1u << count), 2);
    }
    align(s);
    op->second = start;
}

static size_t encode(net *n, uint8_t *data, size_t limit, const uint8_t *old, size_t old_size) {
    size_t tables = FB_HEADER_SIZE + FB_TENSOR_SIZE * (size_t)n->tensor_count + FB_OP_SIZE * (size_t)n->op_count;
    sink s = {data, tables + (n->has_front_end ? FB_FRONT_SIZE : 0), limit};
    uint32_t metadata = 0, length = 0, version = 1 + draw(FB_FORMAT_VERSION);
    unsigned i, k;
    if (s.size > limit) return 0;
    if (n->has_front_end && version < 2) version = 2;
    for (i = 0; i < n->op_count; i++) {
        net_op *op = &n->ops[i];
        unsigned filters = tensor(n, op->output)->channels;
        const fb_traits *traits = fb_traits_of(op->kind);
        if (traits->version > version) version = traits->version;
        if (op->flags & FB_FLAG_REFERENCES) version = 2;
        if (traits->has & FB_PADDING_NEW && pads(op)) version = 2;
        if (traits->has & FB_LOOKS_UP) put_table(&s, op, old, old_size);
        if (traits->has & FB_THRESHOLDS) put_thresholds(&s, op, tensor(n, op->input)->channels, old, old_size);
        if (!(traits->has & FB_WEIGHTS)) continue;
        put_weights(&s, op, tensor(n, op->input), filters, old, old_size);
    }
    if (one_in(4)) {
        metadata = (uint32_t)s.size;
        length = 2;
        put(&s, '{' | '}' << 8, 4);
    }
    if (s.size > limit) return 0;
    tables = s.size;
    s.size = 0;
    put(&s, 'F' | 'B' << 8 | 'I' << 16 | 'T' << 24, 4);
    put(&s, lenient() ? draw(FB_FORMAT_VERSION + 2) : version, 2);
    put(&s, n->has_front_end ? FB_HEADER_FRONT_END : 0, 2);
    put(&s, 0, 8);
    put(&s, n->tensor_count, 2);
    put(&s, n->op_count, 2);
    put(&s, n->input, 2);
    put(&s, n->output, 2);
    put(&s, metadata, 4);
    put(&s, length, 4);
    for (i = 0; i < n->tensor_count; i++) {
        const fb_tensor *t = &n->tensors[i];
        put(&s, t->height, 2);
        put(&s, t->width, 2);
        put(&s, t->channels, 2);
        put(&s, (uint8_t)t->zero_point, 1);
        put(&s, t->rank, 1);
        put(&s, t->scale_bits, 4);
    }
    for (i = 0; i < n->op_count; i++) {
        const net_op *op = &n->ops[i];
        put(&s, op->kind, 1);
        put(&s, op->flags, 1);
        put(&s, op->input, 2);
        put(&s, op->input2, 2);
        put(&s, op->output, 2);
        for (k = 0; k < 2; k++) put(&s, op->kernel[k], 1);
        for (k = 0; k < 2; k++) put(&s, op->stride[k], 1);
        for (k = 0; k < 4; k++) put(&s, op->padding[k], 1);
        put(&s, op->shift, 4);
        put(&s, op->first, 4);
        put(&s, op->second, 4);
    }
    for (i = 0; n->has_front_end && i < FB_FRONT_SIZE; i++) put(&s, n->front_end[i], 1);
    return tables;
}

/* ---- damage ---- */

static void damage(uint8_t *data, size_t size) {
    size_t at = draw((uint32_t)size);
    uint32_t value = PICK(0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF);
    if (one_in(3) && size >= 4) {
        at &= ~(size_t)3;
        value = one_in(2) ? value : fb_u32(data + at) + PICK(1, 2, 4, (uint32_t)-4, 0x10000);
        memcpy(data + at, &value, 4);
    } else {
        data[at] = (uint8_t)(one_in(2) ? draw(256) : data[at] ^ 1u << draw(8));
    }
}

/* Fill up to a multiple of 4, then length and CRC. */
static size_t seal(uint8_t *data, size_t size, size_t max_size) {
    uint32_t crc, length;
    while (size % 4 && size < max_size) data[size++] = 0;
    if (size < FB_HEADER_SIZE) return size;
    length = (uint32_t)size;
    memcpy(data + FB_HEADER_LENGTH, &length, 4);
    memset(data + FB_HEADER_CRC, 0, 4);
    crc = fb_crc32(0, data, size);
    memcpy(data + FB_HEADER_CRC, &crc, 4);
    return size;
}

size_t mutate_image(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    static uint8_t old[1 << 16];
    size_t old_size = size < sizeof old ? size : sizeof old, made;
    unsigned i;
    net n;
    state = seed * 2654435761u | 1;
    if (one_in(16)) size = LLVMFuzzerMutate(data, size, max_size); /* bytes */
    if (one_in(64)) return size;                                   /* as they are */
    if (size < 2 * FB_HEADER_SIZE || !one_in(8)) {
        if (old_size) memcpy(old, data, old_size);
        parse(&n, old, old_size);
        for (i = draw(4); i < 4; i++) change(&n);
        if (!one_in(16)) repair(&n);
        made = encode(&n, data, max_size, old, old_size);
        if (made) size = made;
        if (!made && old_size) memcpy(data, old, size = old_size);
    }
    if (size && one_in(4)) damage(data, size);
    if (size && one_in(8)) damage(data, size);
    if (one_in(4) && size > FB_HEADER_SIZE) { /* weights and parameters, mostly */
        size_t tables = FB_HEADER_SIZE + FB_TENSOR_SIZE * (size_t)fb_u16(data + FB_HEADER_TENSORS) +
                        FB_OP_SIZE * (size_t)fb_u16(data + FB_HEADER_OPS);
        if (tables < size) LLVMFuzzerMutate(data + tables, size - tables, size - tables);
    }
    return seal(data, size, max_size);
}

/* For targets whose data is an image; others have their own. */
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    return mutate_image(data, size, max_size, seed);
}
