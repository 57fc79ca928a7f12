/* The fuzz target of the audio front end: any configuration is refused or runs on any samples, in exactly the memory that
 * fb_audio_size says, and rows do not depend on how samples are cut into pieces (fb_audio.h).
 *
 *     data: fb_audio_config, 14 bytes | how samples are cut, 1 byte | samples, 2 bytes each
 *
 * The samples are repeated until three rows are complete, so that short inputs reach everything.
 */
#include "fb_audio.h"
#include "fuzz.h"

enum { HEAD = 15, ROWS = 3 };

static uint16_t word(const uint8_t *bytes) { return (uint16_t)(bytes[0] | bytes[1] << 8); }

static fb_audio_config read_config(const uint8_t *bytes) {
    fb_audio_config config;
    config.window = word(bytes);
    config.hop = word(bytes + 2);
    config.fft = word(bytes + 4);
    config.bands = word(bytes + 6);
    config.low_hz = word(bytes + 8);
    config.high_hz = word(bytes + 10);
    config.floor = bytes[12];
    config.gain = bytes[13];
    return config;
}

/* Rows of all samples, `piece` at a time. */
static uint32_t run(const fb_audio_config *config, const int16_t *samples, size_t count, size_t piece, int8_t *rows) {
    size_t size = fb_audio_size(config), at = 0;
    uint8_t *memory = allocate(size);
    uint32_t found = 0;
    fb_audio audio;
    REQUIRE(fb_audio_open(&audio, config, memory, size - 1) == FB_ERR_ARENA);
    REQUIRE(fb_audio_open(&audio, config, memory + 4, size) == FB_ERR_ALIGN);
    REQUIRE(fb_audio_open(&audio, config, NULL, size) == FB_ERR_ARGUMENT);
    REQUIRE(fb_audio_open(&audio, config, memory, size) == FB_OK);
    REQUIRE(fb_audio_push(&audio, NULL, 1, &at, (int8_t *)memory) == FB_ERR_ARGUMENT);
    while (at < count) {
        size_t given = count - at < piece ? count - at : piece, used = given + 1;
        int8_t *row = (int8_t *)allocate(config->bands);
        fb_status status = fb_audio_push(&audio, samples + at, given, &used, row);
        REQUIRE(used <= given && (status == FB_OK || (status == FB_MORE && used == given)));
        REQUIRE(used > 0);
        if (status == FB_OK) memcpy(rows + config->bands * found++, row, config->bands);
        at += used;
        free(row);
    }
    free(memory);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fb_audio_config config;
    fb_status status;
    size_t count, given, piece;
    int16_t *samples;
    int8_t *whole, *cut;
    if (size < HEAD + 2) return 0;
    config = read_config(data);
    status = fb_audio_check(&config);
    REQUIRE(status == FB_OK || status == FB_ERR_ARGUMENT || status == FB_ERR_SHAPE);
    REQUIRE((fb_audio_size(&config) > 0) == (status == FB_OK));
    if (status != FB_OK) return 0;
    piece = data[HEAD - 1] + 1u;
    given = (size - HEAD) / 2;
    count = config.window + (ROWS - 1u) * config.hop;
    samples = (int16_t *)(void *)allocate(2 * count);
    for (size_t i = 0; i < count; i++) samples[i] = (int16_t)word(data + HEAD + 2 * (i % given));
    whole = (int8_t *)allocate((size_t)ROWS * config.bands);
    cut = (int8_t *)allocate((size_t)ROWS * config.bands);
    REQUIRE(run(&config, samples, count, count, whole) == ROWS);
    REQUIRE(run(&config, samples, count, piece, cut) == ROWS);
    REQUIRE(memcmp(whole, cut, (size_t)ROWS * config.bands) == 0);
    free(samples);
    free(whole);
    free(cut);
    return 0;
}
