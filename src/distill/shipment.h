/* Shipments: velocities on their way from the rank that has evaluated them to all others.
 *
 * Data flow: place in the ring of targets -> (a queue of its own) -> host staging, gathered to all
 * ranks -> (home) -> the same place of the others' rings. They are sent as soon as they are there,
 * and taken when somebody needs them: until then the devices have other work to do. They come in
 * the order in which they are sent, which is the same on all ranks. */
#ifndef WD_DISTILL_SHIPMENT_H
#define WD_DISTILL_SHIPMENT_H

#include "dev/device.h"
#include "dist/comm.h"

typedef struct wd_shipment {
    int64_t *target; /* numbers, in the order of the ranks that have evaluated them */
    int64_t *place;  /* of each in the ring */
    int64_t *first;  /* [ranks + 1] rank r has evaluated those from first[r] to first[r + 1] - 1 */
    /* private */
    float *staging; /* [states_max, state] host */
    size_t *at;     /* [ranks + 1] bytes */
    wd_ticket ticket;
    wd_event *copied;   /* what this rank sends is in the staging */
    wd_event *unpacked; /* what others have sent is out of it */
} wd_shipment;

typedef struct wd_shipments wd_shipments;

/* `count` of them can be under way, of at most `states_max` states of `state_count` elements each.
 * `home`: where they are unpacked. All borrowed. */
wd_status wd_shipments_open(wd_shipments **out, wd_comm *comm, wd_queue *home, int64_t count,
                            int64_t states_max, int64_t state_count, wd_err *err);
void wd_shipments_close(wd_shipments *shipments); /* NULL is allowed */

/* Those that were sent so far, and those of them that were taken. */
int64_t wd_shipments_sent(const wd_shipments *shipments);
int64_t wd_shipments_taken(const wd_shipments *shipments);
bool wd_shipments_is_full(const wd_shipments *shipments);

/* The next one, to be filled with `states` states; there must be room for it. */
wd_shipment *wd_shipments_pack(wd_shipments *shipments, int64_t states);

/* What is sent next is there when the event has happened. */
void wd_shipments_wait_on(wd_shipments *shipments, wd_event *event);

/* Sends what was packed from `ring` [places, state], device. */
void wd_shipments_send(wd_shipments *shipments, float *ring);

/* Waits until the oldest has come: what this rank has sent of it is then in its ring for good. */
const wd_shipment *wd_shipments_await(wd_shipments *shipments);

/* Brings what others have sent of it into `ring`; `queue` waits for home's work so far. */
void wd_shipments_take(wd_shipments *shipments, float *ring, wd_queue *queue);

#endif
