/* Who may do what: the one place where that is decided.
 *
 * Whoever is on the line may ask anything of a board, unless the firmware was built with LOCKED=1. Such a board answers
 * IDENTIFY, COUNTERS, ECHO, LOAD, INFER, READ_OUTPUT, LOOK and UNLOCK; all else is refused with FB_REPLY_LOCKED until
 * somebody consents: the board itself (board_consents of board.h: a button, a jumper), or whoever presents the key that
 * was built in with KEY_FILE=…, until the next start or until UNLOCK comes without a key.
 */
#ifndef FB_CONSENT_H
#define FB_CONSENT_H

#include "fb_app.h"

#ifndef FB_LOCKED
#define FB_LOCKED 0
#endif

/* Bytes of a key. A shorter one could be guessed. */
enum { FB_KEY_LEAST = 16, FB_KEY_MOST = 64 };

/* Detail of FB_REPLY_LOCKED. */
typedef enum fb_consent_by { FB_CONSENT_BOARD = 1, FB_CONSENT_KEY = 2 } fb_consent_by;

/* Whether a command may be done now. */
bool fb_permitted(const fb_app *app, unsigned command);

/* The refusal of one that may not. */
fb_reply fb_refuse_locked(fb_app *app);

/* For IDENTIFY: 1 built with LOCKED=1, 2 somebody consents now, 4 takes a key. */
uint8_t fb_lock_state(const fb_app *app);

#endif
