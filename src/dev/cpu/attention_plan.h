/* The choice between the two algorithms of attention, and their memory, for every instruction set:
 * see isa/attention_small.c and isa/attention_large.c. The choice depends on the sizes of one head
 * only, and not on the number of samples. */
#ifndef WD_DEV_CPU_ATTENTION_PLAN_H
#define WD_DEV_CPU_ATTENTION_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/parallel.h"

enum {
    WD_ATTENTION_LANES_MAX = 32,     /* queries that the small algorithm computes together */
    WD_ATTENTION_SMALL_TOKENS = 128, /* limits of the small algorithm */
    WD_ATTENTION_SMALL_DIM = 128,
    WD_ATTENTION_SMALL_AREA = 4096 /* keys times padded head dimension */
};

/* The head dimension rounded up to whole vectors of any instruction set. */
static inline int64_t wd__attention_padded(int64_t head_dim)
{
    return (head_dim + 15) / 16 * 16;
}

static inline bool wd__attention_is_small(int64_t q_tokens, int64_t kv_tokens, int64_t head_dim)
{
    return q_tokens <= WD_ATTENTION_SMALL_TOKENS && kv_tokens <= WD_ATTENTION_SMALL_TOKENS &&
           head_dim <= WD_ATTENTION_SMALL_DIM &&
           kv_tokens * wd__attention_padded(head_dim) <= WD_ATTENTION_SMALL_AREA;
}

/* Floats of scratch memory of one thread, for the small algorithm. */
static inline size_t wd__attention_small_floats(int64_t kv_tokens, int64_t head_dim, bool backward)
{
    int64_t width = wd__attention_padded(head_dim), lanes = WD_ATTENTION_LANES_MAX;
    int64_t key_arrays = backward ? 4 : 2, lane_arrays = backward ? 5 : 3;
    return (size_t)(kv_tokens * width * key_arrays + lanes * width * lane_arrays +
                    kv_tokens * lanes * (backward ? 2 : 1));
}

/* Threads that share `pairs` (sample, head) pairs of `work` multiply-adds per product. */
static inline int64_t wd__attention_parts(int64_t pairs, int64_t work)
{
    int64_t parts = 1 + pairs * work / 100000, threads = wd_parallel_threads();
    if (parts > threads) parts = threads;
    return parts > pairs ? pairs : parts;
}

/* The large algorithm: blocks of queries, tiles of WD_ATTENTION_KEYS keys. */
enum { WD_ATTENTION_KEYS = 128, WD_ATTENTION_QUERIES_BACKWARD = 128 };

typedef struct wd_attention_plan {
    int64_t queries; /* of a block */
    int64_t tasks, parts;
    size_t part_floats;
} wd_attention_plan;

wd_attention_plan wd__attention_plan_forward(int64_t pairs, int64_t q_tokens, int64_t head_dim);
wd_attention_plan wd__attention_plan_backward(int64_t pairs, int64_t q_tokens, int64_t head_dim);

#endif
