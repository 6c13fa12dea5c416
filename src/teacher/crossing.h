/* Crossings: micro-batches that go from one rank's device to another's.
 *
 * Data flow: place at a station -> host staging -> (WD_LANE_ACTIVATIONS) -> the other rank's
 * staging -> place at its station. A few are on their way at a time. Who sends goes on at once; who
 * receives waits for what comes, while its device computes what came before.
 *
 * Why ranks that share a teacher never wait for one another for ever: all of them go through the
 * same steps in the same order (sweep by sweep, leg by leg, micro-batch by micro-batch, stage by
 * stage), each doing its part. In a step a rank may wait for the step's sender, for a staging whose
 * micro-batch was sent some steps before, or for targets of an earlier sweep: always for others to
 * do this step or one before it. Take, of all unfinished steps, the first. Everything before it is
 * done, so its sender waits for nobody, sends, and the receiver goes on. Private to src/teacher.
 */
#ifndef WD_TEACHER_CROSSING_H
#define WD_TEACHER_CROSSING_H

#include "dist/comm.h"
#include "teacher/station.h"

/* One way of a station: to other ranks, or from them. */
typedef struct wd_crossing {
    wd_comm *comm;   /* borrowed; NULL: nothing goes that way */
    wd_queue *queue; /* of the station, borrowed */
    char *staging;   /* [WD_CROSSINGS_UNDER_WAY, bytes] host */
    size_t bytes;    /* of the largest micro-batch */
    wd_event *copied[WD_CROSSINGS_UNDER_WAY]; /* to the staging, or from it */
    wd_ticket sent[WD_CROSSINGS_UNDER_WAY];
    int64_t left, come; /* micro-batches so far */
} wd_crossing;

/* In place. For micro-batches of the station, which is borrowed. */
wd_status wd_crossing_open(wd_crossing *out, wd_comm *comm, wd_station *station, wd_err *err);
void wd_crossing_close(wd_crossing *crossing); /* a zeroed one is fine */

/* What the next stage reads of a micro-batch of `samples` leaves a slot of the station for rank
 * `to`. */
void wd_crossing_leave(wd_crossing *crossing, wd_station *from, wd_station_slot *slot,
                       int64_t samples, wd_stage_kind next, int to);

/* It comes from rank `from` to a slot of the station. */
void wd_crossing_come(wd_crossing *crossing, wd_station *to, wd_station_slot *slot, int64_t samples,
                      wd_stage_kind next, int from);

#endif
