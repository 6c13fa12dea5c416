/* Where the chords are that a student learns (train/targets/chord.h): on its device, in a ring by
 * number.
 *
 * The pool of the trajectories' targets has the states and velocities of the blocks under way; a
 * block that has ended is copied from there as one state and one chord, so that what is drawn again
 * later takes the room of one state and one velocity, not of the block's. */
#ifndef WD_TRAIN_TARGETS_CHORD_POOL_H
#define WD_TRAIN_TARGETS_CHORD_POOL_H

#include "dev/device.h"
#include "train/targets/chord.h"

typedef struct wd_chord_pool {
    int64_t capacity, state_count;
    int64_t count;   /* chords added so far; the last `capacity` of them are there */
    float *latents;  /* [capacity, state_count] device: where blocks begin */
    float *velocity; /* [capacity, state_count] device: the chords */
} wd_chord_pool;

/* state_count: elements of one state. WD_OUT_OF_MEMORY: the device's pool has no room. */
wd_status wd__chord_pool_open(wd_chord_pool *out, wd_device *device, int64_t capacity,
                              int64_t state_count, wd_err *err);
void wd__chord_pool_close(wd_chord_pool *pool, wd_device *device); /* all work on it is done */

/* What a block has: the state where it begins, and the velocities of its targets, each one
 * [state_count] device. */
typedef struct wd_chord_block {
    const float *latents;
    const float *velocity[WD_CHORD_STEPS_MAX];
} wd_chord_block;

/* Adds the next chord, of that block, on `queue`. `twin` is read where the chord has a gain. */
void wd__chord_pool_add(wd_chord_pool *pool, const wd_chord *chord, const wd_chord_block *block,
                        const wd_chord_block *twin, wd_queue *queue);

/* Where chord `number`, one of the last `capacity`, is in the ring. */
int64_t wd__chord_pool_place(const wd_chord_pool *pool, int64_t number);

#endif
