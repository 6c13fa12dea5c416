/* The vtable of the trajectory source: see train/targets/source.h. */
#include <inttypes.h>

#include "core/memory.h"
#include "core/require.h"
#include "train/targets/source_trajectory_impl.h"

/* The event that happens when the batches of the sample's step are filled. Until it is recorded for
 * that step, it is the event of the step before last. */
static wd_event **filled_event(wd_trajectory_source *s, int64_t sample)
{
    return &s->filled[sample / s->options.step_samples % 2];
}

static wd_status trajectory_prepare(wd_source *self, int64_t end, wd_err *err)
{
    wd_trajectory_source *s = (wd_trajectory_source *)self;
    const int64_t needed = wd_stream_targets(&s->options.trajectory, end, s->options.reuse);
    if (end <= s->end) return WD_OK;
    s->end = end;
    /* the ring has room for what the step before this one may still read, not for earlier ones */
    wd_event_wait_on(s->home, *filled_event(s, end - 1));
    if (!self->targets && !wd_device_is_dry(wd_queue_device(s->home)))
        s->progress = wd_progress_begin("making the first targets", "target", 0,
                                        wd_trajectory_source_targets_after(s, needed));
    while (self->targets < needed) WD_TRY(wd_trajectory_source_make_window(s, err));
    s->progress = (wd_progress_part){0};
    return WD_OK;
}

/* A sample whose target is velocity `number` of the teacher. */
static wd_batch_sample velocity_sample(wd_trajectory_source *s, int64_t number)
{
    const wd_targets *ring = &s->ring;
    const int64_t made = s->base.targets, ring_index = wd_targets_ring_index(ring, number);
    const wd_target_info t = wd_trajectory_target(&s->options.trajectory, number);
    WD_REQUIRE(number >= 0 && number < made && number >= made - ring->capacity,
               "target %" PRId64 " is not among the %" PRId64 " before target %" PRId64, number,
               ring->capacity, made);
    wd_targets_await(&s->ring, number + 1, s->queue);
    if (s->exchange.gathers) wd_trajectory_source_take_until(s, s->exchange.gather[ring_index]);
    return (wd_batch_sample){.latents = ring->latents + ring_index * ring->state_count,
                             .target = ring->velocity + ring_index * ring->state_count,
                             .timestep = t.timestep,
                             .weight = 1,
                             .prompt = t.prompt};
}

/* Sample number `sample`, whose target is chord `number`, which has been added. */
static wd_batch_sample chord_sample(const wd_trajectory_source *s, int64_t sample, int64_t number)
{
    const wd_source_options *o = &s->options;
    const wd_target_info t = wd_chord_begin(&o->trajectory, number);
    const wd_chord_point point = wd_chord_point_of(&o->trajectory, &t, sample);
    const int64_t at = wd_chord_pool_place(&s->chords, number) * s->chords.state_count;
    return (wd_batch_sample){.latents = s->chords.latents + at,
                             .target = s->chords.velocity + at,
                             .dt = point.dt,
                             .timestep = point.timestep,
                             .weight = wd_chord_loss_weight(&o->trajectory, &t),
                             .prompt = t.prompt};
}

/* Adds the chords of the round of micro-batches, one of each rank, that sample `first` is in. Those
 * of other ranks' samples are added, too: the next step's targets may take the places of theirs. */
static void add_chords_of_round(wd_trajectory_source *s, int64_t first, int64_t samples)
{
    const wd_source_options *o = &s->options;
    const int64_t all = samples * (o->comm ? o->comm->ranks : 1);
    const int64_t end = (first / all + 1) * all;
    wd_trajectory_source_add_chords(s, wd_stream_target_last(end, o->reuse) + 1);
}

static void trajectory_fill(wd_source *self, wd_batch *out, int64_t first, int64_t samples)
{
    wd_trajectory_source *s = (wd_trajectory_source *)self;
    const wd_source_options *o = &s->options;
    const bool chords = o->trajectory.student_steps > 0;
    wd_batches_begin(s->batches);
    if (chords) add_chords_of_round(s, first, samples);
    for (int64_t i = first; i < first + samples; i++) {
        const int64_t number = wd_stream_target(&o->trajectory, i, o->reuse, o->replay);
        const wd_batch_sample sample =
            chords ? chord_sample(s, i, number) : velocity_sample(s, number);
        wd_batches_put(s->batches, &sample);
    }
    *out = wd_batches_send(s->batches);
    wd_event_record(*filled_event(s, first), s->queue);
}

static void trajectory_close(wd_source *self)
{
    wd_trajectory_source *s = (wd_trajectory_source *)self;
    wd_gathers_close(s->exchange.gathers);
    wd_targets_await(&s->ring, s->base.targets, s->queue); /* sweeps still write them */
    wd_queue_wait(s->home);
    wd_queue_wait(s->queue);
    wd_trajectory_source_close_exchange(s);
    wd_trajectory_source_close_window(s);
    wd_batches_close(s->batches);
    wd_rollouts_close(s->rollouts);
    wd_trajectory_states_close(&s->states);
    wd_targets_close(&s->ring);
    wd_chord_pool_close(&s->chords, wd_queue_device(s->queue));
    for (int i = 0; i < 2; i++) wd_event_close(s->filled[i]);
    wd_free(s);
}

static wd_checkpoint_tensor saved_rows(const char *name, float *data, int64_t rows, int64_t width)
{
    return (wd_checkpoint_tensor){name,
                                  {.data = data, .dtype = WD_F32, .ndim = 2, .dim = {rows, width}}};
}

static wd_status trajectory_open(wd_source **out, const wd_source_options *options, wd_sweep *sweep,
                                 wd_queue *home, wd_queue *queue, wd_err *err)
{
    wd_status status;
    wd_trajectory_source *s;
    wd_device *device = wd_queue_device(queue);
    const int64_t slots = options->trajectory.slots, n = options->batches.state_count;
    /* the oldest target that a step may still draw, to the end of the round of the newest of the
     * step that follows it */
    const bool chords = options->trajectory.student_steps > 0;
    const int64_t needed =
        chords ? wd_trajectory_source_chord_targets(options)
               : options->replay + slots + 2 * (options->step_samples / options->reuse + 1) + 1;
    WD_TRY(wd_alloc((void **)&s, 1, sizeof *s, "a source of batches", err));
    *s = (wd_trajectory_source){.base = {.vtable = &wd_source_trajectory},
                                .options = *options,
                                .sweep = sweep,
                                .home = home,
                                .queue = queue};
    WD_TRY_OUT(wd_targets_open(&s->ring, &options->trajectory, needed, n, device, err));
    WD_TRY_OUT(wd_trajectory_states_open(&s->states, slots, &s->ring, home, err));
    WD_TRY_OUT(wd_batches_open(&s->batches, &options->batches, queue, err));
    WD_TRY_OUT(wd_trajectory_source_open_window(s, err));
    WD_TRY_OUT(wd_trajectory_source_open_exchange(s, err));
    if (chords) WD_TRY_OUT(wd_trajectory_source_open_chords(s, err));
    WD_TRY_OUT(wd_trajectory_source_open_rollouts(s, err));
    for (int i = 0; i < 2; i++) WD_TRY_OUT(wd_event_open(&s->filled[i], device, err));
    s->saved[0] = saved_rows("trajectories.latents", s->states.latents, slots, n);
    s->saved[1] = saved_rows("targets.latents", s->ring.latents, s->ring.capacity, n);
    s->saved[2] = saved_rows("targets.velocity", s->ring.velocity, s->ring.capacity, n);
    s->saved[3] = saved_rows("chords.latents", s->chords.latents, s->chords.capacity, n);
    s->saved[4] = saved_rows("chords.velocity", s->chords.velocity, s->chords.capacity, n);
    *out = &s->base;
out:
    if (status != WD_OK) trajectory_close(&s->base);
    return status;
}

/* ---- from the options alone ---- */

static int64_t trajectory_targets(const wd_source_options *o, int64_t samples)
{
    return wd_stream_targets(&o->trajectory, samples, o->reuse);
}

static double trajectory_step_targets(const wd_source_options *o)
{
    return (double)o->step_samples * wd_stream_targets_each(&o->trajectory, o->reuse);
}

/* Sigma steps of targets, the noise of trajectories that begin, and of rollouts text, timesteps,
 * weights and sigma steps. */
static double trajectory_step_bytes(const wd_source_options *o)
{
    const wd_batches_options *b = &o->batches;
    const double text = (double)wd_dtype_size(b->text_dtype, b->text_tokens * b->text_dim);
    const double targets = trajectory_step_targets(o);
    const double begun = targets / (double)o->trajectory.steps;
    const double rolled_out =
        (double)o->step_samples * wd_stream_rollouts_each(&o->trajectory, o->reuse);
    return rolled_out * text +
           (targets + 3 * rolled_out + begun * (double)b->state_count) * sizeof(float);
}

static int64_t trajectory_sweeps_apart(const wd_source_options *o)
{
    return wd_sweeps_apart(o->trajectory.slots, o->window);
}

const wd_source_vtable wd_source_trajectory = {
    .check_saved = wd_trajectory_source_check_saved,
    .targets = trajectory_targets,
    .step_targets = trajectory_step_targets,
    .step_bytes = trajectory_step_bytes,
    .sweeps_apart = trajectory_sweeps_apart,
    .open = trajectory_open,
    .prepare = trajectory_prepare,
    .begin_step = wd_trajectory_source_begin_step,
    .fill = trajectory_fill,
    .save = wd_trajectory_source_save,
    .saved = wd_trajectory_source_saved,
    .restore = wd_trajectory_source_restore,
    .check_finite = wd_trajectory_source_check_finite,
    .close = trajectory_close,
};
