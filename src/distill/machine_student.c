/* What the recipes share that train one student on the teacher's own trajectories. */
#include "distill/machine_impl.h"
#include "student/init.h"
#include "student/loss.h"

wd_status wd_machine_open_student(wd_machine *m, const wd_machine_teacher *teacher, wd_err *err)
{
    WD_TRY(wd_machine_add_network(m, &wd_params_student, &m->options.student, err));
    return wd_machine_open_trajectories(m, teacher, err);
}

wd_status wd_machine_begin_student(wd_machine *m, wd_err *err)
{
    const wd_pipeline *first = wd_machine_first(&m->options);
    wd_network *student = m->network[0];
    WD_TRY(wd_student_init(wd_network_params(student), first, wd_student_expert(first), NULL,
                           m->queue, err));
    if (m->options.ema) wd_optimizer_start_ema(wd_network_optimizer(student), m->queue);
    return WD_OK;
}

void wd_machine_train_student(wd_machine *m, const wd_batch *batch)
{
    const wd_pass_inputs inputs = {batch->latents, batch->timestep, batch->text};
    const wd_pass_outputs outputs = wd_pass_forward(wd_network_pass(m->network[0]), &inputs);
    wd_loss_velocity(m->loss, &outputs, batch->target, wd_machine_loss_factor(m), m->queue);
    wd_network_backward(m->network[0]);
}
