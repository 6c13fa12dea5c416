/* Folder job/watch. Failed ranks: heartbeats, deadlines, the end of a job.
 *
 * The watch: a heartbeat between ranks beside the communicator, so that no job hangs.
 *
 * Each rank has a thread that sends the other ranks a message twice a second, over sockets of its
 * own: it says that the rank lives, at which step it is, and what memory it has. If a rank's socket
 * is closed without a goodbye, the rank was killed. If a rank sends nothing for some seconds, it is
 * stopped, or its host or the network hangs. If its step lasts far longer than was planned, it
 * hangs although its process runs. A rank that fails by itself sends the reason. The first of these
 * failures ends the whole job: the lowest living rank logs one report (who failed and why, the
 * memory of all ranks, what can be done), and every process ends with the exit code of the failure,
 * whatever its other threads wait for.
 *
 * Why beside MPI: MPI waits without end for a rank that is lost or stopped, and a thread that waits
 * in MPI cannot be interrupted. Why every rank is connected to every other: any of them may be the
 * one that is lost, rank 0 too.
 *
 * The watch ends a process by _exit(), because threads that hang cannot be joined. */
#ifndef WD_JOB_WATCH_WATCH_H
#define WD_JOB_WATCH_WATCH_H

#include "job/comm/comm.h"
#include "job/watch/watch_end.h"
#include "job/watch/watch_handshake.h"

typedef struct wd_watch wd_watch;

enum { WD_WATCH_ADDRESSES_MAX = 8 };

/* Where a rank's watch accepts connections: plain data, which ranks exchange once. */
typedef struct wd_watch_address {
    char host[64];    /* the machine's name, for reports */
    char machine[96]; /* ranks whose texts differ are on different machines */
    wd_watch_process process;
    int32_t port, count;
    char address[WD_WATCH_ADDRESSES_MAX][48]; /* IPv4 and IPv6, as text */
    unsigned char secret[WD_SECRET_BYTES];    /* the job's is that of rank 0 */
} wd_watch_address;

/* What rank this is, and time limits; 0: the default that the comment gives. */
typedef struct wd_watch_options {
    int rank, ranks;
    bool one_machine; /* all ranks are on the same machine */
    double beat_s;    /* 0.5: time between two heartbeats */
    double silent_s;  /* 5: a rank without a heartbeat for so long is lost */
    double open_s;    /* 6: until all ranks are connected */
} wd_watch_options;

/* What a rank reports about itself. */
typedef struct wd_watch_note {
    char device[128];  /* "cpu (AVX2, 2 threads)" */
    char memory[2048]; /* a line for each of its devices */
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
 * borrowed until wd__watch_connect returns). */
wd_status wd__watch_listen(wd_watch **out, const wd_watch_options *options, wd_watch_address *mine,
                           wd_err *err);
wd_status wd__watch_connect(wd_watch *watch, const wd_watch_address *all, wd_err *err);

/* From now on `fn` makes this rank's note. The watch's thread calls it every few heartbeats and
 * when something fails, and no longer once this function was called with another `fn`. NULL: the
 * last note stays. While `fn` runs this rank sends no heartbeat, so it must be quick; no other
 * function here waits for it. */
void wd_watch_describe(wd_watch *watch, wd_watch_describe_fn *fn, void *context);

/* From now on the watch reads in `comm` for how long this rank has waited for others (waits_since);
 * NULL: no longer. After a pause of the whole process it moves the beginnings of these waits on by
 * the length of the pause. */
void wd_watch_follow(wd_watch *watch, wd_comm *comm);

/* The rank begins `step`, or a part of it with another limit, and may take `allowed_s` for it;
 * INFINITY: any time. The job fails once every rank is stuck: it has computed for longer than it
 * may take, or waited without a break for longer than the least that any rank may take. */
void wd_watch_step(wd_watch *watch, int64_t step, double allowed_s);

/* Ends the whole job because this rank has failed. The report contains the errors that were logged
 * meanwhile (wd_log_keep_errors), and the exit code is the error's status. */
_Noreturn void wd_watch_fail(wd_watch *watch, const wd_err *error);

/* Ends the watch without a report; collective: returns once all ranks have called it. A rank that
 * fails before that still ends the job. NULL is allowed. */
void wd_watch_close(wd_watch *watch);

#endif
