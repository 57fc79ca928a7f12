/* Gradients of filters' weights: for each input channel and place of the kernel, the products of what came in there and
 * the gradients of the sums it went into, added up over all pixels.
 *
 *     sum[c][ky][kx] += Σ over output pixels p of  h[p] · (x[c][p · stride + (ky, kx) − pad] − zero point)
 *
 * Places outside the image hold the zero point and add nothing. As Σ h·(x − z) = Σ h·x − z · Σ h, the inner loops
 * multiply bytes. With room for it, x gets a border of zero points, and h gaps of zeros, so that both have rows of the
 * same length and a sum is one long dot product. The border at the right of a row is also the one at the left of the
 * next:
 *
 *     x  z z z z z      h  . . . . 0       scratch: h, two filters, packed | x, as many channels as there is room for
 *        z . . . .         . . . . 0
 *        z . . . .
 *        z z z z z
 *
 * A stride of 2 takes x apart into planes of its even and odd rows and columns: in them, the pixels of a sum are
 * neighbours again.
 */
#include <string.h>

#include "fb_grad_tile.h"
#include "fb_gradient.h"

static int32_t rounded(int32_t v, unsigned shift) { return shift ? ((v >> (shift - 1)) + 1) >> 1 : v; }

/* Add gradients of the weights i … i + n − 1 of a filter. */
static inline void add(const fb_grad_sums *to, uint32_t filter, uint32_t i, int32_t *values, uint32_t n,
                       unsigned shift) {
    for (uint32_t k = 0; k < n; k++) values[k] = rounded(values[k], shift);
    if (to->bytes == 4) {
        int32_t *sums = (int32_t *)(void *)(to->at + (size_t)filter * to->stride) + i;
        for (uint32_t k = 0; k < n; k++) sums[k] += values[k];
    } else {
        fb_grad_add_narrow(to, filter, i, values, n);
    }
}

/* x in scratch: channels of down · across planes, by the remainders of a pixel's place divided by the stride. */
typedef struct layout {
    uint32_t down, across;  /* planes that the kernel reaches */
    uint32_t rows, columns; /* of a plane, with border */
    uint32_t pitch;         /* from a row to the next */
    uint32_t plane, channel;
    uint32_t n;      /* length of a dot product */
    uint32_t beside; /* bytes of scratch beside the channels: h, and behind x what is read and does not count */
} layout;

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

static layout layout_of(const fb_layer *layer) {
    layout l;
    uint32_t inside = (uint32_t)layer->pad_left + layer->in.width, shared = 0;
    l.down = smaller(layer->stride_h, layer->kernel_h);
    l.across = smaller(layer->stride_w, layer->kernel_w);
    l.rows = layer->out.height + (layer->kernel_h - 1u) / layer->stride_h;
    l.columns = layer->out.width + (layer->kernel_w - 1u) / layer->stride_w;
    if (layer->stride_w == 1 && l.columns > inside) {
        shared = smaller(smaller(layer->pad_left, l.columns - inside), layer->kernel_w - 1u);
    }
    l.pitch = l.columns - shared;
    l.plane = fb_sum(fb_product(l.rows, l.pitch), shared);
    l.channel = fb_product(fb_product(l.down, l.across), l.plane);
    l.n = fb_sum(fb_product(layer->out.height - 1u, l.pitch), layer->out.width);
    l.beside = UINT32_MAX;
    if (l.n < 1u << 27) {
        l.beside = fb_grad_length(l.n) - l.n;
        l.n += l.beside;
        l.beside += fb_grad_packed_size(l.n);
    }
    return l;
}

uint32_t fb_grad_weights_scratch(const fb_layer *layer) {
    layout l = layout_of(layer);
    return fb_aligned(fb_sum(l.beside, fb_product(l.channel, layer->in.channels)));
}

/* Channels that fit into `room` bytes. */
static uint32_t channels_in(const fb_layer *layer, const layout *l, uint32_t room) {
    return l->beside > room || l->channel == 0 ? 0 : smaller((room - l->beside) / l->channel, layer->in.channels);
}

/* Every `stride`-th value of a row, from the first that falls into the plane `rest`. */
static void copy_strided(const fb_layer *layer, const layout *l, const int8_t *row, uint32_t rest, int8_t *to) {
    uint32_t stride = layer->stride_w, left = layer->pad_left;
    uint32_t column = left > rest ? (left - rest + stride - 1) / stride : 0;
    for (uint32_t i = column * stride + rest - left; i < layer->in.width && column < l->columns; i += stride) {
        to[column++] = row[i];
    }
}

static void with_border(const fb_layer *layer, const layout *l, const int8_t *in, uint32_t channels, int8_t *x) {
    memset(x, layer->in.zero_point, (size_t)l->channel * channels + l->beside - fb_grad_packed_size(l->n));
    for (; channels > 0; channels--, x += l->channel) {
        for (uint32_t y = 0; y < layer->in.height; y++, in += layer->in.width) {
            uint32_t row = (y + layer->pad_top) / layer->stride_h, rest = (y + layer->pad_top) % layer->stride_h;
            int8_t *to;
            if (rest >= l->down || row >= l->rows) continue;
            to = x + rest * l->across * l->plane + row * l->pitch;
            if (layer->stride_w == 1) {
                uint32_t left = layer->pad_left;
                if (left < l->columns) memcpy(to + left, in, smaller(layer->in.width, l->columns - left));
                continue;
            }
            for (rest = 0; rest < l->across; rest++, to += l->plane) copy_strided(layer, l, in, rest, to);
        }
    }
}

/* Where the inputs of place k along a side of the kernel begin, when planes and pixels are so far apart. */
static uint32_t place_of(uint32_t k, uint32_t stride, uint32_t plane, uint32_t pixel) {
    return stride == 1 ? k * pixel : k % stride * plane + k / stride * pixel;
}

#ifndef FB_SMALL_CODE
/* Sums of 32 bits: three weights of a filter. */
FB_INLINE void add_three(const fb_grad_sums *to, uint32_t filter, uint32_t i, const int32_t *found, int32_t zero,
                         unsigned shift) {
    int32_t *sums = (int32_t *)(void *)(to->at + (size_t)filter * to->stride) + i;
    int32_t a = found[0] - zero, b = found[1] - zero, c = found[2] - zero;
    if (shift) {
        a = ((a >> (shift - 1)) + 1) >> 1;
        b = ((b >> (shift - 1)) + 1) >> 1;
        c = ((c >> (shift - 1)) + 1) >> 1;
    }
    sums[0] += a;
    sums[1] += b;
    sums[2] += c;
}

/* Kernels of three columns and sums of 32 bits, as most are: what is the same for all weights is computed once. */
static void filters_of_threes(const fb_layer *layer, const layout *l, const void *packed, const int32_t *zeros,
                              const int8_t *x, uint32_t channels, unsigned shift, const fb_grad_sums *sums, uint32_t o,
                              uint32_t filters, uint32_t i) {
    int32_t second = (int32_t)place_of(1, layer->stride_w, l->plane, 1);
    int32_t third = (int32_t)place_of(2, layer->stride_w, l->plane, 1);
    int32_t found[FB_GRAD_FILTERS][FB_GRAD_STREAMS];
    for (uint32_t ky = 0; ky < layer->kernel_h; ky++, i += 3) {
        const int8_t *row = x + place_of(ky, layer->stride_h, l->across * l->plane, l->pitch);
        for (uint32_t c = 0, at = i; c < channels; c++, row += l->channel, at += 3u * layer->kernel_h) {
            fb_grad_tile(row, second, third, packed, l->n, found);
            for (uint32_t f = 0; f < filters; f++) add_three(sums, o + f, at, found[f], zeros[f], shift);
        }
    }
}
#endif

/* A group of filters from `o` on, whose gradients are packed, with the channels that lie in x; `i` is the first one's
 * first weight. `zeros` are the zero point times the sums of the filters' gradients. */
static void filters_with(const fb_layer *layer, const layout *l, const void *packed, const int32_t *zeros,
                         const int8_t *x, uint32_t channels, unsigned shift, const fb_grad_sums *sums, uint32_t o,
                         uint32_t filters, uint32_t i) {
    uint32_t width = layer->kernel_w, across = layer->stride_w, pixel = 1;
    int32_t found[FB_GRAD_FILTERS][FB_GRAD_STREAMS];
#ifndef FB_SMALL_CODE
    if (width == 3 && sums->bytes == 4) {
        filters_of_threes(layer, l, packed, zeros, x, channels, shift, sums, o, filters, i);
        return;
    }
#endif
    if (layer->kernel_h == 1 && width == 1) { /* channels take the place of a row's pixels */
        width = channels;
        across = channels = 1;
        pixel = l->channel;
    }
    for (; channels > 0; channels--, x += l->channel) {
        for (uint32_t ky = 0; ky < layer->kernel_h; ky++) {
            const int8_t *row = x + place_of(ky, layer->stride_h, l->across * l->plane, l->pitch);
            for (uint32_t kx = 0, take; kx < width; kx += take, i += take) {
                uint32_t first = place_of(kx, across, l->plane, pixel), second = first, third = first;
                take = smaller(width - kx, FB_GRAD_STREAMS);
                if (take > 1) second = place_of(kx + 1, across, l->plane, pixel);
                if (take > 2) third = place_of(kx + 2, across, l->plane, pixel);
                fb_grad_tile(row + first, (int32_t)(second - first), (int32_t)(third - first), packed, l->n, found);
                for (uint32_t f = 0; f < filters; f++) {
                    /* Σ h·x and z · Σ h have 2^30 at most each, as there are at most FB_TRAIN_PIXELS pixels */
                    for (uint32_t k = 0; k < take; k++) found[f][k] -= zeros[f];
                    add(sums, o + f, i, found[f], take, shift);
                }
            }
        }
    }
}

/* Layers whose sums have one pixel and no border: dense ones. */
static void of_one_pixel(const fb_layer *layer, int32_t h, const int8_t *in, unsigned shift, const fb_grad_sums *sums,
                         uint32_t o) {
    int32_t z = layer->in.zero_point, found[16];
    for (uint32_t c = 0, take; c < layer->in.channels; c += take) {
        take = smaller(layer->in.channels - c, 16);
        for (uint32_t k = 0; k < take; k++) found[k] = h * (in[c + k] - z);
        add(sums, o, c, found, take, shift);
    }
}

/* Without scratch: row by row, only where the kernel is inside the image. The twin of the above. */

static int32_t dot_strided(const int8_t *h, const int8_t *x, int32_t zero, int32_t n, int32_t stride) {
    int32_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += h[i] * (x[i * stride] - zero);
    return sum;
}

/* Output places 0 … count − 1 whose input place · stride + offset lies within 0 … size − 1. */
static void valid(int32_t offset, int32_t stride, int32_t size, int32_t count, int32_t *from, int32_t *to) {
    *from = offset < 0 ? (-offset + stride - 1) / stride : 0;
    *to = size - offset > 0 ? (size - offset - 1) / stride + 1 : 0;
    if (*to > count) *to = count;
    if (*from > *to) *from = *to;
}

static int32_t one_tap(const fb_layer *layer, const int8_t *h, const int8_t *in, int32_t ky, int32_t kx) {
    int32_t y0, y1, x0, x1, sum = 0, oy = ky - layer->pad_top, ox = kx - layer->pad_left;
    valid(oy, layer->stride_h, layer->in.height, layer->out.height, &y0, &y1);
    valid(ox, layer->stride_w, layer->in.width, layer->out.width, &x0, &x1);
    for (int32_t y = y0; y < y1; y++) {
        const int8_t *row = in + (y * layer->stride_h + oy) * layer->in.width + x0 * layer->stride_w + ox;
        sum += dot_strided(h + y * layer->out.width + x0, row, layer->in.zero_point, x1 - x0, layer->stride_w);
    }
    return sum;
}

static void plainly(const fb_layer *layer, const int8_t *h, const int8_t *in, unsigned shift, const fb_grad_sums *sums,
                    uint32_t o) {
    uint32_t i = 0;
    for (uint32_t c = 0; c < layer->in.channels; c++, in += (size_t)layer->in.height * layer->in.width) {
        for (int32_t ky = 0; ky < layer->kernel_h; ky++) {
            for (int32_t kx = 0; kx < layer->kernel_w; kx++, i++) {
                int32_t found = one_tap(layer, h, in, ky, kx);
                add(sums, o, i, &found, 1, shift);
            }
        }
    }
}

static void every_channel(const fb_layer *layer, const int8_t *h, const int8_t *in, unsigned shift,
                          const fb_grad_sums *sums, uint32_t filters, void *scratch, uint32_t room) {
    layout l = layout_of(layer);
    uint32_t plane = (uint32_t)layer->out.height * layer->out.width, most = channels_in(layer, &l, room), taken, o;
    int32_t zeros[FB_GRAD_FILTERS];
    int8_t *x;
    if (layer->inputs == layer->in.size && plane == 1 && layer->kernel_h == 1 && layer->kernel_w == 1) {
        for (o = 0; o < filters; o++) of_one_pixel(layer, h[o], in, shift, sums, o);
        return;
    }
    if (most == 0) {
        for (o = 0; o < filters; o++) plainly(layer, h + (size_t)o * plane, in, shift, sums, o);
        return;
    }
    x = (int8_t *)scratch + fb_grad_packed_size(l.n);
    for (uint32_t c = 0; c < layer->in.channels; c += taken) {
        taken = smaller(most, layer->in.channels - c);
        with_border(layer, &l, in + (size_t)c * layer->in.height * layer->in.width, taken, x);
        for (o = 0; o < filters; o += FB_GRAD_FILTERS) {
            uint32_t some = smaller(FB_GRAD_FILTERS, filters - o), f;
            memset(scratch, 0, fb_grad_packed_size(l.n));
            for (f = 0; f < some; f++) {
                const int8_t *gradient = h + (size_t)(o + f) * plane;
                zeros[f] = layer->in.zero_point *
                           fb_grad_pack(gradient, layer->out.height, layer->out.width, l.pitch, f, l.n, scratch);
            }
            filters_with(layer, &l, scratch, zeros, x, taken, shift, sums, o, some,
                         c * layer->kernel_h * layer->kernel_w);
        }
    }
}

/* Each filter with its own channel: as many layers of one channel and one filter. */
FB_NOINLINE static void channel_by_channel(const fb_layer *layer, const int8_t *h, const int8_t *in, unsigned shift,
                                           const fb_grad_sums *sums, uint32_t filters, void *scratch, uint32_t room) {
    fb_layer one = *layer;
    fb_grad_sums its = *sums;
    one.kind = FB_CONV;
    one.in.channels = one.out.channels = 1;
    one.in.size = (uint32_t)layer->in.height * layer->in.width;
    one.out.size = (uint32_t)layer->out.height * layer->out.width;
    for (; filters > 0; filters--, h += one.out.size, in += one.in.size, its.at += its.stride, its.first++) {
        every_channel(&one, h, in, shift, &its, 1, scratch, room);
    }
}

void fb_grad_weights(const fb_layer *layer, const int8_t *h, const int8_t *in, unsigned shift, const fb_grad_sums *sums,
                     uint32_t filters, void *scratch, uint32_t room) {
    if (layer->kind == FB_DEPTHWISE) {
        channel_by_channel(layer, h, in, shift, sums, filters, scratch, room);
    } else {
        every_channel(layer, h, in, shift, sums, filters, scratch, room);
    }
}
