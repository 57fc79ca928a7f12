/* Commands about listening: samples in over the line, detections out. docs/protocol.md says what their payloads are.
 *
 * RAM comes from the front of the net's arena, and goes back to it when listening ends:
 *
 *     board_arena  | input | output | fb_stream | memory of fb_listen | arena of the core     | board_arena_end
 */
#include <string.h>

#include "fb_app.h"
#include "fb_listen.h"

enum { OPEN_SIZE = 12, ANSWER_SIZE = 16 + 8, CHUNK = 16 };

struct fb_stream {
    fb_listen listen;
    uint8_t *arena; /* of the net while nobody listens */
    uint32_t arena_size;
    uint32_t last, next; /* index of the first value of the last piece, and of the next one */
    uint32_t crc;        /* of all outputs */
    uint32_t answer_size;
    uint8_t answer[ANSWER_SIZE]; /* to the last piece, for when it is asked for again */
};

static uint32_t aligned(size_t n) { return (uint32_t)((n + FB_ALIGN - 1) & ~(size_t)(FB_ALIGN - 1)); }

void fb_app_listen_end(fb_app *app) {
    if (!app->stream) return;
    app->arena = app->stream->arena;
    app->arena_size = app->stream->arena_size;
    app->stream = NULL;
    app->loaded = 0;
}

/* stride u16 | threshold u16 | average u16 | refractory u16 | ignored u32. Reply: RAM for listening u32 | arena left u32 |
 * kind u8 | channels u8 | length u16 | stride u16 | 0 u16 | rate u32 */
static fb_reply open_stream(fb_app *app) {
    const uint8_t *p = fb_payload(app);
    fb_listen_config config = {(uint16_t)fb_get16(p), (uint16_t)fb_get16(p + 2), (uint16_t)fb_get16(p + 4),
                               (uint16_t)fb_get16(p + 6), fb_get32(p + 8)};
    uint32_t first = aligned(sizeof(fb_stream)), needed;
    const fb_front_end *found;
    fb_stream *stream;
    fb_status status;
    if (!app->ready) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_MODEL);
    if (fb_app_learning_busy(&app->learning)) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_END);
    fb_app_listen_end(app);
    needed = aligned(fb_listen_size(&app->model, &config));
    stream = (fb_stream *)app->arena;
    if (needed == 0) { /* fb_listen_open says why */
        status = fb_listen_open(NULL, &app->model, &config, app->input, app->arena, 0);
        return fb_refuse(app, FB_REPLY_MODEL, (uint32_t)status);
    }
    if (first + needed > app->arena_size || app->arena_size - first - needed < fb_arena_least(&app->model)) {
        return fb_refuse(app, FB_REPLY_MODEL, FB_ERR_ARENA);
    }
    memset(stream, 0, sizeof *stream);
    status = fb_listen_open(&stream->listen, &app->model, &config, app->input, app->arena + first, needed);
    if (status != FB_OK) return fb_refuse(app, FB_REPLY_MODEL, (uint32_t)status);
    stream->arena = app->arena;
    stream->arena_size = app->arena_size;
    app->arena += first + needed;
    app->arena_size -= first + needed;
    app->loaded = 0;
    app->stream = stream;
    found = &stream->listen.front_end;
    app->size = 0;
    fb_put32(app, first + needed);
    fb_put32(app, app->arena_size);
    fb_put32(app, (uint32_t)found->kind | (uint32_t)found->channels << 8 | (uint32_t)found->length << 16);
    fb_put32(app, stream->listen.config.stride);
    fb_put32(app, found->rate);
    return FB_REPLY_OK;
}

/* Takes values of the payload until the net detects something or all are taken; how many there were. A few at a time: the
 * stack is short where the net runs. */
static fb_status take(fb_app *app, uint32_t count, uint32_t *taken, fb_detection *found, bool *detected) {
    fb_stream *stream = app->stream;
    int16_t values[CHUNK];
    *taken = 0;
    *detected = false;
    while (*taken < count && !*detected) {
        const uint8_t *p = fb_payload(app) + 4 + 2 * *taken;
        uint32_t n = count - *taken < CHUNK ? count - *taken : CHUNK, i;
        size_t used;
        fb_status status;
        for (i = 0; i < n; i++) values[i] = (int16_t)fb_get16(p + 2 * i);
        status = fb_listen_push(&stream->listen, values, n, &used);
        *taken += (uint32_t)used;
        if (status == FB_MORE) continue;
        if (status == FB_OK) {
            status = fb_invoke(&app->model, app->arena, app->arena_size, app->input, app->output, NULL);
        }
        if (status != FB_OK) return status;
        stream->crc = fb_crc32(stream->crc, app->output, app->output_size);
        *detected = fb_listen_decide(&stream->listen, app->output, found);
    }
    return FB_OK;
}

/* index u32 | values i16. Reply: next index u32 | windows u32 | CRC u32 of all outputs | ticks u32, and of a detection
 * window u32 | class u16 | margin i16. Takes values up to a detection; the host sends the rest again. */
static fb_reply push(fb_app *app) {
    fb_stream *stream = app->stream;
    uint32_t index = fb_get32(fb_payload(app)), count = (app->size - 4) / 2, start = board_ticks(), taken;
    fb_detection found;
    bool detected;
    fb_status status;
    if (!stream) return fb_refuse(app, FB_REPLY_STATE, FB_MISSING_LISTENING);
    if (app->size % 2) return fb_refuse(app, FB_REPLY_LENGTH, app->size);
    if (index == stream->last && index != stream->next) {
        memcpy(fb_payload(app), stream->answer, stream->answer_size);
        app->size = stream->answer_size;
        return FB_REPLY_OK;
    }
    if (index != stream->next) return fb_refuse(app, FB_REPLY_ORDER, stream->next);
    status = take(app, count, &taken, &found, &detected);
    if (status != FB_OK) return fb_refuse(app, FB_REPLY_MODEL, (uint32_t)status);
    stream->last = index;
    stream->next = index + taken;
    app->size = 0;
    fb_put32(app, stream->next);
    fb_put32(app, stream->listen.windows);
    fb_put32(app, stream->crc);
    fb_put32(app, board_ticks() - start);
    if (detected) {
        fb_put32(app, found.window);
        fb_put32(app, (uint32_t)found.label | (uint32_t)(uint16_t)found.margin << 16);
    }
    memcpy(stream->answer, fb_payload(app), app->size);
    stream->answer_size = app->size;
    return FB_REPLY_OK;
}

const fb_command fb_listen_commands[] = {
    {FB_COMMAND_LISTEN_OPEN, OPEN_SIZE, OPEN_SIZE, open_stream},
    {FB_COMMAND_LISTEN_PUSH, 4, FB_PAYLOAD_MAX, push},
    {0, 0, 0, NULL},
};
