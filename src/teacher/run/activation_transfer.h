/* Activations that are sent between ranks: micro-batches go from one rank's device to another's.
 *
 * Data flow: place on a device -> host staging -> (WD_LANE_ACTIVATIONS) -> the other rank's staging
 * -> place on its device. A few are on their way at a time. The sender goes on at once; the
 * receiver waits for what comes, while its device computes what came before.
 *
 * Why ranks that share a teacher never wait for one another for ever: all of them go through the
 * same schedules in the same order, each launching the entries of its own devices. At an entry a
 * rank may wait for the entry's sender, for a staging whose micro-batch was sent some entries
 * before, or for targets of an earlier sweep: always for others to do this entry or one before it.
 * Take, of all unfinished entries, the first. Everything before it is done, so its sender waits for
 * nobody, sends, and the receiver goes on. Private to src/teacher/run. */
#ifndef WD_TEACHER_RUN_ACTIVATION_TRANSFER_H
#define WD_TEACHER_RUN_ACTIVATION_TRANSFER_H

#include "job/comm/comm.h"
#include "teacher/run/activations.h"

/* One direction of a device: to other ranks, or from them. */
typedef struct wd_activation_transfer {
    wd_comm *comm;                            /* borrowed; NULL: nothing goes that way */
    wd_queue *queue;                          /* of the device, borrowed */
    char *staging;                            /* [WD_TRANSFERS_UNDER_WAY, bytes] host */
    size_t bytes;                             /* of the largest micro-batch */
    wd_event *copied[WD_TRANSFERS_UNDER_WAY]; /* to the staging, or from it */
    wd_ticket sent[WD_TRANSFERS_UNDER_WAY];
    int64_t sends, receives; /* micro-batches so far */
} wd_activation_transfer;

/* In place. The buffers are borrowed. */
wd_status wd_activation_transfer_open(wd_activation_transfer *out, wd_comm *comm,
                                      wd_activations *activations, wd_err *err);
void wd_activation_transfer_close(wd_activation_transfer *transfer); /* a zeroed one is fine */

/* Sends to rank `to` what the next stage reads of a micro-batch of `samples`, which leaves its
 * place. */
void wd_activation_transfer_send(wd_activation_transfer *transfer, wd_activations *from,
                                 wd_activation_place *place, int64_t samples, wd_stage_kind next,
                                 int to);

/* Receives a micro-batch from rank `from`, to a place. */
void wd_activation_transfer_receive(wd_activation_transfer *transfer, wd_activations *to,
                                    wd_activation_place *place, int64_t samples, wd_stage_kind next,
                                    int from);

#endif
