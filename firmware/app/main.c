/* The firmware: what a board runs. */
#include "fb_app.h"

int main(void) {
    static fb_app app;
    board_init();
    fb_app_start(&app);
    for (;;) fb_app_poll(&app);
}
