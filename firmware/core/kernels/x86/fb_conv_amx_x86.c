/* Binary convolution with AMX, for channels in multiples of 64: 32 filters × 32 pixels at a time.
 *
 *     A, 16 rows = filters                    s8 ±1 [64 channels], as expanded
 *     B, 16 rows = groups of 4 channels       u8 [16 pixels][4 channels], a plane's words as they lie
 *     C, 16 rows = filters                    s32 [16 pixels] += A · B           TDPBSUD
 *
 * A step of 64 channels is 2 loads of A, 2 of B and 4 products of 16 × 16 × 64. See fb_conv_x86.h. Linux keeps the
 * tiles of a process only if it has asked for them.
 */
#include "fb_avx512.h"
#include "fb_conv_x86.h"

#if defined(__x86_64__) && defined(__GNUC__)

#if defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 12)

#include <string.h>

#define AMX __attribute__((target("amx-tile,amx-int8,avx512f,avx512bw,avx512vl,popcnt")))

enum { SIDE = 16, STEP = 16, FILTERS = 2 * SIDE }; /* of a tile; groups of channels of a step */

/* arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): may this process use tiles? */
static bool permitted(void) {
    long result = 158; /* the number of arch_prctl */
    __asm__ volatile("syscall" : "+a"(result) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
    return result == 0;
}

uint32_t fb_conv_bin_amx_scratch(const fb_layer *layer) {
    bool fits = layer->in.channels % 64 == 0 && layer->out.channels >= SIDE;
    /* Compilers differ in how they name AMX. CPUs that have it have bfloat16 in AVX-512, and few others do. */
    if (!fits || !__builtin_cpu_supports("avx512bf16") || !permitted()) return FB_NOT_FOR_THIS;
    return fb_conv_x86_scratch(layer, FILTERS);
}

/* 64 weights of a tap at a time, from four words where the layout is `chunks`. */
AMX static int32_t expand(const fb_layer *layer, const uint16_t *bits, int8_t *to) {
    const __m512i plus = _mm512_set1_epi8(1), minus = _mm512_set1_epi8(-1);
    uint32_t steps = layer->inputs / 64, positive = 0, i;
    for (i = 0; i < steps; i++) {
        uint64_t word;
        if (layer->flags & FB_FLAG_CHUNKS) {
            const uint16_t *first = bits + i / 9 * 36 + i % 9;
            word = first[0] | (uint64_t)first[9] << 16 | (uint64_t)first[18] << 32 | (uint64_t)first[27] << 48;
        } else {
            memcpy(&word, bits + (size_t)i * 4, 8);
        }
        positive += (uint32_t)__builtin_popcountll(word);
        _mm512_storeu_si512(to + (size_t)i * 64, _mm512_mask_blend_epi8(word, minus, plus));
    }
    return (int32_t)(2 * positive) - (int32_t)layer->inputs;
}

/* The results of a tile of sums. */
AMX static void finish(const fb_x86_block *block, uint32_t first, uint32_t p, const int32_t sums[SIDE][SIDE]) {
    uint32_t count = block->filters - first < SIDE ? block->filters - first : SIDE, i;
    for (i = 0; i < count; i++) {
        __m512i sum = _mm512_add_epi32(_mm512_loadu_si512(sums[i]), _mm512_set1_epi32(block->bias[first + i]));
        fb_avx512_store(block->layer, sum, block->multiplier[first + i], block->out[first + i] + p, block->pixels - p);
    }
}

AMX static void block_of(const fb_x86_block *block) {
    const size_t across = 64, group = 4 * (size_t)(block->offsets[1] - block->offsets[0]); /* bytes between rows */
    const int8_t *upper = block->filter[0], *lower = upper + SIDE * block->distance;
    const bool both = block->filters > SIDE;
    int32_t sums[4][SIDE][SIDE];
    uint8_t config[64] = {1}; /* the palette; then 16-bit row lengths from 16, rows from 48 */
    uint32_t p, k, i;
    for (i = 0; i < 8; i++) {
        config[16 + 2 * i] = 64;
        config[48 + i] = SIDE;
    }
    _tile_loadconfig(config);
    for (p = 0; p < block->pixels; p += 2 * SIDE) {
        bool more = block->pixels - p > SIDE;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (k = 0; k < block->terms; k += STEP) {
            const uint32_t *pixels = block->planes + block->offsets[k] + p;
            _tile_loadd(4, upper + (size_t)k * 4, block->distance);
            _tile_loadd(6, pixels, group);
            _tile_dpbsud(0, 4, 6);
            if (more) {
                _tile_loadd(7, pixels + SIDE, group);
                _tile_dpbsud(1, 4, 7);
            }
            if (both) {
                _tile_loadd(5, lower + (size_t)k * 4, block->distance);
                _tile_dpbsud(2, 5, 6);
                if (more) _tile_dpbsud(3, 5, 7);
            }
        }
        _tile_stored(0, sums[0], across);
        _tile_stored(1, sums[1], across);
        _tile_stored(2, sums[2], across);
        _tile_stored(3, sums[3], across);
        finish(block, 0, p, (const int32_t (*)[SIDE])sums[0]);
        if (more) finish(block, 0, p + SIDE, (const int32_t (*)[SIDE])sums[1]);
        if (both) finish(block, SIDE, p, (const int32_t (*)[SIDE])sums[2]);
        if (both && more) finish(block, SIDE, p + SIDE, (const int32_t (*)[SIDE])sums[3]);
    }
    _tile_release();
}

static const fb_x86_conv amx = {FILTERS, STEP, block_of, expand};

void fb_conv_bin_amx(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)in2;
    fb_conv_x86_run(layer, in, out, scratch, &amx);
}

#else /* another system or an older compiler: never */

uint32_t fb_conv_bin_amx_scratch(const fb_layer *layer) {
    (void)layer;
    return FB_NOT_FOR_THIS;
}

void fb_conv_bin_amx(const fb_layer *layer, const int8_t *in, const int8_t *in2, int8_t *out, void *scratch) {
    (void)layer;
    (void)in;
    (void)in2;
    (void)out;
    (void)scratch;
}

#endif
#endif
