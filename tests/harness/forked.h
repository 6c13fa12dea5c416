/* Ranks for tests that are forked processes of one host, with a communicator that can only gather.
 */
#ifndef WD_TESTS_HARNESS_FORKED_H
#define WD_TESTS_HARNESS_FORKED_H

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/comm.h"

enum { FORKED_RANKS_MAX = 8, FORKED_BYTES_MAX = 4096 };

typedef struct forked_area {
    pthread_barrier_t meet;
    unsigned char data[FORKED_BYTES_MAX];
} forked_area;

typedef struct forked_comm {
    wd_comm base;
    forked_area *area;
} forked_comm;

/* The ranks of one job, for their parent. */
typedef struct forked_job {
    int ranks;
    forked_area *area;
    pid_t pid[FORKED_RANKS_MAX];
} forked_job;

static inline wd_ticket forked_post(wd_comm *self, const wd_comm_op *op)
{
    forked_area *area = ((forked_comm *)self)->area;
    unsigned char *to = op->to;
    const size_t *at = op->to_parts.at; /* of all ranks */
    HARNESS_CHECK(op->kind == WD_COMM_GATHER_ALL && at[self->ranks] <= FORKED_BYTES_MAX);
    memcpy(area->data + at[self->rank], to + at[self->rank], at[self->rank + 1] - at[self->rank]);
    pthread_barrier_wait(&area->meet);
    memcpy(to, area->data, at[self->ranks]);
    pthread_barrier_wait(&area->meet);
    return (wd_ticket){op->lane, 0};
}

static inline void forked_wait(wd_comm *self, wd_ticket ticket)
{
    (void)self, (void)ticket;
}

/* Forks the ranks: each runs `work` and ends. The parent must have no threads yet. */
static inline void forked_start(forked_job *job, int ranks,
                                void (*work)(wd_comm *comm, void *context), void *context)
{
    static const wd_comm_vtable vtable = {.post = forked_post, .wait = forked_wait};
    pthread_barrierattr_t shared;
    *job = (forked_job){.ranks = ranks};
    job->area =
        mmap(NULL, sizeof *job->area, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    HARNESS_CHECK(job->area != MAP_FAILED);
    HARNESS_CHECK(!pthread_barrierattr_init(&shared));
    HARNESS_CHECK(!pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED));
    HARNESS_CHECK(!pthread_barrier_init(&job->area->meet, &shared, (unsigned)ranks));
    for (int r = 0; r < ranks; r++) {
        job->pid[r] = fork();
        HARNESS_CHECK(job->pid[r] >= 0);
        if (job->pid[r]) continue;
        signal(SIGSEGV, SIG_DFL); /* cmocka's handlers go on with the tests, in the child too */
        signal(SIGABRT, SIG_DFL);
        forked_comm comm = {.base = {.vtable = &vtable,
                                     .name = "forked",
                                     .rank = r,
                                     .ranks = ranks,
                                     .hosts = 1,
                                     .host_rank = r,
                                     .host_ranks = ranks},
                            .area = job->area};
        work(&comm.base, context);
        _exit(0);
    }
}

/* Waits for all ranks; whether they have ended without an error. `signal_sent` (0: none) is sent to
 * them before. */
static inline bool forked_end(forked_job *job, int signal_sent)
{
    bool well = true;
    for (int r = 0; r < job->ranks && signal_sent; r++) kill(job->pid[r], signal_sent);
    for (int r = 0; r < job->ranks; r++) {
        int status = 0;
        HARNESS_CHECK(waitpid(job->pid[r], &status, 0) == job->pid[r]);
        well = well && WIFEXITED(status) && !WEXITSTATUS(status);
    }
    munmap(job->area, sizeof *job->area);
    return well;
}

#endif
