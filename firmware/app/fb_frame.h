/* Frames: bytes on a line that may lose, change or invent some. docs/protocol.md is the specification.
 *
 *     on the line     COBS( id u16 | command u8 | status u8 | payload | CRC-32 u32 )  00
 *
 * COBS takes the zeros out of a frame, so that a 0 on the line is always the end of one: whatever noise came before,
 * the next frame is read again. Frames have at most 252 bytes, below the 254 from which COBS needs more than one byte.
 */
#ifndef FB_FRAME_H
#define FB_FRAME_H

#include <stdbool.h>
#include <stdint.h>

enum {
    FB_FRAME_HEAD = 4,                                 /* id, command, status */
    FB_PAYLOAD_MAX = 244,                              /* an offset and FB_PIECE_MAX bytes */
    FB_PIECE_MAX = 240,                                /* bytes of data in one frame */
    FB_FRAME_MAX = FB_FRAME_HEAD + FB_PAYLOAD_MAX + 4, /* with the CRC */
    FB_LINE_MAX = FB_FRAME_MAX + 1,                    /* encoded, without the 0 at its end */
    FB_FRAME_LEAST = FB_FRAME_HEAD + 4
};

/* What a host asks for: docs/protocol.md. 0x40 … 0x5F are for learning, 0x60 … 0x6F for what a board alone has. */
typedef enum fb_command_number {
    FB_COMMAND_IDENTIFY = 0x01,
    FB_COMMAND_COUNTERS = 0x02,
    FB_COMMAND_ECHO = 0x03,
    FB_COMMAND_RESET = 0x04,
    FB_COMMAND_UNLOCK = 0x05,
    FB_COMMAND_LOAD = 0x10,
    FB_COMMAND_INFER = 0x11,
    FB_COMMAND_READ_OUTPUT = 0x12,
    FB_COMMAND_LAYERS = 0x14,
    FB_COMMAND_PLAN = 0x15,
    FB_COMMAND_STOP = 0x16,
    FB_COMMAND_READ_LAYER = 0x17,
    FB_COMMAND_LOOK = 0x20,
    FB_COMMAND_BEGIN = 0x21,
    FB_COMMAND_PIECE = 0x22,
    FB_COMMAND_FINISH = 0x23,
    FB_COMMAND_SELECT = 0x24,
    FB_COMMAND_READ_IMAGE = 0x25,
    FB_COMMAND_LISTEN_OPEN = 0x30,
    FB_COMMAND_LISTEN_PUSH = 0x31,
    FB_COMMAND_LEARN_OPEN = 0x40,
    FB_COMMAND_LEARN_BEGIN = 0x41,
    FB_COMMAND_LEARN_SAMPLE = 0x42,
    FB_COMMAND_LEARN_END = 0x43,
    FB_COMMAND_LEARN_READ = 0x44,
    FB_COMMAND_LEARN_SAVE = 0x45,
    FB_COMMAND_LEARN_FORGET = 0x46,
    FB_COMMAND_LEARN_GUARD = 0x47,
    FB_COMMAND_LEARN_DRIFT = 0x48,
    FB_COMMAND_LEARN_FLIP = 0x49,
    FB_COMMAND_LEARN_FOLLOW = 0x4A,
    FB_COMMAND_LEARN_PLAN = 0x4B
} fb_command_number;

enum {
    FB_IS_REPLY = 0x80, /* added to the command's number in a reply */
    FB_EVENT = 0xFF     /* of a frame nobody asked for: text, with id 0 */
};

/* Status of a reply. An error comes with a u32 in the payload that says more. */
typedef enum fb_reply {
    FB_REPLY_OK = 0,
    FB_REPLY_COMMAND, /* unknown command; its number */
    FB_REPLY_LENGTH,  /* the payload is too short or too long; the length of what came */
    FB_REPLY_RANGE,   /* an offset, index or length is too large; the limit */
    FB_REPLY_ORDER,   /* pieces must follow each other; the offset expected */
    FB_REPLY_STATE,   /* not now: something must come first; an fb_missing */
    FB_REPLY_MODEL,   /* the image is refused or cannot run; the fb_status of the core */
    FB_REPLY_STORE,   /* erasing or programming failed; the board_status */
    FB_REPLY_IN_USE,  /* the slot holds the model in use; its number */
    FB_REPLY_FULL,    /* of firmware whose selections could run out; not sent any more */
    FB_REPLY_DIFFERS, /* a piece is not what came at its offset before; the offset */
    FB_REPLY_LEARN,   /* learning or saving failed; the fb_status of the core */
    FB_REPLY_LOCKED,  /* the board is locked; an fb_consent_by: who can consent */
    /* of what was no frame: id and command are 0 then */
    FB_REPLY_LONG = 0x10, /* over-long; the most bytes there may be */
    FB_REPLY_COBS,        /* a zero-run leads outside, or too short */
    FB_REPLY_CRC          /* the CRC computed */
} fb_reply;

/* Detail of FB_REPLY_STATE. */
typedef enum fb_missing {
    FB_MISSING_MODEL = 1, /* there is no model: upload one */
    FB_MISSING_INPUT,     /* load the whole input first */
    FB_MISSING_BEGIN,     /* no upload has begun */
    FB_MISSING_PIECES,    /* the upload is not complete */
    FB_MISSING_IMAGE,     /* the slot holds no image */
    FB_MISSING_STOP,      /* nothing stands still: stop at a layer first */
    FB_MISSING_STORE,     /* the board has no storage */
    FB_MISSING_LEARNING,  /* nothing learns: open learning first */
    FB_MISSING_STEP,      /* no step has begun */
    FB_MISSING_END,       /* a step or pass of learning is under way: end it first */
    FB_MISSING_SAVE,      /* passes of learning are not saved: save them, or reset to drop them */
    FB_MISSING_LISTENING  /* nobody listens: open listening first */
} fb_missing;

/* Decode `size` bytes of COBS where they lie. The number of bytes decoded; -1 if they are no COBS. */
int32_t fb_cobs_decode(uint8_t *data, uint32_t size);

/* Check a frame that came without its final 0, where it lies, decoded afterwards. FB_REPLY_OK, and in `payload_size`
 * how many bytes stand after the head; or what is wrong with it, and more in `detail`. */
fb_reply fb_frame_open(uint8_t *line, uint32_t size, uint32_t *payload_size, uint32_t *detail);

/* Add the CRC to a frame of `size` bytes and send it with a 0 at its end, byte by byte. `frame` has room for 4 more. */
void fb_frame_send(uint8_t *frame, uint32_t size, void (*send)(uint8_t byte));

static inline uint32_t fb_get16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static inline uint32_t fb_get32(const uint8_t *p) { return fb_get16(p) | fb_get16(p + 2) << 16; }

static inline void fb_set32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

#endif
