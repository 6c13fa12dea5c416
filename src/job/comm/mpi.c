/* The communicator of ranks that MPI has started.
 *
 * Data flow: a post puts its operation into the ring of its lane. One thread makes all calls of
 * MPI: it begins the next operation of each lane as soon as its event has happened, tests all
 * unfinished operations again and again, and wakes the threads that wait for them.
 *
 * Why a thread of its own: MPI moves data only while somebody calls it, and the thread that has
 * posted computes meanwhile. Between two tests it sleeps, for longer the longer nothing was
 * completed, because several ranks may share a core; without unfinished operations it waits to be
 * woken.
 *
 * Why parts are sent as messages and not by MPI_Ialltoallv: that has offsets of type int, and
 * buffers may be larger than 2 GiB. MPI also counts the elements of a message with an int, so a
 * larger message is one element of a type that has its length. Collective operations have a tag of
 * their own, and match in the order in which a lane begins them, so that messages between two ranks
 * may be posted in between. */
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/thread.h"
#include "job/comm/comm.h"

enum { TAG_COLLECTIVE, TAG_PAIR };
enum { SLEEP_NS_MIN = 20000, SLEEP_NS_MAX = 500000 };

/* A place of a lane's ring, for an operation that was posted. */
typedef struct place {
    wd_comm_op op;
    bool is_pending;      /* until it is complete; under the lock */
    int requests;         /* the thread's: MPI requests it has begun; -1: complete */
    MPI_Request *request; /* [2 * ranks] */
} place;

typedef struct lane {
    MPI_Comm comm;
    int64_t posted;            /* under the lock */
    int64_t begun;             /* the thread's */
    int64_t oldest;            /* the thread's: all operations before it are complete */
    place ring[WD_LANE_DEPTH]; /* by number modulo the depth */
} lane;

typedef enum phase { OPENING, OPEN, REFUSED, CLOSING } phase;

typedef struct mpi_comm {
    wd_comm base;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t called; /* to the thread: something was posted, or it shall end */
    pthread_cond_t moved;  /* from the thread: an operation is complete, or `phase` has changed */
    phase phase;           /* under the lock */
    wd_err refusal;
    int64_t posts, posts_seen; /* under the lock: all posts, and those that the thread has seen */
    MPI_Request *request;      /* the requests of all places */
    lane lane[WD_LANES];
} mpi_comm;

/* ---- operations, in the thread ---- */

size_t wd_comm_mpi_count_max = INT_MAX;

/* The type of a message of so many bytes, more than MPI can count: whole units, and the rest. The
 * caller frees it once the message is begun, which MPI allows before the message is complete. */
static MPI_Datatype type_of(size_t bytes)
{
    MPI_Datatype part[2] = {MPI_DATATYPE_NULL, MPI_BYTE}, type;
    const size_t unit = wd_comm_mpi_count_max, units = bytes / unit;
    WD_REQUIRE(units <= INT_MAX, "a message of %zu bytes", bytes);
    const int count[2] = {(int)units, (int)(bytes % unit)};
    const MPI_Aint at[2] = {0, (MPI_Aint)(units * unit)};
    MPI_Type_contiguous((int)unit, MPI_BYTE, &part[0]);
    MPI_Type_create_struct(2, count, at, part, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&part[0]);
    return type;
}

static void send_part(place *p, MPI_Comm comm, const char *from, size_t bytes, int peer, int tag)
{
    MPI_Request *request = &p->request[p->requests++];
    if (bytes <= wd_comm_mpi_count_max) {
        MPI_Isend(from, (int)bytes, MPI_BYTE, peer, tag, comm, request);
        return;
    }
    MPI_Datatype type = type_of(bytes);
    MPI_Isend(from, 1, type, peer, tag, comm, request);
    MPI_Type_free(&type);
}

static void receive_part(place *p, MPI_Comm comm, char *to, size_t bytes, int peer, int tag)
{
    MPI_Request *request = &p->request[p->requests++];
    if (bytes <= wd_comm_mpi_count_max) {
        MPI_Irecv(to, (int)bytes, MPI_BYTE, peer, tag, comm, request);
        return;
    }
    MPI_Datatype type = type_of(bytes);
    MPI_Irecv(to, 1, type, peer, tag, comm, request);
    MPI_Type_free(&type);
}

/* Receives the parts of `to` from the other members. Empty parts have no message. */
static void receive_others(place *p, MPI_Comm comm)
{
    const wd_comm_op *op = &p->op;
    const wd_group *g = &op->group;
    for (int n = 1; n < g->count; n++) {
        const int i = (op->member + g->count - n) % g->count;
        const size_t bytes = wd__comm_part_bytes(&op->to_parts, i);
        if (bytes)
            receive_part(p, comm, (char *)op->to + wd__comm_part_begin(&op->to_parts, i), bytes,
                         wd__group_rank(g, i), TAG_COLLECTIVE);
    }
}

/* Sends part i of `from` to member i, and copies the part of this rank. Empty parts have no
 * message. Each member sends to the next higher one first, so that they do not all send to the same
 * one. */
static void begin_exchange(place *p, MPI_Comm comm)
{
    const wd_comm_op *op = &p->op;
    const wd_group *g = &op->group;
    const int me = op->member;
    char *to = op->to;
    const char *from = op->from;
    receive_others(p, comm);
    for (int n = 1; n < g->count; n++) {
        const int i = (me + n) % g->count;
        const size_t bytes = wd__comm_part_bytes(&op->from_parts, i);
        if (bytes)
            send_part(p, comm, from + wd__comm_part_begin(&op->from_parts, i), bytes,
                      wd__group_rank(g, i), TAG_COLLECTIVE);
    }
    const size_t own = wd__comm_part_bytes(&op->to_parts, me);
    WD_REQUIRE(own == wd__comm_part_bytes(&op->from_parts, me),
               "a rank sends %zu bytes to itself where %zu are expected",
               wd__comm_part_bytes(&op->from_parts, me), own);
    if (own)
        memmove(to + wd__comm_part_begin(&op->to_parts, me),
                from + wd__comm_part_begin(&op->from_parts, me), own);
}

static void begin_gather_all(place *p, MPI_Comm comm)
{
    const wd_comm_op *op = &p->op;
    const wd_group *g = &op->group;
    const int me = op->member;
    char *data = op->to;
    const size_t own = wd__comm_part_bytes(&op->to_parts, me);
    receive_others(p, comm);
    for (int n = 1; n < g->count && own; n++)
        send_part(p, comm, data + wd__comm_part_begin(&op->to_parts, me), own,
                  wd__group_rank(g, (me + n) % g->count), TAG_COLLECTIVE);
}

static void begin(place *p, MPI_Comm comm)
{
    const wd_comm_op *op = &p->op;
    p->requests = 0;
    switch (op->kind) {
    case WD_COMM_EXCHANGE:
        begin_exchange(p, comm);
        break;
    case WD_COMM_GATHER_ALL:
        begin_gather_all(p, comm);
        break;
    case WD_COMM_SEND:
        send_part(p, comm, op->from, op->bytes, op->peer, TAG_PAIR);
        break;
    case WD_COMM_RECEIVE:
        receive_part(p, comm, op->to, op->bytes, op->peer, TAG_PAIR);
    }
}

static void set_done(mpi_comm *c, place *p)
{
    pthread_mutex_lock(&c->lock);
    p->is_pending = false;
    pthread_cond_broadcast(&c->moved);
    pthread_mutex_unlock(&c->lock);
}

/* Begins the operations that can begin, and tests those that have begun; `posted` is the number of
 * operations posted on the lane. Returns whether an operation has begun or completed. */
static bool step_lane(mpi_comm *c, lane *l, int64_t posted)
{
    bool moved = false;
    for (; l->begun < posted; l->begun++) {
        place *p = &l->ring[l->begun % WD_LANE_DEPTH];
        if (p->op.after && !wd_event_is_done(p->op.after)) break;
        begin(p, l->comm);
        moved = true;
    }
    for (int64_t n = l->oldest; n < l->begun; n++) {
        place *p = &l->ring[n % WD_LANE_DEPTH];
        int done = 0;
        if (p->requests >= 0) {
            MPI_Testall(p->requests, p->request, &done, MPI_STATUSES_IGNORE);
            if (!done) continue;
            p->requests = -1;
            set_done(c, p);
            moved = true;
        }
        if (n == l->oldest) l->oldest++;
    }
    return moved;
}

/* Sleeps for `ns` nanoseconds, or until an operation is posted. Called under the lock. */
static void sleep_for(mpi_comm *c, long ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (c->posts == c->posts_seen &&
           pthread_cond_timedwait(&c->called, &c->lock, &until) != ETIMEDOUT)
        ;
}

static void serve(mpi_comm *c)
{
    long sleep_ns = SLEEP_NS_MIN;
    for (bool idle = true;;) {
        int64_t posted[WD_LANES];
        pthread_mutex_lock(&c->lock);
        if (idle)
            while (c->posts == c->posts_seen && c->phase != CLOSING)
                pthread_cond_wait(&c->called, &c->lock);
        else
            sleep_for(c, sleep_ns);
        const bool called = c->posts != c->posts_seen, closing = c->phase == CLOSING;
        c->posts_seen = c->posts;
        for (int i = 0; i < WD_LANES; i++) posted[i] = c->lane[i].posted;
        pthread_mutex_unlock(&c->lock);

        bool moved = called;
        idle = true;
        for (int i = 0; i < WD_LANES; i++) {
            moved |= step_lane(c, &c->lane[i], posted[i]);
            idle &= c->lane[i].oldest == posted[i];
        }
        if (idle && closing) return;
        sleep_ns = moved ? SLEEP_NS_MIN : sleep_ns * 2 < SLEEP_NS_MAX ? sleep_ns * 2 : SLEEP_NS_MAX;
    }
}

/* ---- opening and closing, in the thread ---- */

/* Finds out which ranks share a machine. A machine is known by its lowest rank. */
static void find_hosts(wd_comm *base)
{
    MPI_Comm host;
    int first = base->rank, all[base->ranks];
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, base->rank, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &base->host_rank);
    MPI_Comm_size(host, &base->host_ranks);
    MPI_Bcast(&first, 1, MPI_INT, 0, host);
    MPI_Allgather(&first, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Comm_free(&host);
    for (int r = 0; r < base->ranks; r++) {
        if (all[r] != r) continue;
        if (r == first) base->host = base->hosts;
        base->hosts++;
    }
    const int each = base->ranks / base->hosts;
    base->in_blocks = each * base->hosts == base->ranks;
    for (int r = 0; r < base->ranks; r++) base->in_blocks &= all[r] == r - r % each;
}

static void enter(mpi_comm *c)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &c->base.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c->base.ranks);
    find_hosts(&c->base);
    for (int i = 0; i < WD_LANES; i++) MPI_Comm_dup(MPI_COMM_WORLD, &c->lane[i].comm);
}

static void leave(mpi_comm *c)
{
    for (int i = 0; i < WD_LANES; i++) MPI_Comm_free(&c->lane[i].comm);
    MPI_Finalize();
}

/* MPI can be initialized once in a process, and only the thread that did it may call it. */
static wd_status enter_once(mpi_comm *c, wd_err *err)
{
    int before = 0, level;
    MPI_Initialized(&before);
    if (before)
        return wd_fail(err, WD_UNSUPPORTED,
                       "MPI can be entered once in a process, and it has been: start the program "
                       "again for another job of several ranks");
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (level < MPI_THREAD_FUNNELED) {
        MPI_Finalize();
        return wd_fail(err, WD_UNSUPPORTED, "this MPI does not work in a program with threads");
    }
    enter(c);
    return WD_OK;
}

static void *run_thread(void *context)
{
    mpi_comm *c = context;
    const wd_status status = enter_once(c, &c->refusal);
    pthread_mutex_lock(&c->lock);
    c->phase = status == WD_OK ? OPEN : REFUSED;
    pthread_cond_broadcast(&c->moved);
    pthread_mutex_unlock(&c->lock);
    if (status == WD_OK) {
        pthread_setname_np(pthread_self(), "wd-mpi"); /* tools/torture reads it: MPI_Init is done */
        serve(c);
        leave(c);
    }
    return NULL;
}

/* ---- calls from other threads ---- */

static wd_ticket mpi_post(wd_comm *self, const wd_comm_op *op)
{
    mpi_comm *c = (mpi_comm *)self;
    lane *l = &c->lane[op->lane];
    pthread_mutex_lock(&c->lock);
    place *p;
    while ((p = &l->ring[l->posted % WD_LANE_DEPTH])->is_pending)
        pthread_cond_wait(&c->moved, &c->lock);
    p->op = *op;
    p->is_pending = true;
    const wd_ticket ticket = {op->lane, l->posted++};
    c->posts++;
    pthread_cond_signal(&c->called);
    pthread_mutex_unlock(&c->lock);
    return ticket;
}

static void mpi_wait(wd_comm *self, wd_ticket ticket)
{
    mpi_comm *c = (mpi_comm *)self;
    const lane *l = &c->lane[ticket.lane];
    const place *p = &l->ring[ticket.number % WD_LANE_DEPTH];
    pthread_mutex_lock(&c->lock);
    /* where a later operation is in the same place, this one is complete */
    while (p->is_pending && l->posted <= ticket.number + WD_LANE_DEPTH)
        pthread_cond_wait(&c->moved, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void free_comm(mpi_comm *c)
{
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->called);
    pthread_cond_destroy(&c->moved);
    wd_free(c->request);
    wd_free(c);
}

static void end_thread(mpi_comm *c)
{
    pthread_mutex_lock(&c->lock);
    c->phase = CLOSING;
    pthread_cond_signal(&c->called);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
}

static void mpi_close(wd_comm *self)
{
    mpi_comm *c = (mpi_comm *)self;
    wd_comm_barrier(self);
    end_thread(c);
    free_comm(c);
}

static const wd_comm_vtable mpi_vtable = {
    .post = mpi_post,
    .wait = mpi_wait,
    .close = mpi_close,
};

/* Waits until the thread has initialized MPI, or has failed to. */
static wd_status start_thread(mpi_comm *c, wd_err *err)
{
    if (pthread_create(&c->thread, NULL, run_thread, c))
        return wd_fail(err, WD_OUT_OF_MEMORY, "no thread can be started for MPI");
    pthread_mutex_lock(&c->lock);
    while (c->phase == OPENING) pthread_cond_wait(&c->moved, &c->lock);
    pthread_mutex_unlock(&c->lock);
    if (c->phase == OPEN) return WD_OK;
    pthread_join(c->thread, NULL);
    return wd_fail(err, c->refusal.status, "%s", c->refusal.message);
}

static wd_status open_places(mpi_comm *c, wd_err *err)
{
    const size_t each = 2 * (size_t)c->base.ranks;
    WD_TRY(wd_alloc((void **)&c->request, WD_LANES * WD_LANE_DEPTH * each, sizeof *c->request,
                    "a communicator", err));
    for (int i = 0; i < WD_LANES; i++)
        for (int n = 0; n < WD_LANE_DEPTH; n++)
            c->lane[i].ring[n].request = c->request + (size_t)(i * WD_LANE_DEPTH + n) * each;
    return WD_OK;
}

wd_status wd_comm_need_mpi(wd_err *err)
{
    (void)err;
    return WD_OK;
}

wd_status wd_comm_open_mpi(wd_comm **out, wd_err *err)
{
    mpi_comm *c;
    WD_TRY(wd_alloc((void **)&c, 1, sizeof *c, "a communicator", err));
    c->base = (wd_comm){.vtable = &mpi_vtable, .name = "mpi"};
    pthread_mutex_init(&c->lock, NULL);
    wd_cond_init(&c->called);
    pthread_cond_init(&c->moved, NULL);
    wd_status status = start_thread(c, err);
    if (status == WD_OK && (status = open_places(c, err)) != WD_OK) end_thread(c);
    if (status != WD_OK)
        free_comm(c);
    else
        *out = &c->base;
    return status;
}
