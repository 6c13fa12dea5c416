/* The two algorithms of attention: see cpu/attention_plan.h for the choice. */
#ifndef WD_DEV_CPU_ISA_ATTENTION_H
#define WD_DEV_CPU_ISA_ATTENTION_H

#include <math.h>

#include "dev/cpu/isa/isa.h"

/* The logarithm that is added to the last key's scaled score, since it represents `repeat` equal
 * keys. */
static inline float log_repeat(int64_t repeat)
{
    return repeat > 1 ? logf((float)repeat) : 0;
}

void KERNEL(attention_small)(const wd_attention_args *a, wd_cpu_context *context);
void KERNEL(attention_backward_small)(const wd_attention_backward_args *a, wd_cpu_context *context);

void KERNEL(attention_large)(const wd_attention_args *a, wd_cpu_context *context);
void KERNEL(attention_backward_large)(const wd_attention_backward_args *a, wd_cpu_context *context);

#endif
