/* Results of steps: metrics, and what becomes of a run whose numbers are not finite.
 *
 * A step whose loss or gradients are not finite is dropped: it changes no weight. Such steps end a
 * run if there are many in a row, if they are its last ones, or at once if the teacher or the
 * student is not finite. No checkpoint is written while steps are dropped, and those before the
 * newest one are removed only after a step from its weights was taken. So there is a checkpoint to
 * go on from, whatever the interval. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/host.h"
#include "core/log.h"
#include "train/loop/trainer_impl.h"
#include "train/output/checkpoint_folder.h"
#include "train/output/checkpoint_list.h"

enum { NOT_FINITE_MAX = 20 };

/* The rate of the last second or more; before one is over, since the beginning. Measures host
 * memory, too, where it measures. */
static double measure_rate(wd_trainer *t)
{
    const double now = wd_clock_s(), since = now - t->rated;
    if (since < 1 && t->steps_per_s > 0) return t->steps_per_s;
    const double rate = (double)(t->step - t->rated_step) / since;
    t->memory_bytes = wd_host_memory_part(t->progress.sharers);
    if (since < 1) return rate;
    t->rated = now;
    t->rated_step = t->step;
    return t->steps_per_s = rate;
}

void wd__trainer_warn_of_metrics(wd_trainer *t, const wd_err *why)
{
    if (!t->metrics_warned)
        wd_log(WD_LOG_WARNING, "%s; training goes on, and its metrics lack what is not written",
               why->message);
    t->metrics_warned = true;
}

/* Measures the devices of this rank that have memory of their own. */
static int measure_devices(wd_device_peak out[WD_PLACED_DEVICES_MAX], const wd_devices *devices)
{
    int n = 0;
    for (int d = 0; devices && d < devices->count; d++)
        if (d != devices->processor)
            out[n++] = (wd_device_peak){devices->name[d], wd_device_bytes_peak(devices->device[d])};
    return n;
}

/* Writes a step's row of the metrics, and shows progress. If the disk does not take the row this
 * warns, once, and training goes on. */
static void write_row(wd_trainer *t, const wd_step_result *result)
{
    const wd_stepper_options *m = wd__stepper_options_of(t->stepper);
    const int64_t samples = (result->step + 1) * wd_stepper_step_samples(m);
    const double seconds = wd__trainer_elapsed_s(t), rate = measure_rate(t);
    wd_device_peak device[WD_PLACED_DEVICES_MAX];
    const int devices = measure_devices(device, t->options->devices);
    wd_err why;
    const wd_status status = wd__metrics_write(
        t->metrics,
        &(wd_metrics_row){
            .step = result->step + 1,
            .loss = result->loss,
            .grad_norm = result->grad_norm,
            .lr = t->lr[result->step % 4],
            .samples = samples,
            .targets = wd__stepper_targets_until(m, result->step + 1),
            .phase = m->recipe->name,
            .validation = t->validated.step == result->step + 1 ? &t->validated : NULL,
            .seconds = seconds,
            .steps_per_s = rate,
            .memory_bytes = t->memory_bytes,
            .device = device,
            .devices = devices,
        },
        &why);
    if (status != WD_OK) wd__trainer_warn_of_metrics(t, &why);
    t->written_step = result->step + 1;
    t->progress.now.loss = result->loss;
    wd_progress_at(&t->progress, result->step + 1);
}

wd_status wd__trainer_diverged(const wd_trainer *t, wd_err *err)
{
    char from[WD_PATH_MAX];
    if (t->proven_step < 0 ||
        wd_checkpoint_folder_path(from, t->checkpoints, "", t->proven_step, NULL) != WD_OK)
        snprintf(from, sizeof from, "an earlier checkpoint");
    return wd_fail(err, WD_NOT_FINITE,
                   "training diverged: the loss or its gradients are not finite at the last %d of "
                   "%" PRId64 " steps, which changed nothing. Lower --lr (now %g), or go on from "
                   "%s with a lower one",
                   t->not_finite, t->step, t->options->lr.lr, from);
}

/* For the first of dropped steps in a row: ends the run if the teacher or the student is not
 * finite, for then all later steps would be dropped, too; else warns. */
static wd_status explain(wd_trainer *t, const wd_step_result *result, wd_err *err)
{
    wd_checkpoint_tensors tensors;
    json_t *unused = NULL;
    wd_queue_wait(wd__stepper_queue(t->stepper));
    WD_TRY(wd__stepper_save(t->stepper, &unused, &tensors, err));
    json_decref(unused);
    WD_TRY(wd__stepper_check_finite(t->stepper, err));
    if (wd__trainer_writes(t))
        wd_log(WD_LOG_WARNING,
               "step %" PRId64 " is dropped: its loss %g or its gradients (norm %g) are not finite",
               result->step + 1, result->loss, result->grad_norm);
    return WD_OK;
}

int64_t wd__trainer_newest_checkpoint(const wd_trainer *t)
{
    if (t->saved_step >= 0) return t->saved_step;
    return t->options->resume ? t->first_verified_step : -1;
}

wd_status wd__trainer_prune(const wd_trainer *t, wd_err *err)
{
    if (!wd__trainer_writes(t)) return WD_OK;
    return wd_checkpoint_prune(t->checkpoints, t->options->keep_checkpoints, t->first_verified_step,
                               err);
}

/* For a step that was taken from the newest checkpoint's weights or later ones: they are good. The
 * checkpoints before it are removed only now, so that a run that diverges leaves a good one. */
static wd_status prove(wd_trainer *t, wd_err *err)
{
    const int64_t newest = wd__trainer_newest_checkpoint(t);
    if (t->proven_step == newest) return WD_OK;
    t->proven_step = newest;
    return wd__trainer_prune(t, err);
}

/* Takes the oldest result: writes its metrics, and ends the run where training has diverged or a
 * device has failed. */
static wd_status take_result(wd_trainer *t, wd_err *err)
{
    wd_step_result result = wd_stepper_take_result(t->stepper);
    WD_TRY(wd__stepper_check_devices(t->stepper, err));
    const bool finite = isfinite(result.loss) && isfinite(result.grad_norm);
    if (wd__trainer_writes(t)) write_row(t, &result);
    t->not_finite = finite ? 0 : t->not_finite + 1;
    if (finite) {
        t->loss[t->losses++ % WD_TRAINER_LOSSES] = result.loss;
        return result.step >= wd__trainer_newest_checkpoint(t) ? prove(t, err) : WD_OK;
    }
    if (t->not_finite == 1) WD_TRY(explain(t, &result, err));
    return t->not_finite < NOT_FINITE_MAX ? WD_OK : wd__trainer_diverged(t, err);
}

wd_status wd__trainer_take_results(wd_trainer *t, int leave, wd_err *err)
{
    while (wd_stepper_results_pending(t->stepper) > leave) WD_TRY(take_result(t, err));
    return WD_OK;
}

double wd__trainer_mean_loss(const wd_trainer *t)
{
    int64_t n = t->losses < WD_TRAINER_LOSSES ? t->losses : WD_TRAINER_LOSSES;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += t->loss[i];
    return n ? sum / (double)n : NAN;
}
