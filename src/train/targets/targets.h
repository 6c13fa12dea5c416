/* The ring of targets: states that the teacher is asked about, and the velocities that it gives.
 *
 * A target's index in the ring follows from its number. Once all trajectories have begun, every
 * round (train/targets/trajectory.h) is contiguous in the ring. The ring has room for the oldest
 * target that a sample may draw. */
#ifndef WD_TRAIN_TARGETS_TARGETS_H
#define WD_TRAIN_TARGETS_TARGETS_H

#include "dev/device.h"
#include "train/targets/trajectory.h"

typedef struct wd_targets {
    wd_device *device;         /* borrowed */
    int64_t capacity;          /* of the ring: whole rounds */
    int64_t shift;             /* of a target's index in the ring from its number */
    int64_t state_count;       /* elements of one state's latents */
    float *latents, *velocity; /* [capacity, state_count] device; owned, as is all that follows */
    float *dt;                 /* [capacity] device: sigma steps that follow from targets */
    wd_event **arrival;        /* [capacity] when a velocity is there, borrowed; NULL: the
                                * velocity is there already, or another rank sends it */
    int64_t awaited;           /* targets that wd__targets_await has seen */
} wd_targets;

/* Room for `needed` targets at least. */
wd_status wd__targets_open(wd_targets *out, const wd_trajectory_options *options, int64_t needed,
                           int64_t state_count, wd_device *device, wd_err *err);
void wd__targets_close(wd_targets *targets); /* a zeroed one is fine */

/* The queue waits for the targets before `end`, and for no later ones: those are on their way while
 * the student computes. */
void wd__targets_await(wd_targets *targets, int64_t end, wd_queue *queue);

static inline int64_t wd__targets_ring_index(const wd_targets *targets, int64_t number)
{
    return (number + targets->shift) % targets->capacity;
}

#endif
