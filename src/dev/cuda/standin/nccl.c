/* See nccl.h. An exchange is two pieces of work on its stream: the first begins it, which is when
 * what it sends is read; the second, which comes when all moves that belong to its own have begun,
 * ends it, which is when what came is written. The lock of the stand-in driver is held during every
 * call. */
#include "dev/cuda/standin/nccl.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dev/cuda/standin/impl.h"

enum { RANKS_MAX = WD_STANDIN_NCCL_RANKS_MAX, MOVES_MAX = 256, VERSION = 22809 };

/* Data under way. */
typedef struct message {
    struct message *next;
    int64_t number; /* of those from one rank to another */
    size_t bytes;
    unsigned char data[];
} message;

/* What goes from one rank to another. */
typedef struct route {
    int64_t sent, received; /* moves that have begun, of both ends */
    message *first;
} route;

/* The ranks of one key. */
typedef struct clique {
    struct clique *next;
    wd_nccl_key key;
    int ranks, joined, finalized, open;
    int device[RANKS_MAX];
    bool fails;
    route route[RANKS_MAX][RANKS_MAX];
    struct exchange *exchanges; /* all that there were */
} clique;

typedef struct move {
    int peer;
    const void *from; /* NULL: it is a receive */
    void *to;
    size_t bytes;
    int64_t number;
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
    clique *of;
    int rank, device;
    exchange *asked; /* not yet on its stream */
    int looks;       /* until what was asked for last is done */
    wd_nccl_result error;
    int looks_to_error; /* 0: there is none to come */
    bool finalized;
};

static clique *cliques;
static int64_t keys;
static wd_standin_nccl_counts counts;
static _Thread_local exchange *group; /* what the thread asks for */
static _Thread_local wd_nccl_result group_result;

wd_standin_nccl_faults wd_the_standin_nccl_faults;

/* ---- on streams ---- */

static route *route_of(const exchange *x, const move *m)
{
    clique *of = x->comm->of;
    return m->from ? &of->route[x->comm->rank][m->peer] : &of->route[m->peer][x->comm->rank];
}

static void run_begin(const void *argument, uint64_t seed)
{
    exchange *x = *(exchange *const *)argument;
    (void)seed;
    for (int i = 0; i < x->count; i++) {
        move *m = &x->move[i];
        route *r = route_of(x, m);
        m->number = m->from ? ++r->sent : ++r->received;
        if (!m->from) continue;
        message *new = malloc(sizeof *new + m->bytes);
        if (!new) abort();
        *new = (message){.next = r->first, .number = m->number, .bytes = m->bytes};
        memcpy(new->data, m->from, m->bytes);
        if (x->garbles) new->data[0] ^= 1;
        r->first = new;
    }
}

static bool may_end(const void *argument)
{
    const exchange *x = *(exchange *const *)argument;
    if (x->hangs) return false;
    for (int i = 0; i < x->count; i++) {
        const move *m = &x->move[i];
        const route *r = route_of(x, m);
        if ((m->from ? r->received : r->sent) < m->number) return false;
    }
    return true;
}

static void receive(const exchange *x, const move *m)
{
    message **at = &route_of(x, m)->first;
    while (*at && (*at)->number != m->number) at = &(*at)->next;
    message *came = *at;
    if (!came || came->bytes != m->bytes) {
        fprintf(stderr, "NCCL's stand-in: rank %d expects %zu bytes of rank %d and gets %zu\n",
                x->comm->rank, m->bytes, m->peer, came ? came->bytes : 0);
        abort();
    }
    memcpy(m->to, came->data, m->bytes);
    *at = came->next;
    free(came);
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
    const wd_standin_work begin = {.run = run_begin, .reach = reach};
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
    wd_standin_lock();
    memset(key, 0, sizeof *key);
    snprintf(key->internal, sizeof key->internal, "key %lld", (long long)++keys);
    wd_standin_leave(WD_CU_SUCCESS);
    return WD_NCCL_SUCCESS;
}

static clique *clique_of(const wd_nccl_key *key, int ranks)
{
    clique *c = cliques;
    while (c && memcmp(&c->key, key, sizeof *key)) c = c->next;
    if (c) return c;
    c = calloc(1, sizeof *c);
    if (!c) abort();
    *c = (clique){.next = cliques, .key = *key, .ranks = ranks};
    return cliques = c;
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
    clique *c = clique_of(&key, ranks);
    for (int i = 0; i < c->joined; i++) c->fails |= c->device[i] == device;
    c->fails |= c->ranks != ranks || wd_the_standin_nccl_faults.open_member == rank + 1;
    c->device[c->joined++] = device;
    c->open++;
    *out = calloc(1, sizeof **out);
    if (!*out) abort();
    **out = (struct ncclComm){.of = c, .rank = rank, .device = device};
    start_looks(*out);
    wd_standin_use_memory(device, wd_the_standin_nccl_faults.bytes_opened);
    wd_standin_leave(WD_CU_SUCCESS);
    return WD_NCCL_IN_PROGRESS;
}

static wd_nccl_result state_of(wd_nccl_comm comm)
{
    clique *c = comm->of;
    if (comm->looks_to_error && !--comm->looks_to_error) comm->error = WD_NCCL_REMOTE_ERROR;
    if (comm->error) return comm->error;
    if (c->fails) return comm->error = WD_NCCL_INVALID_USAGE;
    if (c->joined < c->ranks || is_stuck(comm)) return WD_NCCL_IN_PROGRESS;
    if (comm->looks && --comm->looks) return WD_NCCL_IN_PROGRESS;
    if (comm->asked) put(comm);
    return comm->finalized && c->finalized < c->ranks ? WD_NCCL_IN_PROGRESS : WD_NCCL_SUCCESS;
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
    comm->of->finalized++;
    start_looks(comm);
    wd_standin_leave(WD_CU_SUCCESS);
    return WD_NCCL_IN_PROGRESS;
}

static void free_clique(clique *c)
{
    clique **at = &cliques;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    for (int i = 0; i < RANKS_MAX * RANKS_MAX; i++)
        for (message *m = c->route[i / RANKS_MAX][i % RANKS_MAX].first, *next; m; m = next) {
            next = m->next;
            free(m);
        }
    for (exchange *x = c->exchanges, *next; x; x = next) {
        next = x->next;
        free(x);
    }
    free(c);
}

static wd_nccl_result comm_destroy(wd_nccl_comm comm)
{
    wd_standin_lock();
    clique *c = comm->of;
    assert(comm->finalized && c->finalized == c->ranks);
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
                      m->peer < comm->of->ranks && m->peer != comm->rank && !comm->asked &&
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
    x->next = comm->of->exchanges;
    comm->of->exchanges = comm->asked = x;
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
