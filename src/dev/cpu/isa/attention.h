/* The two ways in which attention goes: see cpu/attention_plan.h for which one it is. */
#ifndef WD_DEV_CPU_ISA_ATTENTION_H
#define WD_DEV_CPU_ISA_ATTENTION_H

#include "dev/cpu/isa/isa.h"

void KERNEL(attention_small)(const wd_attention_args *a, wd_cpu_context *context);
void KERNEL(attention_backward_small)(const wd_attention_backward_args *a, wd_cpu_context *context);

void KERNEL(attention_large)(const wd_attention_args *a, wd_cpu_context *context);
void KERNEL(attention_backward_large)(const wd_attention_backward_args *a, wd_cpu_context *context);

#endif
