/* Looking up the sums of 16 channels of a 3×3 convolution with binary weights: what fb_conv_bin_3x3 and fb_conv_bits_3x3
 * share. Private to them; fb_conv_bin_3x3.c describes the tables. */
#ifndef FB_LOOK_UP_H
#define FB_LOOK_UP_H

#include "../fb_bin_tile.h"

enum { FB_TABLE_WORDS = 128 * FB_ENTRY_WORDS };

/* A filter's next word is used with the list's next three tables: one for each group of bits. */
typedef struct fb_look_ups {
    const uint32_t *const *list; /* [27] */
    const uint16_t *filter;      /* first */
    const uint16_t *end;
    uint32_t step; /* bytes from filter to filter */
    uint32_t *sums;
    const uint32_t *const *next_list; /* of the row below, where two are computed together */
    uint32_t *sums2;
} fb_look_ups;

/* How many rows of output it computes together: 1, or 2 where registers allow. */
uint32_t fb_rows_together(const fb_layer *layer);

/* sums[filter][4], of one row or two. */
void fb_look_up(const fb_look_ups *l, uint32_t rows);

/* Which tables the taps use when the ring starts with row `phase`: list[27]. */
void fb_make_list(const uint32_t **list, const uint32_t *tables, unsigned stride, unsigned phase, unsigned ring);

#endif
