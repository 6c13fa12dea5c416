/* The cpu device. Its pool is anonymous host memory. A queue runs its work at once in the calling
 * thread, which leads the team of OpenMP threads, so events are always done.
 *
 * Each queue has one workspace for all its launches. The guard device is this device with a pool
 * that is inaccessible (dev/guarded_memory.h) except while one of its kernels or copies runs. A
 * test on it proves that only these dereference tensor memory, as on a GPU. */
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "dev/cpu/cpu.h"
#include "dev/guarded_memory.h"
#include "dev/pinned.h"

typedef struct cpu_device {
    wd_device base;
    wd_cpu_kernels kernels;
    bool guarded;
    int entered; /* guarded: kernels and copies running now, of all queues */
} cpu_device;

enum { GUARDED_ALIGNMENT = 64 };

static cpu_device *device_of(const wd_queue *queue)
{
    return (cpu_device *)queue->device;
}

/* ---- memory ---- */

enum { PAGE = 4096, TOUCHED_PAGES = 1024 }; /* the last: at once by a thread */

/* Writes to all pages of a block. The system allocates pages when they are first written; so a run
 * has all its memory from its first step on. */
static void touch_pages(int64_t begin, int64_t end, void *block)
{
    for (int64_t i = begin; i < end; i++) ((volatile char *)block)[i * PAGE] = 0;
}

static wd_status guarded_alloc(void **out, const cpu_device *cpu, size_t bytes, wd_err *err)
{
    *out = wd_guarded_map(bytes, GUARDED_ALIGNMENT);
    if (!*out)
        return wd_fail(err, WD_OUT_OF_MEMORY, "the system has no %zu bytes of memory", bytes);
    if (cpu->entered > 0) wd_guarded_set_open(*out, bytes, true);
    return WD_OK;
}

static wd_status cpu_alloc(void **out, wd_device *device, size_t bytes, wd_err *err)
{
    cpu_device *cpu = (cpu_device *)device;
    if (cpu->guarded) return guarded_alloc(out, cpu, bytes, err);
    WD_TRY(wd_host_block_map(out, bytes, err));
    wd_parallel_set_threads(cpu->kernels.threads);
    wd_parallel_for((int64_t)((bytes + PAGE - 1) / PAGE), TOUCHED_PAGES, touch_pages, *out);
    return WD_OK;
}

static void cpu_free(wd_device *device, void *block, size_t bytes)
{
    if (((cpu_device *)device)->guarded)
        wd_guarded_unmap(block, bytes);
    else
        wd_host_block_unmap(block, bytes);
}

/* Opens or closes a guarded pool; the device's lock is held. */
static void set_open(const cpu_device *cpu, bool open)
{
    for (size_t i = 0; i < cpu->base.blocks; i++)
        wd_guarded_set_open(cpu->base.block[i].address, cpu->base.block[i].bytes, open);
}

/* Makes a guarded pool accessible as long as any kernel or copy runs. */
static void enter(cpu_device *cpu)
{
    if (!cpu->guarded) return;
    pthread_mutex_lock(&cpu->base.lock);
    if (cpu->entered++ == 0) set_open(cpu, true);
    pthread_mutex_unlock(&cpu->base.lock);
}

static void leave(cpu_device *cpu)
{
    if (!cpu->guarded) return;
    pthread_mutex_lock(&cpu->base.lock);
    if (--cpu->entered == 0) set_open(cpu, false);
    pthread_mutex_unlock(&cpu->base.lock);
}

/* ---- queues ---- */

static wd_status cpu_queue_open(wd_queue **out, wd_device *device, wd_err *err)
{
    return wd_queue_create(out, sizeof **out, device, err);
}

static void cpu_queue_close(wd_queue *queue)
{
    wd_device_free(queue->device, queue->workspace);
    wd_free(queue);
}

typedef struct copy_args {
    char *to;
    const char *from;
} copy_args;

static void copy_part(int64_t begin, int64_t end, void *context)
{
    const copy_args *c = context;
    memcpy(c->to + begin, c->from + begin, (size_t)(end - begin));
}

static void cpu_copy(wd_queue *queue, void *to, const void *from, size_t bytes)
{
    cpu_device *cpu = device_of(queue);
    enter(cpu);
    wd_parallel_set_threads(cpu->kernels.threads);
    copy_args args = {to, from};
    wd_parallel_for((int64_t)bytes, 1 << 20, copy_part, &args);
    leave(cpu);
}

static size_t cpu_workspace(const wd_device *device, wd_op op, const void *args)
{
    return wd_cpu_kernels_workspace(&((const cpu_device *)device)->kernels, op, args);
}

static void cpu_launch(wd_queue *queue, wd_op op, const void *args)
{
    cpu_device *cpu = device_of(queue);
    wd_queue_need_workspace(queue, op, args);
    enter(cpu);
    wd_cpu_kernels_run(&cpu->kernels, op, args, queue->workspace, queue->workspace_bytes);
    leave(cpu);
}

static bool cpu_owns(wd_device *device, const void *address)
{
    return wd_device_has(device, address);
}

static void cpu_wait(wd_queue *queue)
{
    (void)queue;
}

/* ---- events: work is done before a launch returns ---- */

static wd_status cpu_event_open(wd_event **out, wd_device *device, wd_err *err)
{
    return wd_event_create(out, device, err);
}

static void cpu_event_close(wd_event *event)
{
    wd_free(event);
}
static void cpu_event_record(wd_event *event, wd_queue *queue)
{
    (void)event, (void)queue;
}
static void cpu_event_wait_on(wd_queue *queue, wd_event *event)
{
    (void)event, (void)queue;
}
static void cpu_event_wait(wd_event *event)
{
    (void)event;
}
static bool cpu_event_is_done(wd_event *event)
{
    return event != NULL;
}

/* ---- open and close ---- */

static void cpu_close(wd_device *device)
{
    wd_device_discard(device);
}

static const wd_device_kind cpu_kind = {
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .queue_open = cpu_queue_open,
    .queue_close = cpu_queue_close,
    .reserve = wd_queue_grow_workspace,
    .copy = cpu_copy,
    .launch = cpu_launch,
    .wait = cpu_wait,
    .event_open = cpu_event_open,
    .event_close = cpu_event_close,
    .event_record = cpu_event_record,
    .event_wait_on = cpu_event_wait_on,
    .event_wait = cpu_event_wait,
    .event_is_done = cpu_event_is_done,
    .workspace = cpu_workspace,
    .owns = cpu_owns,
};

/* `guarded`: see guard.c. */
static wd_status open_cpu(wd_device **out, bool guarded, int threads, wd_err *err)
{
    wd_cpu_kernels kernels;
    cpu_device *cpu;
    WD_TRY(wd_cpu_kernels_choose(&kernels, threads, err));
    WD_TRY(wd_parallel_start(&kernels.threads, kernels.threads, err));
    WD_TRY(wd_device_create(&cpu, sizeof *cpu, &cpu_kind, err));
    cpu->kernels = kernels;
    cpu->guarded = guarded;
    cpu->base.checks_copies = guarded;
    cpu->base.traits.synchronous = true;
    cpu->base.traits.reads_host = true;
    wd_cpu_kernels_text(cpu->base.traits.kernels, kernels.isa);
    char upper[16];
    size_t n = 0;
    for (const char *c = wd__cpu_isa_name(kernels.isa); *c; c++)
        upper[n++] = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
    snprintf(cpu->base.name, sizeof cpu->base.name, "%s (%.*s, %d thread%s)",
             guarded ? "guarded cpu" : "cpu", (int)n, upper, kernels.threads,
             kernels.threads == 1 ? "" : "s");
    *out = &cpu->base;
    return WD_OK;
}

wd_status wd_device_open_cpu(wd_device **out, int threads, wd_err *err)
{
    return open_cpu(out, false, threads, err);
}

wd_status wd_device_open_guard(wd_device **out, int threads, wd_err *err)
{
    return open_cpu(out, true, threads, err);
}
