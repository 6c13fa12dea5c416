/* The student at the start of a run: its first weights, whether they are finite, and how well they
 * agree with the teacher. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/log.h"
#include "core/memory.h"
#include "dev/convert.h"
#include "train/loop/stepper_impl.h"
#include "train/loop/trainer_impl.h"
#include "train/network/init.h"
#include "train/network/loss.h"

/* ---- agreement with the teacher ----
 *
 * How well a student agrees with the teacher before its first step: measured where a run starts
 * from another model than the teacher (--init_student), beside what a copy of the teacher's blocks
 * would have. */

enum { TEXT = 160 };

typedef struct start_agreement {
    int64_t samples; /* 0: not measured */
    double cosine;   /* of outputs and targets, mean over the samples */
    double error;    /* norm of their differences over the targets' norm, all samples together */
} start_agreement;

/* Sums over pairs of values. */
typedef struct sums {
    double both, output, target, difference;
} sums;

static void add(sums *s, const float *output, const float *target, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const double v = output[i], t = target[i];
        s->both += v * t;
        s->output += v * v;
        s->target += t * t;
        s->difference += (v - t) * (v - t);
    }
}

/* A sample's row of a matrix on the device, F32 or BF16, as floats in host memory. `staging` has
 * room for it. */
static void fetch(float *out, void *staging, const void *matrix, wd_dtype dtype, int64_t row,
                  int64_t width, wd_queue *queue)
{
    const size_t bytes = wd_dtype_size(dtype, width);
    const uint16_t *half = staging;
    const float *whole = staging;
    wd_queue_copy_and_wait(queue, staging, (const char *)matrix + (size_t)row * bytes, bytes);
    wd_queue_wait(queue);
    for (int64_t i = 0; i < width; i++)
        out[i] = dtype == WD_F32 ? whole[i] : float_of((uint32_t)half[i] << 16);
}

/* `rows` [3, width]: room for an output, a target and one on its way. */
static void compare(start_agreement *out, const wd_pass_outputs *outputs, const float *target,
                    float *rows, wd_queue *queue)
{
    const int64_t width = outputs->width;
    sums all = {0};
    double cosines = 0;
    for (int64_t i = 0; i < outputs->samples; i++) {
        sums one = {0};
        fetch(rows, rows + 2 * width, outputs->velocity, outputs->dtype, i, width, queue);
        fetch(rows + width, rows + 2 * width, target, WD_F32, i, width, queue);
        add(&one, rows, rows + width, width);
        cosines += one.both / sqrt(fmax(one.output * one.target, 1e-300));
        all.target += one.target;
        all.difference += one.difference;
    }
    *out = (start_agreement){.samples = outputs->samples,
                             .cosine = cosines / (double)outputs->samples,
                             .error = sqrt(all.difference / fmax(all.target, 1e-300))};
}

/* Measures it on the samples of the run's first micro-batch, whose targets the first step needs
 * anyway, with the student's weights as they are. It runs a forward and a backward pass in the
 * memory of training, and leaves no trace: gradients are zeroed when the first step begins. All
 * ranks call it, of which the first measures; no step has been made. */
static wd_status measure_agreement(start_agreement *out, wd_stepper *m, wd_err *err)
{
    const wd_stepper_options *o = &m->options;
    wd_pass *pass = wd_network_pass(m->network[0]);
    wd_batch batch;
    float *rows;
    WD_TRY(wd_source_prepare(m->source, o->batch * wd_stepper_ranks(o), err));
    if (o->comm && o->comm->rank) return WD_OK; /* the samples are those of the first rank */
    WD_TRY(wd_alloc((void **)&rows, 3 * (size_t)m->state_count, sizeof *rows, "a sample", err));
    wd_source_fill(m->source, &batch, 0, o->batch);
    const wd_pass_inputs inputs = {batch.latents, batch.timestep, batch.text};
    const wd_pass_outputs outputs = wd_pass_forward(pass, &inputs);
    compare(out, &outputs, batch.target, rows, m->queue);
    wd_free(rows);
    wd_loss_velocity(m->loss, &outputs, batch.target, batch.weight, wd__stepper_loss_factor(m),
                     m->queue);
    wd_pass_backward(pass, NULL, NULL); /* which must follow a forward pass */
    wd_queue_wait(m->queue);
    return WD_OK;
}

/* Logs both: `own` of the run's start, and `copied` of a copy of the teacher's blocks.
 * `no_teacher`: there is none to copy, since its targets are stored. */
static void say_agreement(const start_agreement *own, const start_agreement *copied,
                          bool no_teacher)
{
    char other[TEXT] = "";
    if (!no_teacher)
        snprintf(other, sizeof other, "; a copy of the teacher's blocks cannot have these sizes");
    if (copied->samples)
        snprintf(other, sizeof other,
                 "; of a copy of the teacher's blocks: cosine %.3f, difference %.3f",
                 copied->cosine, copied->error);
    wd_log(WD_LOG_INFO,
           "before the first step the student agrees with the targets of the first %" PRId64
           " sample%s: cosine %.3f, difference %.3f of their norm%s",
           own->samples, own->samples == 1 ? "" : "s", own->cosine, own->error, other);
}

/* ---- the start ---- */

/* A student that is not finite at the start never will be. */
static wd_status check_finite(const wd_trainer *t, wd_err *err)
{
    const wd_stepper *m = t->stepper;
    const wd_pipeline *first = wd__stepper_first(wd__stepper_options_of(m));
    if (wd_optimizer_buffer_is_finite(wd_network_optimizer(wd__stepper_student(m)), WD_PARAMS_P,
                                      wd__stepper_queue(m)))
        return WD_OK;
    if (t->options->resume)
        return wd_fail(err, WD_NOT_FINITE, "%s: its weights are not finite: resume another one",
                       t->options->resume);
    return wd_fail(err, WD_NOT_FINITE,
                   "%s/%s: its weights, which the student starts from, are not finite: the "
                   "model is damaged",
                   first->path, wd_component_name(wd_student_expert(first)));
}

/* What copies weights into the student: a rank that is asked to stop meanwhile tells the others
 * before the first step. */
static wd_status note_left_off(wd_trainer *t, wd_status status, const wd_err *why, wd_err *err)
{
    t->left_off = status == WD_INTERRUPTED;
    if (status == WD_OK || t->left_off) return WD_OK;
    if (err) *err = *why;
    return status;
}

static wd_status begin_student(wd_trainer *t, wd_err *err)
{
    wd_err why = {0};
    if (t->stop) return WD_OK; /* all ranks have agreed on it */
    return note_left_off(t, wd_stepper_begin(t->stepper, &why), &why, err);
}

/* All ranks: measures the student as it is, unless one of them is to stop. */
static wd_status measure_start(start_agreement *out, wd_trainer *t, wd_err *err)
{
    wd__trainer_agree(t);
    return t->stop ? WD_OK : measure_agreement(out, t->stepper, err);
}

/* Measures what a copy of the teacher's blocks would have, where the teacher is there, and its copy
 * can have the student's sizes: in the student's own weights, which then become those of the run's
 * start. */
static wd_status measure_copied(start_agreement *out, wd_trainer *t, wd_err *err)
{
    const wd_stepper_options *o = &t->options->stepper;
    wd_err why = {0};
    if (o->stored || wd_student_config_check(&o->student, &o->teacher->dit, NULL) != WD_OK)
        return WD_OK;
    const wd_status copied =
        wd_student_init(wd__stepper_params(t->stepper), o->teacher, wd_student_expert(o->teacher),
                        wd__stepper_queue(t->stepper), &why);
    WD_TRY(note_left_off(t, copied, &why, err));
    return measure_start(out, t, err);
}

/* The student gets its first weights, and its agreement with the teacher is logged. */
static wd_status begin_new(wd_trainer *t, wd_err *err)
{
    const wd_trainer_options *o = t->options;
    const bool measures = o->stepper.first; /* a copy of the teacher's blocks is the usual start */
    start_agreement own = {0}, copied = {0};
    wd__trainer_watch_other(t);
    if (measures) WD_TRY(measure_copied(&copied, t, err));
    wd_student_say_blocks(&o->stepper.student, wd__stepper_first(&o->stepper), o->stepper.blocks);
    WD_TRY(begin_student(t, err));
    WD_TRY(check_finite(t, err));
    if (measures) WD_TRY(measure_start(&own, t, err));
    if (own.samples && wd__trainer_writes(t)) say_agreement(&own, &copied, o->stepper.stored);
    return WD_OK;
}

wd_status wd__trainer_start(wd_trainer *t, wd_err *err)
{
    return t->options->resume ? check_finite(t, err) : begin_new(t, err);
}
