/* Rollouts: see train/targets/rollouts.h. */
#include "train/targets/rollouts.h"

#include "core/memory.h"
#include "dev/ops.h"
#include "train/network/pass.h"

struct wd_rollouts {
    wd_rollouts_options options;
    wd_queue *home;
    wd_params snapshot;
    wd_pass *pass;
    wd_batches *batches;
    float *velocity;     /* [samples_max, state_count] device */
    float *dt;           /* [samples_max] device */
    float *host_dt;      /* [places, samples_max] host, read by copies: see wd_batches */
    int places;          /* of host_dt */
    int64_t begun;       /* batches */
    wd_rollout *rollout; /* [samples_max] of the batch that has begun */
    int64_t count;       /* in it */
    wd_event *stepped;   /* the rollouts so far, which read the snapshot */
    wd_event *taken;     /* the snapshot is there */
};

static const wd_params_names names = WD_PARAMS_NAMES("snapshot", "snapshot.");

static wd_status open_buffers(wd_rollouts *r, wd_device *device, wd_err *err)
{
    const char *what = "rollouts";
    const size_t most = (size_t)r->options.batches.samples_max;
    const size_t state = (size_t)r->options.batches.state_count * sizeof(float);
    WD_TRY(wd_device_alloc((void **)&r->velocity, device, most * state, what, err));
    WD_TRY(wd_device_alloc((void **)&r->dt, device, most * sizeof(float), what, err));
    WD_TRY(wd_host_alloc((void **)&r->host_dt, device, (size_t)r->places * most * sizeof(float),
                         what, err));
    return wd_alloc((void **)&r->rollout, most, sizeof *r->rollout, what, err);
}

wd_status wd__rollouts_open(wd_rollouts **out, const wd_rollouts_options *o, wd_queue *home,
                            wd_err *err)
{
    wd_status status;
    wd_rollouts *r;
    wd_device *device = wd_queue_device(home);
    const wd_params_options params = {.names = &names,
                                      .config = &o->student->config,
                                      .dtype = o->student->dtype,
                                      .kinds = WD_PARAMS_AS_COMPUTED,
                                      .ranks = 1};
    const wd_dit_shape shape = {.samples = o->batches.samples_max,
                                .texts = o->batches.samples_max,
                                .frames = 1,
                                .height = o->latent_height,
                                .width = o->latent_width,
                                .text_tokens = o->batches.text_tokens,
                                .text_repeat = o->text_repeat};
    WD_TRY(wd_alloc((void **)&r, 1, sizeof *r, "rollouts", err));
    *r = (wd_rollouts){
        .options = *o, .home = home, .places = wd_device_places(device, WD_BATCHES_UNDER_WAY)};
    WD_TRY_OUT(wd_params_open_with(&r->snapshot, &params, device, err));
    WD_TRY_OUT(wd_pass_open(&r->pass, &r->snapshot, &shape, WD_PASS_FORWARD, home, err));
    WD_TRY_OUT(wd__batches_open(&r->batches, &o->batches, home, err));
    WD_TRY_OUT(open_buffers(r, device, err));
    WD_TRY_OUT(wd_event_open(&r->stepped, device, err));
    WD_TRY_OUT(wd_event_open(&r->taken, device, err));
    *out = r;
out:
    if (status != WD_OK) wd__rollouts_close(r);
    return status;
}

void wd__rollouts_close(wd_rollouts *r)
{
    if (!r) return;
    wd_device *device = wd_queue_device(r->home);
    wd_event_close(r->taken);
    wd_event_close(r->stepped);
    wd_free(r->rollout);
    wd_host_free(device, r->host_dt);
    wd_device_free(device, r->dt);
    wd_device_free(device, r->velocity);
    wd__batches_close(r->batches);
    wd_pass_close(r->pass);
    wd_params_close(&r->snapshot);
    wd_free(r);
}

void wd__rollouts_take_snapshot(wd_rollouts *r, wd_queue *queue)
{
    wd_event_wait_on(queue, r->stepped);
    wd_params_copy_computed(&r->snapshot, r->options.student, r->options.buffer, queue);
    wd_event_record(r->taken, queue);
    wd_event_wait_on(r->home, r->taken);
}

wd_params *wd__rollouts_snapshot(wd_rollouts *rollouts)
{
    return &rollouts->snapshot;
}

void wd__rollouts_put(wd_rollouts *r, const wd_rollout *rollout)
{
    const wd_batch_sample sample = {
        .latents = rollout->begin, .timestep = rollout->timestep, .prompt = rollout->prompt};
    if (!r->count) {
        wd__batches_begin(r->batches);
        r->begun++;
    }
    wd__batches_put(r->batches, &sample);
    r->rollout[r->count++] = *rollout;
    if (r->count == r->options.batches.samples_max) wd__rollouts_finish(r);
}

/* Copies the sigma steps of the batch that has begun; its staging is free when that of wd_batches
 * is. */
static void send_dt(wd_rollouts *r)
{
    float *dt = r->host_dt + (r->begun - 1) % r->places * r->options.batches.samples_max;
    for (int64_t i = 0; i < r->count; i++) dt[i] = r->rollout[i].dt;
    wd_queue_copy(r->home, r->dt, dt, (size_t)r->count * sizeof(float));
}

/* Puts the last state again until the batch has a number of samples with which the pass may run. */
static void fill_up(wd_rollouts *r)
{
    const wd_rollout *last = &r->rollout[r->count - 1];
    const wd_batch_sample sample = {
        .latents = last->begin, .timestep = last->timestep, .prompt = last->prompt};
    const int64_t most = r->options.batches.samples_max, step = wd_dit_samples_step(most);
    for (int64_t i = r->count; (most - i) % step; i++) wd__batches_put(r->batches, &sample);
}

void wd__rollouts_finish(wd_rollouts *r)
{
    const int64_t n = r->options.batches.state_count;
    if (!r->count) return;
    fill_up(r);
    send_dt(r);
    const wd_batch batch = wd__batches_send(r->batches);
    const wd_pass_inputs inputs = {batch.latents, batch.timestep, batch.text};
    wd_pass_velocity_of(r->velocity, r->pass, &inputs, batch.samples);
    for (int64_t i = 0; i < r->count; i++) {
        float *end = r->rollout[i].end;
        wd_queue_copy(r->home, end, r->rollout[i].begin, (size_t)n * sizeof(float));
        wd_op_step_samples(
            r->home,
            &(wd_step_samples_args){
                .x = end, .v = r->velocity + i * n, .dt = r->dt + i, .samples = 1, .width = n});
    }
    wd_event_record(r->stepped, r->home);
    r->count = 0;
}

double wd__rollouts_flops(const wd_rollouts *rollouts)
{
    return wd_pass_planned(rollouts->pass)->flops / (double)rollouts->options.batches.samples_max;
}
