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

const char *wd_op_name(wd_op op) { return ops[op].name; }
size_t wd_op_args_bytes(wd_op op) { return ops[op].args_bytes; }

static double width(wd_dtype type) { return (double)wd_dtype_bytes(type); }

static wd_op_cost matmul_cost(const wd_matmul_args *a)
{
    double m = (double)a->m, n = (double)a->n, k = (double)a->k, batch = (double)a->batch;
    double b_copies = a->stride_b ? batch : 1;
    return (wd_op_cost){2 * batch * m * n * k,
                        batch * m * k * width(a->a_type) + b_copies * n * k * width(a->b_type) +
                            batch * m * n * width(a->c_type) * (a->beta != 0 ? 2 : 1) +
                            (a->bias ? n * width(a->bias_type) : 0)};
}

static wd_op_cost attention_cost(const wd_attention_args *a)
{
    double q = (double)a->samples * (double)(a->q_tokens * a->heads * a->head_dim);
    double kv = (double)a->kv_samples * (double)(a->kv_tokens * a->heads * a->head_dim);
    return (wd_op_cost){4 * q * (double)a->kv_tokens, (2 * q + 2 * kv) * width(a->type)};
}

/* Five products of the forward pass' size: the scores again, dv, dp, dq, dk. */
static wd_op_cost attention_backward_cost(const wd_attention_backward_args *a)
{
    double q = (double)a->samples * (double)(a->q_tokens * a->heads * a->head_dim);
    double kv = (double)a->samples * (double)(a->kv_tokens * a->heads * a->head_dim);
    return (wd_op_cost){10 * q * (double)a->kv_tokens, (4 * q + 4 * kv) * width(a->type)};
}

static wd_op_cost conv_cost(const wd_conv_args *a)
{
    double in = (double)a->samples * (double)(a->in[0] * a->in[1] * a->in[2]) * (double)a->ci;
    double out = (double)a->samples * (double)(a->out[0] * a->out[1] * a->out[2]) * (double)a->co;
    double taps = (double)((a->tap1 - a->tap0) * a->kernel[1] * a->kernel[2] * a->ci);
    return (wd_op_cost){2 * out * taps,
                        (in + out) * width(a->type) + taps * (double)a->co * width(a->w_type)};
}

static double strided_copy_bytes(const wd_strided_copy_args *a)
{
    double count = 1;
    for (int i = 0; i < a->ndim; i++) count *= (double)a->dim[i];
    return count * (width(a->from_type) + width(a->to_type) * (a->beta != 0 ? 2 : 1));
}

/* Bytes of an operation that has no matrix product: arrays of [rows, width] and the like, each as
 * often as it is read or written; vectors beside them do not count. */
static double other_bytes(wd_op op, const void *args)
{
#define AS(name) const wd_##name##_args *a = args
    switch (op) {
    case WD_OP_LAYERNORM: {
        AS(layernorm);
        return 2.0 * (double)(a->rows * a->width) * width(a->type);
    }
    case WD_OP_LAYERNORM_BACKWARD: {
        AS(layernorm_backward);
        return 4.0 * (double)(a->rows * a->width) * width(a->type);
    }
    case WD_OP_RMSNORM: {
        AS(rmsnorm);
        return 2.0 * (double)(a->rows * a->width) * width(a->type);
    }
    case WD_OP_RMSNORM_BACKWARD: {
        AS(rmsnorm_backward);
        return 3.0 * (double)(a->rows * a->width) * width(a->type);
    }
    case WD_OP_CHANNELNORM: {
        AS(channelnorm);
        return 2.0 * (double)(a->rows * a->width) * width(a->type);
    }
    case WD_OP_RESIDUAL: {
        AS(residual);
        return 3.0 * (double)(a->rows * a->width) * width(a->type);
    }
    case WD_OP_RESIDUAL_BACKWARD: {
        AS(residual_backward);
        return 3.0 * (double)(a->rows * a->width) * width(a->type);
    }
    case WD_OP_ACTIVATION: {
        AS(activation);
        return 2.0 * (double)a->count * width(a->type);
    }
    case WD_OP_ACTIVATION_BACKWARD: {
        AS(activation_backward);
        return 3.0 * (double)a->count * width(a->type);
    }
    case WD_OP_MULTIPLY: {
        AS(multiply);
        return 3.0 * (double)a->count * width(a->type);
    }
    case WD_OP_ADD_TABLE: {
        AS(add_table);
        return (double)(a->rows * a->width) * (4 + width(a->type));
    }
    case WD_OP_SUM_ROWS: {
        AS(sum_rows);
        return (double)(a->rows * a->width) * width(a->type);
    }
    case WD_OP_TIMESTEP_EMBED: {
        AS(timestep_embed);
        return (double)(a->samples * a->width) * 4;
    }
    case WD_OP_STRIDED_COPY:
        return strided_copy_bytes(args);
    case WD_OP_GATHER_ROWS: {
        AS(gather_rows);
        return (double)(a->rows * a->width) * (width(a->to_type) + width(a->from_type));
    }
    case WD_OP_CAST: {
        AS(cast);
        return (double)a->count * (width(a->to_type) + width(a->from_type));
    }
    case WD_OP_FILL: {
        AS(fill);
        return (double)a->count * width(a->type);
    }
    case WD_OP_COMBINE: {
        AS(combine);
        return (double)a->count * 4 * (a->terms + 1);
    }
    case WD_OP_GUIDANCE: {
        AS(guidance);
        return (double)(a->samples * a->width) * (4 + width(a->type) * (a->u ? 2 : 1));
    }
    case WD_OP_STEP_SAMPLES: {
        AS(step_samples);
        return (double)(a->samples * a->width) * 12;
    }
    case WD_OP_MSE: {
        AS(mse);
        return (double)(a->samples * a->width) * (4 + width(a->type) * (a->dy ? 2 : 1));
    }
    case WD_OP_SUM_SQUARES: {
        AS(sum_squares);
        return (double)a->count * 4;
    }
    case WD_OP_SQUARE_SUMS: {
        AS(square_sums);
        return (double)a->count * 4;
    }
    case WD_OP_CLIP_FACTOR:
        return 12;
    case WD_OP_ADAMW: {
        AS(adamw);
        double copy = a->copy ? width(a->copy_type) : 0;
        return (double)a->count * ((a->ema ? 9 : 7) * 4 + copy);
    }
    case WD_OP_MATMUL:
    case WD_OP_ATTENTION:
    case WD_OP_ATTENTION_BACKWARD:
    case WD_OP_CONV:
    case WD_OP_COUNT:
        break;
    }
#undef AS
    return 0;
}

wd_op_cost wd_op_cost_of(wd_op op, const void *args)
{
    switch (op) {
    case WD_OP_MATMUL:
        return matmul_cost(args);
    case WD_OP_ATTENTION:
        return attention_cost(args);
    case WD_OP_ATTENTION_BACKWARD:
        return attention_backward_cost(args);
    case WD_OP_CONV:
        return conv_cost(args);
    default:
        return (wd_op_cost){0, other_bytes(op, args)};
    }
}
