/* Signs, packed: the bit of a channel is x ≥ threshold, or x < threshold where it is inverted.
 *
 *     out: uint16_t [channels / 16][height][width], bit i of a word is channel 16 · chunk + i; bits left over are 0
 */
#include "../fb_kernels.h"

uint32_t fb_binarize_scratch(const fb_layer *layer) {
    (void)layer;
    return 0;
}

void fb_binarize(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    size_t plane = (size_t)layer->in.height * layer->in.width, i;
    uint32_t channels = layer->in.channels, first, c;
    uint16_t *words = (uint16_t *)(void *)out; /* at an even address: fb_kernels.h */
    (void)in2;
    (void)scratch;
    for (first = 0; first < channels; first += 16, in += 16 * plane) {
        uint32_t count = channels - first < 16 ? channels - first : 16, inverted = layer->inverted[first / 16];
        const int16_t *threshold = layer->threshold + first;
        for (i = 0; i < plane; i++) {
            const int8_t *x = in + i;
            uint32_t below = 0; /* from the last channel down: each is shifted up by those after it */
            for (c = count, x += count * plane; c--;) {
                x -= plane;
                below = below << 1 | (uint32_t)(*x - threshold[c]) >> 31;
            }
            *words++ = (uint16_t)(~below ^ inverted) & (uint16_t)((1u << count) - 1);
        }
    }
}
