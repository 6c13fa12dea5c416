/* The cpu device: the pool is anonymous host memory, a queue runs its work at once in the calling
 * thread (which leads the team of OpenMP threads), so events have nothing to wait for.
 *
 * Kernels are chosen when the device is opened: by CPUID, lowered by WD_CPU_ISA. Each queue has one
 * workspace that all its launches share. The guard device is this one with its pool closed between
 * launches (guard.c).
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/checked.h"
#include "core/log.h"
#include "core/memory.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/onednn.h"
#include "dev/cpu/parallel.h"

typedef struct cpu_device {
    wd_device base;
    wd_cpu_table table;
    wd_cpu_isa isa;
    int threads;
    bool guarded;
    int entered; /* guarded: kernels and copies running now, of all queues */
} cpu_device;

typedef struct cpu_queue {
    wd_queue base;
    void *workspace;
} cpu_queue;

static cpu_device *device_of(const wd_queue *queue) { return (cpu_device *)queue->device; }

/* ---- memory ---- */

enum { HUGE_PAGE = 2 << 20 };

/* Blocks are few and large (arenas): each is a mapping of its own, in huge pages as far as it spans
 * some, or rows that lie a stride apart would miss the TLB as often as the cache. */
static wd_status map_block(void **out, size_t bytes, wd_err *err)
{
    size_t extra = bytes < HUGE_PAGE ? 0 : HUGE_PAGE; /* so as to begin where a huge page does */
    char *start = MAP_FAILED;
    if (bytes + extra >= bytes)
        start = mmap(NULL, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                     0);
    if (start == MAP_FAILED)
        return wd_fail(err, WD_OUT_OF_MEMORY, "the system has no %zu bytes of memory", bytes);
    char *block = start;
    if (extra) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE), before = -(uintptr_t)start % HUGE_PAGE;
        block += before;
        if (before) munmap(start, before);
        if (before < extra) munmap(block + wd_round_up(bytes, page), extra - before);
        madvise(block, bytes, MADV_HUGEPAGE);
    }
    *out = block;
    return WD_OK;
}

static wd_status cpu_alloc(void **out, wd_device *device, size_t bytes, wd_err *err)
{
    cpu_device *cpu = (cpu_device *)device;
    if (cpu->guarded) return wd_guard_alloc(out, cpu->entered > 0, bytes, err);
    return map_block(out, bytes, err);
}

static void cpu_free(wd_device *device, void *block, size_t bytes)
{
    if (((cpu_device *)device)->guarded)
        wd_guard_free(block, bytes);
    else
        munmap(block, bytes);
}

/* Opens a guarded pool for as long as any kernel or copy runs. */
static void enter(cpu_device *cpu)
{
    if (!cpu->guarded) return;
    pthread_mutex_lock(&cpu->base.lock);
    if (cpu->entered++ == 0) wd_guard_protect(&cpu->base, true);
    pthread_mutex_unlock(&cpu->base.lock);
}

static void leave(cpu_device *cpu)
{
    if (!cpu->guarded) return;
    pthread_mutex_lock(&cpu->base.lock);
    if (--cpu->entered == 0) wd_guard_protect(&cpu->base, false);
    pthread_mutex_unlock(&cpu->base.lock);
}

/* ---- queues ---- */

static wd_status cpu_queue_open(wd_queue **out, wd_device *device, wd_err *err)
{
    return wd_queue_create(out, sizeof(cpu_queue), device, err);
}

static void cpu_queue_close(wd_queue *queue)
{
    wd_device_free(queue->device, ((cpu_queue *)queue)->workspace);
    wd_free(queue);
}

static wd_status cpu_reserve(wd_queue *queue, size_t bytes, wd_err *err)
{
    cpu_queue *q = (cpu_queue *)queue;
    wd_device_free(queue->device, q->workspace);
    q->workspace = NULL;
    queue->workspace_bytes = 0;
    WD_TRY(wd_device_alloc(&q->workspace, queue->device, bytes, "workspace of a queue", err));
    queue->workspace_bytes = bytes;
    return WD_OK;
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
    wd_parallel_set_threads(cpu->threads);
    copy_args args = {to, from};
    wd_parallel_for((int64_t)bytes, 1 << 20, copy_part, &args);
    leave(cpu);
}

/* It may depend on the number of threads: each has its own part of it. */
static size_t cpu_workspace(const wd_device *device, wd_op op, const void *args)
{
    const cpu_device *cpu = (const cpu_device *)device;
    wd_parallel_set_threads(cpu->threads);
    return wd_cpu_workspace_bytes(&cpu->table, op, args);
}

static void cpu_launch(wd_queue *queue, wd_op op, const void *args)
{
    cpu_device *cpu = device_of(queue);
    size_t bytes = cpu_workspace(queue->device, op, args);
    if (bytes > queue->workspace_bytes) {
        wd_err err = {0};
        if (wd_queue_reserve_workspace(queue, bytes, &err) != WD_OK) {
            /* A launch cannot fail; who wants an error reserves the workspace beforehand. */
            wd_log(WD_LOG_ERROR, "%s: %s", wd_op_name(op), err.message);
            abort();
        }
    }
    enter(cpu);
    wd_cpu_context context = {((cpu_queue *)queue)->workspace, queue->workspace_bytes, cpu->isa,
                              &cpu->table};
    cpu->table.entry[op].kernel(args, &context);
    leave(cpu);
}

static void cpu_wait(wd_queue *queue) { (void)queue; }

/* ---- events: work is done before a launch returns ---- */

static wd_status cpu_event_open(wd_event **out, wd_device *device, wd_err *err)
{
    return wd_event_create(out, sizeof **out, device, err);
}

static void cpu_event_close(wd_event *event) { wd_free(event); }
static void cpu_event_record(wd_event *event, wd_queue *queue) { (void)event, (void)queue; }
static void cpu_event_wait_on(wd_queue *queue, wd_event *event) { (void)event, (void)queue; }
static void cpu_event_wait(wd_event *event) { (void)event; }

/* ---- open and close ---- */

static void cpu_close(wd_device *device) { wd_device_discard(device); }

static const wd_device_kind cpu_kind = {
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .queue_open = cpu_queue_open,
    .queue_close = cpu_queue_close,
    .reserve = cpu_reserve,
    .copy = cpu_copy,
    .launch = cpu_launch,
    .wait = cpu_wait,
    .event_open = cpu_event_open,
    .event_close = cpu_event_close,
    .event_record = cpu_event_record,
    .event_wait_on = cpu_event_wait_on,
    .event_wait = cpu_event_wait,
    .workspace = cpu_workspace,
};

/* The machine's best instruction set, or the lower one that WD_CPU_ISA asks for. */
static wd_status choose_isa(wd_cpu_isa *isa, wd_err *err)
{
    *isa = wd_cpu_isa_best();
    const char *asked = getenv("WD_CPU_ISA");
    if (!asked || !*asked) return WD_OK;
    for (int i = 0; i < WD_CPU_ISA_COUNT; i++) {
        if (strcmp(asked, wd_cpu_isa_name((wd_cpu_isa)i))) continue;
        if (i > (int)*isa)
            return wd_fail(err, WD_UNSUPPORTED,
                           "WD_CPU_ISA=%s: this processor has only %s; unset it or lower it", asked,
                           wd_cpu_isa_name(*isa));
        *isa = (wd_cpu_isa)i;
        return WD_OK;
    }
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "WD_CPU_ISA=%s: expected generic, avx2, avx512 or avx512_bf16", asked);
}

wd_status wd_cpu_open(wd_device **out, bool guarded, int threads, wd_err *err)
{
    wd_cpu_isa isa;
    cpu_device *cpu;
    WD_TRY(choose_isa(&isa, err));
    WD_TRY(wd_device_create(&cpu, sizeof *cpu, &cpu_kind, err));
    cpu->isa = isa;
    cpu->guarded = guarded;
    cpu->threads = threads > 0 ? threads : wd_parallel_threads();
    cpu->base.reads_host = true;
    wd_onednn_limit_isa(isa);
    wd_cpu_table_fill(&cpu->table, isa);
    char upper[16];
    size_t n = 0;
    for (const char *c = wd_cpu_isa_name(isa); *c; c++)
        upper[n++] = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
    snprintf(cpu->base.name, sizeof cpu->base.name, "%s (%.*s, %d thread%s)",
             guarded ? "guarded cpu" : "cpu", (int)n, upper, cpu->threads,
             cpu->threads == 1 ? "" : "s");
    *out = &cpu->base;
    return WD_OK;
}

wd_status wd_device_open_cpu(wd_device **out, int threads, wd_err *err)
{
    return wd_cpu_open(out, false, threads, err);
}

wd_status wd_device_open_guard(wd_device **out, int threads, wd_err *err)
{
    return wd_cpu_open(out, true, threads, err);
}
