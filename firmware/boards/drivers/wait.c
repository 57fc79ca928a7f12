#include "drivers.h"

bool wait_for(uint32_t address, uint32_t mask, uint32_t value, uint32_t milliseconds) {
    uint32_t turns = BOARD_CLOCK_HZ / 4000u * milliseconds; /* a turn takes at least 4 cycles */
    while (turns--) {
        if ((REGISTER(address) & mask) == value) return true;
    }
    return false;
}
