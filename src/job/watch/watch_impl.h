/* Declarations shared by the files of the watch (watch*.c). Only the watch's thread uses fields
 * that have no lock. */
#ifndef WD_JOB_WATCH_WATCH_IMPL_H
#define WD_JOB_WATCH_WATCH_IMPL_H

#include <poll.h>
#include <pthread.h>

#include "job/watch/watch.h"
#include "job/watch/watch_connect.h"
#include "job/watch/watch_link.h"

/* The state of a rank when it sent its heartbeat. */
typedef struct wd_watch_beat {
    int64_t step;
    int64_t collectives;      /* operations that it has posted (wd_comm.collectives) */
    double step_s, allowed_s; /* time spent on the step, and the time that it may take */
    double wait_s;            /* time it has waited for other ranks */
    double note_s;            /* age of its note */
    int64_t brought;          /* stages brought by its host's reader (wd_comm.brought) */
    int32_t wait;             /* what it waits for: a lane, WD_WAIT_READER; -1: nothing */
} wd_watch_beat;

typedef struct wd_watch_report {
    wd_watch_beat beat;
    wd_watch_note note;
} wd_watch_report;

typedef struct wd_watch_peer {
    wd_watch_link link;
    bool is_connected;
    bool has_left;    /* it has sent its goodbye */
    bool is_gone;     /* its connection is closed */
    bool is_silent;   /* it has sent nothing for too long */
    bool has_failure; /* the failure was sent to it */
    double heard_s;   /* clock, when it last sent something */
    double noted_s;   /* clock, when its note was made */
    wd_watch_report report;
} wd_watch_peer;

/* Why a rank is held to have failed. */
typedef enum wd_watch_cause {
    WD_WATCH_OWN,    /* the rank reports it itself, and lives until all end */
    WD_WATCH_LOST,   /* its process is gone */
    WD_WATCH_SILENT, /* its process is stopped */
    WD_WATCH_LATE    /* its process runs, but its step does not end */
} wd_watch_cause;

typedef struct wd_watch_failure {
    int32_t rank, code, cause; /* code: the exit code; cause: a wd_watch_cause */
    char text[WD_FRAME_BYTES_MAX - 64];
} wd_watch_failure;

struct wd_watch {
    wd_watch_options o;
    pthread_t thread;
    int wake; /* an eventfd: written to when the thread has something to do */
    wd_watch_process process;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    int connected;        /* ranks that are connected, with this one */
    bool leaving;         /* wd_watch_close was called */
    bool own_is_set;      /* `own` was set, and has yet to be sent */
    wd_watch_failure own; /* of this rank */
    int64_t step;
    double step_begun, allowed_s;
    wd_comm *comm;
    /* Under a lock of its own, which is held while `describe` runs: that may take long, and
     * wd_watch_step must not wait for it. */
    pthread_mutex_t note_lock;
    wd_watch_describe_fn *describe;
    bool describe_now; /* `describe` is a new function */
    void *context;     /* of `describe` */
    /* used by the thread alone */
    wd_watch_address *all; /* [ranks] */
    wd_connect *connect;   /* NULL once all ranks are connected */
    wd_watch_peer *peer;   /* [ranks]; of this rank only `report` and its times are used */
    struct pollfd *set;    /* [ranks + 1] */
    double begun, next_beat, next_note; /* clock */
    bool has_left;                      /* this rank has sent its goodbye */
    bool failed;                        /* `first` is set */
    bool is_reported;                   /* another rank has written the report */
    bool is_expelled;                   /* the others hold this rank to be lost or silent */
    double failed_at;                   /* clock, when the thread began to act on `first` */
    wd_watch_failure first;             /* the first failure that is known */
    double report_by_s;                 /* clock, when the lowest living rank must have reported */
    wd_frame frame;
};

/* ---- watch_look.c: finds failures ---- */

/* Fills in a failure; its text is made as by printf. */

void wd__watch_failed(wd_watch_failure *out, int rank, int code, wd_watch_cause cause,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Sets the first failure. Later ones are its consequences, and are ignored. */
void wd__watch_learn(wd_watch *watch, const wd_watch_failure *failure);

/* The lowest rank that is connected and lives, which may be this one. */
int wd__watch_lowest_living(const wd_watch *watch);

/* Looks for ranks that are gone, silent, late or not connected in time. */
void wd__watch_look(wd_watch *watch, double now_s);

/* ---- watch_end.c: ends the job ---- */

/* Is called again and again once something has failed. Sends the failure to the others, writes the
 * report if this is the lowest living rank, and ends the process when that is done. */
void wd__watch_act(wd_watch *watch, double now_s);

#endif
