/* Reads the 32 bytes that describe a front end. The order of checks is that of runtime/image/reader.py. */
#include "fb_front_end.h"

#include <string.h>

#define REQUIRE(condition, status) \
    do { \
        if (!(condition)) return (status); \
    } while (0)

static const uint8_t *record_of(const fb_model *model) { return fb_op_record(model, model->ops); }

static bool all_zero(const uint8_t *p, unsigned from, unsigned to) {
    for (; from < to; from++) {
        if (p[from]) return false;
    }
    return true;
}

bool fb_front_end_takes_audio(const fb_audio_config *c) {
    return c->fft >= FB_AUDIO_FFT_LEAST && c->fft <= FB_AUDIO_FFT_MOST && (c->fft & (c->fft - 1)) == 0 &&
           c->window >= FB_AUDIO_WINDOW_LEAST && c->window <= c->fft && c->hop >= 1 && c->hop <= c->window &&
           c->bands >= 1 && c->bands <= FB_AUDIO_BANDS_MOST && c->low_hz < c->high_hz &&
           c->high_hz <= FB_AUDIO_RATE / 2 && c->floor <= FB_AUDIO_FLOOR_MOST && c->gain >= 1;
}

static fb_audio_config audio_of(const uint8_t *p) {
    fb_audio_config c;
    c.window = (uint16_t)fb_u16(p + FB_FRONT_WINDOW);
    c.hop = (uint16_t)fb_u16(p + FB_FRONT_ROW_HOP);
    c.fft = (uint16_t)fb_u16(p + FB_FRONT_FFT);
    c.bands = (uint16_t)fb_u16(p + FB_FRONT_BANDS);
    c.low_hz = (uint16_t)fb_u16(p + FB_FRONT_LOW);
    c.high_hz = (uint16_t)fb_u16(p + FB_FRONT_HIGH);
    c.floor = p[FB_FRONT_FLOOR];
    c.gain = p[FB_FRONT_GAIN];
    return c;
}

static fb_signal_config signal_of(const uint8_t *p) {
    fb_signal_config c;
    unsigned i;
    c.per_channel = p[FB_FRONT_FLAGS] & FB_FRONT_PER_CHANNEL;
    c.shift = p[FB_FRONT_SHIFT];
    c.fraction = (int8_t)p[FB_FRONT_FRACTION];
    for (i = 0; i < FB_SIGNAL_SCALES; i++) {
        c.multiplier[i] = (uint16_t)fb_u16(p + FB_FRONT_MULTIPLIERS + 2 * i);
        c.zero[i] = (int8_t)p[FB_FRONT_ZEROS + i];
    }
    return c;
}

static fb_status check_audio(const uint8_t *p, const fb_tensor *in) {
    fb_audio_config c = audio_of(p);
    REQUIRE(all_zero(p, FB_FRONT_AUDIO_END, FB_FRONT_SIZE), FB_ERR_RESERVED);
    REQUIRE(fb_u32(p + FB_FRONT_RATE) == FB_AUDIO_RATE * 1000u && fb_front_end_takes_audio(&c), FB_ERR_WINDOW);
    REQUIRE(p[FB_FRONT_CHANNELS] == 1, FB_ERR_SHAPE);
    REQUIRE(in->rank == 3 && in->width == c.bands && in->channels == 1, FB_ERR_SHAPE);
    return FB_OK;
}

/* A window of samples lies as planes of a channel each (length × 1 or 1 × length pixels), or sample by sample in one
 * plane (length × channels). */
static bool lies_in_planes(const fb_tensor *in, unsigned channels) {
    return in->channels == channels && (in->height == 1 || in->width == 1);
}

static fb_status check_signal(const uint8_t *p, const fb_tensor *in) {
    fb_signal_config c = signal_of(p);
    unsigned channels = p[FB_FRONT_CHANNELS], used, i;
    REQUIRE((p[FB_FRONT_FLAGS] & ~(unsigned)FB_FRONT_PER_CHANNEL) == 0, FB_ERR_FLAGS);
    REQUIRE(all_zero(p, FB_FRONT_FRACTION + 1, FB_FRONT_MULTIPLIERS), FB_ERR_RESERVED);
    REQUIRE(all_zero(p, FB_FRONT_SIGNAL_END, FB_FRONT_SIZE), FB_ERR_RESERVED);
    REQUIRE(fb_u32(p + FB_FRONT_RATE) >= 1, FB_ERR_WINDOW);
    REQUIRE(channels >= 1 && (!c.per_channel || channels <= FB_SIGNAL_SCALES), FB_ERR_SHAPE);
    REQUIRE(in->rank == 3, FB_ERR_SHAPE);
    REQUIRE(lies_in_planes(in, channels) || (in->channels == 1 && in->width == channels), FB_ERR_SHAPE);
    REQUIRE(c.shift >= 1 && c.shift <= 30 && c.fraction >= -16 && c.fraction <= 30, FB_ERR_SHIFT);
    used = c.per_channel ? channels : 1;
    for (i = 0; i < FB_SIGNAL_SCALES; i++) {
        REQUIRE(i < used ? c.multiplier[i] >= 1 && c.multiplier[i] <= 32767 : c.multiplier[i] == 0, FB_ERR_MULTIPLIER);
    }
    REQUIRE(all_zero(p, FB_FRONT_ZEROS + used, FB_FRONT_SIGNAL_END), FB_ERR_RESERVED);
    return FB_OK;
}

fb_status fb_front_end_check(const fb_model *model) {
    const uint8_t *p = record_of(model);
    fb_tensor in = fb_model_tensor(model, model->input);
    REQUIRE(p[FB_FRONT_KIND] == FB_FRONT_AUDIO || p[FB_FRONT_KIND] == FB_FRONT_SIGNAL, FB_ERR_KIND);
    REQUIRE(fb_u16(p + FB_FRONT_HOP) >= 1, FB_ERR_WINDOW);
    return p[FB_FRONT_KIND] == FB_FRONT_AUDIO ? check_audio(p, &in) : check_signal(p, &in);
}

fb_status fb_front_end_of(const fb_model *model, fb_front_end *front_end) {
    const uint8_t *p;
    fb_tensor in;
    REQUIRE(model && front_end, FB_ERR_ARGUMENT);
    REQUIRE(fb_u16(model->image + FB_HEADER_FLAGS) & FB_HEADER_FRONT_END, FB_ERR_EMPTY);
    p = record_of(model);
    in = fb_model_tensor(model, model->input);
    memset(front_end, 0, sizeof *front_end);
    front_end->kind = p[FB_FRONT_KIND];
    front_end->channels = p[FB_FRONT_CHANNELS];
    front_end->hop = (uint16_t)fb_u16(p + FB_FRONT_HOP);
    front_end->rate = fb_u32(p + FB_FRONT_RATE);
    if (front_end->kind == FB_FRONT_AUDIO) {
        front_end->audio = audio_of(p);
        front_end->length = in.height;
    } else {
        front_end->signal = signal_of(p);
        front_end->planes = lies_in_planes(&in, front_end->channels);
        front_end->length = front_end->planes && in.height == 1 ? in.width : in.height;
    }
    return FB_OK;
}

int8_t fb_signal_value(const fb_signal_config *config, unsigned channel, int16_t sample) {
    unsigned at = config->per_channel ? channel : 0;
    int32_t value = (sample * (int32_t)config->multiplier[at] + (int32_t)(1u << config->shift >> 1)) >> config->shift;
    value += config->zero[at];
    return (int8_t)(value < -128 ? -128 : value > 127 ? 127 : value);
}
