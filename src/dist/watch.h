/* The watch: a heartbeat beside the communicator, so that nothing hangs.
 *
 * Each rank has a thread that does nothing but tell the other ranks, twice a second and over
 * sockets of its own, that it is alive, what it is at, and what memory it has. A rank that closes
 * its socket without a word was killed; one that is silent for some seconds is stopped, or its host
 * or network hangs; one whose step lasts far longer than was planned hangs where no signal shows
 * it; one that fails by itself says why. Whichever comes first ends the whole job: the lowest rank
 * that lives logs one report (who failed and why, the memory of all ranks, what can be done), and
 * every process ends with the exit code of the failure, whatever its other threads wait for.
 *
 * Why beside MPI: an MPI that lost a rank, or whose rank was stopped, waits without end, and a
 * thread that waits in it cannot be told. Why every rank knows every other: any of them may be
 * the one that is gone, rank 0 as well.
 *
 * What ends a process here is _exit(): the threads that hang could not be joined. */
#ifndef WD_DIST_WATCH_H
#define WD_DIST_WATCH_H

#include "dist/comm.h"
#include "dist/watch_life.h"
#include "dist/watch_word.h"

typedef struct wd_watch wd_watch;

enum { WD_WATCH_ADDRESSES_MAX = 8 };

/* Where a rank's watch is found: plain data, exchanged once. */
typedef struct wd_watch_address {
    char host[64];    /* its name */
    char machine[96]; /* different where it is another one; copies of one may look alike */
    wd_watch_life life;
    int32_t port, count;
    char address[WD_WATCH_ADDRESSES_MAX][48]; /* numeric */
    unsigned char secret[WD_SECRET_BYTES];    /* rank 0's is the job's */
} wd_watch_address;

/* How long things may take; 0: what is said here. */
typedef struct wd_watch_options {
    int rank, ranks;
    bool one_machine; /* all ranks are on it */
    double beat_s;    /* 0.5: between signs of life */
    double silent_s;  /* 5: without one */
    double open_s;    /* 6: until all ranks are connected */
} wd_watch_options;

/* What a rank says of itself. */
typedef struct wd_watch_note {
    char device[128];  /* "cpu (AVX2, 2 threads)" */
    char memory[2048]; /* a line for each of its memories */
} wd_watch_note;

typedef void wd_watch_describe_fn(void *context, wd_watch_note *out);

/* Gives every rank the addresses of all: `all` is [ranks], of which the own one is filled in. */
typedef wd_status wd_watch_exchange_fn(void *context, wd_watch_address *all, wd_err *err);

/* Opens the watch of this rank and connects it to those of all others, whose addresses `exchange`
 * brings; collective. *out is NULL for one rank: every function here takes that, and does nothing.
 * Ends the process with a report where a rank does not connect within `open_s`. */
wd_status wd_watch_open(wd_watch **out, const wd_watch_options *options,
                        wd_watch_exchange_fn *exchange, void *context, wd_err *err);

/* The two steps of wd_watch_open, between which the caller exchanges the addresses (`all`: [ranks],
 * borrowed until wd_watch_connect returns). */
wd_status wd_watch_listen(wd_watch **out, const wd_watch_options *options, wd_watch_address *mine,
                          wd_err *err);
wd_status wd_watch_connect(wd_watch *watch, const wd_watch_address *all, wd_err *err);

/* Says from now on what `fn` says of this rank: it is called by the watch's thread, every few beats
 * and when something fails, never after this function was called with another. NULL: nothing
 * new. While it runs this rank gives no sign of life, so it must be quick; only this function waits
 * for it. */
void wd_watch_describe(wd_watch *watch, wd_watch_describe_fn *fn, void *context);

/* Sees from now on for how long this rank waits for others; NULL: no more. After a pause of the
 * whole process it puts off the beginnings of these waits. */
void wd_watch_follow(wd_watch *watch, wd_comm *comm);

/* The rank begins `step` (or goes on with it in another way), for which it is allowed so many
 * seconds; INFINITY: as many as it takes. The job fails once every rank is stuck: it has computed
 * for longer than it is allowed, or waited without a break for longer than any is. */
void wd_watch_step(wd_watch *watch, int64_t step, double allowed_s);

/* Ends the whole job because this rank has failed: errors that were put aside (core/log.h) are told
 * with it. The process ends with the error's status as exit code. */
_Noreturn void wd_watch_fail(wd_watch *watch, const wd_err *error);

/* Ends the watch of all ranks in order; collective: returns once all have called it. A rank that
 * fails meanwhile is a failure as before. NULL is allowed. */
void wd_watch_close(wd_watch *watch);

#endif
