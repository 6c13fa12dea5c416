/* Steps of an optimizer whose moments, EMA and, in BF16, master weights are in host memory
 * (WD_PARAMS_STATE_ON_HOST), as ZeRO-Offload does it (arXiv 2101.06840); or those of the EMA alone
 * (WD_PARAMS_EMA_ON_HOST).
 *
 * Data flow of a step, on a thread of its own, chunk by chunk: gradients (in F32 also weights) come
 * down from the device -> AdamW on the processor, all threads -> new weights as passes take them go
 * up again. Copies of the next chunks go on meanwhile. So the teacher's sweep and the launching
 * thread go on, too; whoever uses the network next waits for the step (wd__params_await).
 *
 * Of the EMA alone: the weights that the device has stepped come down -> EMA on the processor. The
 * next passes do not wait for that; the next step does.
 *
 * The processor's AdamW gives the bits of a GPU's. */
#ifndef WD_TRAIN_NETWORK_OPTIMIZER_HOST_H
#define WD_TRAIN_NETWORK_OPTIMIZER_HOST_H

#include "dev/ops.h"
#include "train/network/params.h"

enum { WD_HOST_CHUNK = 1 << 22 }; /* most elements of a chunk */

/* A range of a network's elements that one launch steps. */
typedef struct wd_host_chunk {
    wd_adamw_args args; /* of the chunk, on the host; `grad`, `copy` and what a step reads from the
                         * device are set by wd__optimizer_host_open, in F32 `p`, too. Of the EMA
                         * alone: the weights are on the device */
    int64_t first;      /* of the chunk's elements, in what is whole on the device */
} wd_host_chunk;

/* Bytes of what a step reads of the device: steps taken, and the scalars behind them. */
typedef struct wd_host_scalars {
    const void *device; /* borrowed */
    size_t bytes;
    size_t step, factor, lr, alpha, beta3; /* offsets in bytes */
} wd_host_scalars;

/* Opens the thread and staging memory. `params` (borrowed) are on a device that is not the
 * processor. Takes `chunks` [count], from wd_alloc, also after a failure. The processor uses as
 * many threads as the loops of the calling thread. */
wd_status wd__optimizer_host_open(wd_optimizer_host **out, wd_params *params,
                                  const wd_host_scalars *scalars, wd_host_chunk *chunks,
                                  int64_t count, wd_err *err);
void wd__optimizer_host_close(wd_optimizer_host *host); /* waits for its step; NULL is allowed */

/* Begins a step after the work that `queue` has now: gradients and scalars are there then. */
void wd__optimizer_host_step(wd_optimizer_host *host, wd_queue *queue);

/* Returns when all of the step is launched; `queue` waits for its end. */
void wd__optimizer_host_await(wd_optimizer_host *host, wd_queue *queue);

/* wd__params_convert of moments in 8 bits. No step is under way. */
void wd__optimizer_host_convert(wd_optimizer_host *host, const wd_params_range *range,
                                wd_queue *queue);

/* The processor's queue, for those who look at buffers on the host. No step is under way. */
wd_queue *wd__optimizer_host_queue(wd_optimizer_host *host);

#endif
