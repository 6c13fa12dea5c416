/* The machine of a distillation: see distill/machine.h. */
#include "distill/machine.h"

#include "core/memory.h"

enum { RESULTS_UNDER_WAY = 2 };

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
    };
}

static wd_trajectory_objective_options objective_options(const wd_machine *m)
{
    const wd_machine_options *o = &m->options;
    return (wd_trajectory_objective_options){
        .trajectory = o->trajectory,
        .state_count = m->state_count,
        .text_tokens = o->text_tokens,
        .text_dim = o->student.text_dim,
        .reuse = o->reuse,
        .replay = o->replay,
        .samples_max = o->batch,
        .step_samples = o->batch * o->accumulation,
        .window = o->window,
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
    WD_TRY(wd_params_open(&m->params, &o->student, o->student_dtype, kinds, device, err));
    WD_TRY(wd_optimizer_open(&m->optimizer, &o->optimizer, &m->params, err));
    WD_TRY(wd_student_open(&m->student, &m->params, &shape,
                           o->checkpointing ? WD_STUDENT_TRAIN_CHECKPOINT : WD_STUDENT_TRAIN,
                           m->queue, err));
    WD_TRY(
        wd_device_alloc((void **)&m->loss, device, (size_t)o->batch * sizeof(float), "batch", err));
    WD_TRY(wd_alloc((void **)&m->sigma, (size_t)o->batch, sizeof(float), "a batch", err));
    return wd_readback_open(&m->readback, device, RESULTS_UNDER_WAY + 1,
                            o->batch * o->accumulation + 1, err);
}

/* In place: student and optimizer keep pointers into *m. */
wd_status wd_machine_open(wd_machine *m, const wd_machine_options *options,
                          const wd_machine_teacher *teacher, wd_queue *queue, wd_err *err)
{
    wd_status status;
    *m = (wd_machine){.options = *options, .queue = queue};
    m->state_count = options->student.in_channels * options->latent_height * options->latent_width;
    const wd_sweep_options sweep = wd_machine_sweep_options(options);
    WD_TRY_OUT(open_student(m, err));
    if (teacher)
        WD_TRY_OUT(wd_sweep_open(&m->sweep, &sweep, teacher->residency, teacher->placement,
                                 teacher->queues, err));
    const wd_trajectory_objective_options objective = objective_options(m);
    WD_TRY_OUT(wd_objective_open_trajectory(&m->objective, &objective, m->sweep,
                                            teacher ? teacher->home : queue, queue, err));
out:
    if (status != WD_OK) wd_machine_close(m);
    return status;
}

void wd_machine_close(wd_machine *machine)
{
    if (machine->queue) wd_queue_wait(machine->queue);
    wd_readback_close(machine->readback);
    wd_objective_close(machine->objective);
    wd_sweep_close(machine->sweep);
    wd_student_close(machine->student);
    wd_optimizer_close(&machine->optimizer);
    if (machine->loss) wd_device_free(wd_queue_device(machine->queue), machine->loss);
    wd_free(machine->sigma);
    wd_params_close(&machine->params);
    *machine = (wd_machine){0};
}

wd_status wd_machine_step(wd_machine *m, int64_t step, double lr, wd_err *err)
{
    const wd_machine_options *o = &m->options;
    int64_t step_samples = o->batch * o->accumulation, first = step * step_samples;
    WD_TRY(wd_objective_prepare(m->objective, first + step_samples, err));
    wd_params_zero_grads(&m->params, m->queue);
    for (int64_t micro = 0; micro < o->accumulation; micro++) {
        wd_batch batch;
        WD_TRY(wd_objective_fill(m->objective, &batch, m->sigma, first + micro * o->batch, o->batch,
                                 err));
        const wd_student_batch pass = {.latents = batch.latents,
                                       .timestep = batch.timestep,
                                       .text = batch.text,
                                       .target = batch.target,
                                       .factor = 1.0f / (float)step_samples};
        wd_student_forward_backward(m->loss, m->student, &pass, NULL, NULL);
        wd_readback_gather(m->readback, m->loss, o->batch, m->queue);
    }
    wd_optimizer_step(&m->optimizer, lr, m->queue);
    wd_readback_gather(m->readback, wd_optimizer_norm(&m->optimizer), 1, m->queue);
    wd_readback_commit(m->readback, step, m->queue);
    return WD_OK;
}

int wd_machine_results_pending(const wd_machine *machine)
{
    return wd_readback_pending(machine->readback);
}

wd_step_result wd_machine_take_result(wd_machine *machine)
{
    wd_readback_values values = wd_readback_take(machine->readback);
    double sum = 0;
    int64_t samples = values.count - 1;
    for (int64_t i = 0; i < samples; i++) sum += values.value[i];
    return (wd_step_result){
        .step = values.tag, .loss = sum / (double)samples, .grad_norm = values.value[samples]};
}
