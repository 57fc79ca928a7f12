/* What the counting programs share: reports over semihosting, inputs, the stack's high-water mark. */
#ifndef REPORT_H
#define REPORT_H

#include "flipbit.h"
#include "semihosting.h"

/* A space and the number. */
void report_number(uint32_t value);

/* "failed STATUS", and end the program. */
void report_failure(fb_status status);

/* The next value of an input; counting.py makes the same. */
int8_t next_value(uint32_t *state);

/* Fill what is free of the stack, and see later how far from `top` it was used. */
void paint_stack(void);
uint32_t stack_used(const uint8_t *top);

#endif
