/* The agreement before the first step: see train/loop/start_agreement.h. */
#include "train/loop/start_agreement.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/log.h"
#include "core/memory.h"
#include "dev/convert.h"
#include "train/loop/stepper_impl.h"
#include "train/network/loss.h"

enum { TEXT = 160 };

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
static void compare(wd_start_agreement *out, const wd_pass_outputs *outputs, const float *target,
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
    *out = (wd_start_agreement){.samples = outputs->samples,
                                .cosine = cosines / (double)outputs->samples,
                                .error = sqrt(all.difference / fmax(all.target, 1e-300))};
}

wd_status wd__start_agreement_measure(wd_start_agreement *out, wd_stepper *m, wd_err *err)
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

void wd__start_agreement_say(const wd_start_agreement *own, const wd_start_agreement *copied,
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
