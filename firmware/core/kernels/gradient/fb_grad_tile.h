/* The inner loop of weights' gradients: dot products of three streams of inputs with the gradients of some filters.
 *
 *     sums[filter][stream] = Σ over i < n of  h[filter][i] · x[stream][i]
 *
 * Each loaded x serves all the filters, each loaded h three streams. Streams are places in one int8 plane, usually a row
 * of a kernel: x, x + 1, x + 2. How h is packed depends on the core: fb_grad_tile.c. Private to the core.
 */
#ifndef FB_GRAD_TILE_H
#define FB_GRAD_TILE_H

#include "../fb_kernels_mve.h"

/* Its assembly takes more registers than a compiler leaves that does not optimize, or does it for size. */
#if defined(__thumb__) && !defined(__thumb2__) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__)
#define FB_THUMB1 /* has registers for one filter only */
enum { FB_GRAD_FILTERS = 1 };
#else
enum { FB_GRAD_FILTERS = 2 };
#endif
enum { FB_GRAD_STREAMS = 3 };

/* n, rounded up to what is computed at a time: h is padded with zeros, of x as many values are read. */
uint32_t fb_grad_length(uint32_t n);

/* Bytes of packed gradients of FB_GRAD_FILTERS filters; this and the following take rounded n, below 2^28. */
uint32_t fb_grad_packed_size(uint32_t n);

/* Pack a filter's `height` rows of `width` gradients, rows `pitch` apart, into place `filter` of memory that holds
 * zeros. Returns their sum. */
int32_t fb_grad_pack(const int8_t *h, uint32_t height, uint32_t width, uint32_t pitch, unsigned filter, uint32_t n,
                     void *packed);

/* The streams begin at x, x + second, x + third. */
void fb_grad_tile(const int8_t *x, int32_t second, int32_t third, const void *packed, uint32_t n,
                  int32_t sums[FB_GRAD_FILTERS][FB_GRAD_STREAMS]);

#endif
