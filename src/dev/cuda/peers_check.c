/* The check of peers when they are opened (dev/cuda/peers_impl.h): an exchange of known numbers
 * among all members. */
#include "core/clock.h"
#include "core/memory.h"
#include "dev/cuda/peers_impl.h"

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
        wd_cuda_peers_pause(looks);
    WD_TRY(wd_cuda_fault(p->base.device, err));
    if (!wd_event_is_done(done))
        return wd_fail(err, WD_DEVICE_FAULT,
                       "%s: NCCL has connected all ranks, but what they exchange does not come. "
                       "NCCL_DEBUG=INFO in the environment makes it say more; --nccl off exchanges "
                       "gradients by way of host memory",
                       p->base.device->name);
    wd_queue_copy_and_wait(queue, numbers, block, 2 * (size_t)half * sizeof *block);
    return wd_cuda_fault(p->base.device, err);
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

/* Where nothing comes, queue and memory are left as they are: to give them back would wait for it.
 */
wd_status wd_cuda_peers_check(cuda_peers *p, wd_err *err)
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
