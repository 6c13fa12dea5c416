/* Inside the watch: what its files share. All but what is said to be under the lock belongs to the
 * watch's thread. */
#ifndef WD_DIST_WATCH_IMPL_H
#define WD_DIST_WATCH_IMPL_H

#include <poll.h>
#include <pthread.h>

#include "dist/watch.h"
#include "dist/watch_link.h"
#include "dist/watch_meet.h"

/* How a rank is, as of when it says so. */
typedef struct wd_watch_beat {
    int64_t step;
    int64_t collectives;      /* that it has posted */
    double step_s, allowed_s; /* spent on it, and what it may take */
    double wait_s;            /* for other ranks */
    double note_s;            /* since its note was made */
    int64_t brought;          /* of what one rank of a host reads for all */
    int32_t wait;             /* for what: a lane, WD_WAIT_READER; -1: it does not wait */
} wd_watch_beat;

typedef struct wd_watch_report {
    wd_watch_beat beat;
    wd_watch_note note;
} wd_watch_report;

typedef struct wd_watch_peer {
    wd_link link;
    bool met, left, gone, silent, told;
    double heard_s; /* clock */
    double noted_s; /* the same, when its note was made */
    wd_watch_report is;
} wd_watch_peer;

typedef enum wd_watch_blame {
    WD_WATCH_OWN,    /* the rank says so itself, and lives until all end */
    WD_WATCH_LOST,   /* it is gone */
    WD_WATCH_SILENT, /* it is stopped */
    WD_WATCH_LATE    /* it lives, but does not go on */
} wd_watch_blame;

typedef struct wd_watch_failure {
    int32_t rank, code, blame;
    char text[WD_FRAME_BYTES_MAX - 64];
} wd_watch_failure;

struct wd_watch {
    wd_watch_options o;
    pthread_t thread;
    int wake;
    wd_watch_life life; /* of this process */
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    int met;      /* ranks that are connected */
    bool leaving; /* closes in order */
    bool asked;   /* `own` is to be told */
    wd_watch_failure own;
    int64_t step;
    double step_begun, allowed_s;
    wd_comm *comm;
    /* Under a lock of its own, which is held while the function runs: that may take long, and who
     * begins a step must not wait for it. */
    pthread_mutex_t note_lock;
    wd_watch_describe_fn *describe;
    bool described; /* by another function since */
    void *context;
    /* the thread's */
    wd_watch_address *all; /* [ranks] */
    wd_meet *meet;
    wd_watch_peer *peer; /* [ranks]; its own place is for `is` alone */
    struct pollfd *set;  /* [ranks + 1] */
    double begun, next_beat, next_note;
    bool said_bye;
    bool failed, ended, outcast;
    double failed_at;
    wd_watch_failure first;
    double patience; /* until when somebody is to have reported */
    wd_frame frame;
};

/* ---- watch_look.c: what has failed ---- */

void wd_watch_failed(wd_watch_failure *out, int rank, int code, wd_watch_blame blame,
                     const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The first failure that is known; later ones follow from it. */
void wd_watch_learn(wd_watch *watch, const wd_watch_failure *failure);

int wd_watch_lowest_living(const wd_watch *watch);

/* Sees whether anybody is missing. */
void wd_watch_look(wd_watch *watch, double now_s);

/* ---- watch_end.c ---- */

/* Once something has failed: tells the others, reports where that is this rank's part, and does not
 * return when it is time to end. */
void wd_watch_act(wd_watch *watch, double now_s);

#endif
