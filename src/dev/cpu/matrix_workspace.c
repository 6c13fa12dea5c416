/* Workspace of attention, the same for every instruction set. It
 * grows with the number of threads: each has its own packed operands. */
#include "dev/cpu/attention_plan.h"
#include "dev/cpu/isa/isa.h"
#include "dev/cpu/parallel.h"
#include "dev/cpu/reference.h"

size_t wd_isa_attention_workspace(const void *args)
{
    const wd_attention_args *a = args;
    if (!wd_attention_is_small(a->q_tokens, a->kv_tokens, a->head_dim))
        return wd_ref_attention_workspace(args);
    int64_t parts =
        wd_attention_parts(a->samples * a->heads, a->q_tokens * a->kv_tokens * a->head_dim);
    return (size_t)parts * wd_attention_small_floats(a->kv_tokens, a->head_dim, false) *
           sizeof(float);
}

size_t wd_isa_attention_backward_workspace(const void *args)
{
    const wd_attention_backward_args *a = args;
    if (!wd_attention_is_small(a->q_tokens, a->kv_tokens, a->head_dim))
        return wd_ref_attention_backward_workspace(args);
    int64_t parts =
        wd_attention_parts(a->samples * a->heads, a->q_tokens * a->kv_tokens * a->head_dim * 2);
    return (size_t)parts * wd_attention_small_floats(a->kv_tokens, a->head_dim, true) *
           sizeof(float);
}
