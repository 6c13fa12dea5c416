/* The trajectory source's own fields, for its files.
 *
 * Data flow: where trajectories are -> ring of targets (both: targets.h), whose velocities a sweep
 * makes window by window, as batches need them, so that the student works meanwhile -> batches
 * (batch.h). Between ranks velocities are gathered (gathers.h). A round is made whole before it is
 * saved, so that what is saved does not depend on the window. */
#ifndef WD_TRAIN_TARGETS_SOURCE_TRAJECTORY_IMPL_H
#define WD_TRAIN_TARGETS_SOURCE_TRAJECTORY_IMPL_H

#include "core/progress.h"
#include "train/targets/chord.h"
#include "train/targets/chord_pool.h"
#include "train/targets/gathers.h"
#include "train/targets/source.h"
#include "train/targets/targets.h"

enum {
    WD_TRAJECTORY_SAVED = 3, /* tensors */
    WD_CHORDS_SAVED = 2,     /* besides, where the student learns chords */
    WD_WINDOWS_UNDER_WAY =
        2 /* windows whose noise and sigma steps are being copied to the device */
};

/* The window that is being made: targets of one round that follow one another, and one sweep. */
typedef struct wd_target_window {
    int64_t first, ring_index; /* its first target, and the index of this one in the ring */
    int64_t count;             /* of its targets */
    int64_t own;               /* the first of its states that this rank's sweep has */
    wd_target_info *info;      /* [window] */
    float *timestep;           /* [window] */
    float *next_timestep;      /* [window] of the window after it */
    int64_t *prompt;           /* [window] */
    wd_event **delivered;      /* [window] when a velocity is there */
    float *dt, *noise; /* [places, window], and [.., state] of each: host, read by copies, and not
                        * touched until the event says so */
    wd_event *uploaded[WD_WINDOWS_UNDER_WAY];
    int64_t number; /* of the window: places go round */
    int places;
} wd_target_window;

/* The part of the source that only several ranks need; zero where there is one rank. A state that
 * another rank evaluates is begun when its velocity is taken, so that it keeps nobody waiting. */
typedef struct wd_target_exchange {
    wd_gathers *gathers;
    bool *begun;          /* [capacity]: the state at this index is there, its velocity is not */
    int64_t *gather;      /* [capacity]: the gather, from 1, that brings the velocity; 0: none */
    int64_t *awaited;     /* [slots] number that must be taken before the slot's next step */
    wd_target_info *info; /* [window]: of what is taken */
    int64_t *state;       /* [window]: 0, 1, ... */
} wd_target_exchange;

/* The part of the source that stores targets; zero where none are stored. */
typedef struct wd_target_saving {
    wd_target_writer *writer;
    wd_queue *queue;      /* on which velocities are rounded, and copied to the host */
    uint16_t *rounded;    /* [places, window, 2, state] device: states and velocities in bf16 */
    uint16_t *staging;    /* the same in host memory */
    wd_event **delivered; /* [slots] when velocities of the slot, and those that came with it, are
                           * rounded */
    wd_event *copied[WD_WINDOWS_UNDER_WAY];
    int64_t waiting[WD_WINDOWS_UNDER_WAY]; /* targets of a place that the writer has not got */
    int places;
} wd_target_saving;

typedef struct wd_trajectory_source {
    wd_source base;
    wd_source_options options;
    wd_sweep *sweep;
    wd_queue *home, *queue;
    int64_t round; /* that base.targets, the next one to make, is of */
    int64_t end;   /* of the samples that are prepared */
    wd_targets ring;
    wd_trajectory_states states;
    wd_batches *batches;
    wd_event *filled[2]; /* the batches of even steps, and of odd ones */
    wd_target_window window;
    wd_progress_task
        progress; /* of making the first targets; zeroed after them, and on dry devices */
    wd_target_exchange exchange;
    wd_chord_pool chords;  /* empty where the student learns velocities */
    wd_rollouts *rollouts; /* NULL: no trajectory is on-policy */
    wd_target_saving saving;
    wd_checkpoint_tensor saved[WD_TRAJECTORY_SAVED + WD_CHORDS_SAVED];
} wd_trajectory_source;

/* ---- source_trajectory_windows.c ---- */

wd_status wd__trajectory_source_open_window(wd_trajectory_source *s, wd_err *err);
void wd__trajectory_source_close_window(wd_trajectory_source *s);

/* Opens nothing where no trajectory is on-policy. */
wd_status wd__trajectory_source_open_rollouts(wd_trajectory_source *s, wd_err *err);

/* Opens nothing where there is one rank. */
wd_status wd__trajectory_source_open_exchange(wd_trajectory_source *s, wd_err *err);
void wd__trajectory_source_close_exchange(wd_trajectory_source *s);

/* Makes the next window. A round is all slots that have begun; no window has targets of two. */
wd_status wd__trajectory_source_make_window(wd_trajectory_source *s, wd_err *err);

/* The number of targets that there are once the windows up to target `needed` have been made. */
int64_t wd__trajectory_source_targets_after(const wd_trajectory_source *s, int64_t needed);

/* Makes what is left of a round that has begun. */
wd_status wd__trajectory_source_make_round(wd_trajectory_source *s, wd_err *err);

/* Takes what has been gathered, up to that gather. */
void wd__trajectory_source_take_until(wd_trajectory_source *s, int64_t gather);

/* ---- source_trajectory_saving.c ---- */

/* Opens nothing where no targets are stored. */
wd_status wd__trajectory_source_open_saving(wd_trajectory_source *s, wd_err *err);
void wd__trajectory_source_close_saving(wd_trajectory_source *s);

/* Rounds these states of the window, which have come into the ring, on `home`. */
void wd__trajectory_source_round_states(wd_trajectory_source *s, const int64_t *states,
                                        int64_t count);

/* Has the window's velocities rounded when they are there: window.delivered is then when they are
 * rounded. */
void wd__trajectory_source_round_velocities(wd_trajectory_source *s);

/* Stores the targets of the window whose place in the staging the next one takes; of all windows,
 * so that they are on disk. */
wd_status wd__trajectory_source_save_window(wd_trajectory_source *s, wd_err *err);
wd_status wd__trajectory_source_save_all(wd_trajectory_source *s, wd_err *err);

/* ---- source_trajectory_windows.c ---- */

/* A wd_source_vtable's begin_step: takes a snapshot if it is time, or gives it up behind
 * on_policy_end. The round that has begun is made whole before, so that each round's states are of
 * one snapshot, or of none. */
wd_status wd__trajectory_source_begin_step(wd_source *self, int64_t step, double progress,
                                           wd_err *err);

#endif
