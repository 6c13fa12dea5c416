/* NCCL with one rank, which sends to itself: what one GPU can show of exchanges between GPUs. On
 * the stand-ins of driver and NCCL, and, built once more, on a GPU (kernels/tested_gpu.h). */
#include "testing.h"

#include "dev/cuda/impl.h"
#include "kernels/tested_gpu.h"

enum { COUNT = 70000, ROUNDS = 8 };

typedef struct rig {
    wd_device *device;
    wd_queue *queue;
    wd_peers *peers;
    float *out, *in, *host; /* [COUNT] device, [COUNT] device, [ROUNDS][COUNT] pinned */
} rig;

static int open_rig(void **state)
{
    static rig r;
    wd_err err = {0};
    wd_peers_offer offer;
    wd_peers_options options = {.members = 1, .open_s = 20};
    const size_t bytes = COUNT * sizeof(float);
    tested_gpu_begin(true);
    tested_gpu_require(wd_device_open_cuda(&r.device, tested_gpu_number(), &err), "a GPU", &err);
    tested_gpu_require(wd_peers_offer_of(&offer, r.device, &err), "NCCL", &err);
    printf("%s, GPU %s\n", offer.library, offer.hardware);
    wd_test_ok(wd_peers_make_key(options.key, r.device, &err), &err);
    const size_t before = wd_device_bytes_max(r.device);
    wd_test_ok(wd_peers_open(&r.peers, r.device, &options, &err), &err);
    printf("NCCL takes %zu bytes of the GPU\n", before - wd_device_bytes_max(r.device));
    wd_test_ok(wd_queue_open(&r.queue, r.device, &err), &err);
    wd_test_ok(wd_device_alloc((void **)&r.out, r.device, bytes, "out", &err), &err);
    wd_test_ok(wd_device_alloc((void **)&r.in, r.device, bytes, "in", &err), &err);
    wd_test_ok(wd_host_alloc((void **)&r.host, r.device, ROUNDS * bytes, "host", &err), &err);
    *state = &r;
    return 0;
}

static int close_rig(void **state)
{
    rig *r = *state;
    wd_peers_close(r->peers);
    wd_host_free(r->device, r->host);
    wd_device_free(r->device, r->in);
    wd_device_free(r->device, r->out);
    wd_queue_close(r->queue);
    wd_device_close(r->device);
#ifdef WD_ON_STANDIN
    assert_int_equal(wd_standin_remove(), 0);
#endif
    return 0;
}

static void fill(rig *r, float *to, int64_t count, float value)
{
    wd_op_fill(r->queue, &(wd_fill_args){.to = to, .type = WD_F32, .count = count, .value = value});
}

/* Every round sends what launches before it have made, in two messages, and a later copy takes what
 * came; the host waits once, at the end. */
static void what_is_sent_arrives(void **state)
{
    rig *r = *state;
    wd_err err = {0};
    const int64_t part = COUNT / 3;
    const size_t first = (size_t)part * sizeof(float),
                 rest = (COUNT - (size_t)part) * sizeof(float);
    for (int round = 0; round < ROUNDS; round++) {
        const wd_peer_move moves[] = {{.peer = 0, .from = r->out, .bytes = first},
                                      {.peer = 0, .to = r->in, .bytes = first},
                                      {.peer = 0, .from = r->out + part, .bytes = rest},
                                      {.peer = 0, .to = r->in + part, .bytes = rest}};
        fill(r, r->out, part, (float)(100 * round + 1));
        fill(r, r->out + part, COUNT - part, (float)(100 * round + 2));
        fill(r, r->in, COUNT, -1);
        /* not wd_peers_exchange, which lets no rank of a job send to itself */
        wd_cuda_peers_kind.exchange(r->peers, r->queue, moves, 4);
        wd_queue_copy(r->queue, r->host + (size_t)round * COUNT, r->in, COUNT * sizeof(float));
    }
    wd_queue_wait(r->queue);
    wd_test_ok(wd_device_fault(r->device, &err), &err);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < COUNT; i++)
            assert_true(r->host[(size_t)round * COUNT + (size_t)i] ==
                        (float)(100 * round + (i < part ? 1 : 2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_sent_arrives)};
    return cmocka_run_group_tests_name("a lone peer", tests, open_rig, close_rig);
}
