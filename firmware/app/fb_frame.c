#include "fb_frame.h"

#include "flipbit.h"

/* A code byte n says: n − 1 bytes follow as they are, then comes a zero (which the last group of a frame has not). */
int32_t fb_cobs_decode(uint8_t *data, uint32_t size) {
    uint32_t from = 0, to = 0;
    while (from < size) {
        uint32_t code = data[from++], i;
        if (code == 0 || code - 1 > size - from) return -1;
        for (i = 1; i < code; i++) data[to++] = data[from++];
        if (from < size && code < 255) data[to++] = 0;
    }
    return (int32_t)to;
}

fb_reply fb_frame_open(uint8_t *line, uint32_t size, uint32_t *payload_size, uint32_t *detail) {
    int32_t decoded;
    uint32_t crc, body;
    *detail = FB_LINE_MAX;
    if (size > FB_LINE_MAX) return FB_REPLY_LONG;
    decoded = fb_cobs_decode(line, size);
    *detail = FB_FRAME_LEAST;
    if (decoded < FB_FRAME_LEAST) return FB_REPLY_COBS;
    body = (uint32_t)decoded - 4;
    crc = fb_crc32(0, line, body);
    *detail = crc;
    if (crc != fb_get32(line + body)) return FB_REPLY_CRC;
    *payload_size = body - FB_FRAME_HEAD;
    return FB_REPLY_OK;
}

void fb_frame_send(uint8_t *frame, uint32_t size, void (*send)(uint8_t byte)) {
    uint32_t at = 0;
    fb_set32(frame + size, fb_crc32(0, frame, size));
    size += 4;
    while (at <= size) { /* a group per zero, and one for what follows the last */
        uint32_t end = at;
        while (end < size && frame[end] != 0) end++;
        send((uint8_t)(end - at + 1));
        while (at < end) send(frame[at++]);
        at++;
    }
    send(0);
}
