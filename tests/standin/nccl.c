/* See nccl.h. An exchange is two pieces of work on its stream: the first begins it, which is when
 * what it sends is read; the second, which comes when all moves that belong to its own have begun,
 * ends it, which is when what came is written. The lock of the stand-in driver is held during every
 * call. */
#include "standin/nccl.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin/impl.h"
#include "standin/nccl_clique.h"

enum { RANKS_MAX = WD_STANDIN_NCCL_RANKS_MAX, MOVES_MAX = 256, VERSION = 22809 };

/* The ranks of one key as this process sees them. */
typedef struct clique {
    struct clique *next;
    wd_nccl_key key;
    wd_nccl_clique *shared;
    int open;                   /* communicators of this process */
    struct exchange *exchanges; /* all that there were in this process */
} clique;

typedef struct move {
    int peer;
    const void *from; /* NULL: it is a receive */
    void *to;
    size_t bytes;
    int64_t number; /* of those from one rank to another */
} move;

typedef struct exchange {
    struct exchange *next; /* of the same ranks */
    wd_nccl_comm comm;
    wd_cu_stream stream;
    int count;
    bool hangs, garbles;
    move move[]; /* [count]; of what a thread is asking for [MOVES_MAX] */
} exchange;

struct ncclComm {
    clique *clique;
    int rank, device;
    exchange *asked; /* not yet on its stream */
    int looks;       /* until what was asked for last is done */
    wd_nccl_result error;
    int looks_to_error; /* 0: there is none to come */
    bool finalized;
};

static clique *cliques;
static wd_standin_nccl_counts counts;
static _Thread_local exchange *group; /* what the thread asks for */
static _Thread_local wd_nccl_result group_result;

wd_standin_nccl_faults wd_the_standin_nccl_faults;

/* ---- on streams ---- */

static wd_nccl_route *route_of(const exchange *x, const move *m)
{
    wd_nccl_clique *shared = x->comm->clique->shared;
    return m->from ? &shared->route[x->comm->rank][m->peer]
                   : &shared->route[m->peer][x->comm->rank];
}

static bool may_begin(const void *argument)
{
    const exchange *x = *(exchange *const *)argument;
    size_t bytes[RANKS_MAX] = {0};
    for (int i = 0; i < x->count; i++) {
        const move *m = &x->move[i];
        if (!m->from) continue;
        bytes[m->peer] += sizeof m->bytes + m->bytes;
        if (!wd_nccl_route_has_room(route_of(x, m), bytes[m->peer])) return false;
    }
    return true;
}

static void send(const exchange *x, const move *m)
{
    wd_nccl_route *r = route_of(x, m);
    const int64_t at = atomic_load(&r->put);
    wd_nccl_route_put(r, m->from, m->bytes);
    if (x->garbles) r->data[(at + (int64_t)sizeof m->bytes) % WD_NCCL_ROUTE_BYTES] ^= 1;
}

static void run_begin(const void *argument, uint64_t seed)
{
    exchange *x = *(exchange *const *)argument;
    (void)seed;
    for (int i = 0; i < x->count; i++) {
        move *m = &x->move[i];
        wd_nccl_route *r = route_of(x, m);
        if (m->from) send(x, m);
        m->number = 1 + atomic_fetch_add(m->from ? &r->sends : &r->receives, 1);
    }
}

static bool may_end(const void *argument)
{
    const exchange *x = *(exchange *const *)argument;
    if (x->hangs) return false;
    for (int i = 0; i < x->count; i++) {
        const move *m = &x->move[i];
        wd_nccl_route *r = route_of(x, m);
        if (atomic_load(m->from ? &r->receives : &r->sends) < m->number) return false;
    }
    return true;
}

static void receive(const exchange *x, const move *m)
{
    const size_t came = wd_nccl_route_take(route_of(x, m), m->to, m->bytes);
    if (came == m->bytes) return;
    fprintf(stderr, "NCCL's stand-in: rank %d expects %zu bytes of rank %d and gets %zu\n",
            x->comm->rank, m->bytes, m->peer, came);
    abort();
}

static void run_end(const void *argument, uint64_t seed)
{
    exchange *x = *(exchange *const *)argument;
    (void)seed;
    for (int i = 0; i < x->count; i++)
        if (!x->move[i].from) receive(x, &x->move[i]);
}

static void put(wd_nccl_comm comm)
{
    exchange *x = comm->asked;
    const unsigned reach = 1u << comm->device;
    comm->asked = NULL;
    const wd_standin_work begin = {.run = run_begin, .ready = may_begin, .reach = reach};
    const wd_standin_work end = {.run = run_end, .ready = may_end, .reach = reach};
    wd_standin_submit(x->stream, &begin, &x, sizeof x);
    wd_standin_submit(x->stream, &end, &x, sizeof x);
}

/* ---- communicators ---- */

static void hang_in(wd_standin_nccl_hang call)
{
    while (wd_the_standin_nccl_faults.hangs == call) pause();
}

/* Whether what this communicator was told last remains in progress. */
static bool is_stuck(wd_nccl_comm comm)
{
    const wd_standin_nccl_hang hangs = wd_the_standin_nccl_faults.hangs;
    return hangs == WD_STANDIN_NCCL_NEVER_OPENS ||
           (hangs == WD_STANDIN_NCCL_NEVER_EXCHANGES && comm->asked);
}

static wd_nccl_result get_version(int *version)
{
    *version = VERSION;
    return WD_NCCL_SUCCESS;
}

static wd_nccl_result get_key(wd_nccl_key *key)
{
    hang_in(WD_STANDIN_NCCL_HANGS_IN_GET_KEY);
    wd_nccl_clique_make_key(key);
    return WD_NCCL_SUCCESS;
}

/* NULL: no such key was made. */
static clique *clique_of(const wd_nccl_key *key)
{
    clique *c = cliques;
    while (c && memcmp(&c->key, key, sizeof *key)) c = c->next;
    if (c) return c;
    wd_nccl_clique *shared = wd_nccl_clique_open(key);
    if (!shared) return NULL;
    c = calloc(1, sizeof *c);
    if (!c) abort();
    *c = (clique){.next = cliques, .key = *key, .shared = shared};
    return cliques = c;
}

static void join(wd_nccl_clique *c, int ranks, int rank, int device)
{
    int expected = 0;
    if (!atomic_compare_exchange_strong(&c->ranks, &expected, ranks) && expected != ranks)
        atomic_store(&c->fails, true);
    if (wd_the_standin_nccl_faults.open_member == rank + 1) atomic_store(&c->fails, true);
    expected = 0;
    if (!atomic_compare_exchange_strong(&c->device[rank], &expected, device + 1))
        atomic_store(&c->fails, true);
}

static void start_looks(wd_nccl_comm comm)
{
    comm->looks = 1 + (int)wd_standin_random(3);
}

static wd_nccl_result comm_open(wd_nccl_comm *out, int ranks, wd_nccl_key key, int rank,
                                wd_nccl_config *config)
{
    hang_in(WD_STANDIN_NCCL_HANGS_IN_OPEN);
    if (wd_standin_enter(true)) return WD_NCCL_UNHANDLED_CUDA_ERROR;
    const int device = wd_standin_current()->device;
    if (config->size != sizeof *config || config->magic != WD_NCCL_MAGIC ||
        config->version != WD_NCCL_CONFIG_VERSION || config->blocking || ranks > RANKS_MAX ||
        rank < 0 || rank >= ranks) {
        wd_standin_leave(WD_CU_SUCCESS);
        return WD_NCCL_INVALID_ARGUMENT;
    }
    clique *c = clique_of(&key);
    if (!c) {
        wd_standin_leave(WD_CU_SUCCESS);
        return WD_NCCL_INVALID_ARGUMENT;
    }
    join(c->shared, ranks, rank, device);
    c->open++;
    *out = calloc(1, sizeof **out);
    if (!*out) abort();
    **out = (struct ncclComm){.clique = c, .rank = rank, .device = device};
    start_looks(*out);
    wd_standin_use_memory(device, wd_the_standin_nccl_faults.bytes_opened);
    wd_standin_leave(WD_CU_SUCCESS);
    return WD_NCCL_IN_PROGRESS;
}

static wd_nccl_result state_of(wd_nccl_comm comm)
{
    wd_nccl_clique *c = comm->clique->shared;
    const int joined = wd_nccl_clique_joined(c), ranks = atomic_load(&c->ranks);
    if (comm->looks_to_error && !--comm->looks_to_error) comm->error = WD_NCCL_REMOTE_ERROR;
    if (comm->error) return comm->error;
    if (atomic_load(&c->fails)) return comm->error = WD_NCCL_INVALID_USAGE;
    if (joined < ranks || is_stuck(comm)) return WD_NCCL_IN_PROGRESS;
    if (comm->looks && --comm->looks) return WD_NCCL_IN_PROGRESS;
    if (comm->asked) put(comm);
    return comm->finalized && atomic_load(&c->finalized) < ranks ? WD_NCCL_IN_PROGRESS
                                                                 : WD_NCCL_SUCCESS;
}

static wd_nccl_result comm_get_async_error(wd_nccl_comm comm, wd_nccl_result *result)
{
    wd_standin_lock();
    *result = state_of(comm);
    wd_standin_leave(WD_CU_SUCCESS);
    return WD_NCCL_SUCCESS;
}

static wd_nccl_result comm_finalize(wd_nccl_comm comm)
{
    wd_standin_lock();
    assert(!comm->asked && !comm->finalized);
    comm->finalized = true;
    atomic_fetch_add(&comm->clique->shared->finalized, 1);
    start_looks(comm);
    wd_standin_leave(WD_CU_SUCCESS);
    return WD_NCCL_IN_PROGRESS;
}

static void free_clique(clique *c)
{
    clique **at = &cliques;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    for (exchange *x = c->exchanges, *next; x; x = next) {
        next = x->next;
        free(x);
    }
    wd_nccl_clique_close(c->shared, &c->key);
    free(c);
}

static wd_nccl_result comm_destroy(wd_nccl_comm comm)
{
    wd_standin_lock();
    clique *c = comm->clique;
    assert(comm->finalized && atomic_load(&c->shared->finalized) == atomic_load(&c->shared->ranks));
    wd_standin_use_memory(comm->device, -wd_the_standin_nccl_faults.bytes_opened);
    free(comm);
    if (!--c->open) free_clique(c);
    wd_standin_leave(WD_CU_SUCCESS);
    return WD_NCCL_SUCCESS;
}

/* ---- what is said of failures ---- */

static const char *get_error_string(wd_nccl_result result)
{
    switch (result) {
    case WD_NCCL_SYSTEM_ERROR:
        return "unhandled system error";
    case WD_NCCL_INVALID_USAGE:
        return "invalid usage";
    case WD_NCCL_REMOTE_ERROR:
        return "remote process exited or there was a network error";
    case WD_NCCL_IN_PROGRESS:
        return "NCCL operation in progress";
    default:
        return "unknown result code";
    }
}

static const char *get_last_error(wd_nccl_comm comm)
{
    (void)comm;
    return "said by NCCL's stand-in\nand a second line";
}

/* ---- exchanges ---- */

static wd_nccl_result group_start(void)
{
    assert(!group);
    group = calloc(1, sizeof *group + MOVES_MAX * sizeof *group->move);
    if (!group) abort();
    group_result = WD_NCCL_SUCCESS;
    return WD_NCCL_SUCCESS;
}

static wd_nccl_result add(const move *m, wd_nccl_type type, wd_nccl_comm comm, wd_cu_stream stream)
{
    if (wd_standin_enter(true)) return group_result = WD_NCCL_UNHANDLED_CUDA_ERROR;
    const void *memory = m->from ? m->from : m->to;
    const bool fine = group && group->count < MOVES_MAX && type == WD_NCCL_INT8 && m->peer >= 0 &&
                      m->peer < atomic_load(&comm->clique->shared->ranks) && !comm->asked &&
                      !comm->looks &&
                      (!group->comm || (group->comm == comm && group->stream == stream)) &&
                      wd_standin_stream_device(stream) == comm->device &&
                      wd_standin_current()->device == comm->device &&
                      wd_standin_owner((wd_cu_address)(uintptr_t)memory, m->bytes) == comm->device;
    if (fine) {
        group->comm = comm;
        group->stream = stream;
        group->move[group->count++] = *m;
    }
    wd_standin_leave(WD_CU_SUCCESS);
    if (!fine) group_result = WD_NCCL_INVALID_ARGUMENT;
    return fine ? WD_NCCL_SUCCESS : WD_NCCL_INVALID_ARGUMENT;
}

static wd_nccl_result nccl_send(const void *from, size_t count, wd_nccl_type type, int to,
                                wd_nccl_comm comm, wd_cu_stream stream)
{
    return add(&(move){.peer = to, .from = from, .bytes = count}, type, comm, stream);
}

static wd_nccl_result nccl_receive(void *to, size_t count, wd_nccl_type type, int from,
                                   wd_nccl_comm comm, wd_cu_stream stream)
{
    return add(&(move){.peer = from, .to = to, .bytes = count}, type, comm, stream);
}

/* Asks for what the thread's group has. */
static wd_nccl_result ask(exchange *x)
{
    const wd_standin_nccl_faults *f = &wd_the_standin_nccl_faults;
    wd_nccl_comm comm = x->comm;
    if (comm->error) return comm->error;
    counts.exchanges++;
    if (counts.exchanges == f->refused) return comm->error = WD_NCCL_SYSTEM_ERROR;
    for (int i = 0; i < x->count; i++)
        if (x->move[i].from) counts.bytes += (int64_t)x->move[i].bytes;
    x->hangs = counts.exchanges == f->hung;
    x->garbles = counts.exchanges == f->garbled;
    if (x->hangs && f->reports_hung) comm->looks_to_error = 8;
    x->next = comm->clique->exchanges;
    comm->clique->exchanges = comm->asked = x;
    start_looks(comm);
    return WD_NCCL_IN_PROGRESS;
}

static wd_nccl_result group_end(void)
{
    exchange *x = group;
    assert(x && "a group has begun");
    group = NULL;
    x = realloc(x, sizeof *x + (size_t)(x->count + 1) * sizeof *x->move);
    if (!x) abort();
    wd_nccl_result result = group_result;
    if (!result && x->count) {
        wd_standin_lock();
        result = ask(x);
        wd_standin_leave(WD_CU_SUCCESS);
    }
    if (result != WD_NCCL_IN_PROGRESS) free(x);
    return result;
}

/* ---- the table ---- */

void wd_standin_nccl_fill(wd_cuda_api *api)
{
    wd_the_standin_nccl_faults = (wd_standin_nccl_faults){0};
    counts = (wd_standin_nccl_counts){0};
    while (cliques) free_clique(cliques);
    api->nccl = (wd_cuda_nccl){.get_version = get_version,
                               .get_key = get_key,
                               .comm_open = comm_open,
                               .comm_finalize = comm_finalize,
                               .comm_destroy = comm_destroy,
                               .comm_get_async_error = comm_get_async_error,
                               .get_error_string = get_error_string,
                               .get_last_error = get_last_error,
                               .group_start = group_start,
                               .group_end = group_end,
                               .send = nccl_send,
                               .receive = nccl_receive};
    api->has[WD_CUDA_NCCL] = true;
}

int wd_standin_nccl_open(void)
{
    int open = 0;
    wd_standin_lock();
    for (const clique *c = cliques; c; c = c->next) open += c->open;
    wd_standin_leave(WD_CU_SUCCESS);
    return open;
}

wd_standin_nccl_counts wd_standin_nccl_count(void)
{
    wd_standin_lock();
    const wd_standin_nccl_counts now = counts;
    wd_standin_leave(WD_CU_SUCCESS);
    return now;
}
