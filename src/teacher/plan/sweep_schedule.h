/* The schedule: what a sweep does, entry by entry.
 *
 * A pure function makes it from a placement and the numbers of micro-batches: a list of entries in
 * the order in which they are launched. Everything that knows how a sweep goes reads this list: the
 * sweep launches it (teacher/run/sweep.h), the timeline plays it (teacher/plan/timeline.h), traffic
 * adds up the bytes of its copies (teacher/plan/traffic.h), the places of a device follow from it
 * (wd_sweep_part), and streamed stages come in its order (teacher/run/stage_order.h), as a test
 * shows.
 *
 * Ranks that share a teacher go through the same list, and each does the entries of its own
 * devices. The test writes out the lists of small placements. */
#ifndef WD_TEACHER_PLAN_SWEEP_SCHEDULE_H
#define WD_TEACHER_PLAN_SWEEP_SCHEDULE_H

#include "core/error.h"
#include "teacher/plan/placement.h"

typedef enum wd_sweep_entry_kind {
    WD_ENTRY_ACQUIRE, /* from now on the weights of a stage are on the device; streamed ones come as
                       * soon as there is room for them, in the order of these entries */
    WD_ENTRY_RELEASE, /* the device no longer needs the weights of a stage */
    WD_ENTRY_ENTER,   /* a micro-batch takes its place; its latents and text come to the device, and
                       * the embedding runs */
    WD_ENTRY_RUN,     /* a block runs */
    WD_ENTRY_LEAVE,   /* the head runs, velocities go to where the latents came from, and to all
                       * ranks; the micro-batch leaves its place */
    WD_ENTRY_COPY,    /* a micro-batch goes from its place to one on another device of the rank */
    WD_ENTRY_SEND,    /* a micro-batch leaves its place, for a device of another rank */
    WD_ENTRY_RECEIVE  /* a micro-batch of another rank takes its place on the device */
} wd_sweep_entry_kind;

typedef struct wd_sweep_entry {
    wd_sweep_entry_kind kind;
    int expert;
    int stage;         /* in a copy, a send and a receive: the stage that runs next */
    int batch;         /* number among the expert's micro-batches; -1: the entry is of weights */
    int device, place; /* of the micro-batch; in a copy and a send: before it goes on */
    int to, to_place;  /* in a copy and a send: the device that the micro-batch goes to, and, in a
                        * copy, its place there; else -1 */
} wd_sweep_entry;

/* Stages [first, end) that one micro-batch after another goes through. Where all of them stay on
 * accelerators, a micro-batch goes through all, then the next one does, so that several devices are
 * at work. A stage whose weights come, are widened or are mapped takes the whole window while they
 * are there. No window waits where it was embedded for another device or for stages that stay, nor
 * does one wait for a head. */
typedef struct wd_segment {
    int first, end;
} wd_segment;

/* The segment of an expert that begins with the stage `first`. */
wd_segment wd_sweep_segment(const wd_placement *placement, int expert, int first);

/* ---- a device's part of a schedule ---- */

typedef struct wd_sweep_part {
    bool embeds; /* whether the device has an embedding */
    int places; /* for micro-batches: as many as a window has where two are there at once, else one;
                 * at least WD_PIPELINE_PLACES where other devices of the rank copy to it */
    bool sends, receives; /* whether micro-batches go to other ranks and come from them */
} wd_sweep_part;

/* out[devices] = the parts of all devices of the job, or of one rank where each has a teacher, in
 * sweeps of up to `batches` micro-batches of an expert. */
void wd_sweep_parts(wd_sweep_part *out, int devices, const wd_placement *placement, int batches);

/* ---- the list ---- */

/* The work of one sweep. */
typedef struct wd_sweep_work {
    int batches[WD_PLACED_EXPERTS_MAX]; /* micro-batches of each expert */
} wd_sweep_work;

typedef struct wd_sweep_schedule {
    const wd_placement *placement; /* borrowed */
    wd_sweep_part part[WD_CLUSTER_DEVICES_MAX];
    int turn[WD_CLUSTER_DEVICES_MAX]; /* the place that a device's next micro-batch takes: places
                                       * are taken in turn, from sweep to sweep */
    wd_sweep_entry *entry;            /* [count], in the order in which they are launched */
    int count, room;
} wd_sweep_schedule;

/* Room for sweeps of up to `batches` micro-batches of each expert; the arguments are those of
 * wd_sweep_parts. The placement is borrowed. */
wd_status wd_sweep_schedule_open(wd_sweep_schedule *out, int devices, const wd_placement *placement,
                                 int batches, wd_err *err);
void wd_sweep_schedule_close(wd_sweep_schedule *schedule); /* a zeroed one is fine */

/* Makes the list of the next sweep. */
void wd_sweep_schedule_make(wd_sweep_schedule *schedule, const wd_sweep_work *work);

/* Calls `fn` for each entry of a sweep, in order, with 0 for all places. */
typedef void wd_sweep_entry_fn(void *context, const wd_sweep_entry *entry);
void wd_sweep_schedule_each(const wd_placement *placement, const wd_sweep_work *work,
                            wd_sweep_entry_fn *fn, void *context);

#endif
