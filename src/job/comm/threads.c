/* The communicator of ranks that are threads of one process. Tests use it, and a run without ranks,
 * which is a job of one. The thread that begins an operation last copies the bytes of all ranks. An
 * operation that waits for an event is begun by a thread of its lane, so that the caller goes on,
 * as with any other kind of communicator. */
#include <pthread.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "job/comm/comm.h"

typedef struct hub hub;

/* An operation that was posted. */
typedef struct posted {
    wd_comm_op op;
    /* the operation's number among the collective ones of its lane, or among the sends (receives)
     * from its rank to its peer on the lane: the operations of one number belong together */
    int64_t number;
    bool is_begun, is_pending; /* pending: until its bytes were copied */
} posted;

/* A lane's thread, which begins operations that cannot begin at once. */
typedef struct beginner {
    struct thread_comm *comm;
    wd_lane lane;
    pthread_t thread;
    pthread_cond_t called;
    bool is_there;
} beginner;

typedef struct thread_comm {
    wd_comm base;
    hub *hub;
    posted ring[WD_LANES][WD_LANE_DEPTH]; /* operation n of a lane is at n modulo the depth */
    int64_t count[WD_LANES];              /* operations that were posted */
    int64_t begun[WD_LANES];              /* operations that were begun */
    beginner beginner[WD_LANES];          /* a job of one rank has none */
    bool closing;
    int64_t collectives[WD_LANES]; /* collective operations that were begun */
    int64_t *sends, *receives;     /* [WD_LANES, ranks]: begun, to and from each rank */
} thread_comm;

struct hub {
    pthread_mutex_t lock; /* protects the hub and the ranks' communicators */
    pthread_cond_t moved;
    int ranks, open;
    thread_comm *rank[];
};

static bool is_collective(wd_comm_kind kind)
{
    return kind < WD_COMM_SEND;
}

/* The operation of that kind and number that rank `r` has begun; NULL: none yet. */
static posted *find(hub *h, int r, wd_lane lane, wd_comm_kind kind, int peer, int64_t number)
{
    for (int i = 0; i < WD_LANE_DEPTH; i++) {
        posted *p = &h->rank[r]->ring[lane][i];
        if (!p->is_pending || !p->is_begun || p->number != number) continue;
        if (is_collective(kind) ? is_collective(p->op.kind)
                                : p->op.kind == kind && p->op.peer == peer)
            return p;
    }
    return NULL;
}

static void move(void *to, const void *from, size_t bytes)
{
    if (bytes) memmove(to, from, bytes);
}

static void require_size(size_t sent, size_t expected)
{
    WD_REQUIRE(sent == expected, "a rank sends %zu bytes where %zu are expected", sent, expected);
}

/* Copies the part that one member of a group has for another. */
static void move_part(const wd_comm_op *to, const wd_comm_op *from)
{
    WD_REQUIRE(to->kind == from->kind, "ranks post different operations: %d and %d", (int)to->kind,
               (int)from->kind);
    const size_t to_bytes = wd__comm_part_bytes(&to->to_parts, from->member);
    if (to->kind == WD_COMM_EXCHANGE) {
        require_size(wd__comm_part_bytes(&from->from_parts, to->member), to_bytes);
        move((char *)to->to + wd__comm_part_begin(&to->to_parts, from->member),
             (const char *)from->from + wd__comm_part_begin(&from->from_parts, to->member),
             to_bytes);
    } else {
        const size_t at = wd__comm_part_begin(&to->to_parts, from->member);
        WD_REQUIRE(wd__comm_part_begin(&from->to_parts, from->member) == at,
                   "ranks gather a part at different offsets: %zu and %zu",
                   wd__comm_part_begin(&from->to_parts, from->member), at);
        require_size(wd__comm_part_bytes(&from->to_parts, from->member), to_bytes);
        move((char *)to->to + at, (const char *)from->to + at, to_bytes);
    }
}

static void try_collective(hub *h, wd_lane lane, wd_group group, int64_t number)
{
    posted *all[group.count];
    for (int i = 0; i < group.count; i++)
        if (!(all[i] = find(h, wd__group_rank(&group, i), lane, WD_COMM_EXCHANGE, 0, number)))
            return;
    for (int to = 0; to < group.count; to++)
        for (int from = 0; from < group.count; from++)
            if (to != from || all[to]->op.kind == WD_COMM_EXCHANGE)
                move_part(&all[to]->op, &all[from]->op);
    for (int i = 0; i < group.count; i++) all[i]->is_pending = false;
    pthread_cond_broadcast(&h->moved);
}

static void try_pair(hub *h, wd_lane lane, int from, int to, int64_t number)
{
    posted *send = find(h, from, lane, WD_COMM_SEND, to, number);
    posted *receive = find(h, to, lane, WD_COMM_RECEIVE, from, number);
    if (!send || !receive) return;
    require_size(send->op.bytes, receive->op.bytes);
    move(receive->op.to, send->op.from, send->op.bytes);
    send->is_pending = receive->is_pending = false;
    pthread_cond_broadcast(&h->moved);
}

/* Begins the lane's next operation. Where those of the other ranks have begun, too, it is
 * completed. */
static void begin(thread_comm *c, wd_lane lane)
{
    hub *h = c->hub;
    posted *p = &c->ring[lane][c->begun[lane]++ % WD_LANE_DEPTH];
    p->is_begun = true;
    if (is_collective(p->op.kind)) {
        p->number = c->collectives[lane]++;
        try_collective(h, lane, p->op.group, p->number);
    } else {
        const bool sends = p->op.kind == WD_COMM_SEND;
        const int me = c->base.rank, peer = p->op.peer;
        p->number = (sends ? c->sends : c->receives)[lane * h->ranks + peer]++;
        try_pair(h, lane, sends ? me : peer, sends ? peer : me, p->number);
    }
}

static void *begin_all(void *context)
{
    beginner *b = context;
    thread_comm *c = b->comm;
    hub *h = c->hub;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (c->begun[b->lane] == c->count[b->lane] && !c->closing)
            pthread_cond_wait(&b->called, &h->lock);
        if (c->begun[b->lane] == c->count[b->lane]) break;
        wd_event *after = c->ring[b->lane][c->begun[b->lane] % WD_LANE_DEPTH].op.after;
        pthread_mutex_unlock(&h->lock);
        if (after) wd_event_wait(after);
        pthread_mutex_lock(&h->lock);
        begin(c, b->lane);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static wd_ticket thread_post(wd_comm *self, const wd_comm_op *op)
{
    thread_comm *c = (thread_comm *)self;
    hub *h = c->hub;
    if (op->after && h->ranks == 1) wd_event_wait(op->after);
    pthread_mutex_lock(&h->lock);
    const wd_ticket ticket = {op->lane, c->count[op->lane]};
    posted *p = &c->ring[op->lane][ticket.number % WD_LANE_DEPTH];
    while (p->is_pending) pthread_cond_wait(&h->moved, &h->lock);
    *p = (posted){.op = *op, .is_pending = true};
    const bool at_once = c->begun[op->lane] == ticket.number && (!op->after || h->ranks == 1);
    c->count[op->lane]++;
    if (at_once)
        begin(c, op->lane);
    else
        pthread_cond_signal(&c->beginner[op->lane].called);
    pthread_mutex_unlock(&h->lock);
    return ticket;
}

static void thread_wait(wd_comm *self, wd_ticket ticket)
{
    thread_comm *c = (thread_comm *)self;
    hub *h = c->hub;
    const posted *p = &c->ring[ticket.lane][ticket.number % WD_LANE_DEPTH];
    pthread_mutex_lock(&h->lock);
    /* where a later operation is in the same place, this one is complete */
    while (p->is_pending && c->count[ticket.lane] <= ticket.number + WD_LANE_DEPTH)
        pthread_cond_wait(&h->moved, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

static void end_beginners(thread_comm *c)
{
    pthread_mutex_lock(&c->hub->lock);
    c->closing = true;
    for (int i = 0; i < WD_LANES; i++)
        if (c->beginner[i].is_there) pthread_cond_signal(&c->beginner[i].called);
    pthread_mutex_unlock(&c->hub->lock);
    for (int i = 0; i < WD_LANES; i++) {
        beginner *b = &c->beginner[i];
        if (!b->is_there) continue;
        pthread_join(b->thread, NULL);
        pthread_cond_destroy(&b->called);
        b->is_there = false;
    }
}

static void close_hub(hub *h)
{
    for (int r = 0; r < h->ranks; r++)
        if (h->rank[r]) end_beginners(h->rank[r]);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->moved);
    for (int r = 0; r < h->ranks; r++) {
        if (!h->rank[r]) continue;
        wd_free(h->rank[r]->sends);
        wd_free(h->rank[r]->receives);
        wd_free(h->rank[r]);
    }
    wd_free(h);
}

static void thread_close(wd_comm *self)
{
    thread_comm *c = (thread_comm *)self;
    hub *h = c->hub;
    end_beginners(c);
    pthread_mutex_lock(&h->lock);
    const bool last = !--h->open;
    pthread_mutex_unlock(&h->lock);
    if (last) close_hub(h);
}

static const wd_comm_vtable thread_vtable = {
    .post = thread_post,
    .wait = thread_wait,
    .close = thread_close,
};

static wd_status open_beginner(thread_comm *c, wd_lane lane, wd_err *err)
{
    beginner *b = &c->beginner[lane];
    *b = (beginner){.comm = c, .lane = lane};
    pthread_cond_init(&b->called, NULL);
    const int failed = pthread_create(&b->thread, NULL, begin_all, b);
    if (failed) pthread_cond_destroy(&b->called);
    if (failed)
        return wd_fail(err, WD_OUT_OF_MEMORY, "no thread for a communicator: %s", strerror(failed));
    b->is_there = true;
    return WD_OK;
}

static wd_status open_rank(hub *h, int rank, wd_err *err)
{
    thread_comm *c;
    WD_TRY(wd_alloc((void **)&c, 1, sizeof *c, "a communicator", err));
    h->rank[rank] = c;
    c->base = (wd_comm){.vtable = &thread_vtable,
                        .name = h->ranks == 1 ? "single" : "threads",
                        .rank = rank,
                        .ranks = h->ranks,
                        .hosts = 1,
                        .host_rank = rank,
                        .host_ranks = h->ranks,
                        .in_blocks = true};
    c->hub = h;
    const size_t pairs = (size_t)WD_LANES * (size_t)h->ranks;
    WD_TRY(wd_alloc((void **)&c->sends, pairs, sizeof *c->sends, "a communicator", err));
    WD_TRY(wd_alloc((void **)&c->receives, pairs, sizeof *c->receives, "a communicator", err));
    for (int i = 0; i < WD_LANES && h->ranks > 1; i++) WD_TRY(open_beginner(c, (wd_lane)i, err));
    return WD_OK;
}

wd_status wd_comm_open_threads(wd_comm **out, int ranks, wd_err *err)
{
    wd_status status = WD_OK;
    hub *h;
    WD_TRY(wd_alloc((void **)&h, 1, sizeof *h + (size_t)ranks * sizeof *h->rank, "a communicator",
                    err));
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->moved, NULL);
    h->ranks = h->open = ranks;
    for (int r = 0; r < ranks; r++) {
        WD_TRY_OUT(open_rank(h, r, err));
        out[r] = &h->rank[r]->base;
    }
out:
    if (status != WD_OK) close_hub(h);
    return status;
}

wd_status wd_comm_open_single(wd_comm **out, wd_err *err)
{
    return wd_comm_open_threads(out, 1, err);
}
