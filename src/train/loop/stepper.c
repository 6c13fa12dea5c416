/* The stepper of a distillation: see train/loop/stepper.h. */
#include "train/loop/stepper_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

enum { RESULTS_UNDER_WAY = 2, KEY_BYTES = 64 };

int wd_stepper_ranks(const wd_stepper_options *o)
{
    return o->comm ? o->comm->ranks : 1;
}

int64_t wd__stepper_state_count(const wd_stepper_options *o)
{
    return o->student.in_channels * o->latent_height * o->latent_width;
}

int64_t wd_stepper_step_samples(const wd_stepper_options *o)
{
    return o->batch * o->accumulation * wd_stepper_ranks(o);
}

/* Samples of this phase's steps; 0: nobody knows, or more than any run sees. */
static int64_t samples_end(const wd_stepper_options *o)
{
    const int64_t steps = o->steps - o->first_step, each = wd_stepper_step_samples(o);
    return steps > 0 && steps <= WD_STREAM_SAMPLES_MAX / each ? steps * each : 0;
}

/* What the recipe's source is told of a stepper with these options, but for the student. */
static wd_source_options source_options(const wd_stepper_options *o)
{
    const wd_batches_options batches = {.samples_max = o->batch,
                                        .state_count = wd__stepper_state_count(o),
                                        .text_tokens = o->text_tokens,
                                        .text_dim = o->student.text_dim,
                                        .text_dtype = o->student_dtype,
                                        .text = o->text,
                                        .text_context = o->text_context};
    return (wd_source_options){.trajectory = o->trajectory,
                               .batches = batches,
                               .reuse = o->reuse,
                               .replay = o->replay,
                               .step_samples = wd_stepper_step_samples(o),
                               .samples_end = samples_end(o),
                               .window = o->window,
                               .comm = o->comm,
                               .store_to = o->store_to,
                               .stored = o->stored,
                               .rollouts = {.buffer = o->ema ? WD_PARAMS_EMA : WD_PARAMS_P,
                                            .batches = batches,
                                            .latent_height = o->latent_height,
                                            .latent_width = o->latent_width,
                                            .text_repeat = o->text_repeat}};
}

/* The source of the recipe's batches. */
static const wd_source_vtable *source_of(const wd_stepper_options *o)
{
    return o->stored ? &wd_source_stored : o->recipe->source;
}

wd_status wd_stepper_check_stored(const wd_stepper_options *o, wd_err *err)
{
    const wd_source_options source = source_options(o);
    return o->stored ? wd_source_stored_check(&source, err) : WD_OK;
}

int64_t wd_stepper_stored_count(const wd_stepper_options *o)
{
    const wd_source_options source = source_options(o);
    return wd_source_stored_count(&source);
}

int64_t wd_stepper_stored_drawn(const wd_stepper_options *o, int64_t steps)
{
    const wd_source_options source = source_options(o);
    return wd_source_drawn(&source, steps * wd_stepper_step_samples(o));
}

double wd_stepper_step_targets(const wd_stepper_options *o)
{
    const wd_source_options source = source_options(o);
    return source_of(o)->step_targets(&source);
}

double wd_stepper_step_bytes(const wd_stepper_options *o)
{
    const double text =
        (double)wd_dtype_size(o->student_dtype, o->text_tokens * o->student.text_dim);
    const double samples = (double)(o->batch * o->accumulation);
    const wd_source_options source = source_options(o);
    /* texts, timesteps, weights, and the rates of the optimizer */
    return samples * text + (2 * samples + WD_OPTIMIZER_RATES) * sizeof(float) +
           source_of(o)->step_bytes(&source);
}

/* How many values the result of a step has. */
static int64_t step_values(const wd_stepper_options *o)
{
    return o->batch * o->accumulation + 1;
}

double wd_stepper_back_bytes(const wd_stepper_options *o)
{
    return (double)step_values(o) * sizeof(float);
}

double wd_stepper_steps_ahead(const wd_stepper_options *o, int64_t weights)
{
    if (wd_stepper_ranks(o) == 1 && o->place == WD_STATE_ON_HOST) return 1;
    if (wd_stepper_ranks(o) == 1)
        return 1 + fmin(1, WD_BATCHES_UNDER_WAY / (double)o->accumulation);
    if (o->accumulation > 1 && !o->deterministic_reduce) return 1;
    const double left =
        WD_BACKWARD_SHARE * wd_network_unsent_share(weights, o->comm, o->deterministic_reduce);
    return 1 - (1 - left) / (double)o->accumulation;
}

wd_sweep_options wd_stepper_sweep_options(const wd_stepper_options *o)
{
    wd_sweep_options sweep =
        wd_sweep_options_for(o->teacher, wd_teacher_compute_dtype(o->teacher_dtype));
    sweep.height = o->latent_height;
    sweep.width = o->latent_width;
    sweep.text_tokens = o->text_tokens;
    sweep.text_repeat = o->text_repeat;
    sweep.window_max = o->window;
    sweep.micro_batch = o->micro_batch;
    for (int e = 0; e < 2; e++) sweep.guidance_scale[e] = o->guidance_scale[e];
    sweep.text = o->text;
    sweep.text_context = o->text_context;
    sweep.comm = o->comm;
    return sweep;
}

wd_status wd__stepper_add_network(wd_stepper *m, const wd_params_names *names,
                                  const wd_dit_config *config, wd_err *err)
{
    const wd_stepper_options *o = &m->options;
    const wd_network_options options = {
        .names = names,
        .config = config,
        .dtype = o->student_dtype,
        .gradients = o->gradients,
        .shape = {.samples = o->batch,
                  .texts = o->batch,
                  .frames = 1,
                  .height = o->latent_height,
                  .width = o->latent_width,
                  .text_tokens = o->text_tokens,
                  .text_repeat = o->text_repeat},
        .mode = o->checkpointing ? WD_PASS_TRAIN_CHECKPOINT : WD_PASS_TRAIN,
        .optimizer = o->optimizer,
        .ema = o->ema,
        .by_round = o->deterministic_reduce,
        .shared = o->shard_optimizer,
        .place = o->place,
        .comm = o->comm,
    };
    WD_REQUIRE(m->networks < WD_NETWORKS_MAX, "a recipe has more than %d networks",
               WD_NETWORKS_MAX);
    WD_TRY(wd_network_open(&m->network[m->networks], &options, m->queue, err));
    m->params[m->networks] = wd_network_params(m->network[m->networks]);
    m->networks++;
    return WD_OK;
}

static wd_status open_sweep(wd_stepper *m, const wd_stepper_teacher *teacher, wd_err *err)
{
    const wd_stepper_options *o = &m->options;
    wd_sweep_options sweep = wd_stepper_sweep_options(o);
    if (!teacher || !teacher->residency) return WD_OK;
    if (teacher->placement) sweep.window_max = wd_placed_window(teacher->placement, o->window);
    const wd_source_options source = source_options(o);
    sweep.sweeps_apart = source_of(o)->sweeps_apart(&source);
    if (teacher->home) sweep.latents_device = wd_queue_device(teacher->home);
    return wd_sweep_open(&m->sweep, &sweep, teacher->residency, teacher->queues, err);
}

float wd__stepper_loss_factor(const wd_stepper *m)
{
    return 1.0f / (float)wd_stepper_step_samples(&m->options);
}

/* Opens the memory for a step's losses, of this rank and of all ranks. */
static wd_status open_results(wd_stepper *m, wd_err *err)
{
    const wd_stepper_options *o = &m->options;
    const size_t batch = (size_t)o->batch, rounds = (size_t)o->accumulation;
    wd_device *device = wd_queue_device(m->queue);
    WD_TRY(wd_device_alloc((void **)&m->loss, device, batch * sizeof(float), "batch", err));
    WD_TRY(wd_readback_open(&m->readback, device, RESULTS_UNDER_WAY + 1, step_values(o), err));
    if (!o->comm) return WD_OK;
    return wd_alloc((void **)&m->losses, (size_t)o->comm->ranks * rounds * batch, sizeof(float),
                    "losses", err);
}

/* Opens the source of the stepper's phase; its networks and its sweep are open. */
static wd_status open_source(wd_stepper *m, wd_err *err)
{
    wd_source_options source = source_options(&m->options);
    source.rollouts.student = m->params[0];
    return source_of(&m->options)->open(&m->source, &source, m->sweep, m->home, m->queue, err);
}

wd_status wd_stepper_open(wd_stepper **out, const wd_stepper_options *options,
                          const wd_stepper_teacher *teacher, wd_queue *queue, wd_err *err)
{
    wd_status status;
    wd_stepper *m;
    WD_REQUIRE(options->accumulation == 1 || wd_stepper_may_accumulate(options),
               "gradients in bf16 of %" PRId64 " micro-batches are to be added up",
               options->accumulation);
    WD_TRY(wd_alloc((void **)&m, 1, sizeof *m, "a stepper", err));
    *m = (wd_stepper){
        .options = *options, .queue = queue, .state_count = wd__stepper_state_count(options)};
    m->home = teacher ? teacher->home : queue;
    WD_TRY_OUT(open_results(m, err));
    WD_TRY_OUT(options->recipe->open(m, err));
    WD_TRY_OUT(open_sweep(m, teacher, err));
    WD_TRY_OUT(open_source(m, err));
    *out = m;
out:
    if (status != WD_OK) wd_stepper_close(m);
    return status;
}

wd_status wd_stepper_begin(wd_stepper *stepper, wd_err *err)
{
    return stepper->options.recipe->begin(stepper, err);
}

const wd_stepper_options *wd__stepper_options_of(const wd_stepper *m)
{
    return &m->options;
}

wd_queue *wd__stepper_queue(const wd_stepper *m)
{
    return m->queue;
}

wd_network *wd__stepper_student(const wd_stepper *m)
{
    return m->network[0];
}

wd_params *wd__stepper_params(const wd_stepper *stepper)
{
    return stepper->params[0];
}

wd_sweep *wd__stepper_sweep(const wd_stepper *stepper)
{
    return stepper->sweep;
}

wd_status wd__stepper_check_stream(const wd_stepper_options *options, const json_t *saved,
                                   wd_err *err)
{
    const wd_source_options source = source_options(options);
    return source_of(options)->check_saved(&source, saved, err);
}

wd_status wd__stepper_check_devices(const wd_stepper *m, wd_err *err)
{
    WD_TRY(wd_device_fault(wd_queue_device(m->queue), err));
    return m->sweep ? wd_sweep_check_devices(m->sweep, err) : WD_OK;
}

void wd_stepper_close(wd_stepper *m)
{
    if (!m) return;
    wd_queue_wait(m->queue);
    wd_readback_close(m->readback);
    for (int k = 0; k < m->networks; k++) wd_network_close(m->network[k]);
    wd_source_close(m->source);
    wd_sweep_close(m->sweep);
    if (m->loss) wd_device_free(wd_queue_device(m->queue), m->loss);
    wd_free(m->losses);
    wd_free(m);
}

bool wd_stepper_may_accumulate(const wd_stepper_options *o)
{
    return o->gradients == WD_F32 || (o->comm && o->deterministic_reduce);
}

bool wd_stepper_update_waits(const wd_stepper_options *o)
{
    return wd_stepper_ranks(o) > 1 || (o->comm && o->deterministic_reduce);
}

static void update_networks(wd_stepper *m, const wd_step *step)
{
    for (int k = 0; k < m->networks; k++) wd_network_step(m->network[k], step->lr, step->progress);
}

/* Whether the networks are updated before the source is asked for the last targets of the next
 * step, which may return only when most of them are made: weights in host memory are updated
 * meanwhile. */
static bool updates_early(const wd_stepper_options *o)
{
    return o->place == WD_STATE_ON_HOST && !wd_stepper_update_waits(o);
}

/* Makes the gradients of all micro-batches of a step, of all ranks.
 *
 * After each micro-batch the source is asked for the targets of one of the next step, so that the
 * teacher has work while the student computes, and both have while gradients are exchanged. */
static wd_status make_gradients(wd_stepper *m, int64_t first, const wd_step *step, wd_err *err)
{
    const wd_stepper_options *o = &m->options;
    const int64_t ranks = wd_stepper_ranks(o), rank = o->comm ? o->comm->rank : 0;
    const int64_t ahead = first + wd_stepper_step_samples(o);
    for (int64_t round = 0; round < o->accumulation; round++) {
        const int64_t sample = first + (round * ranks + rank) * o->batch;
        wd_batch batch;
        for (int k = 0; k < m->networks; k++)
            wd_network_begin_round(m->network[k], round, o->accumulation);
        wd_source_fill(m->source, &batch, sample, o->batch);
        o->recipe->train(m, &batch);
        wd_readback_gather(m->readback, m->loss, o->batch, m->queue);
        if (updates_early(o) && round + 1 == o->accumulation) update_networks(m, step);
        if (!step->pauses)
            WD_TRY(wd_source_prepare(m->source, ahead + (round + 1) * ranks * o->batch, err));
        for (int k = 0; k < m->networks; k++) wd_network_end_round(m->network[k]);
    }
    return WD_OK;
}

wd_status wd_stepper_step(wd_stepper *m, const wd_step *step, wd_err *err)
{
    const int64_t samples = wd_stepper_step_samples(&m->options);
    const int64_t of_phase = step->number - m->options.first_step, first = of_phase * samples;
    WD_TRY(wd_source_prepare(m->source, first + samples, err));
    WD_TRY(wd_source_begin_step(m->source, of_phase, step->progress, err));
    WD_TRY(make_gradients(m, first, step, err));
    if (!updates_early(&m->options)) update_networks(m, step);
    wd_readback_gather(m->readback, wd_optimizer_norm(wd_network_optimizer(m->network[0])), 1,
                       m->queue);
    wd_readback_commit(m->readback, step->number, m->queue);
    return WD_OK;
}

int wd_stepper_results_pending(const wd_stepper *stepper)
{
    return wd_readback_pending(stepper->readback);
}

/* Adds the losses of all ranks, in the order of their samples. */
static double sum_losses(wd_stepper *m, const float *own)
{
    const wd_stepper_options *o = &m->options;
    const int64_t ranks = wd_stepper_ranks(o), each = o->accumulation * o->batch;
    double sum = 0;
    if (o->comm) {
        memcpy(m->losses + o->comm->rank * each, own, (size_t)each * sizeof *own);
        wd_comm_allgather_small(o->comm, m->losses, (size_t)each * sizeof *own);
        own = m->losses;
    }
    for (int64_t round = 0; round < o->accumulation; round++)
        for (int64_t rank = 0; rank < ranks; rank++)
            for (int64_t i = 0; i < o->batch; i++) sum += own[rank * each + round * o->batch + i];
    return sum;
}

wd_step_result wd_stepper_take_result(wd_stepper *stepper)
{
    const wd_readback_values values = wd_readback_take(stepper->readback);
    return (wd_step_result){.step = values.tag,
                            .loss = sum_losses(stepper, values.value) /
                                    (double)wd_stepper_step_samples(&stepper->options),
                            .grad_norm = values.value[values.count - 1]};
}

/* ---- phases: see train/loop/phases.h ---- */

wd_stepper_options wd__stepper_of_phase(const wd_stepper_options *run, const wd_phase_begin *begin,
                                        int64_t last)
{
    wd_stepper_options o = *run;
    const wd_phase *phase = &run->phases.phase[begin->phase];
    o.phase = begin->phase;
    o.first_step = begin->step;
    o.steps = last;
    if (run->phases.count) {
        o.recipe = phase->recipe;
        o.reuse = phase->reuse;
    }
    o.recipe->adjust(&o);
    return o;
}

wd_stepper_options wd_stepper_in_phase_of_most_targets(const wd_stepper_options *run)
{
    wd_stepper_options busiest = wd__stepper_of_phase(run, &(wd_phase_begin){0}, run->steps);
    for (int p = 1; p < run->phases.count; p++) {
        const wd_stepper_options o =
            wd__stepper_of_phase(run, &(wd_phase_begin){.phase = p}, run->steps);
        if (wd_stepper_step_targets(&o) >= wd_stepper_step_targets(&busiest)) busiest = o;
    }
    return busiest;
}

wd_status wd__stepper_enter_phase(wd_stepper *m, const wd_stepper_options *phase, wd_err *err)
{
    wd_source_close(m->source);
    m->source = NULL;
    if (m->sweep) wd_sweep_forget_next(m->sweep); /* the next window is one of the new phase */
    m->options = *phase;
    return open_source(m, err);
}

/* Returns how many targets the steps [first, end) of a phase need. */
static int64_t targets_of(const wd_stepper_options *o, int64_t first, int64_t end)
{
    const wd_source_options source = source_options(o);
    return source_of(o)->targets(&source, (end - first) * wd_stepper_step_samples(o));
}

/* Returns how many targets the phase before this one needed. That phase is the run's first, since a
 * run has at most two. */
static int64_t targets_before(const wd_stepper_options *o)
{
    if (!o->phase) return 0;
    const wd_stepper_options first = wd__stepper_of_phase(o, &(wd_phase_begin){0}, o->first_step);
    return targets_of(&first, 0, o->first_step);
}

int64_t wd__stepper_targets_until(const wd_stepper_options *o, int64_t step)
{
    return targets_before(o) + targets_of(o, o->first_step, step);
}

int64_t wd__stepper_targets(const wd_stepper *stepper)
{
    return targets_before(&stepper->options) + stepper->source->targets;
}

/* ---- checkpoints: the networks' tensors and the source's, the source's state, and how many steps
 * each optimizer has taken ---- */

/* Of the student, whose prefix is empty, "optimizer_steps". */
static const char *steps_key(char out[KEY_BYTES], const wd_params *params)
{
    snprintf(out, KEY_BYTES, "%soptimizer_steps", params->names->prefix);
    return out;
}

void wd__stepper_list_networks(wd_stepper *m, wd_checkpoint_tensors *out)
{
    *out = (wd_checkpoint_tensors){.params = m->saved, .networks = m->networks};
    for (int k = 0; k < m->networks; k++) m->saved[k] = m->params[k];
    if (m->source->snapshot) m->saved[out->networks++] = m->source->snapshot;
}

static wd_status list_tensors(wd_stepper *m, json_t **stream, wd_checkpoint_tensors *tensors,
                              wd_err *err)
{
    wd__stepper_list_networks(m, tensors);
    return wd_source_save(m->source, stream, &tensors->other, &tensors->others, err);
}

wd_status wd__stepper_save(wd_stepper *m, json_t **run, wd_checkpoint_tensors *tensors, wd_err *err)
{
    char key[KEY_BYTES];
    json_t *stream;
    WD_TRY(list_tensors(m, &stream, tensors, err));
    json_t *json = json_pack("{s:o}", "stream", stream);
    bool failed = !json;
    for (int k = 0; !failed && k < m->networks; k++) {
        const int64_t steps = wd_optimizer_steps(wd_network_optimizer(m->network[k]), m->queue);
        failed = json_object_set_new(json, steps_key(key, m->params[k]),
                                     json_integer((json_int_t)steps)) != 0;
    }
    if (!failed) {
        *run = json;
        return WD_OK;
    }
    json_decref(json);
    return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for a checkpoint's state");
}

/* *out = the steps of this phase that the checkpoint's run has made. */
static wd_status read_phase_steps(int64_t *out, const wd_stepper_options *o,
                                  const wd_checkpoint *checkpoint, wd_err *err)
{
    *out = checkpoint->step - o->first_step;
    if (*out >= 0 && *out < WD_STREAM_SAMPLES_MAX / wd_stepper_step_samples(o)) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: expected the step at which its phase began, found %" PRId64
                   ", for a checkpoint of step %" PRId64 ": it is damaged, resume another one",
                   checkpoint->path, o->first_step, checkpoint->step);
}

static wd_status restore_source(wd_stepper *m, const wd_checkpoint *checkpoint, wd_err *err)
{
    int64_t steps;
    WD_TRY(read_phase_steps(&steps, &m->options, checkpoint, err));
    const json_t *stream = json_object_get(checkpoint->run, "stream");
    const wd_status status = wd_source_restore(m->source, stream, steps, err);
    return status == WD_OK ? status : wd_fail_in(err, "%s", checkpoint->path);
}

wd_status wd__stepper_load(wd_stepper *m, const wd_checkpoint *checkpoint, wd_err *err)
{
    char key[KEY_BYTES];
    const wd_json_reader r = {.object = checkpoint->run, .where = checkpoint->path};
    int64_t steps[WD_NETWORKS_MAX];
    json_t *unused = NULL;
    wd_checkpoint_tensors tensors;
    for (int k = 0; k < m->networks; k++)
        WD_TRY(wd_json_int(&steps[k], r, steps_key(key, m->params[k]), 0, checkpoint->step,
                           WD_JSON_REQUIRED, err));
    WD_TRY(restore_source(m, checkpoint, err));
    WD_TRY(list_tensors(m, &unused, &tensors, err));
    json_decref(unused);
    WD_TRY(wd_checkpoint_load(checkpoint, &tensors, m->queue, err));
    for (int k = 0; k < m->networks; k++)
        wd_optimizer_set_steps(wd_network_optimizer(m->network[k]), steps[k], m->queue);
    return WD_OK;
}

/* What wd__stepper_check_finite looks at, in this order. */
static const wd_params_buffer kept[] = {WD_PARAMS_P, WD_PARAMS_M, WD_PARAMS_V, WD_PARAMS_SLOW,
                                        WD_PARAMS_EMA};

static wd_status check_network(const wd_stepper *m, int network, wd_err *err)
{
    const wd_params *params = m->params[network];
    const wd_optimizer *optimizer = wd_network_optimizer(m->network[network]);
    for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
        if (!params->buffer[kept[k]] || wd_optimizer_buffer_is_finite(optimizer, kept[k], m->queue))
            continue;
        return wd_fail(err, WD_NOT_FINITE,
                       "training diverged: values of the %s are not finite. Lower --lr, or go on "
                       "from an earlier checkpoint with a lower one",
                       params->names->buffer[kept[k]]);
    }
    return WD_OK;
}

wd_status wd__stepper_check_finite(const wd_stepper *m, wd_err *err)
{
    for (int k = 0; k < m->networks; k++) WD_TRY(check_network(m, k, err));
    return wd_source_check_finite(m->source, wd_network_optimizer(m->network[0]), err);
}
