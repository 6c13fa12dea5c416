/* Which way attention goes on a GPU, fused by cuDNN or plain by our own kernel, in which pieces,
 * and the workspace that it takes. Pure: asked in dry runs, too.
 *
 * cuDNN's fused attention is for bf16 and head dimensions of 64 and 128. A last key that stands for
 * many is a bias: a row [T] that is zero but for the log of how many, at its end. A run has one
 * such row, or a few, which are kept (attention.c). Not every version of cuDNN may take a row; such
 * a one gets it once per query, [S, T], in workspace. That is always counted, so that dry runs need
 * not know the version: a prompt has at most 513 keys, so that this is little beside the scores.
 *
 * The backward pass that gives the same bits each time keeps the gradients of the scores of a
 * launch in 16 bits, so where these are more than WD_ATTENTION_PIECE_BYTES it goes in pieces of
 * samples or of heads. Which engine computes does not depend on the number of samples
 * (cudnn_shapes.h). What cuDNN refuses, our own kernel does in the same workspace.
 */
#ifndef WD_DEV_CUDA_ATTENTION_WAY_H
#define WD_DEV_CUDA_ATTENTION_WAY_H

#include "core/checked.h"
#include "dev/cuda/launch.h"
#include "dev/ops.h"

enum {
    WD_ATTENTION_PLAN_BYTES = 4096, /* of workspace that any plan may have beside the scores (256 in
                                     * cuDNN 9.19) */
    WD_ATTENTION_PIECE_BYTES = 512 << 20,
    WD_ATTENTION_ROWS_BYTES = 64 << 20, /* of a row bias once per query; what takes more is not
                                         * given to cuDNN in this form */
    WD_ATTENTION_TOKENS_MAX = 1 << 20
};

static inline bool wd__attention_is_aligned(const void *address)
{
    return (uintptr_t)address % 16 == 0;
}

/* Strides of whole 16 bytes; head dimensions of 64 or 128. */
static inline bool wd__attention_shape_fits(wd_dtype type, int64_t head_dim, int64_t q_tokens,
                                            int64_t kv_tokens, int64_t q_stride, int64_t kv_stride,
                                            int64_t o_stride)
{
    return type == WD_BF16 && (head_dim == 64 || head_dim == 128) && q_tokens > 0 &&
           kv_tokens > 0 && q_tokens <= WD_ATTENTION_TOKENS_MAX &&
           kv_tokens <= WD_ATTENTION_TOKENS_MAX && q_stride % 8 == 0 && kv_stride % 8 == 0 &&
           o_stride % 8 == 0;
}

static inline bool wd__attention_is_fused(const wd_attention_args *a)
{
    return wd__attention_shape_fits(a->type, a->head_dim, a->q_tokens, a->kv_tokens, a->q_stride,
                                    a->kv_stride, a->o_stride) &&
           a->samples > 0 && a->heads > 0 && !a->mask && !(a->bias && a->last_key_repeat > 1) &&
           wd__attention_is_aligned(a->q) && wd__attention_is_aligned(a->k) &&
           wd__attention_is_aligned(a->v) && wd__attention_is_aligned(a->o) &&
           wd__attention_is_aligned(a->bias);
}

/* cuDNN has no backward pass of one query and one key. */
static inline bool wd__attention_backward_is_fused(const wd_attention_backward_args *a)
{
    return wd__attention_shape_fits(a->type, a->head_dim, a->q_tokens, a->kv_tokens, a->q_stride,
                                    a->kv_stride, a->o_stride) &&
           a->samples > 0 && a->heads > 0 && (a->q_tokens > 1 || a->kv_tokens > 1) &&
           wd__attention_is_aligned(a->q) && wd__attention_is_aligned(a->k) &&
           wd__attention_is_aligned(a->v) && wd__attention_is_aligned(a->o) &&
           wd__attention_is_aligned(a->d_o) && wd__attention_is_aligned(a->dq) &&
           wd__attention_is_aligned(a->dk) && wd__attention_is_aligned(a->dv);
}

/* The row bias once per query; 0: this form is not used. */
static inline size_t wd__attention_rows_bytes(int64_t last_key_repeat, int64_t q_tokens,
                                              int64_t kv_tokens)
{
    const size_t bytes = wd_round_up((size_t)(q_tokens * kv_tokens) * sizeof(float), 256);
    return last_key_repeat > 1 && bytes <= WD_ATTENTION_ROWS_BYTES ? bytes : 0;
}

/* What a plan of the backward pass may take for `pairs` (sample, head) pairs. */
static inline size_t wd__attention_scores_bytes(int64_t pairs, int64_t q_tokens, int64_t kv_tokens)
{
    return (size_t)pairs * wd_round_up((size_t)q_tokens, 64) * wd_round_up((size_t)kv_tokens, 128) *
           2;
}

/* Samples and heads of one launch of the backward pass: divisors of all; heads are all of them, or
 * samples is 1. */
typedef struct wd_attention_piece {
    int64_t samples, heads;
} wd_attention_piece;

/* `piece_bytes`: of the scores of a launch, WD_ATTENTION_PIECE_BYTES but for tests. */
static inline wd_attention_piece wd__attention_piece_of(const wd_attention_backward_args *a,
                                                        size_t piece_bytes)
{
    size_t pair = wd__attention_scores_bytes(1, a->q_tokens, a->kv_tokens);
    int64_t fit = (int64_t)(piece_bytes / pair);
    wd_attention_piece piece = {a->samples, a->heads};
    while (piece.samples > 1 && (a->samples % piece.samples || piece.samples * a->heads > fit))
        piece.samples--;
    if (piece.samples > 1) return piece;
    while (piece.heads > 1 && (a->heads % piece.heads || piece.heads > fit)) piece.heads--;
    return piece;
}

/* The scratch array of sums of do o. */
static inline size_t wd__attention_dot_bytes(wd_attention_piece piece, int64_t q_tokens)
{
    return wd_round_up((size_t)(piece.samples * piece.heads * q_tokens) * sizeof(float), 256);
}

/* Bytes of workspace: the bias, then the plan's. Our own kernel takes none. */
static inline size_t wd__attention_workspace(const wd_attention_args *a)
{
    return wd__attention_rows_bytes(a->last_key_repeat, a->q_tokens, a->kv_tokens) +
           WD_ATTENTION_PLAN_BYTES;
}

/* The bias, the sums of do o, then the plan's; or that of our own kernel, which is more where a
 * piece is small. */
static inline size_t wd__attention_backward_workspace(const wd_attention_backward_args *a,
                                                      size_t piece_bytes)
{
    const wd_attention_piece piece = wd__attention_piece_of(a, piece_bytes);
    const size_t fused =
        wd__attention_rows_bytes(a->last_key_repeat, a->q_tokens, a->kv_tokens) +
        wd__attention_dot_bytes(piece, a->q_tokens) + WD_ATTENTION_PLAN_BYTES +
        wd__attention_scores_bytes(piece.samples * piece.heads, a->q_tokens, a->kv_tokens);
    const size_t own = wd__cuda_kernels_workspace(WD_OP_ATTENTION_BACKWARD, a);
    return fused > own ? fused : own;
}

#endif
