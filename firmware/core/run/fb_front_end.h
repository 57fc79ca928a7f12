/* The record of a front end, for the one who opens an image. Private to the core. */
#ifndef FB_FRONT_END_RECORD_H
#define FB_FRONT_END_RECORD_H

#include "../include/fb_front_end.h"
#include "fb_format.h"

/* The image has a record, and its input tensor exists and makes sense. */
fb_status fb_front_end_check(const fb_model *model);

/* Whether every field is one that fb_audio_open takes. Bands may still be too narrow for the FFT. */
bool fb_front_end_takes_audio(const fb_audio_config *config);

#endif
