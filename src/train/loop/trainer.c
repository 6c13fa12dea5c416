/* The training loop: see train/loop/trainer.h.
 *
 * With ranks all of them run it alike. Before each step they tell one another what clocks and
 * signals say, and all go by the same: rank 0's clock, anybody's signal. */
#include "train/loop/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/file_space.h"
#include "core/log.h"
#include "core/memory.h"
#include "io/file/file.h"
#include "train/loop/trainer_impl.h"

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

/* Warns of a checkpoint for which there was no space. */
static void say_unsaved(const wd_trainer *t, const wd_err *why)
{
    char from[64] = "there is no earlier one to resume from", older[128] = "";
    const int keep = t->options->keep_checkpoints;
    const int64_t newest = wd__trainer_newest_checkpoint(t);
    const char *what = t->ends ? "the run ends without this checkpoint"
                               : "training goes on, and writes the next checkpoint when it is due";
    if (newest >= 0) snprintf(from, sizeof from, "the newest one is of step %" PRId64, newest);
    if (newest >= 0 && keep > 1)
        snprintf(older, sizeof older,
                 "; older ones, which --keep_checkpoints %d keeps, may be removed", keep);
    wd_log(WD_LOG_WARNING, "%s; %s; %s%s", why->message, what, from, older);
}

bool wd__trainer_hear(wd_trainer *t, bool value)
{
    wd_comm *comm = t->options->stepper.comm;
    t->votes[comm ? comm->rank : 0] = (wd_step_vote){.says_so = value};
    if (comm) wd_comm_allgather_small(comm, t->votes, sizeof *t->votes);
    return t->votes[0].says_so != 0;
}

/* Of the rank that writes. A checkpoint that finds no space is a warning: the run goes on with
 * those that it has, and what it was training is not lost. *lacks = whether that is so. */
static wd_status write_or_warn(wd_trainer *t, const wd_checkpoint_tensors *tensors,
                               const json_t *run, bool *lacks, wd_err *err)
{
    wd_err why = {0};
    wd_file_space_watch();
    const wd_status status = wd_checkpoint_write(t->checkpoints, t->step, tensors, run,
                                                 wd__stepper_queue(t->stepper), &why);
    *lacks = status == WD_IO && wd_file_space_lacked();
    if (*lacks)
        say_unsaved(t, &why);
    else if (status != WD_OK && err)
        *err = why;
    return *lacks ? WD_OK : status;
}

/* Writes a checkpoint: all ranks take part, and one of them writes. No checkpoint is written while
 * steps are dropped, because the values that make a step not finite may be among those that would
 * be saved; one is written after the next step that is taken. If there is no space for a
 * checkpoint, it is left out, and the next one is written when it is due. */
static wd_status write_checkpoint(wd_trainer *t, wd_err *err)
{
    wd_status status;
    bool lacks_space = false;
    wd_checkpoint_tensors tensors;
    json_t *run = NULL;
    WD_TRY(wd__trainer_take_results(t, 0, err)); /* its own step has its row in the metrics */
    t->owed = t->not_finite > 0;
    if (t->owed) return WD_OK;
    WD_TRY_OUT(wd__stepper_save(t->stepper, &run, &tensors, err));
    WD_TRY_OUT(wd__stepper_check_finite(t->stepper, err));
    t->saved_s = t->elapsed_s;
    WD_TRY_OUT(wd__trainer_save_run(run, t->options, &t->phase, wd__trainer_elapsed_s(t), err));
    if (wd__trainer_writes(t))
        WD_TRY_OUT(write_or_warn(t, &tensors, run, &lacks_space, err));
    else
        wd_checkpoint_assist(&tensors, wd__stepper_queue(t->stepper));
    wd_queue_wait(
        wd__stepper_queue(t->stepper)); /* what others wait for is done before this rank waits */
    if (!wd__trainer_hear(t, lacks_space)) t->saved_step = t->step;
out:
    json_decref(run);
    return status;
}

/* The phase in which the run goes on. */
static wd_status find_phase(wd_trainer *t, wd_err *err)
{
    json_t *run;
    WD_TRY(wd_checkpoint_read_run(&run, NULL, t->options->resume, err));
    const wd_json_reader r = {.object = run, .where = t->options->resume};
    const wd_status status = wd__trainer_read_phase(&t->phase, t->options, r, err);
    json_decref(run);
    return status;
}

/* Goes on where a checkpoint ends. */
static wd_status resume(wd_trainer *t, wd_err *err)
{
    wd_status status;
    wd_checkpoint checkpoint = {0};
    WD_TRY_OUT(wd_checkpoint_open(&checkpoint, t->options->resume, err));
    const wd_json_reader r = {.object = checkpoint.run, .where = checkpoint.path};
    WD_TRY_OUT(wd_json_float(&t->seconds_before, r, "seconds", WD_JSON_REQUIRED, err));
    WD_TRY_OUT(wd__stepper_load(t->stepper, &checkpoint, err));
    t->step = t->first_step = t->first_verified_step = checkpoint.step;
    if (wd__trainer_writes(t)) wd_log(WD_LOG_INFO, "going on from %s", checkpoint.path);
out:
    wd_checkpoint_close(&checkpoint);
    return status;
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
    if (o->resume) WD_TRY(find_phase(t, err));
    const wd_stepper_options stepper = stepper_options(t);
    if (wd__trainer_writes(t)) WD_TRY(wd_folder_make(o->output_dir, err));
    WD_TRY(wd_path_join(t->folder, "", o->output_dir, err));
    WD_TRY(wd_path_join(t->checkpoints, t->folder, "checkpoints", err));
    WD_TRY(wd_stepper_open(&t->stepper, &stepper, where, queue, err));
    if (o->resume) WD_TRY(resume(t, err));
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
    if (wd__metrics_sheet(t->metrics, sheet, t->step, &why) != WD_OK)
        wd__trainer_warn_of_metrics(t, &why);
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
    if (saves) WD_TRY(write_in_place(t, write_checkpoint, err));
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

/* Whether the checkpoint of the last step is there: this run has written it, or a run that had
 * nothing left to do was resumed from it in its own folder. The same on all ranks. */
static bool is_saved(const wd_trainer *t)
{
    char own[WD_PATH_MAX];
    const wd_trainer_options *o = t->options;
    if (t->step > t->first_step) return t->saved_step == t->step;
    return o->resume && wd_path_join(own, o->output_dir, "checkpoints/", NULL) == WD_OK &&
           !strncmp(o->resume, own, strlen(own));
}

wd_export_options wd__trainer_export_of(const wd_trainer *t)
{
    const wd_stepper_options *m = wd__stepper_options_of(t->stepper);
    wd_export_options export = t->options->export;
    export.trained_steps = t->step;
    export.buffer = m->ema ? WD_PARAMS_EMA : WD_PARAMS_P;
    export.student_steps = m->trajectory.student_steps;
    if (export.student_steps) export.sampling_steps = export.student_steps;
    export.best_step = t->best_step;
    export.best_error = t->best_error;
    return export;
}

/* All ranks take part; one of them writes. */
static wd_status write_student(wd_trainer *t, wd_err *err)
{
    const wd_stepper *m = t->stepper;
    const wd_export_options export = wd__trainer_export_of(t);
    wd_params_collect(wd__stepper_params(m), export.buffer, wd__stepper_queue(m));
    wd_status status = WD_OK;
    if (wd__trainer_writes(t))
        status =
            wd_export_student(t->folder, wd__stepper_params(m), wd__stepper_options_of(m)->teacher,
                              &export, wd__stepper_queue(m), err);
    wd_params_release(wd__stepper_params(m), wd__stepper_queue(m));
    return status;
}

/* A last validation, a checkpoint, the student's folder, a last sheet. The checkpoint comes early,
 * since a run whose student then finds no space is resumed from it; without it the student is
 * written all the same.
 */
static wd_status finish(wd_trainer *t, bool interrupted, wd_err *err)
{
    t->ends = true;
    if (t->validation && !interrupted) WD_TRY(write_in_place(t, wd__trainer_validate, err));
    if (!is_saved(t)) WD_TRY(write_in_place(t, write_checkpoint, err));
    if (t->not_finite) return wd__trainer_diverged(t, err);
    WD_TRY(wd__trainer_prune(t, err));
    WD_TRY(write_in_place(t, write_student, err));
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
    *out = (wd_trainer_result){
        .steps = t.step,
        .targets = wd__stepper_targets(t.stepper),
        .loss = wd__trainer_mean_loss(&t),
        .seconds = seconds,
        .saved_step = untouched || is_saved(&t) ? t.step : wd__trainer_newest_checkpoint(&t),
        .interrupted = interrupted,
        .untouched = untouched,
        .export = wd__trainer_export_of(&t)};
    memcpy(out->folder, t.folder, sizeof out->folder);
out:
    wd__metrics_close(t.metrics);
    wd__samples_close(t.samples);
    wd__validation_close(t.validation);
    wd_stepper_close(t.stepper);
    wd_free(t.votes);
    return status;
}
