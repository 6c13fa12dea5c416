/* Devices: memory pools, queues, events. The one interface through which tensor memory is reached.
 *
 * Data flow: a caller allocates from a device's pool, launches operations (dev/ops.h) and copies on
 * a queue, and orders queues with events. Everything that names a queue may return before it is
 * done; work on one queue is done in order. Pointers into a pool are addresses only: nobody but a
 * kernel or a copy dereferences them, even where (cpu) they happen to be host memory.
 *
 * Why one launch point for all operations: a device is then a handful of functions. `cpu` runs the
 * kernel at once; `guard` (tests) runs it with its pool opened for just that long; `sim` runs it
 * later, on a thread of the queue; `dry` runs nothing and adds up memory, FLOPs and bytes, so that
 * the code that runs a step also plans it.
 */
#ifndef WD_DEV_DEVICE_H
#define WD_DEV_DEVICE_H

#include "core/dtype.h"
#include "core/error.h"

typedef struct wd_device wd_device;
typedef struct wd_queue wd_queue;
typedef struct wd_event wd_event;

/* ---- devices ---- */

/* The host's processor. Kernels are chosen for its instruction set; WD_CPU_ISA=generic|avx2|avx512|
 * avx512_bf16 in the environment lowers the choice (oneDNN's too). `threads`: 0 = what OpenMP says.
 * Pool memory is anonymous host memory. */
wd_status wd_device_open_cpu(wd_device **out, int threads, wd_err *err);

/* Tests: the cpu device, but its pool is inaccessible (PROT_NONE) except while one of its kernels
 * or copies runs, and host memory that a copy names is the only other memory a copy may touch. */
wd_status wd_device_open_guard(wd_device **out, int threads, wd_err *err);

/* A device that is simulated in host memory: its pool holds at most `bytes`; each of its queues
 * runs its work on a thread of its own, kernels on one core each; what takes less time than the
 * speeds below say is made to take as long. Bits as on the cpu device. */
typedef struct wd_sim_options {
    int number;              /* for its name: "sim:0" */
    size_t bytes;
    double link_bytes_per_s; /* of all that is copied to and from its pool, both ways together, but
                              * within the pool; 0: as fast as it goes */
    double flops_per_s;      /* of all kernels together; operations without FLOPs, and 0: as fast as
                              * they go. For several devices to be at work at the same time, ask for
                              * less than a quarter of what one core does, and less with many */
    int64_t failing_launch;  /* tests: the device fails at this launch, from 1; 0: never */
} wd_sim_options;

wd_status wd_device_open_sim(wd_device **out, const wd_sim_options *options, wd_err *err);

/* Plans for `target` (borrowed) without touching it: addresses are made up, a launch adds its FLOPs
 * and notes the workspace that the target would need. Nothing is computed or copied. */
wd_status wd_device_open_dry(wd_device **out, wd_device *target, wd_err *err);

/* The same for what is about to run: a launch also lets the target make what it makes once per
 * shape, such as a plan of cuDNN, so that no launch of the run does. What fails then
 * wd_device_check_planned says. A dry target is only planned for. */
wd_status wd_device_open_rehearsed(wd_device **out, wd_device *target, wd_err *err);

/* Closes it; NULL is allowed. Its queues must be closed and its blocks freed before. */
void wd_device_close(wd_device *device);

/* "cpu (AVX512_BF16, 2 threads)". */
const char *wd_device_name(const wd_device *device);

/* ---- what a device is like ---- */

enum { WD_KERNELS_TEXT = 128 };

/* What does not change while a device is open, but for what peers (dev/peers.h) add to bytes_beside
 * when they are opened. A dry device has the traits of its target. */
typedef struct wd_traits {
    bool synchronous; /* a launch or a copy is done when the call returns, so that work of several
                       * queues never overlaps */
    bool reads_host;  /* kernels read host memory in place, such as a mapped checkpoint */
    size_t granule;   /* a block of the pool takes a multiple of so many bytes, and counts them; 1:
                       * as many as were asked for */
    /* of the device's memory, what is not the pool's: what libraries take, now and later; what was
     * gone when the device was opened, to the driver and to other processes. 0: no GPU */
    size_t bytes_beside, bytes_of_others;
    char kernels[WD_KERNELS_TEXT]; /* which kernels and libraries, in which versions. Where this
                                    * text is the same, so are the bits of a result */
} wd_traits;

/* Good until the device is closed. */
const wd_traits *wd_device_traits(const wd_device *device);

/* How many places of staging that goes round are of use, where a launch may be `places` ahead: one
 * where copies are done at once. */
static inline int wd_device_places(const wd_device *device, int places)
{
    return wd_device_traits(device)->synchronous ? 1 : places;
}

/* WD_OK, or WD_DEVICE_FAULT with the text of what failed on the device first, and keeps saying so:
 * a device that has failed computes nothing more, its copies bring nothing, and waits for it return
 * at once. Launches, copies and waits say nothing of it, so whoever trusts a result that comes from
 * the device asks first, such as once per step. Any thread may ask. */
wd_status wd_device_fault(wd_device *device, wd_err *err);

/* ---- what the bits of a result depend on, beside what is computed ---- */

/* *out = the best set of kernels that this processor and WD_CPU_ISA allow. Sets are numbered: each
 * one can be used wherever a higher one can. */
wd_status wd_device_kernel_set(int *out, wd_err *err);

/* Devices that are opened from now on in this process use kernel set `most` at the highest. Comes
 * before the first device: oneDNN does not change its choice later. */
void wd_device_limit_kernels(int most);

/* The kernel set and the library that devices opened from now on compute with, such as
 * "avx512_bf16, oneDNN 2.6.3". Where it is the same, so are the bits of a result. */
wd_status wd_device_kernels(char out[WD_KERNELS_TEXT], wd_err *err);

/* WD_OUT_OF_MEMORY if the processor could not make a kernel that a dry launch of this thread, for
 * any device whose kernels are the processor's, has asked about since its last call: what was
 * planned is void. */
wd_status wd_device_check_kernels(wd_err *err);

/* WD_UNSUPPORTED if a launch on this dry device was of what its target cannot do; the message names
 * target, operation, and what can. Other failures: those of wd_device_open_rehearsed, such as
 * WD_OUT_OF_MEMORY. A GPU's kernels have their limits, and are asked for nothing
 * beyond these: who launches something new on a device launches it dry first. */
wd_status wd_device_check_planned(const wd_device *dry, wd_err *err);

/* Whether this is a dry device: callers skip what needs values, such as reading back a loss. */
bool wd_device_is_dry(const wd_device *device);

/* ---- memory ---- */

/* `bytes` of the pool, 64-byte aligned, zeroed. `what` is borrowed for ever (a string literal): it
 * names the block in reports. The books count whole granules (wd_traits). */
wd_status wd_device_alloc(void **out, wd_device *device, size_t bytes, const char *what,
                          wd_err *err);
/* Work that uses the block must be done. NULL is allowed. */
void wd_device_free(wd_device *device, void *block);

/* Bytes allocated now, and the most there were since the device was opened or the peak, with those
 * of all names of blocks, was restarted. */
size_t wd_device_bytes(const wd_device *device);
size_t wd_device_bytes_peak(const wd_device *device);
void wd_device_restart_peak(wd_device *device);
/* The most that there can be: what is over that is refused. SIZE_MAX: what the system gives. */
size_t wd_device_bytes_max(const wd_device *device);
/* Calls `fn` for every block that is allocated now, with what wd_device_alloc was told of it. */
typedef void wd_device_block_fn(void *context, const char *what, size_t bytes);
void wd_device_each_block(wd_device *device, wd_device_block_fn *fn, void *context);
/* Calls `fn` for every name of blocks that there were since, with the most bytes of it at a
 * time. */
void wd_device_each_peak(wd_device *device, wd_device_block_fn *fn, void *context);
/* Calls of wd_device_alloc so far. */
int64_t wd_device_alloc_count(const wd_device *device);

/* ---- host memory that copies read and write ----
 *
 * A queue's copy goes on after wd_queue_copy has returned, and a GPU does that only where the
 * system cannot move the host's pages meanwhile ("pinned" memory). So host memory that
 * wd_queue_copy names comes from wd_host_alloc, or is announced by wd_host_register; the guard
 * and the simulated devices end the process where it does not. Either is good for all devices of
 * that kind. Copies to and from any other host memory go by wd_queue_copy_and_wait. The cpu
 * device's queues may name any. */

/* `bytes` of host memory, zeroed, 64-byte aligned, counted with the calling thread's host memory
 * (core/memory.h); a dry device counts as much. `what` names the block in errors. WD_OUT_OF_MEMORY:
 * there is none, or none that can be pinned. */
wd_status wd_host_alloc(void **out, wd_device *device, size_t bytes, const char *what, wd_err *err);
/* Copies that use the block must be done. The device must still be open. NULL is allowed. */
void wd_host_free(wd_device *device, void *block);

/* Copies of the device's queues may name [address, address + bytes) from now on, until it is
 * unregistered: memory that is shared with other processes, or the cpu device's pool. The range
 * begins at a page where the device pins memory, and lies in no other range that is registered with
 * devices of the kind. WD_OUT_OF_MEMORY: the system does not let so much be pinned. Nothing happens
 * on cpu. `what`: as above. */
wd_status wd_host_register(wd_device *device, void *address, size_t bytes, const char *what,
                           wd_err *err);
/* Copies that use it must be done. NULL is allowed. */
void wd_host_unregister(wd_device *device, void *address);

/* Every block of the pool of `processor`, a device whose pool is host memory, is registered with
 * `device` for as long as the block is there: what a processor computes goes on to others, and
 * comes from them, by their copies. Comes before the first block; `device` is closed after the
 * last. */
void wd_host_register_pool(wd_device *device, wd_device *processor);

/* ---- queues ---- */

wd_status wd_queue_open(wd_queue **out, wd_device *device, wd_err *err);
void wd_queue_close(wd_queue *queue); /* waits for its work; NULL is allowed */
wd_device *wd_queue_device(const wd_queue *queue);

/* Scratch memory that launches on this queue use: reserve the figure of a dry run before the first
 * step. A launch that needs more grows it (an allocation, counted). */
wd_status wd_queue_reserve_workspace(wd_queue *queue, size_t bytes, wd_err *err);
size_t wd_queue_workspace_bytes(const wd_queue *queue); /* dry: the most that any launch
                                                          * needed or anyone reserved */

/* A rehearsal: a dry queue (with a device of its own) to launch on first what will be launched on
 * `queue`. Closing it reserves on `queue` the workspace that this takes; WD_OUT_OF_MEMORY: there is
 * none, or no memory for a kernel. After that the launches themselves cannot fail. */
wd_status wd_rehearsal_open(wd_queue **out, wd_queue *queue, wd_err *err);
wd_status wd_rehearsal_close(wd_queue *rehearsal, wd_queue *queue, wd_err *err);

/* Copies `bytes` between any two of: this device's pool, that of another device of its kind, host
 * memory from wd_host_alloc or wd_host_register (the cpu device's pool is host memory). Host memory
 * must stay untouched until the copy is done. */
void wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes);

/* The same, in the queue's order, with host memory of any origin, such as a mapped file; returns
 * when the copy is done. For what is copied once, before the first step or into a checkpoint. */
void wd_queue_copy_and_wait(wd_queue *queue, void *to, const void *from, size_t bytes);

/* Returns when all work of the queue is done. */
void wd_queue_wait(wd_queue *queue);

/* ---- events ----
 *
 * An event is recorded on queues of its own device; queues of any device may wait for it. It stands
 * for the last time that it was recorded before the wait; if that never was, nothing waits. */

wd_status wd_event_open(wd_event **out, wd_device *device, wd_err *err);
void wd_event_close(wd_event *event);                       /* NULL is allowed */
void wd_event_record(wd_event *event, wd_queue *queue);     /* happens when earlier work is done */
void wd_event_wait_on(wd_queue *queue, wd_event *event);    /* later work of queue waits for it */
void wd_event_wait(wd_event *event);                        /* the caller waits for it */
bool wd_event_is_done(wd_event *event);                     /* whether that would take no time */

/* ---- launches: called by the functions of dev/ops.h ---- */

/* What launches added up to on this queue since it was opened (every device counts). */
typedef struct wd_queue_totals {
    double flops;          /* of matrix products, attention and convolutions; 1 multiply-add = 2 */
    int64_t launches;
    int64_t copies;
    double bytes_copied;
} wd_queue_totals;

wd_queue_totals wd_queue_total(const wd_queue *queue);

/* Runs operation `op` (a wd_op of dev/ops.h) with its argument struct of `bytes` bytes, which is
 * copied. */
void wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes);

#endif
