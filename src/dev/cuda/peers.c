/* Peers of NVIDIA GPUs (dev/peers.h), by NCCL.
 *
 * A communicator is opened without blocking: its functions return at once, and whoever called them
 * asks ncclCommGetAsyncError until they are done, so that nothing of ours waits inside NCCL. Of its
 * operations only sends and receives are used: those that add follow the topology in their order of
 * addition.
 *
 * When a peer is gone, or NCCL has failed, kernels of exchanges that are under way go on without
 * end, and whoever waits for the stream hangs. So a thread asks NCCL a few times a second how it is
 * doing, and tells who opened the peers, who ends the process. ncclCommAbort is not called: it may
 * wait, and nothing comes after it.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/thread.h"
#include "dev/cuda/impl.h"
#include "dev/library_memory.h"

typedef struct cuda_peers {
    wd_peers base;
    const wd_cuda_nccl *nccl;
    wd_nccl_comm comm;
    double until;         /* when an exchange must be on its stream; INFINITY once they are open */
    wd_event *last;       /* the last exchange is done: the next may be on another queue */
    pthread_mutex_t lock; /* of the communicator: NCCL's functions are not for several threads */
    wd_peers_fault_fn *on_fault;
    void *context;
    bool looks; /* there is a thread that looks after it */
    pthread_t thread;
    pthread_mutex_t gate; /* of: */
    pthread_cond_t changed;
    bool closing;
} cuda_peers;

static const double open_usual_s = 120, close_s = 10, look_s = 0.2;

static bool is_bad(wd_nccl_result result)
{
    return result != WD_NCCL_SUCCESS && result != WD_NCCL_IN_PROGRESS;
}

/* "cuda:0 (...): what: unhandled system error (what NCCL says of it)". */
static wd_status fail(wd_err *err, const wd_cuda_nccl *nccl, const wd_device *device,
                      wd_nccl_result result, const char *what)
{
    const char *text = nccl->get_error_string(result), *more = nccl->get_last_error(NULL);
    if (!text) text = "an unknown error";
    if (!more) more = "";
    return wd_fail(err, WD_DEVICE_FAULT,
                   "%s: NCCL, %s: %s (%.*s). NCCL_DEBUG=INFO in the environment makes it say more; "
                   "--nccl off exchanges gradients by way of host memory",
                   device->name, what, text, (int)strcspn(more, "\n"), more);
}

static void keep(const cuda_peers *p, wd_nccl_result result, const char *what)
{
    wd_err err = {0};
    fail(&err, p->nccl, p->base.device, result, what);
    wd__cuda_keep_fault(wd__cuda_of(p->base.device), &err);
}

/* ---- what NCCL has been told is done ---- */

/* Sleeps between two looks at an operation that takes microseconds, or, at the start, seconds;
 * `looks`: the number of looks so far. */
static void pause_between(int64_t looks)
{
    const struct timespec soon = {0, looks < 100 ? 1000 : 200000};
    nanosleep(&soon, NULL);
}

/* Returns when the communicator has done what it was told, with how that went; IN_PROGRESS: it has
 * not by `until`. */
static wd_nccl_result wait_until_done(const cuda_peers *p, double until)
{
    for (int64_t looks = 0;; looks++) {
        wd_nccl_result state = WD_NCCL_SUCCESS;
        const wd_nccl_result asked = p->nccl->comm_get_async_error(p->comm, &state);
        if (is_bad(asked)) return asked;
        if (state != WD_NCCL_IN_PROGRESS || wd_clock_s() > until) return state;
        pause_between(looks);
    }
}

/* ---- exchanges ---- */

static wd_nccl_result put_moves(const cuda_peers *p, wd_cu_stream stream, const wd_peer_move *moves,
                                int count)
{
    const wd_cuda_nccl *nccl = p->nccl;
    wd_nccl_result result = nccl->group_start();
    if (is_bad(result)) return result;
    for (int i = 0; i < count && !is_bad(result); i++) {
        const wd_peer_move *m = &moves[i];
        if (!m->bytes) continue;
        result = m->from ? nccl->send(m->from, m->bytes, WD_NCCL_INT8, m->peer, p->comm, stream)
                         : nccl->receive(m->to, m->bytes, WD_NCCL_INT8, m->peer, p->comm, stream);
    }
    const wd_nccl_result end = nccl->group_end();
    return is_bad(result) ? result : end;
}

/* What comes behind an exchange on the stream may be put there when NCCL has put it there. This
 * function waits for that: while the peers are being opened until their time limit, since the first
 * exchange connects them; later without limit. */
static void cuda_exchange(wd_peers *peers, wd_queue *queue, const wd_peer_move *moves, int count)
{
    cuda_peers *p = (cuda_peers *)peers;
    wd_event_wait_on(queue, p->last);
    if (!wd__cuda_enter(wd__cuda_of(queue->device))) return;
    pthread_mutex_lock(&p->lock);
    wd_nccl_result result = put_moves(p, ((wd_cuda_queue *)queue)->stream, moves, count);
    if (!is_bad(result)) result = wait_until_done(p, p->until);
    pthread_mutex_unlock(&p->lock);
    if (result == WD_NCCL_IN_PROGRESS)
        keep(p, result, "connecting all ranks took too long");
    else if (result != WD_NCCL_SUCCESS)
        keep(p, result, "an exchange");
    wd_event_record(p->last, queue);
}

/* ---- looking after it ---- */

/* While an exchange is put on a stream, the thread that does so sees failures itself. */
static void look(cuda_peers *p)
{
    wd_nccl_result state = WD_NCCL_SUCCESS;
    if (pthread_mutex_trylock(&p->lock)) return;
    const wd_nccl_result asked = p->nccl->comm_get_async_error(p->comm, &state);
    pthread_mutex_unlock(&p->lock);
    if (is_bad(asked)) state = asked;
    if (is_bad(state)) keep(p, state, "while it was exchanging");
}

static void *look_after(void *context)
{
    cuda_peers *p = context;
    wd_err fault = {0};
    pthread_mutex_lock(&p->gate);
    while (!p->closing) {
        const double next = wd_clock_s() + look_s;
        const struct timespec at = {(time_t)next, (long)(1e9 * (next - (double)(time_t)next))};
        pthread_cond_timedwait(&p->changed, &p->gate, &at);
        if (p->closing) break;
        look(p);
        if (wd__cuda_fault(p->base.device, &fault) == WD_OK) continue;
        p->on_fault(p->context, &fault);
        break;
    }
    pthread_mutex_unlock(&p->gate);
    return NULL;
}

static wd_status begin_looking(cuda_peers *p, wd_err *err)
{
    if (!p->on_fault) return WD_OK;
    const int error = wd_thread_start(&p->thread, look_after, p);
    if (error)
        return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no thread for NCCL (error %d)",
                       p->base.device->name, error);
    p->looks = true;
    return WD_OK;
}

static void end_looking(cuda_peers *p)
{
    if (!p->looks) return;
    pthread_mutex_lock(&p->gate);
    p->closing = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->gate);
    pthread_join(p->thread, NULL);
}

/* ---- the check at open ---- */

enum { CHECK_COUNT = 64 }; /* numbers that every two members exchange */

/* Of what `from` tells `to`, number i. */
static int32_t number_of(int from, int to, int i)
{
    return (int32_t)((from * 1009 + to) * 1013 + i);
}

/* `numbers` [2, members, CHECK_COUNT] host: what goes, then room for what comes; `block`: the same
 * on the device. Returns once the exchange is done, or at `p->until`. */
static wd_status exchange_numbers(cuda_peers *p, wd_queue *queue, wd_event *done, int32_t *block,
                                  int32_t *numbers, wd_err *err)
{
    const int members = p->base.members, half = members * CHECK_COUNT;
    const size_t bytes = CHECK_COUNT * sizeof *block;
    wd_peer_move moves[2 * members];
    int count = 0;
    for (int m = 0; m < members; m++) {
        if (m == p->base.member) continue;
        for (int i = 0; i < CHECK_COUNT; i++)
            numbers[m * CHECK_COUNT + i] = number_of(p->base.member, m, i);
        moves[count++] = (wd_peer_move){.peer = m, .from = block + m * CHECK_COUNT, .bytes = bytes};
        moves[count++] =
            (wd_peer_move){.peer = m, .to = block + half + m * CHECK_COUNT, .bytes = bytes};
    }
    wd_queue_copy_and_wait(queue, block, numbers, (size_t)half * sizeof *block);
    wd_peers_exchange(&p->base, queue, moves, count);
    wd_event_record(done, queue);
    for (int64_t looks = 0; !wd_event_is_done(done) && wd_clock_s() < p->until; looks++)
        pause_between(looks);
    WD_TRY(wd__cuda_fault(p->base.device, err));
    if (!wd_event_is_done(done))
        return wd_fail(err, WD_DEVICE_FAULT,
                       "%s: NCCL has connected all ranks, but what they exchange does not come. "
                       "NCCL_DEBUG=INFO in the environment makes it say more; --nccl off exchanges "
                       "gradients by way of host memory",
                       p->base.device->name);
    wd_queue_copy_and_wait(queue, numbers, block, 2 * (size_t)half * sizeof *block);
    return wd__cuda_fault(p->base.device, err);
}

static wd_status compare_numbers(const cuda_peers *p, const int32_t *came, wd_err *err)
{
    for (int m = 0; m < p->base.members; m++)
        for (int i = 0; i < CHECK_COUNT && m != p->base.member; i++)
            if (came[m * CHECK_COUNT + i] != number_of(m, p->base.member, i))
                return wd_fail(err, WD_DEVICE_FAULT,
                               "%s: what rank %d sent by NCCL is not what came: expected %d, found "
                               "%d. --nccl off exchanges gradients by way of host memory",
                               p->base.device->name, m, number_of(m, p->base.member, i),
                               came[m * CHECK_COUNT + i]);
    return WD_OK;
}

/* What a check needs of the device. */
typedef struct checking {
    wd_queue *queue;
    wd_event *done;
    void *block;
} checking;

static void close_checking(const checking *c, wd_device *device)
{
    wd_queue_close(c->queue);
    wd_event_close(c->done);
    wd_device_free(device, c->block);
}

static wd_status open_checking(checking *c, wd_device *device, size_t bytes, wd_err *err)
{
    wd_status status;
    WD_TRY_OUT(wd_queue_open(&c->queue, device, err));
    WD_TRY_OUT(wd_event_open(&c->done, device, err));
    WD_TRY_OUT(wd_device_alloc(&c->block, device, bytes, "NCCL's check", err));
out:
    if (status != WD_OK) close_checking(c, device);
    return status;
}

/* Every two members exchange some numbers, and compare what came with what was sent. NCCL makes a
 * connection when it is first used, so this makes all connections. WD_DEVICE_FAULT: other numbers
 * came, or none before `p->until`; then queue and memory are left as they are, for to give them
 * back would wait for the exchange. */
static wd_status cuda_peers_check(cuda_peers *p, wd_err *err)
{
    wd_device *device = p->base.device;
    checking c = {0};
    int32_t *numbers;
    const size_t half = (size_t)p->base.members * CHECK_COUNT, bytes = 2 * half * sizeof *numbers;
    WD_TRY(wd_alloc((void **)&numbers, 1, bytes, "NCCL's check", err));
    wd_status status = open_checking(&c, device, bytes, err);
    if (status == WD_OK) {
        status = exchange_numbers(p, c.queue, c.done, c.block, numbers, err);
        if (status == WD_OK) {
            close_checking(&c, device);
            status = compare_numbers(p, numbers + half, err);
        }
    }
    wd_free(numbers);
    return status;
}

/* ---- open and close ---- */

static wd_status free_bytes(size_t *out, const wd_device *device, wd_err *err)
{
    size_t total;
    const wd_cuda_driver *driver = wd__cuda_driver_of(wd__cuda_of(device));
    const wd_cu_result result = driver->mem_get_info(out, &total);
    if (!result) return WD_OK;
    return wd__cuda_fail(err, driver, result, "%s: its memory", device->name);
}

static wd_status connect(cuda_peers *p, const wd_peers_options *o, wd_err *err)
{
    wd_nccl_key key;
    wd_nccl_config config = {.size = sizeof config,
                             .magic = WD_NCCL_MAGIC,
                             .version = WD_NCCL_CONFIG_VERSION,
                             .blocking = 0,
                             .cluster_size = WD_NCCL_UNDEFINED};
    _Static_assert(sizeof key == WD_PEERS_KEY_BYTES, "a key");
    memcpy(&key, o->key, sizeof key);
    wd_nccl_result result = p->nccl->comm_open(&p->comm, o->members, key, o->member, &config);
    if (!is_bad(result)) result = wait_until_done(p, p->until);
    if (result == WD_NCCL_SUCCESS) return WD_OK;
    return fail(err, p->nccl, p->base.device, result,
                result == WD_NCCL_IN_PROGRESS ? "some ranks do not come" : "connecting all ranks");
}

static wd_status open_peers(cuda_peers *p, const wd_peers_options *o, wd_err *err)
{
    wd_device *device = p->base.device;
    size_t before, after;
    p->until = wd_clock_s() + (o->open_s > 0 ? o->open_s : open_usual_s);
    if (!wd__cuda_enter(wd__cuda_of(device))) return wd__cuda_fault(device, err);
    WD_TRY(free_bytes(&before, device, err));
    WD_TRY(wd_event_open(&p->last, device, err));
    WD_TRY(connect(p, o, err));
    WD_TRY(cuda_peers_check(p, err));
    p->until = (double)INFINITY;
    WD_TRY(free_bytes(&after, device, err));
    wd_device_reserve_more_beside(device, before > after ? before - after : 0);
    return begin_looking(p, err);
}

/* The communicator itself is NCCL's, and left to it where something has failed. Of a device that
 * has failed nothing is closed, for that would wait for it. */
static void free_peers(cuda_peers *p)
{
    if (!wd__cuda_of(p->base.device)->failed) wd_event_close(p->last);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->gate);
    pthread_cond_destroy(&p->changed);
    wd_free(p);
}

static wd_status cuda_peers_open(wd_peers **out, wd_device *device, const wd_peers_options *options,
                                 wd_err *err)
{
    cuda_peers *p;
    const wd_cuda_api *api;
    WD_TRY(wd__cuda_api_need(&api, WD_CUDA_NCCL, err));
    WD_TRY(wd_alloc((void **)&p, 1, sizeof *p, "peers", err));
    *p = (cuda_peers){.base = {.kind = &wd_cuda_peers_kind,
                               .device = device,
                               .member = options->member,
                               .members = options->members},
                      .nccl = &api->nccl,
                      .on_fault = options->on_fault,
                      .context = options->context};
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->gate, NULL);
    wd_cond_init(&p->changed);
    const wd_status status = open_peers(p, options, err);
    if (status == WD_OK)
        *out = &p->base;
    else
        free_peers(p);
    return status;
}

static void cuda_peers_close(wd_peers *peers)
{
    cuda_peers *p = (cuda_peers *)peers;
    wd_cuda_device *d = wd__cuda_of(peers->device);
    end_looking(p);
    if (wd__cuda_enter(d)) {
        wd_nccl_result result = p->nccl->comm_finalize(p->comm);
        if (!is_bad(result)) result = wait_until_done(p, wd_clock_s() + close_s);
        if (result == WD_NCCL_SUCCESS)
            p->nccl->comm_destroy(p->comm);
        else
            wd_log(WD_LOG_WARNING, "%s: NCCL did not end in order: %s", peers->device->name,
                   p->nccl->get_error_string(result));
    }
    free_peers(p);
}

/* ---- before there are any ---- */

static wd_status cuda_peers_offer(wd_peers_offer *out, wd_device *device, wd_err *err)
{
    wd_cuda_device *d = wd__cuda_of(device);
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    const wd_cuda_api *api;
    int version = 0;
    WD_TRY(wd__cuda_api_need(&api, WD_CUDA_NCCL, err));
    const wd_nccl_result result = api->nccl.get_version(&version);
    if (result) return fail(err, &api->nccl, device, result, "its version");
    snprintf(out->library, sizeof out->library, "NCCL %d.%d.%d", version / 10000,
             version / 100 % 100, version % 100);
    const wd_cu_result named =
        driver->device_get_pci_bus_id(out->hardware, sizeof out->hardware, d->gpu.number);
    return named ? wd__cuda_fail(err, driver, named, "%s: its bus", device->name) : WD_OK;
}

static wd_status cuda_peers_key(unsigned char key[WD_PEERS_KEY_BYTES], wd_device *device,
                                wd_err *err)
{
    const wd_cuda_api *api;
    wd_nccl_key made;
    WD_TRY(wd__cuda_api_need(&api, WD_CUDA_NCCL, err));
    const wd_nccl_result result = api->nccl.get_key(&made);
    if (result) return fail(err, &api->nccl, device, result, "a key for the job");
    memcpy(key, &made, sizeof made);
    return WD_OK;
}

const wd_peers_kind wd_cuda_peers_kind = {
    .offer = cuda_peers_offer,
    .make_key = cuda_peers_key,
    .open = cuda_peers_open,
    .exchange = cuda_exchange,
    .close = cuda_peers_close,
};
