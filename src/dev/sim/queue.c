/* A queue of a simulated device: a ring of commands, and a thread that runs them in order.
 *
 * A launch copies its arguments into the ring and returns; if the ring is full, it waits for the
 * oldest command, which never waits for later commands. The worker runs the kernel or the copy, and
 * then sleeps until the simulated device would be done. Kernels of all queues share the device's
 * processor; copies between pools or with host memory share the links between them. Both are
 * divided into pieces, so that those which share a processor or a link advance together, and small
 * ones are not delayed by large ones. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "dev/sim/sim.h"

enum { RING = 1024, LINKS = 2, PIECE_MIN = 4096, PIECE_MAX = 4 << 20 };

static const double PIECE_S = 1e-3;

typedef union op_args {
#define X(op, name) wd_##name##_args name;
    WD_OP_MAP(X)
#undef X
} op_args;

typedef struct copy_command {
    char *to;
    const char *from;
    size_t bytes;
    wd_sim_device *end[LINKS]; /* the devices whose links the copy uses; NULL: none */
} copy_command;

typedef struct command {
    enum { LAUNCH, COPY, WAIT, FAIL } kind; /* FAIL: the launch at which the device fails */
    double submitted_s;
    wd_op op;
    union {
        op_args args;
        copy_command copy;
        struct {
            wd_sim_line *line; /* held */
            int64_t count;
        } wait;
    };
} command;

typedef struct sim_queue {
    wd_queue base;
    wd_sim_line *line; /* held */
    pthread_t worker;
    command ring[RING]; /* command n at (n - 1) % RING; the worker owns it from submission until it
                           is done */
} sim_queue;

static wd_sim_device *device_of(const sim_queue *q)
{
    return (wd_sim_device *)q->base.device;
}

/* ---- the worker: functions take the time at which work could begin, and return its end ---- */

static double run_launch(sim_queue *q, const command *c, double from_s)
{
    wd_sim_device *device = device_of(q);
    const double rate = device->flops_per_s[wd_op_precision(c->op, &c->args)];
    const double begun_s = wd_sim_clock_s();
    double left_s = wd__sim_pace_seconds(wd_op_flops(c->op, &c->args), rate), over_s = from_s;
    wd_cpu_kernels_run(&device->kernels, c->op, &c->args, q->base.workspace,
                       q->base.workspace_bytes);
    const double worked_s = wd_sim_clock_s() - begun_s;
    for (; left_s > 0; left_s -= PIECE_S) {
        over_s = wd__sim_pace_take(&device->processor, over_s, fmin(left_s, PIECE_S));
        wd__sim_sleep_until(over_s);
    }
    return fmax(over_s, from_s + worked_s);
}

/* The bytes of a piece of a copy. */
static size_t piece_bytes(const copy_command *c)
{
    double bytes = PIECE_MAX;
    for (int i = 0; i < LINKS; i++) {
        double rate = c->end[i] ? c->end[i]->link_bytes_per_s : 0;
        if (rate > 0 && rate * PIECE_S < bytes) bytes = rate * PIECE_S;
    }
    return bytes > PIECE_MIN ? (size_t)bytes : PIECE_MIN;
}

static double run_copy(const copy_command *c, double from_s)
{
    size_t piece = piece_bytes(c);
    for (size_t done = 0; done < c->bytes; done += piece) {
        size_t bytes = c->bytes - done < piece ? c->bytes - done : piece;
        double over_s = from_s;
        for (int i = 0; i < LINKS; i++) {
            wd_sim_device *end = c->end[i];
            if (!end) continue;
            const double seconds = wd__sim_pace_seconds((double)bytes, end->link_bytes_per_s);
            over_s = fmax(over_s, wd__sim_pace_take(&end->link, from_s, seconds));
        }
        double begun_s = wd_sim_clock_s();
        memcpy(c->to + done, c->from + done, bytes);
        over_s = fmax(over_s, from_s + wd_sim_clock_s() - begun_s);
        wd__sim_sleep_until(over_s);
        from_s = wd__sim_begin_s(over_s);
    }
    return from_s;
}

static double run(sim_queue *q, const command *c, double free_s)
{
    double ready_s = free_s > c->submitted_s ? free_s : c->submitted_s;
    wd_sim_device *device = device_of(q);
    if (c->kind != WAIT && wd__sim_has_failed(device)) return ready_s;
    switch (c->kind) {
    case LAUNCH:
        return run_launch(q, c, wd__sim_begin_s(ready_s));
    case COPY:
        return run_copy(&c->copy, wd__sim_begin_s(ready_s));
    case FAIL:
        device->failed_op = (int)c->op;
        return ready_s;
    case WAIT:
        break;
    }
    double happened_s = wd__sim_line_wait(c->wait.line, c->wait.count);
    wd__sim_line_drop(c->wait.line);
    return happened_s > ready_s ? happened_s : ready_s;
}

static void *work(void *context)
{
    sim_queue *q = context;
    wd_sim_line *line = q->line;
    pthread_mutex_lock(&line->lock);
    for (;;) {
        while (line->done == line->submitted && !line->closing)
            pthread_cond_wait(&line->moved, &line->lock);
        if (line->done == line->submitted) break;
        const command *c = &q->ring[line->done % RING];
        double free_s = line->clock_s;
        pthread_mutex_unlock(&line->lock);
        double over_s = run(q, c, free_s);
        pthread_mutex_lock(&line->lock);
        line->clock_s = over_s;
        line->done++;
        pthread_cond_broadcast(&line->moved);
    }
    pthread_mutex_unlock(&line->lock);
    return NULL;
}

/* ---- functions for callers ---- */

/* Returns the next command of the ring for filling; the line is locked until submit. */
static command *begin(sim_queue *q)
{
    wd_sim_line *line = q->line;
    pthread_mutex_lock(&line->lock);
    while (line->submitted - line->done == RING) pthread_cond_wait(&line->moved, &line->lock);
    command *c = &q->ring[line->submitted % RING];
    c->submitted_s = wd_sim_clock_s();
    return c;
}

static void submit(sim_queue *q)
{
    q->line->submitted++;
    pthread_cond_broadcast(&q->line->moved);
    pthread_mutex_unlock(&q->line->lock);
}

void wd__sim_queue_launch(wd_queue *queue, wd_op op, const void *args)
{
    wd_queue_need_workspace(queue, op, args);
    wd_sim_device *device = (wd_sim_device *)queue->device;
    command *c = begin((sim_queue *)queue);
    c->kind = ++device->launches == device->failing_launch ? FAIL : LAUNCH;
    c->op = op;
    memcpy(&c->args, args, wd_op_args_bytes(op));
    submit((sim_queue *)queue);
}

void wd__sim_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes)
{
    wd_sim_device *end[LINKS] = {wd__sim_owner(to), wd__sim_owner(from)};
    command *c = begin((sim_queue *)queue);
    c->kind = COPY;
    c->copy = (copy_command){.to = to, .from = from, .bytes = bytes};
    for (int i = 0; i < LINKS; i++)
        if (end[0] != end[1]) c->copy.end[i] = end[i];
    submit((sim_queue *)queue);
}

void wd__sim_queue_wait(wd_queue *queue)
{
    wd_sim_line *line = ((sim_queue *)queue)->line;
    wd__sim_line_wait(line, wd__sim_line_submitted(line));
}

wd_sim_line *wd__sim_queue_line(wd_queue *queue)
{
    return ((sim_queue *)queue)->line;
}

void wd__sim_queue_wait_for(wd_queue *queue, wd_sim_line *other, int64_t count)
{
    sim_queue *q = (sim_queue *)queue;
    if (other == q->line) { /* it is in order */
        wd__sim_line_drop(other);
        return;
    }
    command *c = begin(q);
    c->kind = WAIT;
    c->wait.line = other;
    c->wait.count = count;
    submit(q);
}

/* ---- open and close ---- */

size_t wd__sim_queue_bytes(void)
{
    return sizeof(sim_queue);
}

wd_status wd__sim_queue_open(wd_queue **out, wd_device *device, wd_err *err)
{
    wd_status status;
    sim_queue *q;
    int failed = 0;
    WD_TRY(wd_queue_create(&q, sizeof *q, device, err));
    WD_TRY_OUT(wd__sim_line_open(&q->line, err));
    failed = pthread_create(&q->worker, NULL, work, q);
    if (failed)
        status = wd_fail(err, WD_OUT_OF_MEMORY, "%s: no thread for a queue: %s", device->name,
                         strerror(failed));
out:
    if (status == WD_OK) {
        *out = &q->base;
        return WD_OK;
    }
    wd__sim_line_drop(q->line);
    wd_free(q);
    return status;
}

void wd__sim_queue_close(wd_queue *queue)
{
    sim_queue *q = (sim_queue *)queue;
    pthread_mutex_lock(&q->line->lock);
    q->line->closing = true;
    pthread_cond_broadcast(&q->line->moved);
    pthread_mutex_unlock(&q->line->lock);
    pthread_join(q->worker, NULL);
    wd__sim_line_drop(q->line);
    wd_device_free(queue->device, queue->workspace);
    wd_free(q);
}
