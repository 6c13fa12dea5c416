/* Folder dev. The interface of devices: pools, queues, events, operations, peers; the dry and the
 * guard device; lists of devices.
 *
 * Devices: memory pools, queues, events. All tensor memory is accessed through this interface.
 *
 * Data flow: a caller allocates from a device's pool, launches operations (dev/ops.h) and copies on
 * a queue, and orders queues with events. Functions that take a queue may return before the work is
 * done; the work of one queue is done in order. Pointers into a pool are only addresses: nothing
 * but kernels and copies dereferences them, even on the cpu device, where they are host memory.
 *
 * All operations have one launch function, so that a device needs few functions. `cpu` runs the
 * kernel at once; `guard` (for tests) makes its pool accessible only while the kernel runs; `sim`
 * runs it later, on a thread of the queue; `dry` runs nothing and adds up memory, FLOPs and bytes,
 * so that the code that runs a step also plans it. */
#ifndef WD_DEV_DEVICE_H
#define WD_DEV_DEVICE_H

#include "core/dtype.h"
#include "core/error.h"

typedef struct wd_device wd_device;
typedef struct wd_queue wd_queue;
typedef struct wd_event wd_event;

/* ---- devices ---- */

/* The host's processor. Kernels are chosen for its instruction set; WD_CPU_ISA=generic|avx2|avx512|
 * avx512_bf16|amx in the environment lowers the choice (oneDNN's too). `threads`: 0 = OpenMP's
 * number. Pool memory is anonymous host memory. */
wd_status wd_device_open_cpu(wd_device **out, int threads, wd_err *err);

/* For tests: the cpu device with a pool that is inaccessible (PROT_NONE) except while one of its
 * kernels or copies runs. Copies may use only the pool and pinned host memory. */
wd_status wd_device_open_guard(wd_device **out, int threads, wd_err *err);

/* A device that is simulated in host memory: its pool holds at most `bytes`; each of its queues
 * runs its work on a thread of its own, kernels on one core each; work that is faster than the
 * speeds below is slowed down to them. Results have the bits of the cpu device. */
typedef struct wd_sim_options {
    int number; /* for its name: "sim:0" */
    size_t bytes;
    double link_bytes_per_s; /* of all copies to and from its pool together, without copies within
                                the pool; 0: not limited */
    double flops_per_s[WD_PRECISIONS]; /* of all kernels together, by the precision that each
                           computes in; operations without FLOPs are not limited; 0: not limited. If
                           several devices shall work at the same time, choose less than a quarter
                           of the speed of a core, and less with many devices */
    int64_t failing_launch; /* for tests: the device fails at this launch, from 1; 0: never */
} wd_sim_options;

wd_status wd_device_open_sim(wd_device **out, const wd_sim_options *options, wd_err *err);

/* Opens a dry device, which plans for `target` (borrowed) without using it: its addresses are not
 * real, and a launch adds its FLOPs and records the workspace that the target would need. Nothing
 * is computed or copied. */
wd_status wd_device_open_dry(wd_device **out, wd_device *target, wd_err *err);

/* The same for what is about to run: a launch also lets the target make what it makes once per
 * shape, such as a plan of cuDNN, so that no launch of the run does. What fails then
 * wd_device_check_planned says. A dry target is only planned for. */
wd_status wd_device_open_rehearsed(wd_device **out, wd_device *target, wd_err *err);

/* Closes it; NULL is allowed. Its queues must be closed and its blocks freed before. */
void wd_device_close(wd_device *device);

/* "cpu (AVX512_BF16, 2 threads)". */
const char *wd_device_name(const wd_device *device);

/* ---- traits ---- */

enum { WD_KERNELS_TEXT = 128 };

/* What does not change while a device is open, but for what peers (dev/peers.h) add to bytes_beside
 * when they are opened. A dry device has the traits of its target. */
typedef struct wd_traits {
    bool synchronous; /* a launch or a copy is done when the call returns, so that work of several
                       * queues never overlaps */
    bool reads_host;  /* kernels read host memory in place, such as a mapped checkpoint */
    size_t granule;   /* sizes of blocks are rounded up to a multiple of this, in bytes, and counted
                         so */
    /* memory of the device that is not in the pool: that of libraries, now and later, and that of
     * the driver and other processes when the device was opened. 0: no GPU */
    size_t bytes_beside, bytes_of_others;
    char kernels[WD_KERNELS_TEXT]; /* kernels and libraries, with versions. Devices with equal texts
                                      compute the same bits */
} wd_traits;

/* The traits of a device; valid until the device is closed. */
const wd_traits *wd_device_traits(const wd_device *device);

/* The number of staging buffers of a ring that are useful if launches may be `places` ahead: 1 on
 * devices whose copies are done at once. */
static inline int wd_device_places(const wd_device *device, int places)
{
    return wd_device_traits(device)->synchronous ? 1 : places;
}

/* Returns WD_OK, or, once the device has failed, WD_DEVICE_FAULT with the first failure. A device
 * that has failed computes and copies nothing more, and waits for it return at once. Launches,
 * copies and waits do not report the failure, so call this before trusting a result of the device,
 * for example once per step. Any thread may call it. */
wd_status wd_device_fault(wd_device *device, wd_err *err);

/* ---- kernels, on which the bits of results depend ---- */

/* *out = the best set of kernels that this processor and WD_CPU_ISA allow. Sets are numbered: each
 * one can be used wherever a higher one can. */
wd_status wd_device_kernel_set(int *out, wd_err *err);

/* Devices that are opened from now on in this process use at most kernel set `most`. Call it before
 * the first device is opened, since oneDNN does not change its choice later. */
void wd_device_limit_kernels(int most);

/* Writes the kernel set and the library of devices that are opened from now on, such as
 * "avx512_bf16, oneDNN 2.6.3". Equal texts mean equal bits. */
wd_status wd_device_kernels(char out[WD_KERNELS_TEXT], wd_err *err);

/* Returns WD_OUT_OF_MEMORY if, since its last call, a dry launch of this thread needed a kernel of
 * the processor for which there was no memory. The plan is then not valid. */
wd_status wd_device_check_kernels(wd_err *err);

/* WD_UNSUPPORTED if a launch on this dry device was of what its target cannot do; the message names
 * target, operation, and what can. Other failures: those of wd_device_open_rehearsed, such as
 * WD_OUT_OF_MEMORY. A GPU's kernels have their limits, and are asked for nothing
 * beyond these: who launches something new on a device launches it dry first. */
wd_status wd_device_check_planned(const wd_device *dry, wd_err *err);

/* Whether this is a dry device. Callers then skip code that needs values, such as reading a loss.
 */
bool wd_device_is_dry(const wd_device *device);

/* ---- memory ---- */

/* Allocates `bytes` of the pool, 64-byte aligned, zeroed. `what` must be a string literal, since it
 * is borrowed for ever; it names the block in reports. Whole granules (wd_traits) are counted. */
wd_status wd_device_alloc(void **out, wd_device *device, size_t bytes, const char *what,
                          wd_err *err);
/* Frees a block. Work that uses it must be done. NULL is allowed. */
void wd_device_free(wd_device *device, void *block);

/* The bytes allocated now, and their peak since the device was opened or wd_device_restart_peak was
 * called, which also restarts the peaks of all names of blocks. */
size_t wd_device_bytes(const wd_device *device);
size_t wd_device_bytes_peak(const wd_device *device);
void wd_device_restart_peak(wd_device *device);
/* The size of the pool: allocations beyond it fail. SIZE_MAX: the system's limit. */
size_t wd_device_bytes_max(const wd_device *device);
/* Calls `fn` for every allocated block, with the name and size of wd_device_alloc. */
typedef void wd_device_block_fn(void *context, const char *what, size_t bytes);
void wd_device_each_block(wd_device *device, wd_device_block_fn *fn, void *context);
/* Calls `fn` for every name of blocks since then, with the peak of its bytes. */
void wd_device_each_peak(wd_device *device, wd_device_block_fn *fn, void *context);
/* The number of calls of wd_device_alloc so far. */
int64_t wd__device_alloc_count(const wd_device *device);

/* ---- host memory that copies read and write ----
 *
 * A queue's copy continues after wd_queue_copy has returned. A GPU can do this only with pages that
 * the system does not move meanwhile ("pinned" memory). So host memory of wd_queue_copy must come
 * from wd_host_alloc, or be registered with wd_host_register; the guard and the simulated devices
 * end the process if it is not. Both are valid for all devices of that kind. Use
 * wd_queue_copy_and_wait for all other host memory. Queues of the cpu device may copy from and to
 * any host memory. */

/* Allocates `bytes` of pinned host memory, zeroed, 64-byte aligned, counted with the calling
 * thread's host memory (core/memory.h); a dry device counts as many bytes. `what` names the block
 * in errors. WD_OUT_OF_MEMORY: there is no memory, or none that can be pinned. */
wd_status wd_host_alloc(void **out, wd_device *device, size_t bytes, const char *what, wd_err *err);
/* Frees a block of wd_host_alloc. Copies that use it must be done, and the device must still be
 * open. NULL is allowed. */
void wd_host_free(wd_device *device, void *block);

/* Pins [address, address + bytes) for copies of the device's queues until it is unregistered:
 * memory that is shared with other processes, or the cpu device's pool. If the device pins memory,
 * the range must begin at a page, and must not overlap another range that is registered with
 * devices of the kind. WD_OUT_OF_MEMORY: the system does not allow to pin so much. The cpu device
 * does nothing. `what`: as above. */
wd_status wd_host_register(wd_device *device, void *address, size_t bytes, const char *what,
                           wd_err *err);
/* Unregisters a range. Copies that use it must be done. NULL is allowed. */
void wd_host_unregister(wd_device *device, void *address);

/* From now on every block of the pool of `processor`, whose pool is host memory, is registered with
 * `device` until it is freed, so that copies of `device` can read and write results of the
 * processor. Call it before the first block is allocated, and close `device` after the last one is
 * freed. */
void wd_host_register_pool(wd_device *device, wd_device *processor);

/* ---- queues ---- */

wd_status wd_queue_open(wd_queue **out, wd_device *device, wd_err *err);
void wd_queue_close(wd_queue *queue); /* waits for its work; NULL is allowed */
wd_device *wd_queue_device(const wd_queue *queue);

/* Reserves scratch memory for the launches of this queue; reserve the figure of a dry run before
 * the first step. A launch that needs more allocates, which is counted. */
wd_status wd_queue_reserve_workspace(wd_queue *queue, size_t bytes, wd_err *err);
size_t wd_queue_workspace_bytes(const wd_queue *queue); /* dry: the most that any launch
                                                         * needed or anyone reserved */

/* A rehearsal is a dry queue with a device of its own. Launch on it everything that will be
 * launched on `queue`. Closing it reserves the workspace of these launches on `queue`;
 * WD_OUT_OF_MEMORY: there is no memory for the workspace, or for a kernel. After that the real
 * launches cannot fail. */
wd_status wd_rehearsal_open(wd_queue **out, wd_queue *queue, wd_err *err);
wd_status wd_rehearsal_close(wd_queue *rehearsal, wd_queue *queue, wd_err *err);

/* Copies `bytes` between any two of: this device's pool, that of another device of its kind, host
 * memory from wd_host_alloc or wd_host_register (the cpu device's pool is host memory). Host memory
 * must not be changed or freed until the copy is done. */
void wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes);

/* Copies in the queue's order, with any host memory, such as a mapped file; returns when the copy
 * is done. It is used before the first step and for checkpoints. */
void wd_queue_copy_and_wait(wd_queue *queue, void *to, const void *from, size_t bytes);

/* Returns when all work of the queue is done. */
void wd_queue_wait(wd_queue *queue);

/* ---- events ----
 *
 * An event is recorded on queues of its own device; queues of any device may wait for it. A wait is
 * for the latest record before it; an event that was never recorded is not waited for. */

wd_status wd_event_open(wd_event **out, wd_device *device, wd_err *err);
void wd_event_close(wd_event *event);                    /* NULL is allowed */
void wd_event_record(wd_event *event, wd_queue *queue);  /* is done when earlier work is done */
void wd_event_wait_on(wd_queue *queue, wd_event *event); /* later work of queue waits for it */
void wd_event_wait(wd_event *event);                     /* the caller waits for it */
bool wd_event_is_done(wd_event *event); /* whether wd_event_wait would return at once */

/* ---- launches: called by the functions of dev/ops.h ---- */

/* Sums over the launches of a queue since it was opened, on every kind of device. */
typedef struct wd_queue_totals {
    double flops; /* of matrix products, attention and convolutions; 1 multiply-add = 2 */
    int64_t launches;
    int64_t copies;
    double bytes_copied;
} wd_queue_totals;

wd_queue_totals wd_queue_total(const wd_queue *queue);

/* Runs operation `op` (a wd_op of dev/ops.h) with its argument struct of `bytes` bytes, which is
 * copied. */
void wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes);

#endif
