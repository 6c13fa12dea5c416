/* The trajectory objective as the trainer sees it: see distill/objective_trajectory.h. */
#include "core/memory.h"

#include <inttypes.h>
#include "core/require.h"
#include "distill/objective_trajectory_impl.h"

/* When the batches of the step that has a sample are filled; before, when those are of the step
 * before last. */
static wd_event **filled_of(wd_trajectory_objective *o, int64_t sample)
{
    return &o->filled[sample / o->options.step_samples % 2];
}

static wd_status trajectory_prepare(wd_objective *self, int64_t end, wd_err *err)
{
    wd_trajectory_objective *o = (wd_trajectory_objective *)self;
    int64_t last = wd_stream_target_last(end, o->options.reuse);
    if (end <= o->end) return WD_OK;
    o->end = end;
    /* the pool has room for what the step before this one may still read, not for earlier ones */
    wd_event_wait_on(o->home, *filled_of(o, end - 1));
    while (self->targets <= last) WD_TRY(wd_targets_window(o, err));
    return WD_OK;
}

static wd_status trajectory_fill(wd_objective *self, wd_batch *out, float *sigma, int64_t first,
                                 int64_t samples, wd_err *err)
{
    (void)err;
    wd_trajectory_objective *o = (wd_trajectory_objective *)self;
    const wd_trajectory_objective_options *p = &o->options;
    WD_REQUIRE(samples <= p->samples_max, "a batch of %" PRId64 " samples has room for %" PRId64,
               samples, p->samples_max);
    int64_t n = p->state_count;
    size_t text_bytes = (size_t)(p->text_tokens * p->text_dim) * wd_dtype_bytes(p->student_dtype);
    const int place = (int)(o->batches++ % o->batch_places);
    float *timestep = o->host_batch_timestep + place * p->samples_max;
    char *text = o->host_batch_text + (size_t)(place * p->samples_max) * text_bytes;
    wd_event_wait(o->batch_uploaded[place]);
    for (int64_t i = 0; i < samples; i++) {
        int64_t number = wd_stream_target(&p->trajectory, first + i, p->reuse, p->replay);
        WD_REQUIRE(number >= 0 && number < self->targets && number >= self->targets - o->capacity,
                   "target %" PRId64 " is not among the %" PRId64 " before target %" PRId64,
                   number, o->capacity, self->targets);
        wd_target_info t = wd_trajectory_target(&p->trajectory, number);
        int64_t at = wd_target_place(o, number);
        wd_targets_await(o, number + 1);
        if (o->shipments) wd_targets_take_until(o, o->shipment[at]);
        wd_queue_copy(o->queue, o->batch_latents + i * n, o->pool_latents + at * n,
                      wd_state_bytes(o));
        wd_queue_copy(o->queue, o->batch_target + i * n, o->pool_target + at * n,
                      wd_state_bytes(o));
        timestep[i] = t.timestep;
        sigma[i] = t.sigma;
        p->text(p->text_context, text + (size_t)i * text_bytes, t.prompt, p->student_dtype);
    }
    wd_queue_copy(o->queue, o->batch_timestep, timestep, (size_t)samples * sizeof(float));
    wd_queue_copy(o->queue, o->batch_text, text, (size_t)samples * text_bytes);
    wd_event_record(o->batch_uploaded[place], o->queue);
    wd_event_record(*filled_of(o, first), o->queue);
    *out = (wd_batch){.samples = samples,
                      .latents = o->batch_latents,
                      .timestep = o->batch_timestep,
                      .target = o->batch_target,
                      .text = o->batch_text};
    return WD_OK;
}

static void trajectory_close(wd_objective *self)
{
    wd_trajectory_objective *o = (wd_trajectory_objective *)self;
    wd_shipments_close(o->shipments);
    wd_targets_await(o, o->base.targets); /* sweeps still write them */
    wd_queue_wait(o->home);
    wd_queue_wait(o->queue);
    void *device[] = {o->latents,       o->pool_latents, o->pool_target,    o->dt,
                      o->batch_latents, o->batch_target, o->batch_timestep, o->batch_text};
    void *staging[] = {o->host_dt, o->host_noise, o->host_batch_timestep, o->host_batch_text};
    void *host[] = {o->host_timestep, o->next_timestep, o->host_prompt, o->info,
                    o->delivered,     o->arrival,       o->pending,     o->begun,
                    o->shipment,      o->slot_shipment, o->come_info,   o->come_state};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        wd_device_free(o->device, device[i]);
    for (size_t i = 0; i < sizeof staging / sizeof *staging; i++)
        wd_host_free(o->device, staging[i]);
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) wd_free(host[i]);
    for (int i = 0; i < WD_WINDOWS_UNDER_WAY; i++) wd_event_close(o->window_uploaded[i]);
    for (int i = 0; i < WD_BATCHES_UNDER_WAY; i++) wd_event_close(o->batch_uploaded[i]);
    for (int i = 0; i < 2; i++) wd_event_close(o->filled[i]);
    wd_free(o);
}

static const wd_objective_vtable trajectory_vtable = {
    .prepare = trajectory_prepare,
    .fill = trajectory_fill,
    .save = wd_trajectory_save,
    .restore = wd_trajectory_restore,
    .close = trajectory_close,
};

static wd_status allocate_device(wd_trajectory_objective *o, wd_err *err)
{
    const wd_trajectory_objective_options *p = &o->options;
    size_t f = sizeof(float), batch = (size_t)p->samples_max;
    size_t text = (size_t)(p->text_tokens * p->text_dim) * wd_dtype_bytes(p->student_dtype);
    size_t pool = (size_t)o->capacity * wd_state_bytes(o);
    wd_device *d = o->device;
    WD_TRY(wd_device_alloc((void **)&o->latents, d, (size_t)p->trajectory.slots * wd_state_bytes(o),
                           "trajectories", err));
    WD_TRY(wd_device_alloc((void **)&o->pool_latents, d, pool, "targets", err));
    WD_TRY(wd_device_alloc((void **)&o->pool_target, d, pool, "targets", err));
    WD_TRY(wd_device_alloc((void **)&o->dt, d, (size_t)o->capacity * f, "trajectories", err));
    WD_TRY(wd_device_alloc((void **)&o->batch_latents, d, batch * wd_state_bytes(o), "batch", err));
    WD_TRY(wd_device_alloc((void **)&o->batch_target, d, batch * wd_state_bytes(o), "batch", err));
    WD_TRY(wd_device_alloc((void **)&o->batch_timestep, d, batch * f, "batch", err));
    return wd_device_alloc(&o->batch_text, d, batch * text, "batch", err);
}

static wd_status allocate_host(wd_trajectory_objective *o, wd_err *err)
{
    const wd_trajectory_objective_options *p = &o->options;
    size_t window = (size_t)p->window, batch = (size_t)p->samples_max, f = sizeof(float);
    size_t text = (size_t)(p->text_tokens * p->text_dim) * wd_dtype_bytes(p->student_dtype);
    const char *what = "staging of trajectories";
    size_t slots = (size_t)p->trajectory.slots, windows = (size_t)o->window_places;
    WD_TRY(wd_host_alloc((void **)&o->host_dt, o->device, windows * window * f, what, err));
    WD_TRY(wd_alloc((void **)&o->arrival, (size_t)o->capacity, sizeof *o->arrival, what, err));
    WD_TRY(wd_alloc((void **)&o->pending, slots, sizeof *o->pending, what, err));
    for (size_t i = 0; i < slots; i++) o->pending[i].at = -1;
    WD_TRY(wd_alloc((void **)&o->delivered, window, sizeof *o->delivered, what, err));
    WD_TRY(wd_alloc((void **)&o->host_timestep, window, f, what, err));
    WD_TRY(wd_alloc((void **)&o->next_timestep, window, f, what, err));
    WD_TRY(wd_host_alloc((void **)&o->host_noise, o->device, windows * window * wd_state_bytes(o),
                         what, err));
    WD_TRY(wd_alloc((void **)&o->host_prompt, window, sizeof *o->host_prompt, what, err));
    WD_TRY(wd_alloc((void **)&o->info, window, sizeof *o->info, what, err));
    batch *= (size_t)o->batch_places;
    WD_TRY(wd_host_alloc((void **)&o->host_batch_timestep, o->device, batch * f, what, err));
    return wd_host_alloc((void **)&o->host_batch_text, o->device, batch * text, what, err);
}

/* Room for the targets of two rounds on their way. */
static wd_status open_ranks(wd_trajectory_objective *o, wd_err *err)
{
    const wd_trajectory_objective_options *p = &o->options;
    const int64_t slots = p->trajectory.slots;
    const int64_t states =
        o->sweep && wd_sweep_is_shared(o->sweep) ? wd_sweep_micro_batch_of(o->sweep) : p->window;
    const size_t capacity = (size_t)o->capacity;
    const char *what = "targets on their way";
    if (!p->comm || p->comm->ranks == 1) return WD_OK;
    WD_TRY(wd_alloc((void **)&o->begun, capacity, sizeof *o->begun, what, err));
    WD_TRY(wd_alloc((void **)&o->shipment, capacity, sizeof *o->shipment, what, err));
    WD_TRY(
        wd_alloc((void **)&o->slot_shipment, (size_t)slots, sizeof *o->slot_shipment, what, err));
    WD_TRY(wd_alloc((void **)&o->come_info, (size_t)states, sizeof *o->come_info, what, err));
    WD_TRY(wd_alloc((void **)&o->come_state, (size_t)states, sizeof *o->come_state, what, err));
    return wd_shipments_open(&o->shipments, p->comm, o->home, 2 * ((slots + states - 1) / states),
                             states, p->state_count, err);
}

static wd_tensor rows_of(float *data, int64_t rows, int64_t width)
{
    return (wd_tensor){.data = data, .dtype = WD_F32, .ndim = 2, .dim = {rows, width}};
}

wd_status wd_objective_open_trajectory(wd_objective **out,
                                       const wd_trajectory_objective_options *options,
                                       wd_sweep *sweep, wd_queue *home, wd_queue *queue,
                                       wd_err *err)
{
    wd_status status;
    wd_trajectory_objective *o;
    WD_TRY(wd_alloc((void **)&o, 1, sizeof *o, "an objective", err));
    o->base = (wd_objective){.vtable = &trajectory_vtable, .name = "trajectory"};
    o->options = *options;
    o->sweep = sweep;
    o->home = home;
    o->queue = queue;
    o->device = wd_queue_device(queue);
    o->window_places = wd_device_places(o->device, WD_WINDOWS_UNDER_WAY);
    o->batch_places = wd_device_places(o->device, WD_BATCHES_UNDER_WAY);
    /* the oldest target that a step may still draw, to the end of the round of the newest of the
     * step that follows it */
    const int64_t slots = options->trajectory.slots;
    const int64_t needed =
        options->replay + slots + 2 * (options->step_samples / options->reuse + 1) + 1;
    o->capacity = (needed + slots - 1) / slots * slots;
    const int64_t begun = /* targets before all slots have */
        wd_trajectory_first_target(&options->trajectory, options->trajectory.steps - 1);
    o->shift = slots - begun % slots;
    WD_TRY_OUT(allocate_device(o, err));
    WD_TRY_OUT(allocate_host(o, err));
    WD_TRY_OUT(open_ranks(o, err));
    if (sweep) WD_TRY_OUT(wd_sweep_expect(sweep, home, err));
    for (int i = 0; i < WD_WINDOWS_UNDER_WAY; i++)
        WD_TRY_OUT(wd_event_open(&o->window_uploaded[i], o->device, err));
    for (int i = 0; i < WD_BATCHES_UNDER_WAY; i++)
        WD_TRY_OUT(wd_event_open(&o->batch_uploaded[i], o->device, err));
    for (int i = 0; i < 2; i++) WD_TRY_OUT(wd_event_open(&o->filled[i], o->device, err));
    int64_t n = options->state_count;
    o->saved[0] = (wd_checkpoint_tensor){"trajectories.latents",
                                         rows_of(o->latents, options->trajectory.slots, n)};
    o->saved[1] =
        (wd_checkpoint_tensor){"targets.latents", rows_of(o->pool_latents, o->capacity, n)};
    o->saved[2] =
        (wd_checkpoint_tensor){"targets.velocity", rows_of(o->pool_target, o->capacity, n)};
    *out = &o->base;
out:
    if (status != WD_OK) trajectory_close(&o->base);
    return status;
}
