/* The ranks of a host read files once, whichever of them have a part in a sweep, and get the bits
 * that one alone reads. */
#include "core/checked.h"
#include "harness/host.h"
#include "io/file/file_reader.h"
#include "teacher_copy.h"

enum { RANKS = 4, THREADS = 3, SWEEPS = 6 };

/* Experts of a sweep, of all ranks and of each. */
typedef struct plan {
    unsigned experts, own[THREADS];
} plan;

static const wd_sweep_experts one = {1, 1}, none;

static const plan plans[] = {
    {3, {3, 3, 3}}, {3, {1, 2, 3}}, {3, {2, 1, 0}}, {1, {1, 0, 1}}, {1, {0, 1, 0}},
    {2, {2, 2, 0}}, {3, {0, 3, 0}}, {3, {3, 0, 1}}, {2, {0, 0, 2}}, {3, {3, 3, 3}},
};

/* ---- threads ---- */

typedef struct part {
    pthread_t thread;
    wd_comm *comm;
    bool simulated;
    wd_dtype storage;
    int sweeps;
} part;

static wd_sweep_experts experts_of(const plan *p, int me)
{
    return (wd_sweep_experts){p->experts, p->own[me]};
}

static void run_sweep(const rank *r, wd_residency *shared, wd_residency *alone, const plan *p,
                      const plan *next, int me)
{
    wd__residency_begin(shared, experts_of(p, me), experts_of(next, me));
    for (int e = 0; e < wd_residency_info_of(shared)->placement.experts; e++)
        for (int s = 0; p->own[me] >> e & 1 && s < stages_of(shared); s++) {
            if ((s + me) % 5 == 0) usleep(300); /* now this one is late, now that one */
            compare_stage(r, shared, alone, e, s);
        }
}

static void *run_plans(void *context)
{
    part *p = context;
    rank r;
    open_devices(&r, p->simulated);
    wd_residency *shared = open_teacher(&r, &tiny, WD_HOME_DISK, p->storage, p->comm);
    wd_residency *alone = open_teacher(&r, &tiny, WD_HOME_DEVICE, p->storage, NULL);
    const plan *next = plans;
    for (int i = 0; i < p->sweeps; i++) { /* now the next one is foreseen, now another */
        if (next != &plans[i] && next->experts == plans[i].experts)
            wd__residency_begin(shared, none, none);
        next = &plans[i + 1 < p->sweeps && i % 3 ? i + 1 : 0];
        run_sweep(&r, shared, alone, &plans[i], next, p->comm->rank);
    }
    wd_comm_barrier(p->comm); /* the first rank reads for all */
    wd_residency_close(shared);
    wd_residency_close(alone);
    close_devices(&r);
    wd_comm_close(p->comm);
    return NULL;
}

static void run_threads(part like, void *(*run)(void *))
{
    wd_err err = {0};
    wd_comm *comm[THREADS];
    part all[THREADS];
    wd_test_ok(wd_comm_open_threads(comm, THREADS, &err), &err);
    for (int k = 0; k < THREADS; k++) {
        all[k] = like;
        all[k].comm = comm[k];
        assert_int_equal(pthread_create(&all[k].thread, NULL, run, &all[k]), 0);
    }
    for (int k = 0; k < THREADS; k++) pthread_join(all[k].thread, NULL);
}

static void whoever_has_a_part_gets_the_same_bits(void **state)
{
    (void)state;
    enum { ALL = sizeof plans / sizeof *plans, SOME = 2 };
    for (int i = 0; i < 2; i++) {
        run_threads((part){.simulated = i, .storage = WD_BF16, .sweeps = ALL}, run_plans);
        run_threads((part){.simulated = i, .storage = WD_F32, .sweeps = SOME}, run_plans);
        run_threads((part){.simulated = i, .storage = WD_F16, .sweeps = SOME}, run_plans);
    }
}

/* One rank stops in the middle of a sweep: the others are seen to wait, and to be ahead. */
static void *run_stopped(void *context)
{
    part *p = context;
    rank r;
    wd_err err = {0};
    wd_comm *all[THREADS];
    wd_dit_stage view;
    open_devices(&r, true);
    wd_residency *shared = open_teacher(&r, &tiny, WD_HOME_DISK, WD_BF16, p->comm);
    memset(all, 0, sizeof all);
    all[p->comm->rank] = p->comm;
    wd_comm_allgather_small(p->comm, all, sizeof *all); /* threads of one process */
    wd__residency_begin(shared, one, one);
    for (int s = 0; s < stages_of(shared); s++) {
        HARNESS_CHECK(!wd_residency_acquire(shared, &view, 0, s, r.queue, &err));
        if (s == 1 && p->comm->rank == 1)
            for (int k = 0; k < THREADS; k++)
                while (k != 1 && (atomic_load(&all[k]->waits_since[WD_WAIT_READER]) <= 0 ||
                                  atomic_load(&all[k]->brought) <= atomic_load(&p->comm->brought)))
                    usleep(1000);
        if (p->comm->rank == 1)
            HARNESS_CHECK(atomic_load(&p->comm->waits_since[WD_WAIT_READER]) <= 0);
        wd_residency_release(shared, 0, s, r.queue);
    }
    wd_queue_wait(r.queue);
    wd_comm_barrier(p->comm);
    HARNESS_CHECK(atomic_load(&p->comm->waits_since[WD_WAIT_READER]) <= 0);
    wd_residency_close(shared);
    close_devices(&r);
    wd_comm_close(p->comm);
    return NULL;
}

static void who_waits_for_the_reader_says_so(void **state)
{
    (void)state;
    run_threads((part){.simulated = true}, run_stopped);
}

/* Launches nothing with a stage; returns where its weights came to. */
static const void *pass_stage(wd_residency *r, int stage, wd_queue *queue)
{
    wd_err err = {0};
    wd_dit_stage view;
    HARNESS_CHECK(!wd_residency_acquire(r, &view, 0, stage, queue, &err));
    wd_residency_release(r, 0, stage, queue);
    return view.t[0].data;
}

/* A block comes to the buffer that was given back first: of the other one, work that was launched
 * may still be under way. */
static void *run_in_turns(void *context)
{
    part *p = context;
    rank r;
    const void *last = NULL;
    open_devices(&r, true);
    wd_residency *shared = open_teacher(&r, &large, WD_HOME_DISK, WD_BF16, p->comm);
    for (int i = 0; i < SWEEPS; i++) {
        wd__residency_begin(shared, one, i + 1 < SWEEPS ? one : none);
        for (int s = 0; s < stages_of(shared); s++) {
            const void *at = pass_stage(shared, s, r.queue);
            if (wd_stage_kind_of(s, stages_of(shared)) != WD_STAGE_BLOCK) continue;
            HARNESS_CHECK(at != last);
            last = at;
        }
    }
    wd_queue_wait(r.queue);
    wd_comm_barrier(p->comm);
    wd_residency_close(shared);
    close_devices(&r);
    wd_comm_close(p->comm);
    return NULL;
}

static void slots_take_turns(void **state)
{
    (void)state;
    run_threads((part){.simulated = true}, run_in_turns);
}

/* ---- processes: what is read ---- */

/* Bytes that this process has read so far, from the page cache or not. */
static int64_t bytes_read(void)
{
    char line[256];
    int64_t bytes = -1;
    long long value;
    FILE *file = fopen("/proc/self/io", "r");
    HARNESS_CHECK(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "rchar: %lld", &value) == 1) bytes = value;
    fclose(file);
    HARNESS_CHECK(bytes >= 0);
    return bytes;
}

static void read_all(wd_comm *comm, void *context)
{
    int64_t *read = context;
    rank r;
    open_devices(&r, true);
    wd_residency *shared = open_teacher(&r, &large, WD_HOME_DISK, WD_BF16, comm);
    wd_comm_barrier(comm);
    const int64_t before = bytes_read();
    for (int i = 0; i < SWEEPS; i++) {
        wd__residency_begin(shared, one, i + 1 < SWEEPS ? one : none);
        for (int s = 0; s < stages_of(shared); s++) pass_stage(shared, s, r.queue);
    }
    wd_queue_wait(r.queue);
    wd_comm_barrier(comm);
    wd_residency_close(shared);
    read[comm->rank] = bytes_read() - before;
    wd_comm_barrier(comm);
    close_devices(&r);
}

/* Of all tensors; *pages: of the whole pages of the file that each of them lies in. */
static int64_t bytes_of_all(int64_t *pages)
{
    wd_err err = {0};
    wd_safetensors *weights;
    wd_tensor_table table;
    int64_t all = 0;
    *pages = 0;
    wd_test_ok(wd_pipeline_open_weights(&weights, &large, WD_COMPONENT_TRANSFORMER, &err), &err);
    wd_test_ok(wd_dit_table_open(&table, &large.dit, &err), &err);
    for (int s = 0; s < wd_dit_stages(&large.dit); s++) {
        const int64_t first = wd_dit_stage_first(&large.dit, s);
        for (int i = 0; i < wd_dit_stage_slots(&large.dit, s); i++) {
            const wd_safetensors_entry *e =
                wd_safetensors_find(weights, table.spec[first + i].name);
            if (!e) continue;
            const size_t bytes = wd_tensor_bytes(&e->tensor), first_byte = e->file_offset;
            all += (int64_t)bytes;
            *pages += (int64_t)wd_round_up(first_byte % WD_READ_PAGE + bytes, WD_READ_PAGE);
        }
    }
    wd_dit_table_close(&table);
    wd_safetensors_close(weights);
    return all;
}

static void a_host_reads_once_for_each_sweep(void **state)
{
    (void)state;
    enum { SLACK = 1 << 16 }; /* files of /proc */
    forked_job job;
    int64_t *read = open_shared_page();
    int64_t pages;
    const int64_t all = bytes_of_all(&pages);
    forked_start(&job, RANKS, read_all, read);
    assert_true(forked_end(&job, 0));
    print_message("%d sweeps of %.1f MB by %d ranks: the first read %.1f MB\n", SWEEPS,
                  1e-6 * (double)all, RANKS, 1e-6 * (double)read[0]);
    assert_in_range(read[0], SWEEPS * all, SWEEPS * pages + SLACK);
    for (int r = 1; r < RANKS; r++) assert_in_range(read[r], 0, SLACK);
    munmap(read, HARNESS_PAGE);
}

/* ---- failures ---- */

static wd_pipeline broken;

static void *read_what_ends(void *context)
{
    part *p = context;
    rank r;
    wd_err err = {0};
    wd_dit_stage view;
    wd_status status = WD_OK;
    open_devices(&r, p->simulated);
    wd_residency *shared = open_teacher(&r, &broken, WD_HOME_DISK, WD_F32, p->comm);
    char file[256];
    snprintf(file, sizeof file, "%s/broken/transformer/diffusion_pytorch_model.safetensors",
             wd_test_folder());
    if (!p->comm->rank) HARNESS_CHECK(!truncate(file, 1 << 20));
    wd_comm_barrier(p->comm);
    wd__residency_begin(shared, (wd_sweep_experts){3, p->comm->rank == 1 ? 2 : 3}, none);
    for (int e = p->comm->rank == 1; e < 2 && status == WD_OK; e++)
        for (int s = 0; s < stages_of(shared) && status == WD_OK; s++) {
            status = wd_residency_acquire(shared, &view, e, s, r.queue, &err);
            if (status == WD_OK) wd_residency_release(shared, e, s, r.queue);
        }
    HARNESS_CHECK(status == WD_IO && strstr(err.message, "the file ends"));
    HARNESS_CHECK(strstr(err.message, file));
    wd_residency_close(shared);
    close_devices(&r);
    wd_comm_close(p->comm);
    return NULL;
}

static void a_file_that_ends_is_an_error_on_all(void **state)
{
    (void)state;
    char folder[WD_PATH_MAX];
    wd_err err = {0};
    wd_test_copy_teacher(folder, "broken");
    wd_test_ok(wd_pipeline_open(&broken, folder, &err), &err);
    run_threads((part){.simulated = true}, read_what_ends);
}

/* ---- plans ---- */

/* A dry run says what memory the host's ranks will have, divided among them. */
static void a_rank_plans_its_part(void **state)
{
    (void)state;
    wd_err err = {0};
    size_t bytes[2];
    wd_comm *comm;
    rank r;
    const wd_comm like = {.rank = 1, .ranks = 8, .hosts = 2, .host_rank = 1, .host_ranks = RANKS};
    open_devices(&r, true);
    wd_test_ok(wd_comm_open_dry(&comm, &like, &err), &err);
    for (int i = 0; i < 2; i++) {
        rank dry = {0};
        wd_test_ok(wd_device_open_dry(&dry.device, r.device, &err), &err);
        wd_test_ok(wd_queue_open(&dry.queue, dry.device, &err), &err);
        wd_residency *planned = open_teacher(&dry, &large, WD_HOME_DISK, WD_F32, i ? comm : NULL);
        bytes[i] = wd_residency_info_of(planned)->host_bytes;
        wd_residency_close(planned);
        wd_queue_close(dry.queue);
        wd_device_close(dry.device);
    }
    /* both have two stages in host memory; the ring's head and its pages come to that */
    assert_in_range(bytes[1], bytes[0] / RANKS, bytes[0] / RANKS + 3 * HARNESS_PAGE);
    wd_comm_close(comm);
    close_devices(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_reads_once_for_each_sweep), /* before there are threads */
        cmocka_unit_test(whoever_has_a_part_gets_the_same_bits),
        cmocka_unit_test(who_waits_for_the_reader_says_so),
        cmocka_unit_test(slots_take_turns),
        cmocka_unit_test(a_file_that_ends_is_an_error_on_all),
        cmocka_unit_test(a_rank_plans_its_part),
    };
    return cmocka_run_group_tests(tests, open_pipelines, NULL);
}
