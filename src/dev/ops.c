/* Names and costs of operations: see dev/ops.h. */
#include "dev/ops.h"

#include "dev/device_impl.h"

static const struct {
    const char *name;
    size_t args_bytes;
} ops[WD_OP_COUNT] = {
#define X(op, name) [WD_OP_##op] = {#name, sizeof(wd_##name##_args)},
    WD_OP_MAP(X)
#undef X
};

const char *wd_op_name(wd_op op)
{
    return ops[op].name;
}
size_t wd_op_args_bytes(wd_op op)
{
    return ops[op].args_bytes;
}

static double matmul_flops(const wd_matmul_args *a)
{
    return 2 * (double)a->batch * (double)a->m * (double)a->n * (double)a->k;
}

/* FLOPs of `products` products of the size of q kT. */
static double attention_flops(int64_t samples, int64_t heads, int64_t head_dim, int64_t q_tokens,
                              int64_t kv_tokens, int products)
{
    return 2.0 * products * (double)samples * (double)(q_tokens * heads * head_dim) *
           (double)kv_tokens;
}

/* FLOPs of direct convolution, whichever algorithm a device uses. */
static double conv_flops(const wd_conv_args *a)
{
    double out = (double)a->samples * (double)(a->out[0] * a->out[1] * a->out[2]) * (double)a->co;
    double taps = (double)((a->tap1 - a->tap0) * a->kernel[1] * a->kernel[2] * a->ci);
    return 2 * out * taps;
}

wd_precision wd_op_precision(wd_op op, const void *args)
{
    const wd_matmul_args *m = args;
    const wd_conv_args *c = args;
    switch (op) {
    case WD_OP_MATMUL: /* both factors have one dtype */
        return wd_precision_of(m->a_type);
    case WD_OP_ATTENTION:
        return wd_precision_of(((const wd_attention_args *)args)->type);
    case WD_OP_ATTENTION_BACKWARD:
        return wd_precision_of(((const wd_attention_backward_args *)args)->type);
    case WD_OP_CONV:
        return wd_precision_of(c->type == WD_BF16 ? c->w_type : WD_F32);
    default:
        return WD_32_BIT;
    }
}

double wd_op_flops(wd_op op, const void *args)
{
    const wd_attention_args *f = args;
    const wd_attention_backward_args *b = args;
    switch (op) {
    case WD_OP_MATMUL:
        return matmul_flops(args);
    case WD_OP_ATTENTION:
        return attention_flops(f->samples, f->heads, f->head_dim, f->q_tokens, f->kv_tokens, 2);
    case WD_OP_ATTENTION_BACKWARD: /* the scores again, dv, dp, dq, dk */
        return attention_flops(b->samples, b->heads, b->head_dim, b->q_tokens, b->kv_tokens, 5);
    case WD_OP_CONV:
        return conv_flops(args);
    default:
        return 0;
    }
}
