/* Ranks that are threads of one process: for tests, and, where there is one, for a run without
 * ranks. Whoever finds that all have come to an operation, and that their copies are there, moves
 * everybody's bytes; who waits for it waits for the copies first. */
#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "core/memory.h"
#include "dist/comm.h"

typedef struct hub hub;

/* An operation that was posted. */
typedef struct posted {
    wd_comm_op op;
    int64_t meeting; /* which of the lane's collective ones, or of those between the two ranks */
    bool waits;      /* for the others to come */
} posted;

typedef struct thread_comm {
    wd_comm base;
    hub *hub;
    posted ring[WD_LANES][WD_LANE_DEPTH]; /* by number modulo the depth */
    int64_t count[WD_LANES];              /* posted so far */
    int64_t collectives[WD_LANES];
    int64_t *sends, *receives; /* [WD_LANES, ranks] */
} thread_comm;

struct hub {
    pthread_mutex_t lock; /* of all that is here and in the ranks' rings */
    pthread_cond_t moved;
    int ranks, open;
    thread_comm *rank[];
};

static bool is_collective(wd_comm_kind kind)
{
    return kind < WD_COMM_SEND;
}

/* What rank `r` has posted as that meeting; NULL: nothing yet. */
static posted *find(hub *h, int r, wd_lane lane, wd_comm_kind kind, int peer, int64_t meeting)
{
    for (int i = 0; i < WD_LANE_DEPTH; i++) {
        posted *p = &h->rank[r]->ring[lane][i];
        if (!p->waits || p->meeting != meeting) continue;
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

/* What rank `from` has for rank `to`. */
static void move_part(const wd_comm_op *to, int to_rank, const wd_comm_op *from, int from_rank)
{
    assert(to->kind == from->kind);
    switch (to->kind) {
    case WD_COMM_EXCHANGE:
        assert(to->to_at[from_rank + 1] - to->to_at[from_rank] ==
               from->from_at[to_rank + 1] - from->from_at[to_rank]);
        move((char *)to->to + to->to_at[from_rank],
             (const char *)from->from + from->from_at[to_rank],
             from->from_at[to_rank + 1] - from->from_at[to_rank]);
        break;
    case WD_COMM_GATHER_ALL:
        move((char *)to->to + to->to_at[from_rank], (const char *)from->to + from->to_at[from_rank],
             from->to_at[from_rank + 1] - from->to_at[from_rank]);
        break;
    default:
        assert(to->kind == WD_COMM_BROADCAST && to->bytes == from->bytes);
        if (from_rank == from->peer) move(to->to, from->to, from->bytes);
    }
}

/* Whether what goes is there. `wait`: makes sure of it. */
static bool is_there(const posted *p, bool wait)
{
    if (p->op.after && wait) wd_event_wait(p->op.after);
    return !p->op.after || wd_event_is_done(p->op.after);
}

static void try_collective(hub *h, const posted *p, bool wait)
{
    posted *all[h->ranks];
    for (int r = 0; r < h->ranks; r++)
        if (!(all[r] = find(h, r, p->op.lane, WD_COMM_EXCHANGE, 0, p->meeting))) return;
    for (int r = 0; r < h->ranks; r++)
        if (!is_there(all[r], wait)) return;
    for (int to = 0; to < h->ranks; to++)
        for (int from = 0; from < h->ranks; from++)
            if (to != from || all[to]->op.kind == WD_COMM_EXCHANGE)
                move_part(&all[to]->op, to, &all[from]->op, from);
    for (int r = 0; r < h->ranks; r++) all[r]->waits = false;
    pthread_cond_broadcast(&h->moved);
}

static void try_pair(hub *h, const posted *p, int rank, bool wait)
{
    const bool sends = p->op.kind == WD_COMM_SEND;
    const int from = sends ? rank : p->op.peer, to = sends ? p->op.peer : rank;
    posted *send = find(h, from, p->op.lane, WD_COMM_SEND, to, p->meeting);
    posted *receive = find(h, to, p->op.lane, WD_COMM_RECEIVE, from, p->meeting);
    if (!send || !receive || !is_there(send, wait)) return;
    assert(send->op.bytes == receive->op.bytes);
    move(receive->op.to, send->op.from, send->op.bytes);
    send->waits = receive->waits = false;
    pthread_cond_broadcast(&h->moved);
}

static void try(hub *h, const posted *p, int rank, bool wait)
{
    if (is_collective(p->op.kind))
        try_collective(h, p, wait);
    else
        try_pair(h, p, rank, wait);
}

/* Until rank `rank`'s operation is done, or its place was taken since, which is the same. */
static void wait_for(hub *h, posted *p, int rank, int64_t number)
{
    const thread_comm *c = h->rank[rank];
    while (p->waits && c->count[p->op.lane] <= number + WD_LANE_DEPTH) {
        try(h, p, rank, true);
        if (p->waits) pthread_cond_wait(&h->moved, &h->lock);
    }
}

static wd_ticket thread_post(wd_comm *self, const wd_comm_op *op)
{
    thread_comm *c = (thread_comm *)self;
    hub *h = c->hub;
    pthread_mutex_lock(&h->lock);
    const wd_ticket ticket = {op->lane, c->count[op->lane]};
    posted *p = &c->ring[op->lane][ticket.number % WD_LANE_DEPTH];
    wait_for(h, p, self->rank, ticket.number - WD_LANE_DEPTH);
    c->count[op->lane]++;
    *p = (posted){.op = *op, .waits = true};
    if (is_collective(op->kind))
        p->meeting = c->collectives[op->lane]++;
    else
        p->meeting = (op->kind == WD_COMM_SEND ? c->sends
                                               : c->receives)[op->lane * h->ranks + op->peer]++;
    try(h, p, self->rank, false);
    pthread_cond_broadcast(&h->moved); /* who waits for it may wait for its copy now */
    pthread_mutex_unlock(&h->lock);
    return ticket;
}

static void thread_wait(wd_comm *self, wd_ticket ticket)
{
    thread_comm *c = (thread_comm *)self;
    hub *h = c->hub;
    pthread_mutex_lock(&h->lock);
    wait_for(h, &c->ring[ticket.lane][ticket.number % WD_LANE_DEPTH], self->rank, ticket.number);
    pthread_mutex_unlock(&h->lock);
}

static void close_hub(hub *h)
{
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
    hub *h = ((thread_comm *)self)->hub;
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
                        .host_ranks = h->ranks};
    c->hub = h;
    const size_t pairs = (size_t)WD_LANES * (size_t)h->ranks;
    WD_TRY(wd_alloc((void **)&c->sends, pairs, sizeof *c->sends, "a communicator", err));
    return wd_alloc((void **)&c->receives, pairs, sizeof *c->receives, "a communicator", err);
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
