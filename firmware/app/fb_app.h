/* The application: a device that answers requests over its UART. What the commands do is in docs/protocol.md.
 *
 * Everything a request may change is in one fb_app. Requests and replies share its frame buffer: a handler takes what
 * it needs of the request before it writes the reply. RAM for the net is cut anew for each model:
 *
 *     board_arena  | input | output | arena of the core                     | board_arena_end
 *     learning     | input | output | image | state | arena of the core    |
 */
#ifndef FB_APP_H
#define FB_APP_H

#include "fb_app_learning.h"
#include "fb_frame.h"
#include "fb_slots.h"
#include "flipbit.h"

#define FB_PROTOCOL_VERSION 2u

typedef struct fb_stream fb_stream; /* of a net that listens; in fb_commands_listen.c */

/* Watches what the net in use is shown, and recalibrates it: fb_commands_guard.c. */
typedef struct fb_guard {
    bool on;
    bool fresh;         /* a step has ended: the next window says what is left */
    uint32_t window;    /* samples */
    uint32_t threshold; /* of the drift; 16 fractional bits, as in the next two */
    uint32_t drift;     /* of the last window */
    uint32_t settled;   /* what was left of it after the last recalibration */
    uint32_t windows;   /* done so far */
    uint32_t passes;    /* that recalibrated */
} fb_guard;

typedef struct fb_app {
    /* one byte more than the longest frame, to notice over-long ones */
    uint8_t frame[FB_LINE_MAX + 1];
    uint32_t received;  /* bytes in `frame` */
    uint32_t good, bad; /* frames so far */
    uint32_t size;      /* payload of the request, then of the reply */
    bool waiting;       /* a request came while the net stood still at a layer: handle it next */
    fb_model model;     /* in use, if ready */
    bool ready;
    uint8_t slot;    /* of the model: a slot, FB_SLOT_BUILT_IN or FB_SLOT_NONE */
    uint8_t refused; /* fb_status of the selected image if another one is in use instead */
    int8_t *input, *output;
    uint8_t *arena;
    uint32_t input_size, output_size, arena_size;
    uint32_t loaded; /* bytes of the input that came, from its start */
    uint32_t detail; /* of an error */
    fb_ledger ledger;
    fb_upload upload;
    fb_app_learning learning;
    fb_stream *stream; /* in the front of what was the arena; NULL while nobody listens */
    fb_guard guard;
    bool unlocked;      /* the key was presented: fb_consent.h */
    uint8_t checkpoint; /* fb_status of what is saved of learning, if the model in use cannot go on from it */
} fb_app;

typedef fb_reply fb_handler(fb_app *app);

/* A command, and how long the payload of its requests may be. */
typedef struct fb_command {
    uint8_t number; /* fb_command_number */
    uint8_t least, most;
    fb_handler *handler; /* NULL ends a list */
} fb_command;

/* Lists of commands, one per file. A new list is added to `lists` in fb_app.c. */
extern const fb_command fb_device_commands[], fb_consent_commands[], fb_model_commands[], fb_slot_commands[],
    fb_listen_commands[], fb_learn_commands[], fb_guard_commands[], fb_fleet_commands[];

/* A sample in the place of an inference, while the guard is on; the output is in app->output then. */
fb_status fb_guard_sample(fb_app *app);

/* Start: use the selected image, or the one linked in, and say so on the line. */
void fb_app_start(fb_app *app);

/* Take what came on the line, and answer if it was a request. Returns at once when there is nothing to do. */
void fb_app_poll(fb_app *app);

/* Take bytes until a request is complete; false if none is there yet. Noise is answered here. */
bool fb_app_receive(fb_app *app);

/* Answer the request in the frame buffer. */
void fb_app_answer(fb_app *app);

/* Send a reply with the payload in the frame buffer, app->size bytes. */
void fb_app_reply(fb_app *app, fb_reply status);

/* Use the image of a slot or the built-in one, with what was saved of its learning: FB_OK, or why not; the model in use
 * stays then. */
fb_status fb_app_use(fb_app *app, unsigned slot);

/* Go on learning from what was saved, if it belongs to the model in use. In fb_commands_learn.c. */
void fb_app_resume(fb_app *app);

/* Stop listening, if it does: the arena has its size again. In fb_commands_listen.c. */
void fb_app_listen_end(fb_app *app);

/* An image by the number of its slot, FB_SLOT_BUILT_IN too; NULL if there is none. */
const uint8_t *fb_app_image(const fb_app *app, unsigned slot, uint32_t *length);

static inline uint8_t *fb_payload(fb_app *app) { return app->frame + FB_FRAME_HEAD; }

/* Add to the payload of a reply. */
static inline void fb_put32(fb_app *app, uint32_t value) {
    fb_set32(fb_payload(app) + app->size, value);
    app->size += 4;
}

/* A request that cannot be done: `status`, with a number that says more. */
static inline fb_reply fb_refuse(fb_app *app, fb_reply status, uint32_t detail) {
    app->detail = detail;
    return status;
}

#endif
