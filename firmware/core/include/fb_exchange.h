/* flipbit: several devices, one virtual batch. What they exchange so that they learn together (docs/fleet.md).
 *
 * Sums of integer gradients add up exactly, whoever computed them. One learner, the leader, holds the state and makes
 * the update; it needs no samples. Others follow it:
 *
 *     leader                                           each follower
 *     fb_train_begin(&train, all samples, rates)
 *     do {
 *         fb_exchange_plan(&train, plan)         ──►   fb_exchange_follow(&train, plan, size, first)
 *                                                      fb_train_sample(…) for each of its samples
 *         fb_exchange_gather(&train, sums, …)    ◄──   fb_exchange_sums(&train)
 *     } while (fb_train_end_pass(&train) == FB_MORE)
 *
 * The bits are those of one device with all the samples in the order of `first`, with the same configuration and arena.
 * Bias sums are the exception where they exceed 32 bits: 16 million pixels of a channel.
 *
 * Or each learns on its own, and only weights that flip are exchanged: fb_exchange_flip changes them everywhere.
 */
#ifndef FB_EXCHANGE_H
#define FB_EXCHANGE_H

#include "fb_train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a plan: what the next pass sums up, at which scales, in which step of which net. */
size_t fb_exchange_plan_size(const fb_train *train);

/* The plan of the pass that fb_train_begin or FB_MORE has begun. FB_ERR_ORDER if none has. */
fb_status fb_exchange_plan(const fb_train *train, uint8_t *plan);

/* Take part in the pass of that plan: the state is the leader's as far as samples depend on it. `first` samples of the batch
 * are other devices'. Random numbers and what waits for an update stay this device's own, so a follower that is to learn
 * by itself again starts from a fresh state. In the pass that finds the scales of gradients (fb_exchange_scales) devices
 * take turns, each with the plan that the one before has left.
 *
 *   FB_ERR_STATE     the plan is another net's, another image's or another configuration's, or damaged
 *   FB_ERR_ARENA     this arena would need another pass: give all devices arenas of one size
 *   FB_ERR_ARGUMENT  `first` is not below the batch's size
 */
fb_status fb_exchange_follow(fb_train *train, const uint8_t *plan, size_t size, uint32_t first);

/* Whether this pass finds the scales of gradients. It looks at the batch's first FB_EXCHANGE_SCALING samples only, and what
 * it finds is in the plan afterwards: there are no sums. */
#define FB_EXCHANGE_SCALING 16u
bool fb_exchange_scales(const fb_train *train);

/* Whether this pass sums up results and their squares, without labels. */
bool fb_exchange_recalibrates(const fb_train *train);

/* What the pass has summed up so far, as words of 32 bits in the arena: how many values were large or cut off (unsigned),
 * then the sums (signed). When recalibrating: pairs of 64 bits, a sum and a sum of squares, then samples of each class.
 * `counts`: words before the sums or classes. */
uint32_t *fb_exchange_sums(const fb_train *train, uint32_t *words, uint32_t *counts);

/* Add a follower's sums over so many samples. NULL counts samples that did not come: they add nothing. FB_ERR_ARGUMENT if
 * these are more than the batch lacks, or not as many words. */
fb_status fb_exchange_gather(fb_train *train, const uint32_t *sums, uint32_t words, uint32_t samples);

/* Bits of trained layers, 16 to a word, in the order of the state: the last layer first. NULL if bits are not trained. */
const uint16_t *fb_exchange_bits(const fb_train *train, uint32_t *words);

/* Flip these bits, by their place there, between two steps: image, state and CRC follow, biases are corrected for inputs
 * whose zero point is not 0. A filter whose sums would not fit 32 bits keeps its bits, as in an update; train->flips counts
 * those that flipped. FB_ERR_ARGUMENT if there is no such bit, FB_ERR_ORDER within a step; nothing has changed then. */
fb_status fb_exchange_flip(fb_train *train, const uint32_t *places, uint32_t count);

#ifdef __cplusplus
}
#endif
#endif
