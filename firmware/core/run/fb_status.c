#include "../include/flipbit.h"

const char *fb_status_name(fb_status status) {
    static const char *const names[FB_STATUS_COUNT] = {
        "FB_OK",        "FB_ERR_TRUNCATED", "FB_ERR_MAGIC",    "FB_ERR_VERSION",    "FB_ERR_LENGTH",
        "FB_ERR_CRC",   "FB_ERR_RESERVED",  "FB_ERR_TABLE",    "FB_ERR_INDEX",      "FB_ERR_SHAPE",
        "FB_ERR_SCALE", "FB_ERR_METADATA",  "FB_ERR_ALIGN",    "FB_ERR_OFFSET",     "FB_ERR_KIND",
        "FB_ERR_FLAGS", "FB_ERR_WINDOW",    "FB_ERR_SHIFT",    "FB_ERR_MULTIPLIER", "FB_ERR_OVERFLOW",
        "FB_ERR_LIVE",  "FB_ERR_ARENA",     "FB_ERR_ARGUMENT", "FB_ERR_FLASH",      "FB_ERR_FULL",
        "FB_ERR_EMPTY", "FB_ERR_OWNER",     "FB_ERR_ORDER",    "FB_ERR_STATE",      "FB_MORE",
    };
    return (unsigned)status < FB_STATUS_COUNT ? names[status] : "FB_ERR_UNKNOWN";
}
