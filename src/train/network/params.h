/* A network's flat parameters: weights, gradients, moments and EMA, one buffer each.
 *
 * Data flow: init (train/network/init.h) or a checkpoint fills `p`; the forward and backward passes
 * see a stage's weights and gradients as views; the optimizer works on the buffers as ranges.
 *
 * All buffers share one layout: the tensor table's order, so stage by stage, each tensor at a
 * multiple of WD_PARAMS_ALIGN elements. Elements between tensors are zero in every buffer and stay
 * so. Where the sizes allow, Q, K and V of an attention touch: one product can serve the three.
 * With bf16 compute, passes read a bf16 copy of the weights instead of `p`. It has the same
 * offsets. Passes read the fp32 islands from a buffer of their own, not from the copy, in which
 * they take a hundredth. If such a network is trained, `p` is *split*: its buffer holds remainders
 * of 16 bits, and copy and remainder together give the fp32 value (wd_masters_args of dev/ops.h;
 * FlashOptim, arXiv 2602.23349). So master weights take 2 bytes beside the copy instead of 4. A
 * network that is not trained has `p` whole, or the copy without `p`.
 *
 * Shared among ranks (ZeRO-1) moments and EMA are packed: a rank has those of its own pieces
 * (job/comm/pieces.h), one behind the other. Weights are whole where passes take them: `p` in F32;
 * the copy in BF16, where `p` is packed, too, and the islands are whole beside it. Gradients are
 * whole; between steps their place is where what is packed is brought together
 * (train/network/shard.h). With N elements, n of them this rank's, I of islands, and EMA: 8 N + 12
 * n bytes instead of 20 N in F32, 6 N + 14 n + 4 I instead of 20 N + 4 I in BF16. AdEMAMix's slow
 * moments add 4 n.
 *
 * With WD_PARAMS_MOMENTS_IN_8_BITS the two moments of an element take 2 1/8 bytes instead of 8: a
 * buffer is one block, [count] codes and behind them a scale for every 32 of them (dev/moments.h).
 *
 * With WD_PARAMS_STATE_ON_HOST what is only read and written by the optimizer lies in host memory:
 * moments, EMA and, in BF16, `p`, which is not split there (train/network/optimizer_host.h). The
 * device then has 6 N + 4 I bytes in BF16 and 8 N in F32, the host 16 n or 12 n. With
 * WD_PARAMS_EMA_ON_HOST only the EMA is there, with 4 n. What is on the host, packed, split, or in
 * 8 bits is *aside*: wd_params_collect brings it together, in F32, where gradients are.
 *
 * Where `p` is split the copy is half of the master weights. While its place is used for something
 * else, as when the EMA is shown, the copy is *kept* where gradients are.
 *
 * With WD_PARAMS_GRADIENTS_IN_BF16 gradients take 2 bytes instead of 4. Those of the stage at work
 * are sums in F32, which are rounded when its backward pass is over, so there is one backward pass
 * between two calls of wd_params_zero_grads. What is aside is then brought together in the place of
 * gradients and copy, which lie side by side for it. The copy is kept in host memory meanwhile
 * (2 N bytes), or made again of a `p` that is in host memory: wd_params_release. */
#ifndef WD_TRAIN_NETWORK_PARAMS_H
#define WD_TRAIN_NETWORK_PARAMS_H

#include "dev/device.h"
#include "dev/ops.h"
#include "job/comm/pieces.h"
#include "model/tables/dit_table.h"

enum { WD_PARAMS_ALIGN = 32 }; /* elements: 128 bytes in fp32, 64 in bf16 */

/* Which buffers there are, besides the weights. */
enum {
    WD_PARAMS_TRAINED = 1, /* gradients and moments */
    WD_PARAMS_WITH_EMA = 2,
    WD_PARAMS_WITH_SLOW = 4,      /* AdEMAMix's slow moments, beside those of WD_PARAMS_TRAINED */
    WD_PARAMS_AS_COMPUTED = 8,    /* of the weights only what passes take: in BF16 the copy and the
                                   * islands, without `p`. Not trained */
    WD_PARAMS_STATE_ON_HOST = 16, /* what passes do not take is in host memory. The device is not
                                   * the processor */
    WD_PARAMS_MOMENTS_IN_8_BITS = 32, /* those of WD_PARAMS_TRAINED, not slow ones */
    WD_PARAMS_EMA_ON_HOST = 64, /* the EMA is in host memory, the rest is on the device, which is
                                 * not the processor */
    WD_PARAMS_GRADIENTS_IN_BF16 = 128 /* those of WD_PARAMS_TRAINED, of a network in BF16 */
};

/* The flat buffers that hold a value for each weight, as checkpoints name them. */
#define WD_PARAMS_BUFFER_MAP(X)                                                                    \
    X(P, p)                                                                                        \
    X(G, g)                                                                                        \
    X(M, m)                                                                                        \
    X(V, v)                                                                                        \
    X(SLOW, slow)                                                                                  \
    X(EMA, ema)

typedef enum wd_params_buffer {
#define X(name, field) WD_PARAMS_##name,
    WD_PARAMS_BUFFER_MAP(X)
#undef X
        WD_PARAMS_BUFFERS
} wd_params_buffer;

/* The names of a network, all of them literals. */
typedef struct wd_params_names {
    const char *prefix;                    /* of its tensors in checkpoints: "" or "critic." */
    const char *buffer[WD_PARAMS_BUFFERS]; /* its blocks of memory, in plans */
    const char *copy, *remainders, *kept_copy, *copy_and_gradients, *stage_gradients, *islands,
        *activations;
} wd_params_names;

/* The names of a network that plans call `owner`, a literal. */
#define WD_PARAMS_NAMES(owner, prefix_)                                                            \
    {                                                                                              \
        .prefix = prefix_,                                                                         \
        .buffer = {owner " weights",        owner " gradients",    owner " first moments",         \
                   owner " second moments", owner " slow moments", owner " EMA"},                  \
        .copy = owner " weights in bf16", .remainders = owner " remainders of weights",            \
        .kept_copy = owner " weights in bf16, kept aside",                                         \
        .copy_and_gradients = owner " weights and gradients in bf16",                              \
        .stage_gradients = owner " gradients of a stage", .islands = owner " fp32 islands",        \
        .activations = owner " activations"                                                        \
    }

extern const wd_params_names wd_params_student; /* prefix "" */

typedef struct wd_params_options {
    const wd_params_names *names; /* borrowed for good */
    const wd_dit_config *config;  /* borrowed during the call */
    wd_dtype dtype;               /* compute dtype: F32 or BF16 */
    unsigned kinds;  /* WD_PARAMS_TRAINED | WD_PARAMS_WITH_..., or WD_PARAMS_AS_COMPUTED */
    int rank, ranks; /* the ranks that share the parameters; 0 and 1: they are whole */
} wd_params_options;

/* Exchanges the pieces of ranks that share a network (train/network/shard.h). wd_params_collect,
 * wd_params_take and wd_params_show call these. */
typedef struct wd_shard wd_shard;

/* Steps the buffers that are on the host (train/network/optimizer_host.h). */
typedef struct wd_optimizer_host wd_optimizer_host;

typedef struct wd_params_sharing {
    void (*collect)(wd_shard *shard, wd_params_buffer buffer, wd_queue *queue);
    void (*take)(wd_shard *shard, wd_params_buffer buffer, wd_queue *queue);
    void (*show)(wd_shard *shard, wd_params_buffer buffer, wd_queue *queue);
} wd_params_sharing;

/* Elements of a buffer that is aside, and their place in what is whole. */
typedef struct wd_params_range {
    wd_params_buffer buffer;
    float *at;     /* [count] device: where they are in F32 */
    int64_t first; /* the first in what is whole */
    int64_t count;
    int64_t packed; /* the first in the buffer */
    bool take;      /* from there into the buffer; else the other way */
} wd_params_range;

typedef struct wd_params {
    const wd_params_names *names;
    wd_dit_config config;
    wd_tensor_table table;            /* owned */
    int64_t *offset;                  /* [table.count] first element of each tensor; owned */
    int64_t count;                    /* elements of a buffer, padding included: [count] below */
    int64_t weights;                  /* elements without padding */
    wd_dtype dtype;                   /* compute dtype: F32 or BF16 */
    unsigned kinds;                   /* as in wd_params_options */
    wd_device *device;                /* borrowed */
    float *buffer[WD_PARAMS_BUFFERS]; /* [count], or packed [share]; F32; on the device, or in
                                       * pinned host memory (wd_params_is_on_host); `p` may be
                                       * split, moments in 8 bits (wd__params_moments), gradients
                                       * in BF16; NULL where not wanted; owned */
    uint16_t *copy;                   /* [count] BF16, device; NULL with dtype F32; owned */
    uint16_t *kept;                   /* [count]: where the copy is kept: gradients' place, or
                                       * pinned host memory, which is owned; NULL where `p` is not
                                       * split */
    bool is_kept;                     /* the copy is there */
    float *room;                      /* [count] F32, device: where what is aside is brought
                                       * together: gradients, or copy and gradients; borrowed */
    float *stage_grads;               /* [the largest stage] F32, device: gradients of the stage at
                                       * work; NULL: they are in gradients' buffer; owned */
    wd_params_buffer shown;           /* P or EMA: what wd__params_weights shows */
    /* shared among ranks */
    wd_pieces pieces; /* of [count]; ranks 0: it is not shared */
    int rank;
    int64_t share;                    /* elements that are this rank's */
    const wd_params_sharing *sharing; /* set by wd__shard_open, with the next; else NULL */
    wd_shard *shard;                  /* borrowed */
    void (*await)(wd_optimizer_host *host, wd_queue *queue); /* set by the optimizer, with the
                                                              * next; NULL: no buffer is on the
                                                              * host */
    void (*convert)(wd_optimizer_host *host, const wd_params_range *range, wd_queue *queue);
    wd_optimizer_host *host; /* borrowed */
    /* where passes cannot take the islands from `p` */
    float *islands; /* [islands_count] F32, device; NULL where `p` is whole on the device; owned */
    int64_t *island_offset; /* [table.count] of the island that a line is; owned */
    int64_t islands_count;
} wd_params;

/* Lays out the buffers for the configuration, allocates them on `device`, all zero. Under a dry
 * device this is the plan. */
wd_status wd_params_open_with(wd_params *out, const wd_params_options *options, wd_device *device,
                              wd_err *err);
/* A student's parameters that no ranks share. */
wd_status wd_params_open(wd_params *out, const wd_dit_config *config, wd_dtype dtype,
                         unsigned kinds, wd_device *device, wd_err *err);
void wd_params_close(wd_params *params); /* a zeroed one is fine */

/* Device bytes of an open one, without those in host memory; bytes of host memory where the copy is
 * kept, 0 where that is gradients' place. */
size_t wd_params_bytes(const wd_params *params);
size_t wd_params_kept_bytes(const wd_params *params);

/* Table line `line` of the weights as the passes take them: compute dtype, islands F32. */
wd_tensor wd_params_weight(const wd_params *params, int64_t line);

/* A stage's weights as the passes take them; its gradients (F32), which its backward pass adds to
 * between begin_grads and end_grads. */
void wd__params_weights(wd_dit_stage *out, const wd_params *params, int stage);
void wd__params_grads(wd_dit_stage *out, const wd_params *params, int stage);
void wd__params_begin_grads(const wd_params *params, int stage, wd_queue *queue);
void wd__params_end_grads(const wd_params *params, int stage, wd_queue *queue);

/* Gradients as the optimizer reads them: from element `first` on, of this type. */
wd_dtype wd__params_grad_type(const wd_params *params);
void *wd__params_grad(const wd_params *params, int64_t first);

/* How gradients and shares are cut for `ranks`; how those of a network of `count` elements are. */
wd_pieces wd__params_pieces(const wd_params *params, int ranks);
wd_pieces wd__params_cut(int64_t count, int ranks);

/* Elements that a buffer has on this rank: all, or its share where it is packed, at least one. */
int64_t wd_params_elements(const wd_params *params, wd_params_buffer buffer);

/* Bytes of that memory. */
size_t wd_params_buffer_bytes(const wd_params *params, wd_params_buffer buffer);

/* Whether a buffer is packed; whether it is in host memory; whether it is in 8 bits. */
bool wd__params_is_packed(const wd_params *params, wd_params_buffer buffer);
bool wd_params_is_on_host(const wd_params *params, wd_params_buffer buffer);
bool wd_params_is_in_8_bits(const wd_params *params, wd_params_buffer buffer);

/* Whether `p` is split; its remainders from element `at` of the buffer on. */
bool wd__params_is_split(const wd_params *params);
uint16_t *wd__params_remainders(const wd_params *params, int64_t at);

/* Whether wd_params_collect brings a buffer together. */
bool wd__params_is_aside(const wd_params *params, wd_params_buffer buffer);

/* A buffer that is in 8 bits, from element `at` on, a multiple of 32. */
wd_moments8 wd__params_moments(const wd_params *params, wd_params_buffer buffer, int64_t at);

static inline wd_moment wd__params_moment(wd_params_buffer buffer)
{
    return buffer == WD_PARAMS_M ? WD_MOMENT_FIRST : WD_MOMENT_SECOND;
}

/* Elements of the largest stage. */
int64_t wd__params_stage_max(const wd_params *params);

/* Copies a range to its place in F32, or from there. No step is under way on the host. Weights of a
 * network in BF16 are settled (wd_masters_args) when they are taken from there. */
void wd__params_convert(const wd_params *params, const wd_params_range *range, wd_queue *queue);

/* Where a buffer is whole in F32 on the device [count]: itself, or where wd_params_collect brings
 * it; table line `line` there. */
float *wd_params_whole(const wd_params *params, wd_params_buffer buffer);
wd_tensor wd_params_whole_tensor(const wd_params *params, wd_params_buffer buffer, int64_t line);

/* Brings a buffer that is aside together in wd_params_whole's place, on all ranks, all of which
 * call it. Gradients are overwritten. Nothing to do where it is not aside. After the last of them
 * wd_params_release. */
void wd_params_collect(wd_params *params, wd_params_buffer buffer, wd_queue *queue);

/* What was collected is not read any more: passes find the weights again. All ranks. */
void wd_params_release(wd_params *params, wd_queue *queue);

/* Zeros wd_params_whole's place, and gradients with it, before the tensors of a buffer that is
 * aside are written there for wd_params_take: else what lies between tensors there, such as a part
 * of the copy, would be taken, too. Nothing to do where it is not aside. */
void wd_params_clear_whole(wd_params *params, wd_params_buffer buffer, wd_queue *queue);

/* Copies a buffer that is aside, of a packed one this rank's pieces, from wd_params_whole's place,
 * where all of it was written before. In 8 bits values are rounded; what was collected is not.
 * After the last of them wd_params_show(P), which makes the copy. */
void wd_params_take(const wd_params *params, wd_params_buffer buffer, wd_queue *queue);

/* `queue` waits for the step that is under way on the host. Whoever reads or writes buffers by
 * other functions than those of this header calls it before. */
void wd__params_await(const wd_params *params, wd_queue *queue);

/* `queue` waits only if that step reads gradients and writes weights; a step of the EMA alone does
 * not. */
void wd__params_await_weights(const wd_params *params, wd_queue *queue);

/* One tensor of a flat buffer: F32 view of table line `line`; without data where it is aside. */
wd_tensor wd_params_tensor(const wd_params *params, wd_params_buffer buffer, int64_t line);

/* The elements of a stage: [*first, *first + *count) of every buffer. */
void wd__params_stage_range(int64_t *first, int64_t *count, const wd_params *params, int stage);

/* From now on wd__params_weights shows `buffer` (P or EMA); the bf16 copy is made of it. Call it
 * with P, too, after writing `p` by other means than the optimizer. Gradients may be overwritten.
 * Not between a forward pass and its backward pass; go back to P before gradients are zeroed for
 * the next training step. Shared: all ranks. */
void wd_params_show(wd_params *params, wd_params_buffer buffer, wd_queue *queue);

/* `to`, of the same configuration and dtype, opened with WD_PARAMS_AS_COMPUTED on the same device,
 * gets the weights that passes would take if `buffer` (P or EMA) were shown. P is shown. Gradients
 * may be overwritten. Shared: all ranks. */
void wd_params_copy_computed(wd_params *to, wd_params *from, wd_params_buffer buffer,
                             wd_queue *queue);

/* A part of a network's elements. */
typedef struct wd_params_part {
    int64_t first, count; /* in what is whole */
    int64_t packed;       /* the first in what is packed; where nothing is, `first` */
} wd_params_part;

/* The part of the copy of `to` = that of `buffer` (P or EMA) of `from`. Gradients are overwritten
 * where the buffer is in host memory. */
void wd__params_cast_part(const wd_params *to, const wd_params *from, wd_params_buffer buffer,
                          wd_params_part part, wd_queue *queue);

/* `to` [count] = a part of the weights, in F32; on the device, or, `to_host`, in pinned host
 * memory: then gradients may be overwritten. */
void wd__params_copy_weights(const wd_params *params, float *to, bool to_host, wd_params_part part,
                             wd_queue *queue);

/* The islands that lie beside the copy = those of `p`, which is split and not shared, after the
 * optimizer has stepped it. */
void wd__params_refresh_islands(const wd_params *params, wd_queue *queue);

/* The islands that lie beside the copy = those of `whole` [count], in the layout of the buffers, on
 * the device or in pinned host memory. Nothing to do where there are none. */
void wd__params_copy_islands(const wd_params *params, const float *whole, wd_queue *queue);

/* Copies `count` floats between any memory that wd_queue_copy takes. */
static inline void wd__params_copy_floats(wd_queue *queue, float *to, const float *from,
                                          int64_t count)
{
    wd_queue_copy(queue, to, from, (size_t)count * sizeof(float));
}

void wd_params_zero_grads(const wd_params *params, wd_queue *queue);

#endif
