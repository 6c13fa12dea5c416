/* Validation in the course of a run: when it is, what is written of it, and the student that is
 * kept as the best one. See train/loop/validation.h for what is measured. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/log.h"
#include "io/file/file.h"
#include "train/loop/trainer_impl.h"

/* ---- the states' file ---- */

/* What of a run's facts decides the states. */
static const char *const of_states[] = {"guidance_scale", "guidance_scale_2", "height",
                                        "width",          "teacher_dtype",    "teacher_key",
                                        "teacher",        "text_encoder_key", "negative_prompt"};

/* The way that the teacher's trajectories go: those of its own sampler, or of chords. */
static json_t *way_of(const wd_validation_states_options *o)
{
    const wd_scheduler_config *c = &o->scheduler;
    const wd_trajectory_options *t = &o->trajectory;
    if (!t->student_steps)
        return json_pack("{s:i, s:i, s:I, s:f, s:I, s:b, s:b, s:b, s:I}", "levels",
                         WD_VALIDATION_LEVELS, "scheduler", (int)c->kind, "num_train_timesteps",
                         (json_int_t)c->num_train_timesteps, "shift", c->flow_shift, "order",
                         (json_int_t)c->solver_order, "bh1", c->bh1, "lower_order_final",
                         c->lower_order_final, "final_sigma_zero", c->final_sigma_zero,
                         "disable_corrector", (json_int_t)c->disable_corrector);
    json_t *sigma = json_array();
    for (int64_t k = 0; t->sigma[0] > 0 && k < t->steps; k++)
        json_array_append_new(sigma, json_real((double)t->sigma[k]));
    return json_pack("{s:I, s:I, s:I, s:f, s:f, s:o}", "steps", (json_int_t)t->steps,
                     "student_steps", (json_int_t)t->student_steps, "chords",
                     (json_int_t)wd_chords(t), "diversity_gain", t->diversity_gain, "shift",
                     t->flow_shift, "sigma", sigma);
}

/* Writes a key of all that decides the states, whatever student is trained, but for the machine:
 * velocities of another one differ in their last bits. */
static wd_status find_key(char out[WD_STORE_KEY_MAX], const wd_trainer *t, wd_err *err)
{
    json_t *facts;
    const wd_validation_states_options *o = &wd__validation_states_of(t->validation)->options;
    WD_TRY(wd_trainer_facts(&facts, t->options, err));
    json_t *key = json_pack("{s:I, s:I, s:s, s:o}", "seed", (json_int_t)o->trajectory.seed,
                            "prompts", (json_int_t)o->prompts, "prompts_key",
                            t->options->stepper.validation->prompts_key, "way", way_of(o));
    bool failed = !key;
    for (size_t i = 0; !failed && i < sizeof of_states / sizeof *of_states; i++)
        failed = json_object_set(key, of_states[i], json_object_get(facts, of_states[i])) != 0;
    char *text = failed ? NULL : json_dumps(key, JSON_COMPACT | JSON_SORT_KEYS);
    if (text)
        snprintf(out, WD_STORE_KEY_MAX, "%016" PRIx64, (uint64_t)XXH3_64bits(text, strlen(text)));
    failed = !text;
    free(text); /* jansson's */
    json_decref(key);
    json_decref(facts);
    return failed ? wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the key of a validation") : WD_OK;
}

/* Makes the states, or reads them. A stop that was requested meanwhile ends the run before its next
 * step. */
static wd_status prepare(wd_trainer *t, wd_err *err)
{
    wd_err why = {0};
    char name[64], path[WD_PATH_MAX];
    const char *folder = t->options->stepper.validation->folder;
    if (folder) {
        snprintf(name, sizeof name, "validation-%s.safetensors", t->states_key);
        WD_TRY(wd_path_join(path, folder, name, err));
    }
    const wd_status status =
        wd__validation_prepare(t->validation, folder ? path : NULL, t->states_key, &why);
    if (status == WD_OK) return WD_OK;
    wd__validation_close(t->validation);
    t->validation = NULL;
    if (status == WD_INTERRUPTED) return WD_OK;
    if (err) *err = why;
    return status;
}

/* ---- the best student so far ---- */

/* Whether best/ may be of this run and its phase: what is in a folder that the run does not go on
 * from is of another run. */
static bool may_have_best(const wd_trainer *t)
{
    const wd_trainer_options *o = t->options;
    return o->stepper.validation->keeps_best && t->step > t->phase.step && o->resume &&
           wd_path_is_inside(o->resume, t->checkpoints);
}

/* Why the earlier best student does not count; NULL: it does. */
static const char *why_not(const wd_trainer *t, const wd_validation_result *best)
{
    if (best->step > t->step) return "after the one from which this run goes on";
    if (best->step <= t->phase.step) return "of an earlier phase";
    if (strcmp(best->states, t->states_key))
        return "and its error is of other states, such as those of other prompts";
    return NULL;
}

/* The one that an earlier part of the run has kept. Rank 0 compares; the others hear from it. */
static wd_status find_best(wd_trainer *t, wd_err *err)
{
    wd_err why = {0};
    wd_validation_result best;
    if (!may_have_best(t) || !wd__trainer_writes(t)) return WD_OK;
    const wd_status found = wd_best_read(&best, t->options->output_dir, &why);
    if (found == WD_NOT_FOUND) return WD_OK;
    if (found != WD_OK) {
        if (err) *err = why;
        return found;
    }
    const char *reason = why_not(t, &best);
    if (reason) {
        wd_log(WD_LOG_WARNING, "best/ is of step %" PRId64 ", %s: the next validation replaces it",
               best.step, reason);
        return WD_OK;
    }
    t->best_step = best.step;
    t->best_error = best.error;
    return WD_OK;
}

static wd_status write_best(wd_trainer *t, wd_err *err)
{
    const wd_stepper *m = t->stepper;
    wd_export_options export = wd__trainer_export_of(t);
    export.best_step = t->step;
    export.best_error = t->validated.error;
    return wd_best_write(t->folder, wd__stepper_params(m), wd__stepper_options_of(m)->teacher,
                         &export, &t->validated, wd__stepper_queue(m), err);
}

/* Keeps the student where its error is the least so far. One that cannot be written, as for want of
 * space, is a warning: what is trained is not lost for it. All ranks. */
static void keep_best(wd_trainer *t, bool measured)
{
    wd_err why = {0};
    const double error = t->validated.error;
    const bool better = measured && isfinite(error) && !(error >= t->best_error);
    if (!wd__trainer_hear(t, better)) return;
    wd_params_collect(wd__stepper_params(t->stepper), wd__trainer_export_of(t).buffer,
                      wd__stepper_queue(t->stepper));
    const wd_status status = wd__trainer_writes(t) ? write_best(t, &why) : WD_OK;
    wd_params_release(wd__stepper_params(t->stepper), wd__stepper_queue(t->stepper));
    if (!wd__trainer_writes(t)) return;
    if (status != WD_OK) {
        wd_log(WD_LOG_WARNING, "%s; training goes on, and best/ stays as it was", why.message);
        return;
    }
    t->best_step = t->step;
    t->best_error = error;
}

/* ---- in the course of a run ---- */

wd_status wd__trainer_open_validation(wd_trainer *t, wd_err *err)
{
    const wd_validation_options *given = t->options->stepper.validation;
    wd__validation_close(t->validation);
    t->validation = NULL;
    t->best_step = 0;
    t->best_error = NAN;
    if (!given || !given->prompts) return WD_OK;
    wd_validation_options options = *given;
    options.stop = wd__trainer_gives_up;
    options.stop_context = t;
    wd__trainer_agree(t);
    if (t->stop) return WD_OK;
    WD_TRY(wd__validation_open(&t->validation, &options, t->stepper, err));
    WD_TRY(find_key(t->states_key, t, err));
    WD_TRY(find_best(t, err));
    wd__trainer_watch_other(t);
    return prepare(t, err);
}

/* The step's row has been written, where a checkpoint was due: a line of its own. */
static void write_late(wd_trainer *t)
{
    wd_err why;
    if (t->written_step < t->step) return;
    if (wd__metrics_write_validation(t->metrics, &t->validated, &why) != WD_OK)
        wd_log(WD_LOG_WARNING, "%s", why.message);
}

static void say(const wd_trainer *t)
{
    wd_log(WD_LOG_INFO, "step %" PRId64 ": validation error %.4g", t->step, t->validated.error);
}

wd_status wd__trainer_validate(wd_trainer *t, wd_err *err)
{
    bool measured;
    wd_validation_result result;
    if (!t->validation || t->validated_step == t->step) return WD_OK;
    t->validated_step = t->step;
    wd__trainer_watch_other(t);
    WD_TRY(wd__validation_measure(&result, &measured, t->validation, err));
    if (measured) {
        t->validated = result;
        t->validated.step = t->step;
        memcpy(t->validated.states, t->states_key, sizeof t->validated.states);
        t->progress.now.validation_error = result.error;
        say(t);
        write_late(t);
    }
    if (t->options->stepper.validation->keeps_best) keep_best(t, measured);
    return WD_OK;
}
