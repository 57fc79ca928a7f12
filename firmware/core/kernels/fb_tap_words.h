/* Binary filters of which each tap begins with a word. Private to the convolutions of bits. */
#ifndef FB_TAP_WORDS_H
#define FB_TAP_WORDS_H

#include "fb_kernels.h"

/* Words of a filter: as packed bits have them, 16 channels each; and whether its weights lie otherwise. */
static inline uint32_t fb_tap_words_of(const fb_layer *layer) {
    return (uint32_t)layer->kernel_h * layer->kernel_w * fb_words(layer->in.channels);
}
static inline bool fb_taps_share_words(const fb_layer *layer) { return layer->in.channels % 16 != 0; }

/* to[filters][taps][chunks], of a layer whose taps share words. */
static inline void fb_tap_words(const fb_layer *layer, uint16_t *to) {
    const uint32_t channels = layer->in.channels, taps = (uint32_t)layer->kernel_h * layer->kernel_w;
    uint32_t o, tap, channel;
    for (o = 0; o < layer->out.channels; o++) {
        const uint16_t *filter = layer->bits + (size_t)o * layer->words;
        for (tap = 0; tap < taps; tap++) {
            for (channel = 0; channel < channels; channel += 16) {
                uint32_t at = tap * channels + channel, count = channels - channel < 16 ? channels - channel : 16;
                uint32_t word = filter[at / 16];
                if (at % 16 + count > 16) word |= (uint32_t)filter[at / 16 + 1] << 16;
                *to++ = (uint16_t)(word >> at % 16 & ((1u << count) - 1));
            }
        }
    }
}

/* Inputs of one dimension that lie inside, of a window that starts at `first`. */
static inline uint32_t fb_inside(int32_t first, uint32_t window, uint32_t length) {
    int32_t end = first + (int32_t)window < (int32_t)length ? first + (int32_t)window : (int32_t)length;
    if (first < 0) first = 0;
    return end > first ? (uint32_t)(end - first) : 0;
}

#endif
