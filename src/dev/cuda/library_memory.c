/* What libraries take of a GPU's memory when they first compute (dev/library_memory.h): they are
 * made to, in the shapes of a small transformer and of the VAE, and the driver is asked before and
 * after. */
#include "dev/library_memory.h"

#include "core/checked.h"
#include "dev/cuda/beside_work.h"
#include "dev/cuda/impl.h"

enum {
    SIDE = WD_BESIDE_SIDE,
    TOKENS = WD_BESIDE_TOKENS,
    HEADS = WD_BESIDE_HEADS,
    PICTURE = WD_BESIDE_PICTURE,
    CHANNELS = WD_BESIDE_CHANNELS,
    TAPS = WD_BESIDE_TAPS
};

/* Device memory of the work: `part` blocks of SIDE x SIDE floats, the largest operand. */
enum { PART_BYTES = SIDE * SIDE * 4, PARTS = 4 };

_Static_assert(TOKENS *HEADS * 128 <= SIDE * SIDE, "operands of attention have room");
_Static_assert(PICTURE *PICTURE *CHANNELS <= SIDE * SIDE, "a picture has room");

static void multiply(wd_queue *queue, char *part[PARTS], wd_dtype type)
{
    const wd_matmul_args forward = {.c = part[0],
                                    .a = part[1],
                                    .b = part[2],
                                    .bias = part[3],
                                    .c_type = type,
                                    .a_type = type,
                                    .b_type = type,
                                    .bias_type = type,
                                    .transpose_b = true,
                                    .m = SIDE,
                                    .n = SIDE,
                                    .k = SIDE,
                                    .lda = SIDE,
                                    .ldb = SIDE,
                                    .ldc = SIDE,
                                    .batch = 1,
                                    .act = WD_ACT_GELU_TANH};
    wd_matmul_args of_input = forward, of_weight = forward;
    of_input.bias = of_weight.bias = NULL;
    of_input.act = of_weight.act = WD_ACT_NONE;
    of_input.transpose_b = of_weight.transpose_b = false;
    of_weight.transpose_a = true;
    of_weight.c_type = WD_F32;
    of_weight.beta = 1;
    wd_op_matmul(queue, &forward);
    wd_op_matmul(queue, &of_input);
    wd_op_matmul(queue, &of_weight);
}

static void attend(wd_queue *queue, char *part[PARTS], int64_t head_dim)
{
    const int64_t stride = HEADS * head_dim;
    float *lse = (float *)(void *)part[3];
    wd_op_attention(queue, &(wd_attention_args){.o = part[1],
                                                .lse = lse,
                                                .q = part[0],
                                                .k = part[0],
                                                .v = part[0],
                                                .type = WD_BF16,
                                                .samples = 1,
                                                .kv_samples = 1,
                                                .heads = HEADS,
                                                .head_dim = head_dim,
                                                .q_tokens = TOKENS,
                                                .kv_tokens = TOKENS,
                                                .q_stride = stride,
                                                .kv_stride = stride,
                                                .o_stride = stride,
                                                .scale = 0.1f});
    const size_t half = PART_BYTES / 2; /* of a part, for bf16 takes no more */
    wd_op_attention_backward(queue, &(wd_attention_backward_args){.dq = part[2],
                                                                  .dk = part[2] + half,
                                                                  .dv = part[1] + half,
                                                                  .d_o = part[0],
                                                                  .q = part[0],
                                                                  .k = part[0],
                                                                  .v = part[0],
                                                                  .o = part[1],
                                                                  .lse = lse,
                                                                  .type = WD_BF16,
                                                                  .samples = 1,
                                                                  .heads = HEADS,
                                                                  .head_dim = head_dim,
                                                                  .q_tokens = TOKENS,
                                                                  .kv_tokens = TOKENS,
                                                                  .q_stride = stride,
                                                                  .kv_stride = stride,
                                                                  .o_stride = stride,
                                                                  .scale = 0.1f});
}

static void convolve(wd_queue *queue, char *part[PARTS])
{
    wd_op_conv(queue, &(wd_conv_args){.y = part[1],
                                      .x = part[0],
                                      .w = part[2],
                                      .bias = part[3],
                                      .type = WD_BF16,
                                      .w_type = WD_BF16,
                                      .samples = 1,
                                      .in = {1, PICTURE, PICTURE},
                                      .out = {1, PICTURE, PICTURE},
                                      .ci = CHANNELS,
                                      .co = CHANNELS,
                                      .kernel = {TAPS, TAPS, TAPS},
                                      .stride = {1, 1, 1},
                                      .pad_before = {0, 1, 1},
                                      .pad_after = {0, 1, 1},
                                      .tap0 = TAPS - 1,
                                      .tap1 = TAPS});
}

/* One piece of every kind, with values that are zero. */
static wd_status work(wd_queue *queue, char *block, wd_err *err)
{
    char *part[PARTS];
    for (int i = 0; i < PARTS; i++) part[i] = block + (size_t)i * PART_BYTES;
    multiply(queue, part, WD_BF16);
    multiply(queue, part, WD_F32);
    wd_op_fill(queue, &(wd_fill_args){.to = block, .type = WD_F32, .count = PARTS * SIDE * SIDE});
    attend(queue, part, 128);
    attend(queue, part, 64);
    convolve(queue, part);
    wd_queue_wait(queue);
    return wd_device_fault(wd_queue_device(queue), err);
}

static wd_status free_bytes(size_t *out, const wd_device *device, wd_err *err)
{
    size_t total;
    const wd_cuda_device *d = wd__cuda_of(device);
    wd_cu_result result = wd__cuda_driver_of(d)->ctx_set_current(d->gpu.context);
    if (!result) result = wd__cuda_driver_of(d)->mem_get_info(out, &total);
    if (!result) return WD_OK;
    return wd__cuda_fail(err, wd__cuda_driver_of(d), result, "%s: its memory", device->name);
}

/* Does the work on a queue and in a block of its own, with the workspace that a rehearsal found. */
static wd_status compute(wd_device *device, wd_err *err)
{
    wd_status status;
    wd_queue *queue = NULL, *rehearsal;
    void *block = NULL;
    WD_TRY_OUT(wd_queue_open(&queue, device, err));
    WD_TRY_OUT(wd_device_alloc(&block, device, (size_t)PARTS * PART_BYTES, "a measurement", err));
    WD_TRY_OUT(wd_rehearsal_open(&rehearsal, queue, err));
    status = work(rehearsal, block, err);
    const wd_status closed = wd_rehearsal_close(rehearsal, queue, status == WD_OK ? err : NULL);
    WD_TRY_OUT(status);
    WD_TRY_OUT(closed);
    status = work(queue, block, err);
out:
    if (queue) wd_queue_wait(queue);
    wd_device_free(device, block);
    wd_queue_close(queue);
    return status;
}

wd_status wd__cuda_measure_beside(size_t *out, wd_device *device, wd_err *err)
{
    size_t before, after;
    WD_TRY(free_bytes(&before, device, err));
    WD_TRY(compute(device, err));
    WD_TRY(free_bytes(&after, device, err));
    *out = before > after ? wd_round_up(before - after, WD_CUDA_GRANULE) : 0;
    return WD_OK;
}
