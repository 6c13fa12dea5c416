/* A station: a device's part of a sweep. What micro-batches need there, in one block of its pool:
 * streams of those that are on their way, and what the stage that runs has beside: its scratch, and
 * buffers of the entry (where that is the embedding) or of the exit (the head), which are filled
 * and read in the order of the station's queue. Private to src/teacher. */
#ifndef WD_TEACHER_STATION_H
#define WD_TEACHER_STATION_H

#include "teacher/placement.h"
#include "teacher/sweep.h"

/* The place of one micro-batch. */
typedef struct wd_station_slot {
    wd_dit_stream stream[2]; /* conditional, unconditional */
    wd_event *left;          /* on the station's queue: whoever was here is done or has gone on */
} wd_station_slot;

typedef struct wd_station {
    const wd_sweep_options *options; /* borrowed */
    wd_queue *queue;                 /* borrowed */
    wd_device *device;
    bool guided;
    int64_t state_count; /* elements of one state's latents */
    wd_dit_rope rope;
    void *block;
    wd_arena arena;
    size_t mark; /* of the arena: what is for one stage at a time begins here */
    wd_station_slot *slot;
    wd_placed_sweep sweep; /* what it is for */
    int64_t taken; /* slots so far, of those that come round */
    /* entry; device. States come one after another: a long text is more than many a stream */
    void *text_negative; /* [1, S, text_dim] dtype, where guided; uploaded once */
    float *latents;      /* [1, C, F, H, W] */
    /* entry; host, read by copies: places that go round, none touched until its `uploaded` */
    float *host_timestep; /* [uploads, micro_batch] */
    char *host_text;      /* [uploads, micro_batch, S, text_dim] dtype */
    wd_event *uploaded[WD_SWEEP_UPLOADS];
    int uploads;     /* places */
    int64_t entered; /* micro-batches so far */
    /* exit; device */
    float *scale[2]; /* [1] of each expert, uploaded once */
    float *velocity; /* [1, C, F, H, W], guided; until the next stage begins */
} wd_station;

/* Sizes that micro-batches have are multiples of this. Few sizes mean few shapes: what a device
 * makes per shape is made once, and a dry run can try them all. */
static inline int64_t wd_sweep_size_step(int64_t largest)
{
    return (largest + 15) / 16;
}

/* The options with a micro-batch that is no larger than the window, and such a multiple. */
wd_sweep_options wd_sweep_fitted(const wd_sweep_options *options);

/* Device memory of a micro-batch, of fitted options. */
size_t wd_sweep_place_bytes(const wd_sweep_options *options);

/* Bytes of what goes on from device to device: of each state, and of each micro-batch, whose states
 * have the unconditional text in common. */
typedef struct wd_sweep_hop {
    size_t state, batch;
    size_t head; /* of each state, all that a head reads */
} wd_sweep_hop;

wd_sweep_hop wd_sweep_hop_of(const wd_sweep_options *options);

/* In place: *out must not be moved. `sweep`: what the station is for. `arena_bytes` 0: `out->arena`
 * measures, and nothing may run but on a dry device. */
wd_status wd_station_open(wd_station *out, const wd_sweep_options *options,
                          const wd_placed_sweep *sweep, size_t arena_bytes, wd_queue *queue,
                          wd_err *err);
void wd_station_close(wd_station *station); /* a zeroed one is fine */

/* The place of a micro-batch that so many of its expert's come behind; what was in it has gone on,
 * in the order of launches. */
wd_station_slot *wd_station_take_slot(wd_station *station, int expert, int behind);

/* Where the next micro-batch's timesteps and text go, [micro_batch] and [micro_batch, S, text_dim]
 * dtype, as soon as they may; and that all copies from there are launched. */
typedef struct wd_station_entry {
    float *timestep;
    char *text;
} wd_station_entry;

wd_station_entry wd_station_await_entry(wd_station *station);
void wd_station_entered(wd_station *station);

/* Before a micro-batch's turn at a stage: its scratch memory, and the buffers of the entry, are
 * where those of the last stage were. */
void wd_station_begin(wd_station *station, wd_stage_kind kind);

/* The embedding of the micro-batch of `samples` in `slot`, whose timesteps and text are in the
 * entry's host memory: first what its states have in common, then each of them, whose latents are
 * in the entry's buffer. */
void wd_station_enter(wd_station *station, wd_station_slot *slot, int64_t samples,
                      const wd_dit_stage *weights);
void wd_station_enter_state(wd_station *station, wd_station_slot *slot, int64_t state,
                            const wd_dit_stage *weights);

/* Runs a block for the micro-batch of `samples` in `slot`. */
void wd_station_run_block(wd_station *station, wd_station_slot *slot, int64_t samples,
                          const wd_dit_stage *weights);

/* Runs an expert's head for a state of the micro-batch in `slot`: `station->velocity` is the
 * state's, until the next one's. */
void wd_station_exit_state(wd_station *station, wd_station_slot *slot, int64_t state, int expert,
                           const wd_dit_stage *weights);

/* What the next stage reads of a micro-batch of `samples` goes from a slot to one of another
 * station, or of the same. */
void wd_station_hop(wd_station *to, wd_station_slot *to_slot, wd_station *from,
                    wd_station_slot *from_slot, int64_t samples, wd_stage_kind next);

/* The same by way of host memory: out of a slot, into one. Bytes of it. */
size_t wd_station_stream_bytes(const wd_station *station, int64_t samples, wd_stage_kind next);
void wd_station_copy_out(wd_station *from, char *to, const wd_station_slot *slot, int64_t samples,
                         wd_stage_kind next);
void wd_station_copy_in(wd_station *to, wd_station_slot *slot, const char *from, int64_t samples,
                        wd_stage_kind next);

#endif
