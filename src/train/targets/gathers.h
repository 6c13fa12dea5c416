/* Gathered targets: velocities on their way from the rank that has evaluated them to all others.
 *
 * Data flow: places in the ring of targets -> (a queue of its own) -> host staging, gathered by all
 * ranks -> (home) -> the same places of the others' rings. A gather is posted as soon as its
 * velocities are there, and taken when somebody needs them: until then the devices have other work
 * to do. Gathers are taken in the order in which they are posted, which is the same on all ranks.
 */
#ifndef WD_TRAIN_TARGETS_GATHERS_H
#define WD_TRAIN_TARGETS_GATHERS_H

#include "dev/device.h"
#include "job/comm/comm.h"

typedef struct wd_gather {
    int64_t *target; /* numbers, in the order of the ranks that have evaluated them */
    int64_t *place;  /* of each in the ring */
    int64_t *first;  /* [ranks + 1] rank r has evaluated those from first[r] to first[r + 1] - 1 */
} wd_gather;

typedef struct wd_gathers wd_gathers;

/* `count` of them can be under way, of at most `states_max` states of `state_count` elements each.
 * `home`: where they are unpacked. All borrowed. */
wd_status wd__gathers_open(wd_gathers **out, wd_comm *comm, wd_queue *home, int64_t count,
                           int64_t states_max, int64_t state_count, wd_err *err);
void wd__gathers_close(wd_gathers *gathers); /* NULL is allowed */

/* How many were posted so far, and how many of them were taken. */
int64_t wd__gathers_posted(const wd_gathers *gathers);
int64_t wd__gathers_taken(const wd_gathers *gathers);
bool wd__gathers_is_full(const wd_gathers *gathers);

/* The next gather, to be filled with `states` states; there must be room for it. */
wd_gather *wd__gathers_pack(wd_gathers *gathers, int64_t states);

/* The states that the next gather sends are there when the event has happened. */
void wd__gathers_wait_on(wd_gathers *gathers, wd_event *event);

/* Posts the gather that was packed, from `ring` [places, state], device. */
void wd__gathers_post(wd_gathers *gathers, float *ring);

/* Waits until the oldest has come: what this rank has sent of it is then in its ring for good. */
const wd_gather *wd__gathers_await(wd_gathers *gathers);

/* Brings what others have sent of the oldest into `ring`; `queue` waits for home's work so far. */
void wd__gathers_take(wd_gathers *gathers, float *ring, wd_queue *queue);

#endif
