/* Half tables: the sums of a group of inputs with signs, for half of the signs. Private to fb_conv_bin_3x3.
 *
 * The opposite signs give the opposite sum, so that an entry is either added or subtracted: an entry exists only for
 * combinations in which the group's last input is added. The 16 bits of a weight word are three groups:
 *
 *     bits 0 … 3, 4       entries  0 … 15     a table: 64 entries
 *     bits 5 … 8, 9       entries 16 … 31
 *     bits 10 … 14, 15    entries 32 … 63
 *
 * If the group's last bit is 1, the others are the entry's number and it is added; if it is 0, their complement is, and it
 * is subtracted. An entry holds a word for each column (FB_HALF_RUN and its neighbours); a tap reads FB_HALF_RUN of them.
 *
 * What a filter adds and subtracts is a list of links, made once for many tiles: addresses of entries, and two numbers, of
 * how many entries follow. In assembly a number is where to jump to, in code that adds or subtracts the most there can be.
 *
 *     plain C, Thumb-2    an added entry | number of others | the others | a subtracted one | number of all | the others
 *     Thumb-1             a subtracted entry | another one | number of the rest | the rest | added ones in the same way
 *
 * On Thumb-1 entries are looked up in pairs: the second one is not used where an even number follows the first.
 * Where nothing is added, or nothing subtracted, zeros are.
 */
#ifndef FB_HALF_TABLE_H
#define FB_HALF_TABLE_H

#include "../fb_bin_tile.h"

#if defined(__thumb__) && !defined(__thumb2__) && defined(__GNUC__)
#define FB_HALF_THUMB1
enum { FB_HALF_RUN = 4, FB_HALF_ENTRY = 8, FB_HALF_LINKS = 32 };
#else
enum { FB_HALF_RUN = 8, FB_HALF_ENTRY = 10, FB_HALF_LINKS = 30 };
#endif
enum { FB_HALF_TABLE = 64 * FB_HALF_ENTRY };

/* A table, of pairs of columns: x[pairs][16][2], on Thumb-1 of columns: x[16][FB_COLUMNS]. */
void fb_half_fill(uint32_t *table, const uint32_t *x, unsigned columns);

/* links[filters][FB_HALF_LINKS][3 phases], on Thumb-1 links[3][filters][FB_HALF_LINKS], of filters `step` words apart. The
 * tables of three rows are a ring that starts with a row further on in each phase; with a stride of 2, a row's odd columns
 * have a table, and then even ones. zeros[FB_HALF_RUN]. */
void fb_half_link(uintptr_t *links, const uint16_t *filter, uint32_t step, uint32_t filters, const uint32_t *tables,
                  uint32_t stride, const uint32_t *zeros);

/* sums[filters][FB_HALF_RUN]. A word more than all links is read. */
void fb_half_look_up(const uintptr_t *links, uint32_t phase, uint32_t *sums, uint32_t filters);

#endif
