/* The ranks of a host have one copy of what is converted, and the bits of a copy of one's own. */
#include "harness/host.h"

enum { RANKS = 4 };

/* Every stage of `a` is that of `b`. */
static void compare(const rank *r, wd_residency *a, wd_residency *b)
{
    const wd_sweep_experts all = {3, 3}, none = {0, 0};
    wd__residency_begin(a, all, none);
    wd__residency_begin(b, all, none);
    for (int e = 0; e < wd_residency_info_of(a)->placement.experts; e++)
        for (int i = 0; i < stages_of(a); i++) compare_stage(r, a, b, e, i);
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
    open_devices(&r, out->home == WD_HOME_HOST);
    wd_comm_barrier(comm);
    const size_t before = own_pss();
    r.residency = open_teacher(&r, &large, out->home, WD_F32, comm);
    wd_comm_barrier(comm);
    out->pss[comm->rank] = own_pss() - before;
    out->host_bytes[comm->rank] = wd_residency_info_of(r.residency)->host_bytes;
    wd_comm_barrier(comm);
    wd_residency *alone = open_teacher(&r, &large, out->home, WD_F32, NULL);
    out->one_copy[comm->rank] = out->home == WD_HOME_HOST ? wd_residency_info_of(alone)->host_bytes
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
    report *out = open_shared_page();
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
    munmap(out, HARNESS_PAGE);
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
    open_devices(&r, p->home == WD_HOME_HOST);
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
    const size_t bytes = wd_residency_info_of(residency)->host_bytes + wd_device_bytes(dry.device);
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
    wd_test_ok(wd_comm_open_dry(&comm, &like, &err), &err);
    for (int home = WD_HOME_DEVICE; home <= WD_HOME_HOST; home++) {
        rank r;
        open_devices(&r, home == WD_HOME_HOST);
        wd_residency *alone = open_teacher(&r, &tiny, (wd_home)home, WD_F32, NULL);
        const size_t copy = home == WD_HOME_HOST ? wd_residency_info_of(alone)->host_bytes
                                                 : wd_device_bytes(r.processor);
        assert_true(copy > 1 << 20);
        assert_int_equal(planned(r.processor, (wd_home)home, NULL) -
                             planned(r.processor, (wd_home)home, comm),
                         copy - (copy + RANKS - 1) / RANKS);
        wd_residency_close(alone);
        close_devices(&r);
    }
    wd_comm_close(comm);
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
