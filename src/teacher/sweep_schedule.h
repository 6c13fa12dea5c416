/* The schedule: what a sweep does, entry by entry.
 *
 * A pure function makes it from a placement and the numbers of micro-batches: a list of entries in
 * the order in which they are launched. Everything that knows how a sweep goes reads this list: the
 * sweep launches it (teacher/sweep.h), the timeline plays it (teacher/timeline.h), traffic adds up
 * the bytes of its copies (teacher/traffic.h), and the memory of a device is the largest number of
 * micro-batches that are there at once (wd_sweep_parts).
 *
 * Ranks that share a teacher go through the same list, and each does the entries of its own
 * devices. The test writes out the lists of small placements. */
#ifndef WD_TEACHER_SWEEP_SCHEDULE_H
#define WD_TEACHER_SWEEP_SCHEDULE_H

#include "core/error.h"
#include "teacher/placement.h"

typedef enum wd_sweep_entry_kind {
    WD_ENTRY_FETCH,   /* weights that are not on their device may begin to come there */
    WD_ENTRY_ACQUIRE, /* a stage's weights are there, */
    WD_ENTRY_RELEASE, /* until here */
    WD_ENTRY_ENTER,   /* latents and text of a micro-batch come to a device; the embedding runs */
    WD_ENTRY_RUN,     /* a block runs */
    WD_ENTRY_LEAVE,  /* the head runs; velocities go to where latents came from, and to all ranks */
    WD_ENTRY_COPY,   /* a micro-batch goes from a device to another one of its rank */
    WD_ENTRY_SEND,   /* a micro-batch leaves its device for another rank's, */
    WD_ENTRY_RECEIVE /* and comes there */
} wd_sweep_entry_kind;

typedef struct wd_sweep_entry {
    wd_sweep_entry_kind kind;
    int expert, stage; /* of a copy, a send and a receive: the stage that comes next */
    int batch;         /* number of the expert's micro-batch; -1 where weights are meant */
    int device,
        place; /* where it is, and in which place there; a copy, a send: where it comes from */
    int to, to_place; /* of a copy and a send; of a send the place is the receiver's affair, -1 */
} wd_sweep_entry;

/* Stages [first, end) that micro-batches go through one after another. Where all of them stay, a
 * micro-batch goes through all, then the next, so that several devices are at work; where weights
 * come, are widened or are mapped, one stage takes the whole window while they are there. No window
 * waits for another device or for stages that stay where it was embedded, nor for a head. */
typedef struct wd_segment {
    int first, end;
} wd_segment;

/* The segment of an expert that begins with the stage `first`. */
wd_segment wd_sweep_segment(const wd_placement *placement, int expert, int first);

/* ---- what a device has to do with it ---- */

typedef struct wd_sweep_part {
    bool kind[WD_STAGE_KINDS]; /* of the stages that it computes */
    int places;                /* for micro-batches: as many as there are at once, or more */
    bool sends, receives;      /* micro-batches to other ranks, from them */
} wd_sweep_part;

/* The parts of all devices, [devices] of the job, or of one rank where each has a teacher, under
 * schedules of up to `batches` micro-batches of an expert. Of the cluster only which devices read
 * host memory matters. */
void wd_sweep_parts(wd_sweep_part *out, int devices, const wd_placement *placement,
                    const wd_cluster *cluster, int batches);

/* Places for micro-batches on a device where a whole window waits, or is sent to by others of its
 * rank, which do not wait for it: one is computed, one comes, one leaves. */
static inline int wd_sweep_places(bool waits, bool is_sent, int batches)
{
    const int least = is_sent ? WD_PIPELINE_PLACES : 1;
    return waits && batches > least ? batches : least;
}

/* ---- the list ---- */

/* What one sweep has to do. */
typedef struct wd_sweep_work {
    int batches[WD_PLACED_EXPERTS_MAX]; /* micro-batches of each expert */
    unsigned next; /* bit e: the sweep after it has states of expert e, whose first weights are
                    * fetched; 0: nobody knows */
} wd_sweep_work;

typedef struct wd_sweep_schedule {
    const wd_placement *placement; /* borrowed */
    wd_sweep_part part[WD_CLUSTER_DEVICES_MAX];
    int turn[WD_CLUSTER_DEVICES_MAX]; /* the place that a device's next micro-batch takes: places
                                       * come round from sweep to sweep */
    wd_sweep_entry *entry;
    int count, room;
} wd_sweep_schedule;

/* Room for sweeps of up to `batches` micro-batches of each expert; the arguments are those of
 * wd_sweep_parts. The placement is borrowed. */
wd_status wd_sweep_schedule_open(wd_sweep_schedule *out, int devices, const wd_placement *placement,
                                 const wd_cluster *cluster, int batches, wd_err *err);
void wd_sweep_schedule_close(wd_sweep_schedule *schedule); /* a zeroed one is fine */

/* Makes the list of a sweep that follows the one it had before. */
void wd_sweep_schedule_make(wd_sweep_schedule *schedule, const wd_sweep_work *window);

/* Calls `fn` for each entry of a first sweep, in order. No place is told from another. */
typedef void wd_sweep_entry_fn(void *context, const wd_sweep_entry *entry);
void wd_sweep_schedule_each(const wd_placement *placement, const wd_sweep_work *window,
                            wd_sweep_entry_fn *fn, void *context);

#endif
