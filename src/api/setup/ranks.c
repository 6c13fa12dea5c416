/* See api/setup/ranks.h. */
#include "api/setup/ranks.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "api/options/options.h"
#include "api/setup/memory_report.h"
#include "core/cgroup.h"
#include "core/locale.h"
#include "core/log.h"
#include "core/stop.h"
#include "dev/device.h"
#include "dev/device_list.h"
#include "job/launch/launch.h"
#include "job/launch/launch_folder.h"
#include "job/launch/pmix.h"
#include "job/watch/deadline.h"

enum { COMMAND_BYTES = 512 }; /* an error has room for three of them */

wd_status wd_ranks_wanted(int *out, const wd_train_options *o, wd_err *err)
{
    wd_device_list list;
    *out = (int)o->nproc_per_node;
    if (*out || !o->multi_gpu) return WD_OK;
    WD_TRY(wd_device_list_parse(&list, o->devices, err));
    *out = list.count;
    return WD_OK;
}

/* The user's command line without what it says of ranks. */
static void write_command(char *out, const wd_train_options *o)
{
    wd_train_options plain = *o;
    const wd_train_options usual = wd_train_defaults();
    plain.distributed = usual.distributed;
    plain.multi_gpu = usual.multi_gpu;
    plain.nproc_per_node = usual.nproc_per_node;
    plain.local_rank = usual.local_rank;
    wd_train_command(out, COMMAND_BYTES, &plain);
}

/* What a build without MPI can do comes first. */
static wd_status need_mpi(const wd_launch *launch, const wd_train_options *o, wd_err *err)
{
    char command[COMMAND_BYTES];
    wd_err why;
    const bool started = launch->launcher != WD_LAUNCHER_NONE;
    if (wd_comm_need_mpi(&why) == WD_OK) return WD_OK;
    write_command(command, o);
    return wd_fail(err, why.status,
                   "%s. Run it once, %s%s:\n  %s\nor install libopenmpi-dev and openmpi-bin, and "
                   "build it again",
                   why.message, started ? "and not by " : "alone", started ? launch->name : "",
                   command);
}

static wd_status check_launch(const wd_launch *launch, bool wanted, int host_ranks,
                              const wd_train_options *o, wd_err *err)
{
    char command[COMMAND_BYTES];
    write_command(command, o);
    return wd_launch_check(launch, wanted, host_ranks, command, err);
}

/* That launcher and MPI mean the same ranks. */
static wd_status check_met(const wd_comm *comm, const wd_launch *launch, int host_ranks,
                           wd_err *err)
{
    if (comm->ranks != launch->ranks)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s has started %d ranks, but MPI has found %d: is its mpirun that of the "
                       "MPI which this program is built with?",
                       launch->name, launch->ranks, comm->ranks);
    return wd_launch_check_host(launch, host_ranks, comm->host_ranks, err);
}

/* ---- the start of a rank ---- */

typedef struct start {
    wd_launch launch;
    wd_pmix pmix;
    wd_deadline *deadline;
    wd_comm *comm;
    wd_watch *watch;
} start;

/* The watch itself reports a rank that does not connect, earlier than this. */
static void expect_watches(const start *s)
{
    wd_deadline_next(s->deadline, wd_launch_limit_s(s->launch.ranks, true),
                     "connecting the ranks' watches");
}

static wd_status exchange_by_pmix(void *context, wd_watch_address *all, wd_err *err)
{
    const start *s = context;
    WD_TRY(wd_pmix_exchange(&s->pmix, all, sizeof *all, s->deadline, err));
    expect_watches(s);
    return WD_OK;
}

static wd_status exchange_by_comm(void *context, wd_watch_address *all, wd_err *err)
{
    const start *s = context;
    (void)err;
    expect_watches(s);
    wd_comm_allgather_small(s->comm, all, sizeof *all);
    return WD_OK;
}

/* Ranks are watched from before MPI brings them together, where PMIx lets them find one another. */
static wd_status open_early_watch(start *s, wd_err *err)
{
    const wd_watch_options options = {.rank = s->pmix.rank,
                                      .ranks = s->pmix.ranks,
                                      .one_machine = s->pmix.host_ranks == s->pmix.ranks};
    return wd_watch_open(&s->watch, &options, exchange_by_pmix, s, err);
}

static wd_status open_late_watch(start *s, wd_err *err)
{
    const wd_comm *comm = s->comm;
    const wd_watch_options options = {
        .rank = comm->rank, .ranks = comm->ranks, .one_machine = comm->hosts == 1};
    return wd_watch_open(&s->watch, &options, exchange_by_comm, s, err);
}

static wd_status open_comm(start *s, wd_err *err)
{
    const bool one_host = s->launch.host_ranks == s->launch.ranks;
    wd_deadline_next(s->deadline, wd_launch_limit_s(s->launch.ranks, !one_host),
                     "bringing all ranks together (MPI_Init)");
    wd_deadline_report_by(s->deadline, s->watch);
    const wd_status status = wd_comm_open_mpi(&s->comm, err);
    wd_deadline_report_by(s->deadline, NULL);
    if (status != WD_OK && s->watch) wd_watch_fail(s->watch, err);
    return status;
}

/* A watch that cannot be opened ends this rank, and so the job. */
static wd_status open_both(start *s, wd_err *err)
{
    WD_TRY(open_early_watch(s, err));
    wd_watch_describe(s->watch, wd_memory_report_note, NULL);
    WD_TRY(open_comm(s, err));
    if (s->watch) return WD_OK;
    WD_TRY(open_late_watch(s, err));
    wd_watch_describe(s->watch, wd_memory_report_note, NULL);
    return WD_OK;
}

/* A rank that is stopped while it connects to the launcher can keep the launcher from answering the
 * others of its machine, so that the deadline begins before PMIx. */
static wd_status open_in_time(start *s, wd_err *err)
{
    const wd_launch *l = &s->launch;
    const int host_ranks = l->host_ranks > 0 ? l->host_ranks : l->ranks;
    WD_TRY(wd_deadline_start(&s->deadline, l->rank, wd_launch_limit_s(host_ranks, false),
                             "connecting to the launcher (PMIx)", err));
    s->pmix = wd_pmix_open();
    const wd_status status = open_both(s, err);
    wd_pmix_close(&s->pmix);
    wd_deadline_stop(s->deadline);
    return status;
}

wd_status wd_ranks_open(wd_comm **comm, wd_watch **watch, wd_err *err)
{
    start s = {.launch = wd_launch_detect()};
    const wd_launch *l = &s.launch;
    const bool can_meet = l->launcher == WD_LAUNCHER_MPIRUN || l->launcher == WD_LAUNCHER_SRUN;
    *watch = NULL;
    if (!can_meet || wd_comm_need_mpi(NULL) != WD_OK) return wd_comm_open_single(comm, err);
    wd_stop_as_one_of_many(l->ranks > 1);
    if (wd_launch_folder_says_stop()) (void)wd_request_stop();
    WD_TRY(open_in_time(&s, err));
    *comm = s.comm;
    *watch = s.watch;
    wd_log_as_rank(s.comm->rank);
    wd_watch_follow(s.watch, s.comm);
    return WD_OK;
}

static wd_status check(const wd_comm *comm, const wd_launch *launch, const wd_train_options *o,
                       wd_err *err)
{
    int host_ranks;
    WD_TRY(wd_ranks_wanted(&host_ranks, o, err));
    /* one rank that nobody has to start is this process */
    const bool is_it = launch->launcher == WD_LAUNCHER_NONE && host_ranks == 1;
    const bool wanted = (o->distributed && !is_it) || host_ranks > 1;
    if (wanted || launch->ranks > 1) WD_TRY(need_mpi(launch, o, err));
    WD_TRY(check_launch(launch, wanted, host_ranks, o, err));
    return wanted ? check_met(comm, launch, host_ranks, err) : WD_OK;
}

wd_status wd_ranks_check(const wd_comm *comm, const wd_train_options *o, wd_err *err)
{
    const wd_launch launch = wd_launch_detect();
    const wd_status status = check(comm, &launch, o, err);
    if (status != WD_OK && err && comm->ranks == 1 && launch.rank > 0) err->message[0] = 0;
    return status;
}

void wd_ranks_close(wd_comm *comm)
{
    wd_comm_close(comm);
    wd_log_as_rank(0);
    wd_stop_as_one_of_many(false);
}

/* ---- threads ---- */

/* What a rank may run on. */
typedef struct cores {
    int host;
    cpu_set_t set;
} cores;

/* The processors whose time the container or job may use; INT_MAX: no limit. */
static int quota_cores(void)
{
    wd_cgroup_limits limits;
    wd_cgroup_read(&limits, "");
    return limits.processors;
}

/* Cores that ranks are bound to are theirs; where none is bound, all have the same, of which a
 * quota may allow a part, and Slurm may have fewer for each. */
static int64_t share_cores(const wd_comm *comm, const cores *all)
{
    cpu_set_t together;
    CPU_ZERO(&together);
    for (int r = 0; r < comm->ranks; r++)
        if (all[r].host == comm->host) CPU_OR(&together, &together, &all[r].set);
    const int own = CPU_COUNT(&all[comm->rank].set), quota = quota_cores();
    const int used = CPU_COUNT(&together) < quota ? CPU_COUNT(&together) : quota;
    const int share = used / comm->host_ranks;
    const int said = wd_launch_cores(comm->host_ranks);
    int threads = share < own ? share : own;
    if (said && said < threads) threads = said;
    return threads > 1 ? threads : 1;
}

/* Whether the user has said how many, by option or environment. */
static bool is_said(int64_t wanted)
{
    return wanted || getenv("OMP_NUM_THREADS");
}

int64_t wd_threads_alone(int64_t wanted)
{
    cpu_set_t own;
    const int said = wd_launch_cores(1);
    if (is_said(wanted) || sched_getaffinity(0, sizeof own, &own)) return wanted;
    const int quota = quota_cores(), most = said && said < quota ? said : quota;
    return most < CPU_COUNT(&own) ? most : 0;
}

/* Ranks tell one another what they have even where it is said: the environment of another host may
 * say nothing. */
int64_t wd_ranks_threads(wd_comm *comm, int64_t wanted)
{
    if (comm->ranks == 1) return wd_threads_alone(wanted);
    cores all[comm->ranks];
    memset(all, 0, sizeof all);
    all[comm->rank].host = comm->host;
    sched_getaffinity(0, sizeof all->set, &all[comm->rank].set);
    wd_comm_allgather_small(comm, all, sizeof *all);
    return is_said(wanted) ? wanted : share_cores(comm, all);
}

/* ---- kernels ---- */

wd_status wd_ranks_kernels(wd_comm *comm, wd_err *err)
{
    char kernels[WD_KERNELS_TEXT];
    int all[comm->ranks], least, most;
    WD_TRY(wd_device_kernel_set(&all[comm->rank], err));
    wd_comm_allgather_small(comm, all, sizeof *all);
    least = most = all[0];
    for (int r = 1; r < comm->ranks; r++) {
        if (all[r] < least) least = all[r];
        if (all[r] > most) most = all[r];
    }
    wd_device_limit_kernels(least);
    if (least == most) return WD_OK;
    WD_TRY(wd_device_kernels(kernels, err));
    wd_log(WD_LOG_INFO, "the ranks' processors differ: all ranks compute with %s", kernels);
    return WD_OK;
}

/* ---- starting them ---- */

wd_status wd_train_start_ranks(int *exit_code, const wd_train_options *o, int argc,
                               char *const *argv, wd_err *err)
{
    WD_C_LOCALE;
    int host_ranks;
    const wd_launch launch = wd_launch_detect();
    /* one task of srun's may be a shell, which Slurm is set up to give PMIx to */
    const bool alone = launch.launcher == WD_LAUNCHER_NONE ||
                       (launch.launcher == WD_LAUNCHER_SRUN && launch.ranks == 1);
    *exit_code = -1;
    if (!alone) return WD_OK;
    WD_TRY(wd_options_check(WD_JOB_TRAIN, o, err));
    WD_TRY(wd_ranks_wanted(&host_ranks, o, err));
    if (host_ranks <= 1) return WD_OK;
    WD_TRY(need_mpi(&launch, o, err));
    return wd_launch_run(exit_code, host_ranks, argc, argv, err);
}
