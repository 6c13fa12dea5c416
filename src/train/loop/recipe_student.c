/* The recipes that train one student on the teacher's own trajectories, by mean squared error: see
 * train/loop/recipe.h. They differ in what the source gives as targets, which the trajectories'
 * student_steps say: with 0 the teacher's guided velocities at states along the trajectories, else
 * the slopes of the chords of their blocks (train/targets/chord.h). */
#include "train/loop/stepper_impl.h"
#include "train/network/init.h"
#include "train/network/loss.h"
#include "train/targets/chord.h"

/* The first numbers of the trajectories of two successive phases differ by this much. */
static const int64_t serials_of_phase = (int64_t)1 << 40;

static void adjust_for_chords(wd_stepper_options *o)
{
    wd_trajectory_options *t = &o->trajectory;
    if (!t->student_steps) t->diversity_gain = 0; /* velocities have no pairs */
    if (wd_chords(t) < 2) t->on_policy_share = 0; /* no block begins where another one ends */
    t->serial_first = o->phase * serials_of_phase;
}

static void adjust_for_velocities(wd_stepper_options *o)
{
    o->trajectory.student_steps = o->trajectory.chords = 0;
    adjust_for_chords(o);
}

static wd_status open_student(wd_stepper *m, wd_err *err)
{
    return wd__stepper_add_network(m, &wd_params_student, &m->options.student, err);
}

static wd_status begin_student(wd_stepper *m, wd_err *err)
{
    const wd_pipeline *first = wd__stepper_first(&m->options);
    wd_network *student = m->network[0];
    WD_TRY(wd_student_init_from(wd_network_params(student), first, wd_student_expert(first),
                                m->options.blocks, m->queue, err));
    if (m->options.ema) wd_optimizer_start_ema(wd_network_optimizer(student), m->queue);
    return WD_OK;
}

static void train_student(wd_stepper *m, const wd_batch *batch)
{
    const wd_pass_inputs inputs = {batch->latents, batch->timestep, batch->text};
    const wd_pass_outputs outputs = wd_pass_forward(wd_network_pass(m->network[0]), &inputs);
    wd_loss_velocity(m->loss, &outputs, batch->target, batch->weight, wd__stepper_loss_factor(m),
                     m->queue);
    wd_network_backward(m->network[0]);
}

const wd_recipe wd_recipe_velocity = {.name = "velocity",
                                      .source = &wd_source_trajectory,
                                      .adjust = adjust_for_velocities,
                                      .open = open_student,
                                      .begin = begin_student,
                                      .train = train_student};

const wd_recipe wd_recipe_chord = {.name = "chord",
                                   .source = &wd_source_trajectory,
                                   .adjust = adjust_for_chords,
                                   .open = open_student,
                                   .begin = begin_student,
                                   .train = train_student};
