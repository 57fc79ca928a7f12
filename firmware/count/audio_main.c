/* Turns a second of sound into features and reports over semihosting, for firmware/count/audio.py:
 *
 *     ram MEMORY STRUCT                 bytes: fb_audio_size, fb_audio
 *     rows ROWS CRC                     how many, and CRC-32 of them all
 *     stack BYTES                       the most that the front end had on the stack
 *     done
 *
 * AUDIO_CONFIG has the fields of fb_audio_config. The marker functions are what the counting plugin looks for: opening,
 * and each push of the samples that complete a row. The sound is noise whose loudness changes with every row, made by
 * next_value; audio.py makes the same.
 */
#include "board.h"
#include "fb_audio.h"
#include "report.h"

#ifndef AUDIO_CONFIG
#define AUDIO_CONFIG 480, 320, 512, 40, 20, 7600, 8, 128
#endif

/* Marker functions: empty, but called. */
__attribute__((noinline)) void count_open_begin(void) { __asm__ volatile(""); }
__attribute__((noinline)) void count_open_end(void) { __asm__ volatile(""); }
__attribute__((noinline)) void count_row_begin(void) { __asm__ volatile(""); }
__attribute__((noinline)) void count_row_end(void) { __asm__ volatile(""); }

static const fb_audio_config config = {AUDIO_CONFIG};
static fb_audio audio;
static int16_t piece[FB_AUDIO_FFT_MOST];

static void make_samples(uint32_t count, uint32_t *state, uint32_t row) {
    uint32_t i;
    for (i = 0; i < count; i++) {
        int32_t high = next_value(state);
        piece[i] = (int16_t)((high * 256 + (uint8_t)next_value(state)) >> row % 16);
    }
}

int main(void) {
    uint32_t state = 1, rows = 0, crc = 0, left = FB_AUDIO_RATE, count = config.window;
    int8_t row[FB_AUDIO_BANDS_MOST];
    uint32_t size;
    fb_status status;

    board_init();
    size = (uint32_t)fb_audio_size(&config);
    if (size > BOARD_ARENA_SIZE) report_failure(FB_ERR_ARENA);
    paint_stack();
    count_open_begin();
    status = fb_audio_open(&audio, &config, board_arena, size);
    count_open_end();
    if (status != FB_OK) report_failure(status);
    for (; count <= left; rows++) {
        size_t used;
        make_samples(count, &state, rows);
        count_row_begin();
        status = fb_audio_push(&audio, piece, count, &used, row);
        count_row_end();
        if (status != FB_OK) report_failure(status);
        crc = fb_crc32(crc, row, config.bands);
        left -= count;
        count = config.hop;
    }
    semihosting_write("ram");
    report_number(size);
    report_number(sizeof audio);
    semihosting_write("\nrows");
    report_number(rows);
    report_number(crc);
    semihosting_write("\nstack");
    report_number(stack_used((const uint8_t *)__builtin_frame_address(0)));
    semihosting_write("\ndone\n");
    semihosting_exit(0);
}
