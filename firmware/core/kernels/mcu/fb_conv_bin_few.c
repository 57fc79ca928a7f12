/* Binary convolution of few inputs, with tables: first layers and 1×1 shortcuts.
 *
 * The tables (fb_bin_tile.h) are those of all rows and channels of the kernel, "lines" here, in the order row ·
 * channels
 * + channel; its columns read the same entries at word 0, 1 and 2. 16 lines are three groups of 5, 5 and 6, as in
 * fb_conv_bin_3x3; 9 lines (3×3, RGB) two.
 *
 *     1×1, 16 channels      16 lines, 3 groups          3 look-ups for 8 pixels of a filter
 *     3×3, 3 channels        9 lines, 2 groups          6 look-ups, 2 for each column
 *
 * Which entries a filter needs is the same for all tiles: a list of their addresses is made once.
 *
 * scratch: list[filters][size] | zeros[4] | tables[groups] | x[16 · n][FB_COLUMNS] | packed[filters][4]
 */
#include "../fb_bin_tile.h"

#include <string.h>

enum {
    MOST_LINES = 48,
    LIST = 4096,                 /* addresses of all filters at most */
    GROUP = 32 * FB_ENTRY_WORDS, /* words of a group's table; the third one of 16 lines has two of them */
};

static uint32_t lines_of(const fb_layer *layer) { return (uint32_t)layer->kernel_h * layer->in.channels; }

static uint32_t groups_of(uint32_t lines) {
    uint32_t rest = lines % 16;
    return lines / 16 * 3 + (rest > 10 ? 3 : rest > 5 ? 2 : rest > 0);
}

/* Addresses for a filter: a multiple of three. */
static uint32_t list_of(const fb_layer *layer) { return (groups_of(lines_of(layer)) * layer->kernel_w + 2) / 3 * 3; }

static uint32_t table_words(uint32_t lines) {
    uint32_t rest = lines % 16;
    return (lines / 16 * 4 + (rest > 10 ? 4 : rest > 5 ? 2 : rest > 0)) * GROUP;
}

uint32_t fb_conv_bin_few_scratch(const fb_layer *layer) {
    uint32_t lines = lines_of(layer), filters = layer->out.channels, words;
    bool fits = layer->kernel_w == 1 ? layer->stride_w <= 2 : layer->kernel_w <= 3 && layer->stride_w == 1;
    if (!fits || layer->flags & FB_FLAG_CHUNKS || lines > MOST_LINES || filters * list_of(layer) > LIST) {
        return FB_NOT_FOR_THIS;
    }
    words = 4 + table_words(lines) + (lines + 15) / 16 * 16 * FB_COLUMNS + 4 * filters;
    return words * (uint32_t)sizeof(uint32_t) + (filters * list_of(layer) + 1) / 2 * 2 * FB_POINTER_SIZE;
}

/* Bits of up to 16 lines from `first` on, of column `kx` of a filter. */
static uint32_t bits_of(const fb_layer *layer, const uint16_t *filter, uint32_t kx, uint32_t first) {
    uint32_t channels = layer->in.channels, lines = lines_of(layer), bits = 0, i;
    if (layer->kernel_w == 1) return filter[first / 16]; /* the same order */
    for (i = 0; i < 16 && first + i < lines; i++) {
        uint32_t line = first + i, ky = line / channels, bit = (ky * (layer->kernel_w - 1u) + kx) * channels + line;
        bits |= (uint32_t)(filter[bit / 16] >> bit % 16 & 1) << i;
    }
    return bits;
}

static void make_list(const fb_layer *layer, const uint32_t **list, const uint32_t *tables, const uint32_t *zeros) {
    uint32_t lines = lines_of(layer), size = list_of(layer), o, kx, first;
    for (o = 0; o < layer->out.channels; o++) {
        const uint16_t *filter = layer->bits + (size_t)o * layer->words;
        const uint32_t **end = list + size;
        for (kx = 0; kx < layer->kernel_w; kx++) {
            const uint32_t *table = tables + kx;
            for (first = 0; first < lines; first += 16, table += 4 * GROUP) {
                uint32_t bits = bits_of(layer, filter, kx, first);
                *list++ = table + (bits & 31) * FB_ENTRY_WORDS;
                if (lines - first > 5) *list++ = table + GROUP + (bits >> 5 & 31) * FB_ENTRY_WORDS;
                if (lines - first > 10) *list++ = table + 2 * GROUP + (bits >> 10) * FB_ENTRY_WORDS;
            }
        }
        while (list != end) *list++ = zeros;
    }
}

static void fill(uint32_t *t, const uint32_t *x, uint32_t lines, unsigned columns) {
    for (; lines > 10; lines = lines > 16 ? lines - 16 : 0, t += 4 * GROUP, x += 16 * FB_COLUMNS) {
        fb_tile_fill16(t, x, columns);
    }
    if (lines) fb_tile_fill(t, x, columns);
    if (lines > 5) fb_tile_fill(t + GROUP, x + 5 * FB_COLUMNS, columns);
}

void fb_conv_bin_few(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    uint32_t lines = lines_of(layer), filters = layer->out.channels, channels = layer->in.channels;
    uint32_t size = list_of(layer), y, column, ky;
    const uint32_t **list = scratch;
    uint32_t *zeros = (uint32_t *)(list + (filters * size + 1) / 2 * 2), *tables = zeros + 4;
    uint32_t *x = tables + table_words(lines), rows = (lines + 15) / 16 * 16, *packed = x + rows * FB_COLUMNS;
    (void)in2;
    memset(zeros, 0, 4 * sizeof *zeros);
    memset(x, 0, rows * FB_COLUMNS * sizeof *x); /* lines that do not exist stay 0 */
    make_list(layer, list, tables, zeros);
    for (y = 0; y < layer->out.height; y++) {
        int32_t top = (int32_t)(y * layer->stride_h) - layer->pad_top;
        for (column = 0; column < layer->out.width; column += FB_TILE) {
            int32_t left = (int32_t)(column * layer->stride_w) - layer->pad_left;
            unsigned pixels = layer->out.width - column < FB_TILE ? layer->out.width - column : FB_TILE;
            for (ky = 0; ky < layer->kernel_h; ky++) {
                fb_tile_pack(layer, in, top + (int32_t)ky, left, x + ky * channels * FB_COLUMNS, channels);
            }
            fill(tables, x, lines, layer->kernel_w + 3u);
            fb_tile_sum(list, size * (uint32_t)sizeof *list, packed, packed + 4 * (size_t)filters);
            fb_tile_requantize(layer, packed, NULL, out + y * layer->out.width + column, pixels);
        }
    }
}
