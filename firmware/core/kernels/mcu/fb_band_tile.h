/* Tiles of two bands: 8 pixels of a row of the upper half of the output, and the 8 below them in the lower half. Private to
 * fb_conv_bin_3x3.
 *
 *     word j = pixel (y, x+j) + (pixel (y+band, x+j) << 16)          j = 0 … 7
 *
 * so that all 8 taps of a row are words one behind the other; as in fb_bin_tile.h otherwise. A tile's columns are pairs:
 * x[pairs][channels][2], with a stride of 2 the five pairs of odd columns before the four of even ones.
 */
#ifndef FB_BAND_TILE_H
#define FB_BAND_TILE_H

#include "../fb_bin_tile.h"

enum { FB_BAND_X = 9 * 16 * 2, FB_BAND_X_EVEN = 5 * 16 * 2 };

static inline uint32_t fb_band(const fb_layer *layer) { return (layer->out.height + 1u) / 2; }

/* Columns of rows `y` and `y` + stride · band of 16 channels, from `left` on; all may be outside the image. */
void fb_band_pack(const fb_layer *layer, const int8_t *in, int32_t y, int32_t left, uint32_t *x);

/* Results of every filter, of the pixels from row `y` and column `column` on, and in the lower band if it reaches so far:
 * from packed sums, plus those of other channels if not NULL. */
void fb_band_requantize(const fb_layer *layer, const uint32_t *packed, const uint32_t *others, int8_t *out, uint32_t y,
                        uint32_t column);

#endif
