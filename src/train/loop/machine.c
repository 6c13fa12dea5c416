/* The machine of a distillation: see train/loop/machine.h. */
#include "train/loop/machine_impl.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/require.h"

enum { RESULTS_UNDER_WAY = 2 };

int wd_machine_ranks(const wd_machine_options *o)
{
    return o->comm ? o->comm->ranks : 1;
}

int64_t wd_machine_state_count(const wd_machine_options *o)
{
    return o->student.in_channels * o->latent_height * o->latent_width;
}

int64_t wd_machine_step_samples(const wd_machine_options *o)
{
    return o->batch * o->accumulation * wd_machine_ranks(o);
}

/* Samples of this phase's steps; 0: nobody knows, or more than any run sees. */
static int64_t samples_end(const wd_machine_options *o)
{
    const int64_t steps = o->steps - o->first_step, each = wd_machine_step_samples(o);
    return steps > 0 && steps <= WD_STREAM_SAMPLES_MAX / each ? steps * each : 0;
}

wd_source_options wd_machine_source_options(const wd_machine_options *o)
{
    const wd_batches_options batches = {.samples_max = o->batch,
                                        .state_count = wd_machine_state_count(o),
                                        .text_tokens = o->text_tokens,
                                        .text_dim = o->student.text_dim,
                                        .text_dtype = o->student_dtype,
                                        .text = o->text,
                                        .text_context = o->text_context};
    return (wd_source_options){.trajectory = o->trajectory,
                               .batches = batches,
                               .reuse = o->reuse,
                               .replay = o->replay,
                               .step_samples = wd_machine_step_samples(o),
                               .samples_end = samples_end(o),
                               .window = o->window,
                               .comm = o->comm,
                               .rollouts = {.buffer = o->ema ? WD_PARAMS_EMA : WD_PARAMS_P,
                                            .batches = batches,
                                            .latent_height = o->latent_height,
                                            .latent_width = o->latent_width,
                                            .text_repeat = o->text_repeat}};
}

double wd_machine_step_targets(const wd_machine_options *o)
{
    const wd_source_options source = wd_machine_source_options(o);
    return o->recipe->source->step_targets(&source);
}

double wd_machine_step_bytes(const wd_machine_options *o)
{
    const double text =
        (double)wd_dtype_size(o->student_dtype, o->text_tokens * o->student.text_dim);
    const double samples = (double)(o->batch * o->accumulation);
    const wd_source_options source = wd_machine_source_options(o);
    /* texts, timesteps, weights, and the rates of the optimizer */
    return samples * text + (2 * samples + WD_OPTIMIZER_RATES) * sizeof(float) +
           o->recipe->source->step_bytes(&source);
}

/* How many values the result of a step has. */
static int64_t step_values(const wd_machine_options *o)
{
    return o->batch * o->accumulation + 1;
}

double wd_machine_back_bytes(const wd_machine_options *o)
{
    return (double)step_values(o) * sizeof(float);
}

double wd_machine_steps_ahead(const wd_machine_options *o, int64_t weights)
{
    if (wd_machine_ranks(o) == 1)
        return 1 + fmin(1, WD_BATCHES_UNDER_WAY / (double)o->accumulation);
    if (o->accumulation > 1 && !o->deterministic_reduce) return 1;
    const double left =
        WD_BACKWARD_SHARE * wd_network_left(weights, o->comm, o->deterministic_reduce);
    return 1 - (1 - left) / (double)o->accumulation;
}

wd_sweep_options wd_machine_sweep_options(const wd_machine_options *o)
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

wd_status wd_machine_add_network(wd_machine *m, const wd_params_names *names,
                                 const wd_dit_config *config, wd_err *err)
{
    const wd_machine_options *o = &m->options;
    const wd_network_options options = {
        .names = names,
        .config = config,
        .dtype = o->student_dtype,
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
        .comm = o->comm,
    };
    WD_REQUIRE(m->networks < WD_NETWORKS_MAX, "a recipe has more than %d networks",
               WD_NETWORKS_MAX);
    WD_TRY(wd_network_open(&m->network[m->networks], &options, m->queue, err));
    m->params[m->networks] = wd_network_params(m->network[m->networks]);
    m->networks++;
    return WD_OK;
}

static wd_status open_sweep(wd_machine *m, const wd_machine_teacher *teacher, wd_err *err)
{
    const wd_machine_options *o = &m->options;
    wd_sweep_options sweep = wd_machine_sweep_options(o);
    if (!teacher || !teacher->residency) return WD_OK;
    if (teacher->placement) sweep.window_max = wd_placed_window(teacher->placement, o->window);
    const wd_source_options source = wd_machine_source_options(o);
    sweep.sweeps_apart = o->recipe->source->sweeps_apart(&source);
    if (teacher->home) sweep.latents_device = wd_queue_device(teacher->home);
    return wd_sweep_open(&m->sweep, &sweep, teacher->residency, teacher->queues, err);
}

float wd_machine_loss_factor(const wd_machine *m)
{
    return 1.0f / (float)wd_machine_step_samples(&m->options);
}

/* Opens the memory for a step's losses, of this rank and of all ranks. */
static wd_status open_results(wd_machine *m, wd_err *err)
{
    const wd_machine_options *o = &m->options;
    const size_t batch = (size_t)o->batch, rounds = (size_t)o->accumulation;
    wd_device *device = wd_queue_device(m->queue);
    WD_TRY(wd_device_alloc((void **)&m->loss, device, batch * sizeof(float), "batch", err));
    WD_TRY(wd_readback_open(&m->readback, device, RESULTS_UNDER_WAY + 1, step_values(o), err));
    if (!o->comm) return WD_OK;
    return wd_alloc((void **)&m->losses, (size_t)o->comm->ranks * rounds * batch, sizeof(float),
                    "losses", err);
}

wd_status wd_machine_open_source(wd_machine *m, wd_err *err)
{
    wd_source_options source = wd_machine_source_options(&m->options);
    source.rollouts.student = m->params[0];
    return m->options.recipe->source->open(&m->source, &source, m->sweep, m->home, m->queue, err);
}

wd_status wd_machine_open(wd_machine **out, const wd_machine_options *options,
                          const wd_machine_teacher *teacher, wd_queue *queue, wd_err *err)
{
    wd_status status;
    wd_machine *m;
    WD_TRY(wd_alloc((void **)&m, 1, sizeof *m, "a training machine", err));
    *m = (wd_machine){
        .options = *options, .queue = queue, .state_count = wd_machine_state_count(options)};
    m->home = teacher ? teacher->home : queue;
    WD_TRY_OUT(open_results(m, err));
    WD_TRY_OUT(options->recipe->open(m, err));
    WD_TRY_OUT(open_sweep(m, teacher, err));
    WD_TRY_OUT(wd_machine_open_source(m, err));
    *out = m;
out:
    if (status != WD_OK) wd_machine_close(m);
    return status;
}

wd_status wd_machine_begin(wd_machine *machine, wd_err *err)
{
    return machine->options.recipe->begin(machine, err);
}

wd_params *wd_machine_params(const wd_machine *machine)
{
    return machine->params[0];
}

wd_sweep *wd_machine_sweep(const wd_machine *machine)
{
    return machine->sweep;
}

wd_status wd_machine_check_stream(const wd_machine_options *options, const json_t *saved,
                                  wd_err *err)
{
    const wd_source_options source = wd_machine_source_options(options);
    return options->recipe->source->check_saved(&source, saved, err);
}

wd_status wd_machine_check_devices(const wd_machine *m, wd_err *err)
{
    WD_TRY(wd_device_fault(wd_queue_device(m->queue), err));
    return m->sweep ? wd_sweep_check_devices(m->sweep, err) : WD_OK;
}

void wd_machine_close(wd_machine *m)
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

/* Makes the gradients of all micro-batches of a step, of all ranks.
 *
 * After each micro-batch the source is asked for the targets of one of the next step, so that the
 * teacher has work while the student computes, and both have while gradients are exchanged. */
static wd_status make_gradients(wd_machine *m, int64_t first, wd_err *err)
{
    const wd_machine_options *o = &m->options;
    const int64_t ranks = wd_machine_ranks(o), rank = o->comm ? o->comm->rank : 0;
    const int64_t ahead = first + wd_machine_step_samples(o);
    for (int64_t round = 0; round < o->accumulation; round++) {
        const int64_t sample = first + (round * ranks + rank) * o->batch;
        wd_batch batch;
        for (int k = 0; k < m->networks; k++)
            wd_network_begin_round(m->network[k], round, o->accumulation);
        wd_source_fill(m->source, &batch, sample, o->batch);
        o->recipe->train(m, &batch);
        wd_readback_gather(m->readback, m->loss, o->batch, m->queue);
        if (!m->pauses)
            WD_TRY(wd_source_prepare(m->source, ahead + (round + 1) * ranks * o->batch, err));
        for (int k = 0; k < m->networks; k++) wd_network_end_round(m->network[k]);
    }
    return WD_OK;
}

wd_status wd_machine_step(wd_machine *m, int64_t step, double lr, wd_err *err)
{
    const int64_t samples = wd_machine_step_samples(&m->options);
    const int64_t first = (step - m->options.first_step) * samples;
    WD_TRY(wd_source_prepare(m->source, first + samples, err));
    WD_TRY(wd_source_begin_step(m->source, step - m->options.first_step, m->progress, err));
    WD_TRY(make_gradients(m, first, err));
    for (int k = 0; k < m->networks; k++) wd_network_step(m->network[k], lr, m->progress);
    wd_readback_gather(m->readback, wd_optimizer_norm(wd_network_optimizer(m->network[0])), 1,
                       m->queue);
    wd_readback_commit(m->readback, step, m->queue);
    return WD_OK;
}

int wd_machine_results_pending(const wd_machine *machine)
{
    return wd_readback_pending(machine->readback);
}

/* Adds the losses of all ranks, in the order of their samples. */
static double sum_losses(wd_machine *m, const float *own)
{
    const wd_machine_options *o = &m->options;
    const int64_t ranks = wd_machine_ranks(o), each = o->accumulation * o->batch;
    double sum = 0;
    if (o->comm) {
        memcpy(m->losses + o->comm->rank * each, own, (size_t)each * sizeof *own);
        wd_comm_tell(o->comm, m->losses, (size_t)each * sizeof *own);
        own = m->losses;
    }
    for (int64_t round = 0; round < o->accumulation; round++)
        for (int64_t rank = 0; rank < ranks; rank++)
            for (int64_t i = 0; i < o->batch; i++) sum += own[rank * each + round * o->batch + i];
    return sum;
}

wd_step_result wd_machine_take_result(wd_machine *machine)
{
    const wd_readback_values values = wd_readback_take(machine->readback);
    return (wd_step_result){.step = values.tag,
                            .loss = sum_losses(machine, values.value) /
                                    (double)wd_machine_step_samples(&machine->options),
                            .grad_norm = values.value[values.count - 1]};
}
