/* The training loop: see train/loop/trainer.h.
 *
 * With ranks all of them run it alike. Before each step they tell one another what clocks and
 * signals say, and all go by the same: rank 0's clock, anybody's signal. */
#include "train/loop/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/host.h"
#include "core/log.h"
#include "core/memory.h"
#include "io/file/file.h"
#include "train/loop/trainer_impl.h"
#include "train/output/checkpoint_folder.h"

enum { OTHER_S = 3600, OTHER_STEPS = 100 }; /* what is no step may take the longer of these */

/* ---- phases: see train/loop/phases.h ---- */

static int64_t end_step(const wd_trainer *t)
{
    const wd_trainer_options *o = t->options;
    return wd_phase_end_step(&o->stepper.phases, t->phase.phase, o->steps);
}

/* 0: time does not end the phase. */
static double end_seconds(const wd_trainer *t)
{
    const wd_trainer_options *o = t->options;
    return wd__phase_end_seconds(&o->stepper.phases, t->phase.phase, o->seconds_max);
}

/* The step at which the run, or the phase under way, ends or is stopped; 0: time says that. */
static int64_t last_step(const wd_trainer *t)
{
    const int64_t end = end_step(t), stop = t->options->stop_at_step;
    return stop && (!end || stop < end) ? stop : end;
}

/* The options of the stepper in the phase under way. */
static wd_stepper_options stepper_options(const wd_trainer *t)
{
    return wd__stepper_of_phase(&t->options->stepper, &t->phase, last_step(t));
}

/* How much of the phase under way is over, in [0, 1]: by steps, or by time. */
static double progress_of_phase(const wd_trainer *t)
{
    const double steps = (double)(end_step(t) - t->phase.step);
    const double seconds = end_seconds(t) - t->phase.seconds;
    const double by_steps = steps > 0 ? (double)(t->step - t->phase.step) / steps : 0;
    const double by_time = seconds > 0 ? (t->elapsed_s - t->phase.seconds) / seconds : 0;
    const double progress = by_steps > by_time ? by_steps : by_time;
    return progress < 1 ? progress : 1;
}

/* Whether the next phase is to begin before the next step. The same on all ranks. */
static bool phase_is_over(const wd_trainer *t)
{
    const int64_t step = end_step(t);
    const double seconds = end_seconds(t);
    if (t->phase.phase + 1 >= t->options->stepper.phases.count) return false;
    return (step && t->step >= step) || (seconds > 0 && t->elapsed_s >= seconds);
}

/* Begins the next phase. All ranks. */
static wd_status begin_next_phase(wd_trainer *t, wd_err *err)
{
    WD_TRY(wd__trainer_take_results(t, 0, err)); /* which are of the phase that ends */
    t->phase =
        (wd_phase_begin){.phase = t->phase.phase + 1, .step = t->step, .seconds = t->elapsed_s};
    const wd_stepper_options stepper = stepper_options(t);
    WD_TRY(wd__stepper_enter_phase(t->stepper, &stepper, err));
    WD_TRY(wd__trainer_open_validation(t, err));
    if (wd__trainer_writes(t))
        wd_log(WD_LOG_INFO, "after step %" PRId64 " the student learns by recipe %s", t->step,
               stepper.recipe->name);
    return WD_OK;
}

/* ---- results of steps ----
 *
 * A step whose loss or gradients are not finite is dropped: it changes no weight. Such steps end a
 * run if there are many in a row, if they are its last ones, or at once if the teacher or the
 * student is not finite. No checkpoint is written while steps are dropped, and those before the
 * newest one are removed only after a step from its weights was taken. So there is a checkpoint to
 * go on from, whatever the interval. */

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

/* Warns, once, that the disk does not take the metrics. */
static void warn_of_metrics(wd_trainer *t, const wd_err *why)
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
    if (status != WD_OK) warn_of_metrics(t, &why);
    t->written_step = result->step + 1;
    t->progress.now.loss = result->loss;
    wd_progress_at(&t->progress, result->step + 1);
}

/* The end of a run whose last steps were dropped. */
static wd_status diverged(const wd_trainer *t, wd_err *err)
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
    return t->not_finite < NOT_FINITE_MAX ? WD_OK : diverged(t, err);
}

wd_status wd__trainer_take_results(wd_trainer *t, int leave, wd_err *err)
{
    while (wd_stepper_results_pending(t->stepper) > leave) WD_TRY(take_result(t, err));
    return WD_OK;
}

/* The mean loss of the last steps that were taken; NaN: there were none. */
static double mean_loss(const wd_trainer *t)
{
    int64_t n = t->losses < WD_TRAINER_LOSSES ? t->losses : WD_TRAINER_LOSSES;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += t->loss[i];
    return n ? sum / (double)n : NAN;
}

/* ---- the run ---- */

static wd_status open_votes(wd_trainer *t, wd_err *err)
{
    const size_t ranks = (size_t)wd_stepper_ranks(&t->options->stepper);
    return wd_alloc((void **)&t->votes, ranks, sizeof *t->votes, "ranks", err);
}

/* What signals and `wandistiller tell` say to this rank. */
static bool is_asked_to_stop(wd_trainer *t)
{
    const wd_trainer_options *o = t->options;
    if (o->requests && wd__trainer_writes(t)) t->heard |= o->requests(o->output_context);
    return t->left_off || t->heard & WD_REQUEST_STOP || (o->stop && o->stop(o->stop_context));
}

void wd__trainer_agree(wd_trainer *t)
{
    const wd_trainer_options *o = t->options;
    wd_comm *comm = o->stepper.comm;
    const bool stop = is_asked_to_stop(t);
    t->votes[comm ? comm->rank : 0] =
        (wd_step_vote){.elapsed_s = wd__trainer_elapsed_s(t), .stop = stop, .requests = t->heard};
    if (comm) wd_comm_allgather_small(comm, t->votes, sizeof *t->votes);
    t->heard &= WD_REQUEST_STOP; /* for good; the others are said once */
    t->requests |= (unsigned)t->votes[0].requests;
    t->elapsed_s = t->votes[0].elapsed_s;
    t->save = (o->checkpoint_s > 0 && t->elapsed_s - t->saved_s >= o->checkpoint_s) ||
              t->requests & WD_REQUEST_SAVE;
    t->stop = false;
    for (int r = 0; r < wd_stepper_ranks(&o->stepper); r++) t->stop |= t->votes[r].stop != 0;
}

static void begin_progress(wd_trainer *t)
{
    const wd_trainer_options *o = t->options;
    t->progress = wd_progress_begin("training", "step", t->step, o->steps);
    t->progress.sharers = o->stepper.comm ? o->stepper.comm->host_ranks : 1;
    if (o->seconds_max > 0) t->progress.seconds_max = o->seconds_max - t->seconds_before;
}

/* ---- the output folder ---- */

/* Before this rank writes: the folder is ready, and its paths are those where it is now. */
static wd_status ready_output(wd_trainer *t, wd_err *err)
{
    const wd_trainer_options *o = t->options;
    if (!wd__trainer_writes(t)) return WD_OK;
    if (o->ready_output) WD_TRY(o->ready_output(t->folder, o->output_context, err));
    WD_TRY(wd_path_join(t->checkpoints, t->folder, "checkpoints", err));
    return t->metrics ? WD_OK : wd__metrics_open(&t->metrics, t->folder, t->first_step, err);
}

typedef wd_status write_fn(wd_trainer *t, wd_err *err);

/* Writes into the output folder. If the folder was moved meanwhile, neither place may have all that
 * was written, so this writes once more. A run of several ranks writes once, since all ranks would
 * have to take part in writing again. */
static wd_status write_in_place(wd_trainer *t, write_fn *fn, wd_err *err)
{
    char before[WD_PATH_MAX];
    WD_TRY(ready_output(t, err));
    memcpy(before, t->folder, sizeof before);
    const wd_status status = fn(t, err);
    if (wd_stepper_ranks(&t->options->stepper) > 1 || ready_output(t, NULL) != WD_OK) return status;
    return strcmp(before, t->folder) ? fn(t, err) : status;
}

bool wd__trainer_hear(wd_trainer *t, bool value)
{
    wd_comm *comm = t->options->stepper.comm;
    t->votes[comm ? comm->rank : 0] = (wd_step_vote){.says_so = value};
    if (comm) wd_comm_allgather_small(comm, t->votes, sizeof *t->votes);
    return t->votes[0].says_so != 0;
}

void wd__trainer_watch_other(const wd_trainer *t)
{
    const wd_trainer_options *o = t->options;
    wd_watch_step(o->watch, t->step, fmax(OTHER_S, OTHER_STEPS * o->step_s_max));
}

bool wd__trainer_gives_up(void *context, bool together)
{
    wd_trainer *t = context;
    wd__trainer_watch_other(t);
    if (!together) return is_asked_to_stop(t);
    wd__trainer_agree(t);
    return t->stop;
}

static wd_status open_samples(wd_trainer *t, wd_err *err)
{
    wd_samples_options samples = t->options->samples;
    if (!samples.count) return WD_OK;
    samples.stop = wd__trainer_gives_up;
    samples.stop_context = t;
    return wd__samples_open(&t->samples, &samples, t->stepper, err);
}

static wd_status begin(wd_trainer *t, const wd_stepper_teacher *where, wd_queue *queue, wd_err *err)
{
    const wd_trainer_options *o = t->options;
    WD_TRY(open_votes(t, err));
    if (o->resume) WD_TRY(wd__trainer_find_phase(t, err));
    const wd_stepper_options stepper = stepper_options(t);
    if (wd__trainer_writes(t)) WD_TRY(wd_folder_make(o->output_dir, err));
    WD_TRY(wd_path_join(t->folder, "", o->output_dir, err));
    WD_TRY(wd_path_join(t->checkpoints, t->folder, "checkpoints", err));
    WD_TRY(wd_stepper_open(&t->stepper, &stepper, where, queue, err));
    if (o->resume) WD_TRY(wd__trainer_resume(t, err));
    const wd_status started = wd__trainer_start(t, err);
    WD_TRY(wd__stepper_check_devices(t->stepper, err));
    WD_TRY(started);
    WD_TRY(open_samples(t, err));
    return wd__trainer_open_validation(t, err);
}

static bool is_over(const wd_trainer *t)
{
    const wd_trainer_options *o = t->options;
    return (o->steps && t->step >= o->steps) ||
           (o->seconds_max > 0 && t->elapsed_s >= o->seconds_max);
}

static bool is_stopped(const wd_trainer *t)
{
    const wd_trainer_options *o = t->options;
    return (o->stop_at_step && t->step >= o->stop_at_step) || t->stop;
}

static bool is_due(int64_t step, int64_t interval)
{
    return interval && step % interval == 0;
}

/* Whether what is known now says that the next step is followed by a checkpoint. */
static bool next_is_saved(const wd_trainer *t)
{
    const wd_trainer_options *o = t->options;
    const int64_t end = t->step + 1;
    const int64_t last = last_step(t);
    return (last && end >= last) || is_due(end, o->checkpoint_interval) || t->save || t->owed;
}

static wd_status draw_sheet(wd_trainer *t, wd_err *err)
{
    char sheet[WD_PATH_MAX];
    wd_err why;
    WD_TRY(ready_output(t, err));
    WD_TRY(wd__samples_write(t->samples, t->step, err));
    if (!t->metrics || !wd__samples_last_sheet(sheet, t->samples)) return WD_OK;
    if (wd__metrics_sheet(t->metrics, sheet, t->step, &why) != WD_OK) warn_of_metrics(t, &why);
    return WD_OK;
}

/* A sheet on the way. One whose pictures are not finite is missing, since the student may be well;
 * if the last one is, too, the run ends with that error after all else is saved. */
static wd_status draw_sheet_or_warn(wd_trainer *t, wd_err *err)
{
    wd_err why = {0};
    const wd_status status = draw_sheet(t, &why);
    if (status == WD_NOT_FINITE) {
        wd_log(WD_LOG_WARNING, "%s; training goes on without this sheet of samples", why.message);
        return WD_OK;
    }
    if (status != WD_OK && err) *err = why;
    return status;
}

/* A checkpoint and a sheet after a step, as far as they are due. Where `tell` has asked for one, it
 * has it now, unless the run is over: then its end has both. */
static wd_status write_what_is_due(wd_trainer *t, wd_err *err)
{
    const wd_trainer_options *o = t->options;
    const bool is_last = o->steps && t->step >= o->steps; /* which finish() saves */
    const bool saves = !is_last && (is_due(t->step, o->checkpoint_interval) || t->save || t->owed);
    const bool is_told = t->requests & WD_REQUEST_SAMPLE;
    const bool draws =
        t->samples && (is_due(t->step, o->sample_interval) || is_told) && !is_over(t);
    t->requests = 0;
    if (is_told && !t->samples && wd__trainer_writes(t))
        wd_log(WD_LOG_WARNING, "this run draws no sheets of samples: its memory is planned without "
                               "them; --save_samples true draws them");
    if (t->validation && is_due(t->step, o->validation_interval))
        WD_TRY(write_in_place(t, wd__trainer_validate, err));
    if (saves) WD_TRY(write_in_place(t, wd__trainer_write_checkpoint, err));
    if (draws) WD_TRY(draw_sheet_or_warn(t, err));
    if (o->follow && wd__trainer_writes(t)) o->follow(o->output_context, saves || draws);
    return WD_OK;
}

static wd_status run_step(wd_trainer *t, wd_err *err)
{
    const wd_trainer_options *o = t->options;
    const bool is_first = t->step == t->phase.step;
    wd_watch_step(o->watch, t->step, o->step_s_max + (is_first ? o->first_s : 0));
    const double progress = progress_of_phase(t);
    const wd_step step = {.number = t->step,
                          .lr = wd_lr_at(&o->lr, t->step - t->phase.step, progress),
                          .progress = progress,
                          .pauses = next_is_saved(t)};
    WD_TRY(wd_stepper_step(t->stepper, &step, err));
    t->lr[t->step++ % 4] = step.lr;
    if (!t->metrics) WD_TRY(ready_output(t, err));
    WD_TRY(wd__trainer_take_results(t, 1, err));
    wd__trainer_watch_other(t);
    return write_what_is_due(t, err);
}

/* A last validation, a checkpoint, the student's folder, a last sheet. The checkpoint comes early,
 * since a run whose student then finds no space is resumed from it; without it the student is
 * written all the same.
 */
static wd_status finish(wd_trainer *t, bool interrupted, wd_err *err)
{
    t->ends = true;
    if (t->validation && !interrupted) WD_TRY(write_in_place(t, wd__trainer_validate, err));
    if (!wd__trainer_is_saved(t)) WD_TRY(write_in_place(t, wd__trainer_write_checkpoint, err));
    if (t->not_finite) return diverged(t, err);
    WD_TRY(wd__trainer_prune(t, err));
    WD_TRY(write_in_place(t, wd__trainer_write_student, err));
    return t->samples && !interrupted ? draw_sheet(t, err) : WD_OK;
}

wd_status wd_trainer_run(wd_trainer_result *out, const wd_trainer_options *options,
                         const wd_stepper_teacher *teacher, wd_queue *queue, wd_err *err)
{
    wd_status status;
    wd_trainer t = {.options = options, .saved_step = -1, .proven_step = -1, .best_error = NAN};
    bool interrupted = false;
    WD_TRY_OUT(begin(&t, teacher, queue, err));
    t.begun = t.rated = wd_clock_s();
    t.rated_step = t.step;
    t.saved_s = t.seconds_before;
    if (wd__trainer_writes(&t)) begin_progress(&t);
    wd__trainer_agree(&t);
    while (!is_over(&t) && !(interrupted = is_stopped(&t))) {
        if (phase_is_over(&t)) WD_TRY_OUT(begin_next_phase(&t, err));
        WD_TRY_OUT(run_step(&t, err));
        wd__trainer_agree(&t);
    }
    const double seconds = wd__trainer_elapsed_s(&t);
    const bool untouched = interrupted && t.step == t.first_step;
    if (!untouched) WD_TRY_OUT(finish(&t, interrupted, err));
    *out = (wd_trainer_result){.steps = t.step,
                               .targets = wd__stepper_targets(t.stepper),
                               .loss = mean_loss(&t),
                               .seconds = seconds,
                               .saved_step = untouched || wd__trainer_is_saved(&t)
                                                 ? t.step
                                                 : wd__trainer_newest_checkpoint(&t),
                               .interrupted = interrupted,
                               .untouched = untouched,
                               .export = wd__trainer_export_of(&t)};
    memcpy(out->folder, t.folder, sizeof out->folder);
out:
    wd__metrics_close(t.metrics);
    wd__samples_close(t.samples);
    wd__trainer_close_validation(&t);
    wd_stepper_close(t.stepper);
    wd_free(t.votes);
    return status;
}
