/* The schedule: what a sweep does, entry by entry.
 *
 * A pure function makes it from a placement and the numbers of micro-batches: a list of entries in
 * the order in which they are launched. Everything that knows how a sweep goes reads this list: the
 * sweep launches it (teacher/run/sweep.h), the timeline plays it (teacher/plan/timeline.h), traffic
 * adds up the bytes of its copies (teacher/plan/traffic.h), the places of a device follow from it
 * (wd_sweep_device), and streamed stages come in its order (teacher/run/stage_order.h), as a test
 * shows.
 *
 * Ranks that share a teacher go through the same list, and each does the entries of its own
 * devices. The test writes out the lists of small placements.
 *
 * The options of a sweep are here, too, since its micro-batches follow from them. */
#ifndef WD_TEACHER_PLAN_SWEEP_SCHEDULE_H
#define WD_TEACHER_PLAN_SWEEP_SCHEDULE_H

#include "core/error.h"
#include "job/comm/comm.h"
#include "model/dit/dit.h"
#include "model/files/pipeline.h"
#include "teacher/plan/placement.h"

/* ---- options of a sweep, and the micro-batches that its windows are cut into ---- */

/* Gives the embedding of a prompt: text_tokens rows of text_dim, zeros after the prompt's own, in
 * `dtype`. Prompt -1 is the negative prompt. */
typedef void wd_sweep_text_fn(void *context, void *out, int64_t prompt, wd_dtype dtype);

typedef struct wd_sweep_options {
    wd_dit_config config;
    wd_dtype dtype;                   /* compute dtype */
    int64_t frames, height, width;    /* of the latents */
    int64_t text_tokens, text_repeat; /* as in wd_dit_shape */
    int64_t window_max;               /* states of one sweep at most */
    int64_t micro_batch;              /* states that go through a stage together, at most */
    double boundary_timestep;         /* expert 0 from this timestep on; 0: there is one expert */
    double guidance_scale[2];         /* per expert; scale[0] <= 1: no unconditional pass */
    wd_device *latents_device;        /* has the latents and velocities of windows, borrowed; NULL:
                                       * the device of the first queue */
    int64_t sweeps_apart;             /* from one sweep that a state is in to its next; 0 is 1 */
    wd_sweep_text_fn *text;
    void *text_context;
    wd_comm *comm; /* of the ranks that share the teacher, borrowed; NULL: there is one rank */
} wd_sweep_options;

/* Elements and bytes of one state's latents [C, F, H, W] fp32; its velocity has as many. */
static inline int64_t wd_sweep_latent_count(const wd_sweep_options *options)
{
    return options->config.in_channels * options->frames * options->height * options->width;
}

static inline size_t wd_sweep_latent_bytes(const wd_sweep_options *options)
{
    return (size_t)wd_sweep_latent_count(options) * sizeof(float);
}

/* Bytes of one state's text [S, text_dim]. */
static inline size_t wd_sweep_text_bytes(const wd_sweep_options *options)
{
    return wd_dtype_size(options->dtype, options->text_tokens * options->config.text_dim);
}

/* The options of a sweep over a pipeline's experts that computes in `dtype`, for pictures; their
 * sizes, window, guidance and text are not set. */
wd_sweep_options wd_sweep_options_for(const wd_pipeline *pipeline, wd_dtype dtype);

/* The default micro-batch, in states: enough tokens to keep matrix products efficient, no more,
 * since their activations exist at once. */
int64_t wd_sweep_micro_batch(const wd_dit_config *config, int64_t frames, int64_t height,
                             int64_t width);

/* The micro-batch that a sweep has: no larger than the window, and a multiple of
 * wd_dit_samples_step, as the sizes of all its micro-batches are. */
int64_t wd_sweep_fitted(int64_t micro_batch, int64_t window_max);

/* How many sweeps after one sweep a state has its next, if windows of `window` go round `states`.
 */
static inline int64_t wd_sweeps_apart(int64_t states, int64_t window)
{
    return (states + window - 1) / window;
}

/* Streams of a micro-batch: the conditional one, and with guidance the unconditional one. */
int wd_sweep_streams(const wd_sweep_options *options);

/* The context of a pass of `samples` states, without rope, queue and arena. `negative`: of the
 * unconditional stream, whose states share one text. */
wd_dit_context wd_sweep_dit_context(const wd_sweep_options *options, int64_t samples,
                                    bool negative);

/* How many tensors of a wd_dit_stream (in the order x, temb, tp, ctx) the next stage reads. */
static inline int wd_sweep_stream_tensors(wd_stage_kind next)
{
    return next == WD_STAGE_HEAD ? 2 : 4;
}

/* Bytes that the next stage reads of a micro-batch of `samples` states, of all its streams. */
size_t wd_sweep_packed_bytes(const wd_sweep_options *options, int64_t samples, wd_stage_kind next);

/* Micro-batches of an expert in one sweep, at most. */
int wd_sweep_batches(const wd_sweep_options *options);

/* ---- entries ---- */

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

/* ---- what a device does in a schedule ---- */

typedef struct wd_sweep_device {
    bool embeds; /* whether the device has an embedding */
    int places; /* for micro-batches: as many as a window has where two are there at once, else one;
                 * at least WD_PIPELINE_PLACES where other devices of the rank copy to it */
    bool sends, receives; /* whether micro-batches go to other ranks and come from them */
} wd_sweep_device;

/* out[devices] = the parts of all devices of the job, or of one rank where each has a teacher, in
 * sweeps of up to `batches` micro-batches of an expert. */
void wd__sweep_devices(wd_sweep_device *out, int devices, const wd_placement *placement,
                       int batches);

/* ---- the list ---- */

/* The work of one sweep. */
typedef struct wd_sweep_work {
    int batches[WD_PLACED_EXPERTS_MAX]; /* micro-batches of each expert */
} wd_sweep_work;

typedef struct wd_sweep_schedule {
    const wd_placement *placement; /* borrowed */
    wd_sweep_device of_device[WD_CLUSTER_DEVICES_MAX];
    int turn[WD_CLUSTER_DEVICES_MAX]; /* the place that a device's next micro-batch takes: places
                                       * are taken in turn, from sweep to sweep */
    wd_sweep_entry *entry;            /* [count], in the order in which they are launched */
    int count, room;
} wd_sweep_schedule;

/* Room for sweeps of up to `batches` micro-batches of each expert; the arguments are those of
 * wd__sweep_devices. The placement is borrowed. */
wd_status wd_sweep_schedule_open(wd_sweep_schedule *out, int devices, const wd_placement *placement,
                                 int batches, wd_err *err);
void wd_sweep_schedule_close(wd_sweep_schedule *schedule); /* a zeroed one is fine */

/* Makes the list of the next sweep. */
void wd_sweep_schedule_make(wd_sweep_schedule *schedule, const wd_sweep_work *work);

/* Calls `fn` for each entry of a sweep, in order, with 0 for all places. */
typedef void wd_sweep_entry_fn(void *context, const wd_sweep_entry *entry);
void wd__sweep_schedule_each(const wd_placement *placement, const wd_sweep_work *work,
                             wd_sweep_entry_fn *fn, void *context);

#endif
