/* What is alive in arenas: sees every push, launch and copy of a run on dry devices, and which of
 * the tensors pushed each of them touches.
 *
 * A tensor is alive from the first launch that writes it to the last one that reads it. What is
 * written over as a whole, with nothing of it read, was dead since it was last read. What several
 * queues touch is alive until it is popped, for queues run at the same time: the order in which the
 * host launches says little of it. Memory that is pushed and never written is never alive.
 *
 * For a program linked with --wrap=wd_arena_push, --wrap=wd_queue_launch, --wrap=wd_queue_copy. */
#ifndef WD_DISTILL_LIVE_HARNESS_H
#define WD_DISTILL_LIVE_HARNESS_H

#include "testing.h"

#include "core/arena.h"
#include "core/memory.h"
#include "dev/ops.h"

enum {
    LIVE_SPACE_BITS = 44, /* addresses of device d begin at (d + 1) << 44 */
    LIVE_ARENAS_MAX = 32,
    LIVE_PUSHED_MAX = 4096,
    LIVE_OPERANDS_MAX = 9
};

/* What was pushed, and the value it has. */
typedef struct live_tensor {
    uintptr_t at;
    size_t bytes, written; /* at most `bytes` */
    int64_t counted;       /* what was alive before this launch has been counted */
    int64_t first, last;   /* launches that touched the value; 0: none has */
    const wd_queue *queue;
    bool touched, crosses; /* crosses: several queues touch it */
} live_tensor;

/* From a launch on so many bytes more are alive. */
typedef struct live_change {
    int64_t launch, bytes;
} live_change;

typedef struct live_arena {
    uintptr_t base; /* no two have the same: a dry device never gives an address again */
    size_t capacity, peak;
    const wd_queue *queue;
    live_tensor tensor[LIVE_PUSHED_MAX]; /* those pushed now, ascending */
    int tensors;
    live_change *change;
    size_t changes, changes_max;
} live_arena;

static struct {
    live_arena arena[LIVE_ARENAS_MAX];
    int arenas;
    int64_t launches;
} seen;

/* ---- pushes ---- */

static inline void live_change_at(live_arena *a, int64_t launch, int64_t bytes)
{
    wd_err err;
    if (a->changes == a->changes_max) {
        void *grown = a->change;
        a->changes_max = a->changes_max ? 2 * a->changes_max : 1024;
        wd_test_ok(wd_resize(&grown, a->changes_max, sizeof *a->change, "changes", &err), &err);
        a->change = grown;
    }
    a->change[a->changes++] = (live_change){launch, bytes};
}

/* The value is not read any more. */
static inline void live_end(live_arena *a, live_tensor *t, int64_t first, int64_t last)
{
    if (!t->first) return;
    live_change_at(a, first, (int64_t)t->written);
    live_change_at(a, last + 1, -(int64_t)t->written);
    t->counted = last + 1;
    t->first = 0;
    t->written = 0;
}

static inline void live_pop(live_arena *a)
{
    live_tensor *t = &a->tensor[--a->tensors];
    live_end(a, t, t->crosses ? t->counted : t->first, t->crosses ? seen.launches : t->last);
}

static inline live_arena *live_arena_of(const wd_arena *arena)
{
    const uintptr_t base = (uintptr_t)arena->base;
    int i = 0;
    while (i < seen.arenas && seen.arena[i].base != base) i++;
    assert_true(i < LIVE_ARENAS_MAX);
    if (i == seen.arenas)
        seen.arena[seen.arenas++] = (live_arena){.base = base, .capacity = arena->capacity};
    return &seen.arena[i];
}

void *__real_wd_arena_push(wd_arena *arena, size_t bytes);
void *__wrap_wd_arena_push(wd_arena *arena, size_t bytes);

/* What lies where something is pushed, or behind it, was popped. */
void *__wrap_wd_arena_push(wd_arena *arena, size_t bytes)
{
    void *block = __real_wd_arena_push(arena, bytes);
    if ((uintptr_t)block >> LIVE_SPACE_BITS == 0) return block; /* it only measures */
    live_arena *a = live_arena_of(arena);
    a->peak = arena->peak;
    while (a->tensors && a->tensor[a->tensors - 1].at >= (uintptr_t)block) live_pop(a);
    assert_true(a->tensors < LIVE_PUSHED_MAX);
    a->tensor[a->tensors++] =
        (live_tensor){.at = (uintptr_t)block, .bytes = bytes, .counted = seen.launches};
    return block;
}

/* ---- launches ---- */

/* `bytes` are written there, SIZE_MAX: all of it; 0: it is read, too. */
static inline void live_touch(uintptr_t address, size_t bytes, const wd_queue *queue)
{
    int i = 0;
    while (i < seen.arenas && address - seen.arena[i].base >= seen.arena[i].capacity) i++;
    if (i == seen.arenas) return; /* in no arena */
    live_arena *a = &seen.arena[i];
    int k = a->tensors;
    while (k > 0 && a->tensor[k - 1].at > address) k--;
    live_tensor *t = &a->tensor[k - 1];
    assert_true(k > 0 && address - t->at < t->bytes);
    t->crosses |= t->touched && t->queue != queue;
    t->touched = true;
    t->queue = a->queue = queue;
    if (bytes && address == t->at && !t->crosses) live_end(a, t, t->first, t->last);
    if (!bytes && !t->first) bytes = SIZE_MAX; /* written before the run */
    if (!t->first) t->first = seen.launches;
    t->last = seen.launches;
    t->written = bytes > t->bytes - t->written ? t->bytes : t->written + bytes;
}

/* Operands come first in the arguments, and of them those that are written. */
static const struct {
    int written, operands;
} live_ops[WD_OP_COUNT] = {
    [WD_OP_MATMUL] = {1, 4},
    [WD_OP_ATTENTION] = {2, 7},
    [WD_OP_ATTENTION_BACKWARD] = {3, 9},
    [WD_OP_LAYERNORM] = {1, 4},
    [WD_OP_LAYERNORM_BACKWARD] = {3, 6},
    [WD_OP_RMSNORM] = {1, 5},
    [WD_OP_RMSNORM_BACKWARD] = {2, 7},
    [WD_OP_RESIDUAL] = {1, 4},
    [WD_OP_RESIDUAL_BACKWARD] = {2, 5},
    [WD_OP_ACTIVATION] = {1, 2},
    [WD_OP_ACTIVATION_BACKWARD] = {1, 3},
    [WD_OP_ADD_TABLE] = {1, 3},
    [WD_OP_SUM_ROWS] = {1, 2},
    [WD_OP_TIMESTEP_EMBED] = {1, 2},
    [WD_OP_STRIDED_COPY] = {1, 2},
    [WD_OP_CAST] = {1, 2},
    [WD_OP_FILL] = {1, 1},
    [WD_OP_GUIDANCE] = {1, 4},
    [WD_OP_STEP_SAMPLES] = {1, 3},
    [WD_OP_MSE] = {2, 4},
    [WD_OP_SUM_SQUARES] = {1, 2},
    [WD_OP_CLIP_FACTOR] = {3, 4},
    [WD_OP_ADAMW] = {5, 8},
};

/* What of an output's tensor is written, as live_touch has it. */
static inline size_t live_written(wd_op op, const void *args, const uintptr_t *operand, int i)
{
    const wd_rmsnorm_args *norm = args;
    for (int k = live_ops[op].written; k < live_ops[op].operands; k++)
        if (operand[k] == operand[i]) return 0; /* in place */
    switch (op) {
    case WD_OP_MATMUL: return ((const wd_matmul_args *)args)->beta == 0 ? SIZE_MAX : 0;
    case WD_OP_STRIDED_COPY: return ((const wd_strided_copy_args *)args)->beta == 0 ? SIZE_MAX : 0;
    case WD_OP_SUM_ROWS: return ((const wd_sum_rows_args *)args)->beta == 0 ? SIZE_MAX : 0;
    case WD_OP_LAYERNORM_BACKWARD: return i ? SIZE_MAX : 0;
    case WD_OP_STEP_SAMPLES:
    case WD_OP_ADAMW: return 0;
    case WD_OP_RMSNORM: /* may write some columns of rows and leave others alone */
        return (size_t)(norm->rows * norm->width) * wd_dtype_bytes(norm->type);
    default: return SIZE_MAX;
    }
}

void __real_wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes);
void __wrap_wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes);

void __wrap_wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes)
{
    uintptr_t operand[LIVE_OPERANDS_MAX] = {0};
    const int written = live_ops[op].written, operands = live_ops[op].operands;
    if (!operands) fail_msg("live_ops does not say which operands %s has", wd_op_name((wd_op)op));
    memcpy(operand, args, (size_t)operands * sizeof *operand);
    seen.launches++;
    for (int i = written; i < operands; i++) live_touch(operand[i], 0, queue);
    for (int i = 0; i < written; i++)
        live_touch(operand[i], live_written((wd_op)op, args, operand, i), queue);
    __real_wd_queue_launch(queue, op, args, bytes);
}

void __real_wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes);
void __wrap_wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes);

void __wrap_wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes)
{
    seen.launches++;
    live_touch((uintptr_t)from, 0, queue);
    live_touch((uintptr_t)to, SIZE_MAX, queue);
    __real_wd_queue_copy(queue, to, from, bytes);
}

/* ---- results ---- */

static inline void live_begin(void)
{
    for (int i = 0; i < seen.arenas; i++) wd_free(seen.arena[i].change);
    seen.arenas = 0;
    seen.launches = 0;
}

static inline int live_device(const live_arena *a)
{
    return (int)(a->base >> LIVE_SPACE_BITS) - 1;
}

/* Whether the run used all that was planned. */
static inline bool live_is_whole(const live_arena *a)
{
    for (int i = 0; i < a->tensors; i++)
        if (!a->tensor[i].touched) return false;
    return a->peak == a->capacity;
}

static inline int live_by_launch(const void *a, const void *b)
{
    const live_change *x = a, *y = b;
    return (x->launch > y->launch) - (x->launch < y->launch);
}

/* The largest live set; ends all that is alive. */
static inline size_t live_most(live_arena *a)
{
    int64_t alive = 0, most = 0;
    while (a->tensors) live_pop(a);
    qsort(a->change, a->changes, sizeof *a->change, live_by_launch);
    for (size_t i = 0; i < a->changes;) {
        const int64_t launch = a->change[i].launch;
        while (i < a->changes && a->change[i].launch == launch) alive += a->change[i++].bytes;
        if (alive > most) most = alive;
    }
    return (size_t)most;
}

#endif
