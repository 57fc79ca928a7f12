#include "../include/fb_listen.h"

#include <string.h>

static size_t aligned(size_t n) { return (n + (FB_ALIGN - 1)) & ~(size_t)(FB_ALIGN - 1); }

static bool within_limits(const fb_listen_config *c) {
    return c->threshold <= 255 && c->average >= 1 && c->average <= FB_LISTEN_AVERAGE_MOST;
}

/* The front end, and bytes of the front end's memory and of all. */
static fb_status plan(const fb_model *model, const fb_listen_config *config, fb_front_end *front_end, size_t *first,
                      size_t *size) {
    fb_status status;
    uint32_t classes;
    size_t row = 0;
    if (!model || !config || !within_limits(config)) return FB_ERR_ARGUMENT;
    status = fb_front_end_of(model, front_end);
    if (status != FB_OK) return status;
    classes = fb_model_tensor(model, model->output).size;
    if (classes < 2 || classes > FB_LISTEN_CLASSES_MOST) return FB_ERR_SHAPE;
    *first = 0;
    if (front_end->kind == FB_FRONT_AUDIO) {
        *first = aligned(fb_audio_size(&front_end->audio));
        if (*first == 0) return FB_ERR_SHAPE;
        row = front_end->audio.bands;
    }
    *size = *first + row + (size_t)config->average * classes;
    return FB_OK;
}

size_t fb_listen_size(const fb_model *model, const fb_listen_config *config) {
    fb_front_end front_end;
    size_t first, size;
    return plan(model, config, &front_end, &first, &size) == FB_OK ? size : 0;
}

fb_status fb_listen_open(fb_listen *listen, const fb_model *model, const fb_listen_config *config, int8_t *input,
                         void *memory, size_t size) {
    fb_front_end front_end;
    size_t first, needed;
    fb_status status = plan(model, config, &front_end, &first, &needed);
    if (status != FB_OK) return status;
    if (!listen || !input || !memory) return FB_ERR_ARGUMENT;
    if ((uintptr_t)memory % FB_ALIGN) return FB_ERR_ALIGN;
    if (size < needed) return FB_ERR_ARENA;
    memset(listen, 0, sizeof *listen);
    listen->config = *config;
    listen->front_end = front_end;
    if (!listen->config.stride) listen->config.stride = front_end.hop;
    listen->input = input;
    listen->classes = (uint16_t)fb_model_tensor(model, model->output).size;
    listen->row = (int8_t *)memory + first;
    listen->scores = listen->row;
    if (front_end.kind == FB_FRONT_AUDIO) {
        listen->scores += front_end.audio.bands;
        return fb_audio_open(&listen->audio, &front_end.audio, memory, first);
    }
    return FB_OK;
}

void fb_listen_reset(fb_listen *listen) {
    if (listen->front_end.kind == FB_FRONT_AUDIO) fb_audio_reset(&listen->audio);
    listen->filled = listen->channel = listen->kept = listen->next = listen->quiet = 0;
    listen->skip = listen->windows = 0;
}

/* Let the oldest rows leave: `width` values per row, `length` rows. Pieces no longer than what leaves do not overlap. */
static void shift(int8_t *values, uint32_t length, uint32_t width, uint32_t leave) {
    uint32_t gap = leave * width, kept = (length - leave) * width, at, n;
    for (at = 0; at < kept; at += n) {
        n = kept - at < gap ? kept - at : gap;
        memcpy(values + at, values + at + gap, n);
    }
}

/* Makes room for the next window. */
static void advance(fb_listen *listen) {
    const fb_front_end *f = &listen->front_end;
    uint32_t stride = listen->config.stride, i;
    listen->filled = 0;
    if (stride >= f->length) {
        listen->skip = stride - f->length;
        return;
    }
    if (f->kind == FB_FRONT_AUDIO) {
        shift(listen->input, f->length, f->audio.bands, stride);
    } else if (f->planes) {
        for (i = 0; i < f->channels; i++) shift(listen->input + i * f->length, f->length, 1, stride);
    } else {
        shift(listen->input, f->length, f->channels, stride);
    }
    listen->filled = (uint16_t)(f->length - stride);
}

/* One row or sample more is there: true if it was the last of a window. */
static bool row_ends(fb_listen *listen) {
    if (listen->skip) {
        listen->skip--;
        return false;
    }
    if (++listen->filled < listen->front_end.length) return false;
    listen->windows++;
    return true;
}

static fb_status push_audio(fb_listen *listen, const int16_t *values, size_t count, size_t *used) {
    const fb_front_end *f = &listen->front_end;
    while (*used < count) {
        size_t taken;
        fb_status status = fb_audio_push(&listen->audio, values + *used, count - *used, &taken, listen->row);
        *used += taken;
        if (status != FB_OK) return status;
        if (!listen->skip) memcpy(listen->input + (size_t)listen->filled * f->audio.bands, listen->row, f->audio.bands);
        if (row_ends(listen)) return FB_OK;
    }
    return FB_MORE;
}

static fb_status push_signal(fb_listen *listen, const int16_t *values, size_t count, size_t *used) {
    const fb_front_end *f = &listen->front_end;
    while (*used < count) {
        unsigned channel = listen->channel;
        int8_t value = fb_signal_value(&f->signal, channel, values[(*used)++]);
        size_t at =
            f->planes ? (size_t)channel * f->length + listen->filled : (size_t)listen->filled * f->channels + channel;
        if (!listen->skip) listen->input[at] = value;
        listen->channel = (uint16_t)(channel + 1u < f->channels ? channel + 1u : 0);
        if (!listen->channel && row_ends(listen)) return FB_OK;
    }
    return FB_MORE;
}

fb_status fb_listen_push(fb_listen *listen, const int16_t *values, size_t count, size_t *used) {
    if (!listen || !used || (!values && count)) return FB_ERR_ARGUMENT;
    *used = 0;
    if (!count) return FB_MORE;
    if (listen->filled == listen->front_end.length) advance(listen);
    return listen->front_end.kind == FB_FRONT_AUDIO ? push_audio(listen, values, count, used)
                                                    : push_signal(listen, values, count, used);
}

/* Of the scores that are kept: the sum of class `label`, below 2^12. */
static int32_t sum_of(const fb_listen *listen, unsigned label) {
    int32_t sum = 0;
    unsigned i;
    for (i = 0; i < listen->kept; i++) sum += listen->scores[i * listen->classes + label];
    return sum;
}

bool fb_listen_decide(fb_listen *listen, const int8_t *output, fb_detection *found) {
    const fb_listen_config *c = &listen->config;
    int32_t best, second = -16 * 128 - 1, count = c->average;
    unsigned label = 0, i;
    memcpy(listen->scores + (size_t)listen->next * listen->classes, output, listen->classes);
    listen->next = (uint16_t)(listen->next + 1u < c->average ? listen->next + 1u : 0);
    if (listen->kept < c->average) listen->kept++;
    if (listen->quiet) {
        listen->quiet--;
        return false;
    }
    if (listen->kept < c->average) return false;
    best = sum_of(listen, 0);
    for (i = 1; i < listen->classes; i++) {
        int32_t sum = sum_of(listen, i);
        if (sum > best) {
            second = best;
            best = sum;
            label = i;
        } else if (sum > second) {
            second = sum;
        }
    }
    if (best - second < c->threshold * count || (label < 32 && c->ignored >> label & 1)) return false;
    listen->quiet = c->refractory;
    found->window = listen->windows - 1;
    found->label = (uint16_t)label;
    found->margin = (int16_t)((best - second) / count);
    return true;
}
