/* Attention: chooses between its two algorithms. */
#include "dev/cpu/isa/attention.h"

#include "dev/cpu/attention_plan.h"

void KERNEL(attention)(const void *args, wd_cpu_context *context)
{
    const wd_attention_args *a = args;
    if (wd__attention_is_small(a->q_tokens, a->kv_tokens, a->head_dim))
        KERNEL(attention_small)(a, context);
    else
        KERNEL(attention_large)(a, context);
}

void KERNEL(attention_backward)(const void *args, wd_cpu_context *context)
{
    const wd_attention_backward_args *a = args;
    if (wd__attention_is_small(a->q_tokens, a->kv_tokens, a->head_dim))
        KERNEL(attention_backward_small)(a, context);
    else
        KERNEL(attention_backward_large)(a, context);
}
