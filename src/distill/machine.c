/* The machine of a distillation: see distill/machine.h. */
#include "distill/machine.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "student/loss.h"

enum { RESULTS_UNDER_WAY = 2 };

int wd_machine_ranks(const wd_machine_options *o)
{
    return o->comm ? o->comm->ranks : 1;
}

static int64_t state_count(const wd_machine_options *o)
{
    return o->student.in_channels * o->latent_height * o->latent_width;
}

int64_t wd_machine_step_samples(const wd_machine_options *o)
{
    return o->batch * o->accumulation * wd_machine_ranks(o);
}

double wd_machine_step_bytes(const wd_machine_options *o)
{
    const int64_t text = o->text_tokens * o->student.text_dim;
    const double samples = (double)(o->batch * o->accumulation);
    const double targets = (double)wd_machine_step_samples(o) / (double)o->reuse;
    const double begun = targets / (double)o->trajectory.steps;
    return samples * (double)text * (double)wd_dtype_bytes(o->student_dtype) +
           (samples + targets + begun * (double)state_count(o) + 1) * sizeof(float);
}

/* The values of a step's result. */
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
    const wd_reduce_options reduce = {.comm = o->comm,
                                      .pieces = wd_params_cut(weights, o->comm->ranks),
                                      .by_round = o->deterministic_reduce};
    const double left = WD_BACKWARD_SHARE * wd_reduce_left(&reduce);
    return 1 - (1 - left) / (double)o->accumulation;
}

wd_sweep_options wd_machine_sweep_options(const wd_machine_options *o)
{
    const wd_pipeline *teacher = o->teacher;
    return (wd_sweep_options){
        .config = teacher->dit,
        .dtype = wd_teacher_compute_dtype(o->teacher_dtype),
        .frames = 1,
        .height = o->latent_height,
        .width = o->latent_width,
        .text_tokens = o->text_tokens,
        .text_repeat = o->text_repeat,
        .window_max = o->window,
        .micro_batch = o->micro_batch,
        .boundary_timestep =
            teacher->boundary_ratio * (double)teacher->scheduler.num_train_timesteps,
        .guidance_scale = {o->guidance_scale[0], o->guidance_scale[1]},
        .text = o->text,
        .text_context = o->text_context,
        .comm = o->comm,
    };
}

static wd_trajectory_objective_options objective_options(const wd_machine_options *o)
{
    return (wd_trajectory_objective_options){
        .trajectory = o->trajectory,
        .state_count = state_count(o),
        .text_tokens = o->text_tokens,
        .text_dim = o->student.text_dim,
        .reuse = o->reuse,
        .replay = o->replay,
        .samples_max = o->batch,
        .step_samples = wd_machine_step_samples(o),
        .samples_end = o->steps * wd_machine_step_samples(o),
        .window = o->window,
        .comm = o->comm,
        .student_dtype = o->student_dtype,
        .text = o->text,
        .text_context = o->text_context,
    };
}

static wd_status open_student(wd_machine *m, wd_err *err)
{
    const wd_machine_options *o = &m->options;
    const wd_dit_shape shape = {.samples = o->batch,
                                .texts = o->batch,
                                .frames = 1,
                                .height = o->latent_height,
                                .width = o->latent_width,
                                .text_tokens = o->text_tokens,
                                .text_repeat = o->text_repeat};
    wd_device *device = wd_queue_device(m->queue);
    unsigned kinds = WD_PARAMS_TRAINED | (o->ema ? WD_PARAMS_WITH_EMA : 0);
    const bool shared = o->shard_optimizer && o->comm;
    WD_TRY(wd_params_open_shared(&m->params, &o->student, o->student_dtype, kinds,
                                 shared ? (wd_params_ranks){o->comm->rank, o->comm->ranks}
                                        : (wd_params_ranks){0, 1},
                                 device, err));
    WD_TRY(wd_optimizer_open(&m->optimizer, &o->optimizer, &m->params, err));
    WD_TRY(wd_pass_open(&m->student, &m->params, &shape,
                        o->checkpointing ? WD_PASS_TRAIN_CHECKPOINT : WD_PASS_TRAIN, m->queue,
                        err));
    WD_TRY(
        wd_device_alloc((void **)&m->loss, device, (size_t)o->batch * sizeof(float), "batch", err));
    WD_TRY(wd_alloc((void **)&m->sigma, (size_t)o->batch, sizeof(float), "a batch", err));
    return wd_readback_open(&m->readback, device, RESULTS_UNDER_WAY + 1, step_values(o), err);
}

/* Where gradients of several ranks are added, and losses come together. */
static wd_status open_ranks(wd_machine *m, wd_err *err)
{
    const wd_machine_options *o = &m->options;
    if (!o->comm) return WD_OK;
    const size_t ranks = (size_t)o->comm->ranks, losses = (size_t)(o->accumulation * o->batch);
    WD_TRY(wd_alloc((void **)&m->losses, ranks * losses, sizeof(float), "losses", err));
    if (ranks == 1 && !o->deterministic_reduce) return WD_OK;
    const wd_reduce_options reduce = {
        .comm = o->comm,
        .pieces = wd_params_pieces(&m->params, o->comm->ranks),
        .by_round = o->deterministic_reduce,
        .scatter = m->params.pieces.ranks > 0,
    };
    WD_TRY(wd_reduce_open(&m->reduce, &reduce, wd_queue_device(m->queue), err));
    if (!m->params.pieces.ranks) return WD_OK;
    return wd_shard_open(&m->shard, &m->params, m->reduce, o->comm, err);
}

/* In place: student and optimizer keep pointers into *m. */
wd_status wd_machine_open(wd_machine *m, const wd_machine_options *options,
                          const wd_machine_teacher *teacher, wd_queue *queue, wd_err *err)
{
    wd_status status;
    *m = (wd_machine){.options = *options, .queue = queue};
    m->state_count = state_count(options);
    wd_sweep_options sweep = wd_machine_sweep_options(options);
    WD_TRY_OUT(open_student(m, err));
    WD_TRY_OUT(open_ranks(m, err));
    if (teacher && teacher->placement)
        sweep.window_max = wd_placed_window(teacher->placement, options->window);
    if (teacher) {
        sweep.sweeps_apart = wd_sweeps_apart(options->trajectory.slots, options->window);
        WD_TRY_OUT(wd_sweep_open(&m->sweep, &sweep, teacher->residency, teacher->placement,
                                 teacher->queues, err));
    }
    const wd_trajectory_objective_options objective = objective_options(options);
    WD_TRY_OUT(wd_objective_open_trajectory(&m->objective, &objective, m->sweep,
                                            teacher ? teacher->home : queue, queue, err));
out:
    if (status != WD_OK) wd_machine_close(m);
    return status;
}

wd_status wd_machine_check_stream(const wd_machine_options *options, const json_t *saved,
                                  wd_err *err)
{
    const wd_trajectory_objective_options objective = objective_options(options);
    return wd_objective_check_trajectory(&objective, saved, err);
}

wd_status wd_machine_check_devices(const wd_machine *m, wd_err *err)
{
    WD_TRY(wd_device_fault(wd_queue_device(m->queue), err));
    return m->sweep ? wd_sweep_check_devices(m->sweep, err) : WD_OK;
}

void wd_machine_close(wd_machine *machine)
{
    if (machine->queue) wd_queue_wait(machine->queue);
    wd_readback_close(machine->readback);
    wd_shard_close(machine->shard);
    wd_reduce_close(machine->reduce);
    wd_objective_close(machine->objective);
    wd_sweep_close(machine->sweep);
    wd_pass_close(machine->student);
    wd_optimizer_close(&machine->optimizer);
    if (machine->loss) wd_device_free(wd_queue_device(machine->queue), machine->loss);
    wd_free(machine->sigma);
    wd_free(machine->losses);
    wd_params_close(&machine->params);
    *machine = (wd_machine){0};
}

/* What a stage's gradients are final for. */
static void reduce_stage(void *context, int stage)
{
    wd_machine *m = context;
    int64_t first, count;
    wd_params_stage_range(&first, &count, &m->params, stage);
    wd_reduce_ready(m->reduce, first);
}

/* This rank's micro-batch of a round, whose samples begin at `first`. */
static wd_status run_micro_batch(wd_machine *m, int64_t first, wd_pass_ready_fn *ready, wd_err *err)
{
    const wd_machine_options *o = &m->options;
    wd_batch batch;
    WD_TRY(wd_objective_fill(m->objective, &batch, m->sigma, first, o->batch, err));
    const float factor = 1.0f / (float)wd_machine_step_samples(o);
    const wd_pass_inputs inputs = {batch.latents, batch.timestep, batch.text};
    const wd_pass_outputs outputs = wd_pass_forward(m->student, &inputs);
    wd_loss_velocity(m->loss, &outputs, batch.target, factor, m->queue);
    wd_pass_backward(m->student, ready, m);
    wd_readback_gather(m->readback, m->loss, o->batch, m->queue);
    return WD_OK;
}

/* The gradients of all micro-batches of a step, of all ranks. Where they are added micro-batch by
 * micro-batch each begins with zeros and is on its way to the others while the next is computed;
 * else this rank's are added where they come to be, and the last of them begins to send.
 *
 * The next step's targets are made meanwhile, those of a micro-batch after this step's own: so the
 * teacher has work while the student computes, and both while gradients are on their way. */
static wd_status make_gradients(wd_machine *m, int64_t first, wd_err *err)
{
    const wd_machine_options *o = &m->options;
    const int64_t ranks = wd_machine_ranks(o), rank = o->comm ? o->comm->rank : 0;
    const bool each = m->reduce && o->deterministic_reduce;
    const int64_t ahead = first + wd_machine_step_samples(o);
    for (int64_t round = 0; round < o->accumulation; round++) {
        const bool begins = each || round == 0, last = round + 1 == o->accumulation;
        const bool reduces = m->reduce && (each || last);
        if (begins) wd_params_zero_grads(&m->params, m->queue);
        if (reduces)
            wd_reduce_begin(m->reduce, m->params.buffer[WD_PARAMS_G],
                            (!each || round == 0 ? WD_ROUND_FIRST : 0u) |
                                (last ? WD_ROUND_LAST : 0u),
                            m->queue);
        WD_TRY(run_micro_batch(m, first + (round * ranks + rank) * o->batch,
                               reduces ? reduce_stage : NULL, err));
        if (!m->pauses)
            WD_TRY(wd_objective_prepare(m->objective, ahead + (round + 1) * ranks * o->batch, err));
        if (reduces && !last) wd_reduce_finish(m->reduce);
    }
    if (m->reduce) wd_reduce_finish(m->reduce);
    return WD_OK;
}

wd_status wd_machine_step(wd_machine *m, int64_t step, double lr, wd_err *err)
{
    const int64_t samples = wd_machine_step_samples(&m->options), first = step * samples;
    WD_TRY(wd_objective_prepare(m->objective, first + samples, err));
    WD_TRY(make_gradients(m, first, err));
    wd_optimizer_step(&m->optimizer, lr, m->queue);
    wd_readback_gather(m->readback, wd_optimizer_norm(&m->optimizer), 1, m->queue);
    wd_readback_commit(m->readback, step, m->queue);
    return WD_OK;
}

int wd_machine_results_pending(const wd_machine *machine)
{
    return wd_readback_pending(machine->readback);
}

/* Sum of the losses of all ranks, in the order of their samples. */
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
