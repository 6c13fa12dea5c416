/* The ranks of a host have one copy of what is converted, and the bits of a copy of one's own. */
#include "teacher/host_copy.h"

#include "testing.h"

#include "bench/random_transformer.h"
#include "dist/forked_harness.h"
#include "sanitized.h"

enum { RANKS = 4, PAGE = 4096, POOL = 256 << 20 };

static const wd_dit_config config = {.in_channels = 16, .out_channels = 16, .heads = 4,
                                     .head_dim = 128, .ffn_dim = 2048, .layers = 3,
                                     .freq_dim = 64, .text_dim = 64, .patch = {1, 2, 2},
                                     .rope_max_seq_len = 1024, .cross_attn_norm = true,
                                     .eps = 1e-6};

static wd_pipeline large, tiny; /* of this shape, bf16; with two experts */

static int open_pipelines(void **state)
{
    (void)state;
    char folder[256];
    wd_err err = {0};
    snprintf(folder, sizeof folder, "%s/transformer", wd_test_folder());
    wd_test_ok(wd_bench_write_transformer(folder, &config, WD_BF16, &err), &err);
    wd_test_ok(wd_pipeline_open(&large, wd_test_folder(), &err), &err);
    wd_test_ok(wd_pipeline_open(&tiny, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    return 0;
}

/* ---- a rank's teacher ---- */

typedef struct rank {
    wd_device *device, *processor;
    wd_queue *queue, *host;
    wd_residency *residency;
} rank;

static wd_placement all_in(const wd_pipeline *pipeline, wd_home home)
{
    wd_placement p = {.experts = wd_teacher_experts(pipeline),
                      .stages = wd_dit_stages(&pipeline->dit),
                      .slots = 2,
                      .devices = 1,
                      .each = true};
    for (int e = 0; e < p.experts; e++)
        for (int s = 0; s < p.stages; s++) p.place[e][s].home = home;
    return p;
}

/* Devices of a rank whose teacher is on the processor, or comes to a device from host memory. */
static void open_devices(rank *r, wd_home home)
{
    const wd_sim_options sim = {.bytes = POOL};
    wd_err err = {0};
    *r = (rank){0};
    HARNESS_CHECK(!wd_device_open_cpu(&r->processor, 1, &err));
    HARNESS_CHECK(!wd_queue_open(&r->host, r->processor, &err));
    r->device = r->processor;
    r->queue = r->host;
    if (home != WD_HOME_HOST) return;
    HARNESS_CHECK(!wd_device_open_sim(&r->device, &sim, &err));
    HARNESS_CHECK(!wd_queue_open(&r->queue, r->device, &err));
}

static wd_residency *open_teacher(const rank *r, const wd_pipeline *pipeline, wd_home home,
                                  wd_dtype storage, wd_comm *comm)
{
    wd_err err = {0};
    wd_residency *residency;
    const wd_placement p = all_in(pipeline, home);
    const wd_status status = wd_residency_open_placed(&residency, pipeline, &p, storage, &r->queue,
                                                      r->host, comm, &err);
    if (status != WD_OK) fprintf(stderr, "%s\n", err.message);
    HARNESS_CHECK(status == WD_OK);
    return residency;
}

static void close_devices(rank *r)
{
    if (r->queue != r->host) {
        wd_queue_close(r->queue);
        wd_device_close(r->device);
    }
    wd_queue_close(r->host);
    wd_device_close(r->processor);
}

/* Every byte of every stage of `a` is that of `b`. */
static void compare(const rank *r, wd_residency *a, wd_residency *b)
{
    wd_residency *const both[2] = {a, b};
    wd_dit_stage view[2];
    wd_err err = {0};
    for (int e = 0; e < a->experts; e++)
        for (int s = 0; s < a->stages; s++) {
            for (int i = 0; i < 2; i++)
                HARNESS_CHECK(!wd_residency_acquire(both[i], &view[i], e, s, r->queue, &err));
            for (int t = 0; t < WD_DIT_BLOCK_SLOTS; t++) {
                if (!view[0].t[t].data) continue;
                const size_t bytes = wd_tensor_bytes(&view[0].t[t]);
                char *copy[2];
                HARNESS_CHECK(bytes == wd_tensor_bytes(&view[1].t[t]));
                for (int i = 0; i < 2; i++) {
                    HARNESS_CHECK(!wd_alloc((void **)&copy[i], bytes, 1, "a test", &err));
                    wd_queue_copy(r->queue, copy[i], view[i].t[t].data, bytes);
                }
                wd_queue_wait(r->queue);
                HARNESS_CHECK(!memcmp(copy[0], copy[1], bytes));
                for (int i = 0; i < 2; i++) wd_free(copy[i]);
            }
            for (int i = 0; i < 2; i++) wd_residency_release(both[i], e, s, r->queue);
        }
}

/* ---- processes ---- */

/* What the ranks report. */
typedef struct report {
    wd_home home;
    size_t pss[RANKS], host_bytes[RANKS], one_copy[RANKS];
} report;

/* Bytes of this process that are no file's, those that it shares divided by who has them. */
static size_t own_pss(void)
{
    char line[256];
    size_t kib, sum = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    HARNESS_CHECK(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Pss_Anon: %zu", &kib) == 1 || sscanf(line, "Pss_Shmem: %zu", &kib) == 1)
            sum += kib;
    fclose(file);
    return sum * 1024;
}

static void open_and_weigh(wd_comm *comm, void *context)
{
    report *out = context;
    rank r;
    open_devices(&r, out->home);
    wd_comm_barrier(comm);
    const size_t before = own_pss();
    r.residency = open_teacher(&r, &large, out->home, WD_F32, comm);
    wd_comm_barrier(comm);
    out->pss[comm->rank] = own_pss() - before;
    out->host_bytes[comm->rank] = r.residency->host_bytes;
    wd_comm_barrier(comm);
    wd_residency *alone = open_teacher(&r, &large, out->home, WD_F32, NULL);
    out->one_copy[comm->rank] = out->home == WD_HOME_HOST ? alone->host_bytes
                                                          : wd_device_bytes(r.processor);
    compare(&r, r.residency, alone);
    wd_residency_close(alone);
    wd_residency_close(r.residency);
    close_devices(&r);
}

static void weigh(wd_home home)
{
    forked_job job;
    size_t pss = 0, bytes = 0;
    report *out =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(out, MAP_FAILED);
    out->home = home;
    forked_start(&job, RANKS, open_and_weigh, out);
    assert_true(forked_end(&job, 0));
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(out->host_bytes[r], out->host_bytes[0]);
        pss += out->pss[r];
        bytes += out->host_bytes[r];
    }
    const size_t copy = out->one_copy[0];
    print_message("%d ranks: %.1f MB of %.1f MB, %.3f copies\n", RANKS, 1e-6 * (double)pss,
                  1e-6 * (double)copy, (double)pss / (double)copy);
    assert_in_range(copy, 50 << 20, 100 << 20);
    assert_in_range(bytes, copy, copy + RANKS);
    if (!WD_TEST_SANITIZED) assert_in_range(pss, copy * 98 / 100, copy * 105 / 100);
    munmap(out, PAGE);
}

static void processors_have_one_copy(void **state)
{
    (void)state;
    weigh(WD_HOME_DEVICE);
}

static void devices_come_from_one_copy(void **state)
{
    (void)state;
    weigh(WD_HOME_HOST);
}

/* ---- threads ---- */

typedef struct part {
    pthread_t thread;
    wd_comm *comm;
    wd_home home;
    wd_dtype storage;
} part;

static void *open_and_compare(void *context)
{
    part *p = context;
    rank r;
    open_devices(&r, p->home);
    wd_residency *shared = open_teacher(&r, &tiny, p->home, p->storage, p->comm);
    wd_residency *alone = open_teacher(&r, &tiny, p->home, p->storage, NULL);
    compare(&r, shared, alone);
    wd_residency_close(alone);
    wd_residency_close(shared);
    close_devices(&r);
    wd_comm_close(p->comm);
    return NULL;
}

static void every_dtype_has_the_same_bits(void **state)
{
    (void)state;
    static const wd_dtype storage[] = {WD_F32, WD_BF16, WD_F16};
    for (int i = 0; i < 2 * 3; i++) {
        wd_err err = {0};
        wd_comm *comm[3];
        part all[3];
        wd_test_ok(wd_comm_open_threads(comm, 3, &err), &err);
        for (int k = 0; k < 3; k++) {
            all[k] = (part){.comm = comm[k],
                            .home = i % 2 ? WD_HOME_HOST : WD_HOME_DEVICE,
                            .storage = storage[i / 2]};
            assert_int_equal(pthread_create(&all[k].thread, NULL, open_and_compare, &all[k]), 0);
        }
        for (int k = 0; k < 3; k++) pthread_join(all[k].thread, NULL);
    }
}

/* ---- plans ---- */

/* Of a dry run, in host memory. */
static size_t planned(wd_device *target, wd_home home, wd_comm *comm)
{
    wd_err err = {0};
    rank dry = {0};
    wd_test_ok(wd_device_open_dry(&dry.device, target, &err), &err);
    wd_test_ok(wd_queue_open(&dry.queue, dry.device, &err), &err);
    wd_residency *residency = open_teacher(&dry, &tiny, home, WD_F32, comm);
    const size_t bytes = residency->host_bytes + wd_device_bytes(dry.device);
    wd_residency_close(residency);
    wd_queue_close(dry.queue);
    wd_device_close(dry.device);
    return bytes;
}

/* Without asking the others. */
static void a_rank_plans_its_part(void **state)
{
    (void)state;
    wd_err err = {0};
    const wd_comm like = {.rank = 1, .ranks = 8, .hosts = 2, .host_rank = 1, .host_ranks = RANKS};
    wd_comm *comm;
    rank r;
    open_devices(&r, WD_HOME_DEVICE);
    wd_test_ok(wd_comm_open_dry(&comm, &like, &err), &err);
    wd_residency *alone = open_teacher(&r, &tiny, WD_HOME_DEVICE, WD_F32, NULL);
    const size_t copy = wd_device_bytes(r.processor);
    assert_true(copy > 1 << 20);
    for (int home = WD_HOME_DEVICE; home <= WD_HOME_HOST; home++)
        assert_int_equal(planned(r.processor, (wd_home)home, NULL) -
                             planned(r.processor, (wd_home)home, comm),
                         copy - (copy + RANKS - 1) / RANKS);
    wd_residency_close(alone);
    wd_comm_close(comm);
    close_devices(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processors_have_one_copy), /* before there are threads */
        cmocka_unit_test(devices_come_from_one_copy),
        cmocka_unit_test(every_dtype_has_the_same_bits),
        cmocka_unit_test(a_rank_plans_its_part),
    };
    return cmocka_run_group_tests(tests, open_pipelines, NULL);
}
