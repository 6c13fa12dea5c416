/* Tests of what is decided of the devices of a job's ranks, which are threads. With WD_STANDIN_GPUS
 * these are GPUs that the stand-in driver shows, with a stand-in for NCCL. */
#include "testing.h"

#include <pthread.h>

#include "api/setup/rank_gpus.h"
#include "core/clock.h"
#include "harness/comm.h"
#include "job/launch/rank_peers.h"

enum { RANKS = 2 };

/* What a rank does, and what comes of it. */
typedef struct part {
    pthread_t thread;
    wd_comm *comm;
    const char *devices; /* its own */
    const wd_train_options *options;
    wd_status status;
    wd_err err;
    bool compared, is_direct; /* it has compared kinds; has peers */
} part;

static char said[1024]; /* the last line that was logged */
static int lines;

static void take_line(void *context, wd_log_level level, const char *line)
{
    (void)context, (void)level;
    snprintf(said, sizeof said, "%s", line);
    lines++;
}

static void *run_part(void *context)
{
    part *p = context;
    wd_devices devices;
    HARNESS_CHECK(wd_devices_open(&devices, p->devices, 1, NULL) == WD_OK);
    p->status = wd_rank_gpus_compare(&devices, p->comm, p->options, &p->err);
    p->compared = p->status == WD_OK;
    if (p->compared) p->status = wd_rank_gpus_open(&devices, p->comm, NULL, p->options, &p->err);
    p->is_direct = p->comm->peers != NULL;
    wd_rank_peers_close(p->comm);
    wd_devices_close(&devices);
    return NULL;
}

/* `devices` [RANKS]: of each rank. */
static void run(part *all, const char *const *devices, const wd_train_options *options)
{
    wd_err err = {0};
    wd_comm *comm[RANKS];
    lines = 0;
    wd_log_to(take_line, NULL, WD_LOG_INFO);
    wd_test_ok(wd_comm_open_threads(comm, RANKS, &err), &err);
    for (int r = 0; r < RANKS; r++) {
        all[r] = (part){.comm = comm[r], .devices = devices[r], .options = options};
        assert_int_equal(pthread_create(&all[r].thread, NULL, run_part, &all[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(all[r].thread, NULL);
    for (int r = 0; r < RANKS; r++) wd_comm_close(comm[r]);
    wd_log_to(NULL, NULL, WD_LOG_INFO);
}

static const wd_train_options *options_of(const char *nccl, bool deterministic)
{
    static wd_train_options options;
    options = wd_train_defaults();
    options.nccl = nccl;
    options.deterministic_reduce = deterministic;
    return &options;
}

/* Both ranks have failed alike. */
static void both_refused(const part *all, wd_status status, const char *text)
{
    for (int r = 0; r < RANKS; r++) wd_test_refused(all[r].status, &all[r].err, status, text);
}

static void both_went(const part *all, bool direct)
{
    for (int r = 0; r < RANKS; r++) {
        wd_test_ok(all[r].status, &all[r].err);
        assert_true(all[r].is_direct == direct);
    }
}

#ifdef WD_STANDIN_GPUS
#include "harness/forked.h"
#include "standin/driver.h"
#include "standin/nccl.h"

static const char *const two[RANKS] = {"cuda:0", "cuda:1"};

static bool has_said(const char *text)
{
    return lines == 1 && strstr(said, text);
}

static void install(bool nccl, const char *other_name)
{
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    options.nccl = nccl;
    options.last_name = other_name;
    wd_standin_install_all(&options);
}

static void remove_all(void)
{
    assert_int_equal(wd_standin_nccl_open(), 0);
    assert_int_equal(wd_standin_remove(), 0);
}

static void gpus_of_ranks_are_peers(void **state)
{
    (void)state;
    part all[RANKS];
    install(true, NULL);
    run(all, two, options_of("auto", true));
    both_went(all, true);
    assert_true(has_said("gradients go from GPU to GPU, by NCCL"));
    run(all, two, options_of("on", false));
    both_went(all, true);
    run(all, two, options_of("off", false));
    both_went(all, false);
    assert_int_equal(lines, 0);
    remove_all();
}

static void what_is_in_the_way_is_said(void **state)
{
    (void)state;
    static const char *const same[RANKS] = {"cuda:1", "cuda:1"};
    part all[RANKS];
    install(true, NULL);
    run(all, same, options_of("auto", false));
    both_went(all, false);
    assert_true(
        has_said("by way of host memory and MPI: ranks 0 and 1 have one GPU (0000:02:00.0)"));
    run(all, same, options_of("on", false));
    both_refused(all, WD_UNSUPPORTED, "--nccl on: ranks 0 and 1 have one GPU");
    remove_all();
    install(false, NULL);
    run(all, two, options_of("auto", false));
    both_went(all, false);
    assert_true(has_said("by way of host memory and MPI: rank 0: NCCL is missing"));
    remove_all();
}

static void a_rank_without_gpu_is_in_the_way(void **state)
{
    (void)state;
    static const char *const mixed[RANKS] = {"cuda:0", "cpu"};
    part all[RANKS];
    install(true, NULL);
    run(all, mixed, options_of("on", false));
    both_refused(all, WD_UNSUPPORTED, "--nccl on: rank 1: cpu");
    remove_all();
}

static void kinds_are_announced_or_refused(void **state)
{
    (void)state;
    static const char *const both[RANKS] = {"cuda:0,1", "cuda:0,1"};
    part all[RANKS];
    install(false, "NVIDIA Other");
    run(all, two, options_of("off", false));
    both_went(all, false);
    assert_true(has_said("rank 0 computes with NVIDIA Stand-in, sm_90"));
    assert_non_null(strstr(said, "and rank 1 with NVIDIA Other, sm_90"));
    run(all, two, options_of("off", true));
    both_refused(all, WD_MISMATCH, "--deterministic_reduce promises");
    assert_false(all[0].compared || all[1].compared);
    run(all, both, options_of("off", true));
    both_refused(all, WD_MISMATCH, "rank 0 computes with devices of different kinds");
    remove_all();
}

/* ---- jobs whose NCCL hangs ----
 *
 * Ranks of the job are processes, watched by one another. NCCL's stand-in is for threads, so each
 * process has two members of peers of its own, of which the first thread's stands for the rank. */

enum { JOB = 2, MEMBERS = 2, FIRST_EXCHANGE = MEMBERS + 1 /* behind those of the check at open */ };

/* What ends the job: NCCL says that a rank is gone; or that is all that happens. */
typedef enum cause { NCCL_FAILS, RANK_IS_KILLED } cause;

static const double connect_s = 0.5; /* the time in which NCCL must connect */

typedef struct rank_member {
    pthread_t thread;
    wd_comm *comm;
    wd_watch *watch;
    bool is_killed;
} rank_member;

/* Exchanges with the other member, which hangs. */
static void *hang(void *context)
{
    rank_member *m = context;
    wd_devices devices;
    void *block;
    const int other = !m->comm->rank;
    HARNESS_CHECK(wd_devices_open(&devices, two[m->comm->rank], 1, NULL) == WD_OK);
    HARNESS_CHECK(wd_rank_gpus_open(&devices, m->comm, m->watch, options_of("on", false), NULL) ==
                  WD_OK);
    HARNESS_CHECK(wd_device_alloc(&block, devices.device[0], 512, "a block", NULL) == WD_OK);
    const wd_peer_move moves[] = {{.peer = other, .from = block, .bytes = 256},
                                  {.peer = other, .to = (char *)block + 256, .bytes = 256}};
    wd_peers_exchange(m->comm->peers, devices.student, moves, 2);
    if (m->is_killed) kill(getpid(), SIGKILL);
    wd_queue_wait(devices.student);
    return NULL;
}

static wd_status tell_addresses(void *comm, wd_watch_address *all, wd_err *err)
{
    (void)err;
    wd_comm_allgather_small(comm, all, sizeof *all);
    return WD_OK;
}

/* Runs `work` in a thread for each of this rank's members, of which `killed` (-1: none) kills the
 * process, until the watch ends it. */
static _Noreturn void run_watched(wd_comm *comm, void *(*work)(void *member), int killed)
{
    wd_comm *local[MEMBERS];
    rank_member member[MEMBERS];
    wd_watch *watch;
    const wd_watch_options options = {
        .rank = comm->rank, .ranks = comm->ranks, .one_machine = true};
    HARNESS_CHECK(wd_watch_open(&watch, &options, tell_addresses, comm, NULL) == WD_OK);
    HARNESS_CHECK(wd_comm_open_threads(local, MEMBERS, NULL) == WD_OK);
    for (int i = 0; i < MEMBERS; i++) {
        member[i] = (rank_member){.comm = local[i], .watch = watch, .is_killed = i == killed};
        HARNESS_CHECK(!pthread_create(&member[i].thread, NULL, work, &member[i]));
    }
    for (int i = 0; i < MEMBERS; i++) pthread_join(member[i].thread, NULL);
    for (;;) pause();
}

static void be_rank(wd_comm *comm, void *context)
{
    const cause why = *(const cause *)context;
    const bool first = comm->rank == 0;
    install(true, NULL);
    wd_the_standin_nccl_faults.hung = FIRST_EXCHANGE;
    wd_the_standin_nccl_faults.reports_hung = !first && why == NCCL_FAILS;
    run_watched(comm, hang, !first && why == RANK_IS_KILLED ? 0 : -1);
}

/* Ends within the 10 seconds that are promised once a rank has failed, and all as they should. */
static void check_end(cause why, int exit_code)
{
    forked_job job;
    int how;
    forked_start(&job, JOB, be_rank, &why);
    assert_int_equal(waitpid(job.pid[1], &how, 0), job.pid[1]);
    if (why == NCCL_FAILS)
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == exit_code);
    else
        assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    const double ended = wd_clock_s();
    assert_int_equal(waitpid(job.pid[0], &how, 0), job.pid[0]);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == exit_code);
    assert_true(wd_clock_s() - ended < 10);
}

static void a_job_ends_while_nccl_hangs(void **state)
{
    (void)state;
    check_end(RANK_IS_KILLED, WD_RANK_LOST);
    check_end(NCCL_FAILS, WD_DEVICE_FAULT);
}

/* A job in which NCCL does not connect, in memory that its ranks share with the test. */
typedef struct connecting_job {
    wd_standin_nccl_hang hang;
    wd_status expected; /* WD_RANK_LOST: the start-up deadline has ended it */
    char report[1024];  /* its first line */
    double begun;       /* when the last of its ranks has begun to connect */
} connecting_job;

static connecting_job *own_job; /* of a rank */

/* Connects the members, which NCCL never does. */
static void *connect_in_vain(void *context)
{
    rank_member *m = context;
    wd_devices devices;
    wd_err err = {0};
    char why[WD_RANK_PEERS_TEXT];
    HARNESS_CHECK(wd_devices_open(&devices, two[m->comm->rank], 1, NULL) == WD_OK);
    own_job->begun = wd_clock_s();
    HARNESS_CHECK(wd_rank_peers_open(m->comm, why, devices.device[0], m->watch, connect_s, &err) ==
                  WD_DEVICE_FAULT);
    HARNESS_CHECK(strstr(err.message, "NCCL") && strstr(err.message, "--nccl off"));
    wd_watch_fail(m->watch, &err);
}

static void take_report(void *context, wd_log_level level, const char *line)
{
    connecting_job *j = context;
    (void)level;
    if (!j->report[0]) snprintf(j->report, sizeof j->report, "%s", line);
}

static void be_connecting_rank(wd_comm *comm, void *context)
{
    connecting_job *j = own_job = context;
    install(true, NULL);
    wd_log_to(take_report, j, WD_LOG_ERROR);
    wd_the_standin_nccl_faults.hangs = j->hang;
    run_watched(comm, connect_in_vain, -1);
}

static void check_connecting_job(const connecting_job *j, const forked_job *ranks)
{
    for (int r = 0; r < JOB; r++) {
        int how;
        assert_int_equal(waitpid(ranks->pid[r], &how, 0), ranks->pid[r]);
        assert_true(WIFEXITED(how));
        assert_int_equal(WEXITSTATUS(how), j->expected);
    }
    assert_true(wd_clock_s() - j->begun < 10);
    if (!strstr(j->report, "NCCL") || !strstr(j->report, "--nccl off"))
        fail_msg("the job's report does not name NCCL: %s", j->report);
}

static void a_job_ends_when_nccl_does_not_connect(void **state)
{
    (void)state;
    static const connecting_job cases[] = {
        {.hang = WD_STANDIN_NCCL_HANGS_IN_GET_KEY, .expected = WD_RANK_LOST},
        {.hang = WD_STANDIN_NCCL_HANGS_IN_OPEN, .expected = WD_RANK_LOST},
        {.hang = WD_STANDIN_NCCL_NEVER_OPENS, .expected = WD_DEVICE_FAULT},
        {.hang = WD_STANDIN_NCCL_NEVER_EXCHANGES, .expected = WD_DEVICE_FAULT}};
    enum { CASES = sizeof cases / sizeof *cases };
    forked_job ranks[CASES];
    connecting_job *job =
        mmap(NULL, sizeof cases, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(job != MAP_FAILED);
    memcpy(job, cases, sizeof cases);
    for (int i = 0; i < CASES; i++) forked_start(&ranks[i], JOB, be_connecting_rank, &job[i]);
    for (int i = 0; i < CASES; i++) check_connecting_job(&job[i], &ranks[i]);
    munmap(job, sizeof cases);
}

static void plans_take_ranks_to_be_peers(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_devices devices;
    static const char *const nccl[] = {"auto", "off"};
    for (int i = 0; i < 4; i++) {
        wd_comm ranks = {.ranks = 4};
        install(i / 2 == 0, NULL);
        wd_test_ok(wd_devices_open(&devices, "cuda:0", 1, &err), &err);
        wd_test_ok(
            wd_rank_gpus_open_planned(&devices, &ranks, options_of(nccl[i % 2], false), &err),
            &err);
        assert_true(!ranks.peers == (i > 0));
        wd_peers_close(ranks.peers);
        wd_devices_close(&devices);
        remove_all();
    }
}
#else
static void processors_need_no_word(void **state)
{
    (void)state;
    static const char *const devices[RANKS] = {"cpu", "sim:1x1GiB"};
    part all[RANKS];
    run(all, devices, options_of("auto", true));
    both_went(all, false);
    assert_int_equal(lines, 0);
    run(all, devices, options_of("on", true));
    both_refused(all, WD_UNSUPPORTED, "--nccl on: no rank has an NVIDIA GPU");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef WD_STANDIN_GPUS
        cmocka_unit_test(a_job_ends_while_nccl_hangs), /* first: processes that fork have no
                                                        * threads */
        cmocka_unit_test(a_job_ends_when_nccl_does_not_connect),
        cmocka_unit_test(gpus_of_ranks_are_peers),
        cmocka_unit_test(what_is_in_the_way_is_said),
        cmocka_unit_test(a_rank_without_gpu_is_in_the_way),
        cmocka_unit_test(kinds_are_announced_or_refused),
        cmocka_unit_test(plans_take_ranks_to_be_peers),
#else
        cmocka_unit_test(processors_need_no_word),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
