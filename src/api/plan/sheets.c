/* The decision about sample sheets: see api/plan/sheets.h. */
#include "api/plan/sheets.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/plan/train_cluster.h"
#include "core/memory.h"
#include "model/sampling/schedule.h"
#include "teacher/plan/planner.h"

/* `auto` draws sheets where one takes less than this share of the time between two. */
static const double SHARE_MAX = 0.1;

/* ---- the time of a run ---- */

/* Seconds of the run under the plan `candidate`; NaN: not known. */
static double run_seconds(const wd_train_options *o, const wd_strategy_plan *candidate)
{
    const double limit_s = o->max_minutes > 0 ? 60 * o->max_minutes : NAN;
    const double steps_s = o->num_steps ? (double)o->num_steps * candidate->step_seconds : NAN;
    return fmin(steps_s, limit_s); /* fmin of a number and NaN is the number */
}

/* Seconds from sheet to sheet; the last one is drawn at the end of the run. */
static double interval_seconds(const wd_train_options *o, const wd_strategy_plan *candidate)
{
    const double by_steps =
        o->sample_interval ? (double)o->sample_interval * candidate->step_seconds : NAN;
    return fmin(by_steps, run_seconds(o, candidate));
}

/* ---- the time of a sheet ---- */

/* Seconds of a rank's sweep over `states` states of one expert. */
static wd_status sweep_seconds(double *out, const wd_train_plan *p, int expert, int64_t states,
                               wd_err *err)
{
    wd_timeline played;
    const wd_sweep_load alone = wd_planner_load_alone(&p->chosen, &p->input, expert, states);
    WD_TRY(wd_planner_play(&played, p->planner, &p->chosen, &alone, NULL, NULL, err));
    *out = played.sweep_seconds;
    return WD_OK;
}

wd_status wd__sampling_seconds(double *out, const wd_train_plan *p, int64_t count,
                               const float *timestep, int64_t steps, wd_err *err)
{
    const wd_strategy_plan *candidate = &p->chosen;
    const int64_t most = wd_placed_window(&candidate->placement, candidate->window);
    const int64_t part = count % most;
    double whole[WD_PLACED_EXPERTS_MAX] = {0}, last[WD_PLACED_EXPERTS_MAX] = {0};
    for (int e = 0; e < candidate->placement.experts; e++) {
        if (count >= most) WD_TRY(sweep_seconds(&whole[e], p, e, most, err));
        if (part) WD_TRY(sweep_seconds(&last[e], p, e, part, err));
    }
    *out = 0;
    for (int64_t i = 0; i < steps; i++) {
        const int e =
            candidate->placement.experts == 2 && timestep[i] < p->input.sweep.boundary_timestep;
        *out += (double)(count / most) * whole[e] + last[e];
    }
    return WD_OK;
}

/* Seconds of the teacher's pictures. */
static wd_status teacher_seconds(double *out, const wd_train_plan *p, const wd_train_setup *s,
                                 wd_err *err)
{
    wd_schedule schedule = {0};
    WD_TRY(wd_schedule_open(&schedule, &s->teacher.scheduler, s->trainer.samples.steps, err));
    const wd_status status = wd__sampling_seconds(out, p, s->trainer.samples.count,
                                                  schedule.timestep, schedule.steps, err);
    wd_schedule_close(&schedule);
    return status;
}

/* *out = the share of the time between two sheets that drawing one takes, on average over the run;
 * NaN: the length of the run is not known. */
static wd_status share_of_time(double *out, const wd_train_plan *p, const wd_train_setup *s,
                               wd_err *err)
{
    const wd_strategy_plan *candidate = &p->chosen;
    const wd_cluster *cluster = &p->input.cluster;
    const int decoder = wd_train_plan_decoder(p, candidate);
    const double interval = interval_seconds(&s->options, candidate);
    const double sheets = fmax(1, run_seconds(&s->options, candidate) / interval);
    const wd_samples_work *sheet = &p->without_teacher[0].sheet;
    const double student =
        sheet->student / wd_cluster_student_rate(cluster, p->input.student.device);
    const double decoding = /* the VAE computes in fp32 */
        sheet->decoding / cluster->device[decoder].flops_per_s[WD_32_BIT];
    double teacher;
    *out = NAN;
    if (isnan(interval)) return WD_OK;
    WD_TRY(teacher_seconds(&teacher, p, s, err));
    *out = (student + decoding + (teacher + decoding) / sheets) / interval;
    return WD_OK;
}

/* ---- the decision ---- */

/* The plan of the same run without sheets. */
static wd_status leave_out(wd_train_plan *without, const wd_train_plan *plan,
                           const wd_train_setup *setup, wd_err *err)
{
    *without = *plan;
    without->planner = NULL;
    WD_TRY(wd__train_cluster_plan_again(without, setup, &(wd_samples_options){0}, err));
    return wd__train_plan_choose(without, err);
}

static void choose(wd_train_plan *plan, const wd_train_plan *without)
{
    const double slower = plan->chosen.step_seconds / without->chosen.step_seconds;
    if (isnan(plan->sheets_share)) {
        plan->sheets = WD_SHEETS_UNKNOWN;
    } else if (!plan->chosen.fits) {
        plan->sheets = without->chosen.fits ? WD_SHEETS_TOO_LARGE : WD_SHEETS_ASKED;
    } else {
        plan->sheets_share = slower * (1 + plan->sheets_share) - 1;
        plan->sheets = plan->sheets_share < SHARE_MAX ? WD_SHEETS_CHEAP : WD_SHEETS_TOO_SLOW;
    }
}

wd_status wd__sheets_choose(wd_train_plan *plan, wd_train_setup *setup, wd_err *err)
{
    wd_train_plan *without; /* too large for a small stack */
    wd_train_options *o = &setup->options;
    if (!setup->trainer.samples.count) {
        if (!*setup->teacher.path && strcmp(o->save_samples, "false"))
            plan->sheets = WD_SHEETS_UNPLANNED;
        return WD_OK;
    }
    WD_TRY(share_of_time(&plan->sheets_share, plan, setup, err));
    if (strcmp(o->save_samples, "auto")) return WD_OK;
    WD_TRY(wd_alloc((void **)&without, 1, sizeof *without, "a plan", err));
    const wd_status status = leave_out(without, plan, setup, err);
    if (status == WD_OK) {
        choose(plan, without);
        o->save_samples = plan->sheets == WD_SHEETS_CHEAP ? "true" : "false";
    }
    if (status != WD_OK || plan->sheets == WD_SHEETS_CHEAP) {
        wd_planner_close(without->planner);
    } else {
        setup->trainer.samples.count = 0;
        without->sheets = plan->sheets;
        without->sheets_share = plan->sheets_share;
        wd_planner_close(plan->planner);
        *plan = *without;
    }
    wd_free(without);
    return status;
}

/* ---- in words ---- */

static const char *share_text(char out[32], double share)
{
    const double percent = 100 * share;
    if (percent < 0.1)
        snprintf(out, 32, "less than 0.1 %%");
    else
        snprintf(out, 32, percent < 10 ? "%.2g %%" : "%.0f %%", percent);
    return out;
}

static const char *drawn_text(char out[WD_SHEETS_TEXT], const wd_train_plan *p,
                              const wd_train_setup *s)
{
    char every[48] = "one at the end", share[32], time[64] = "", decoded[80] = "";
    const wd_devices *d = p->devices;
    if (s->options.sample_interval)
        snprintf(every, sizeof every, "every %" PRId64 " steps", s->options.sample_interval);
    if (!isnan(p->sheets_share))
        snprintf(time, sizeof time, ", %s of the time", share_text(share, p->sheets_share));
    if (d->processor != 0)
        snprintf(decoded, sizeof decoded, ", decoded on %s%s%s",
                 d->name[wd_train_plan_decoder(p, &p->chosen)],
                 p->chosen.decodes_on_processor ? " to save memory of " : "",
                 p->chosen.decodes_on_processor ? d->name[p->map.vae] : "");
    snprintf(out, WD_SHEETS_TEXT, "sample sheets: %s%s%s", every, time, decoded);
    return out;
}

const char *wd_sheets_text(char out[WD_SHEETS_TEXT], const wd_train_plan *plan,
                           const wd_train_setup *setup)
{
    char share[32];
    *out = 0;
    if (setup->trainer.samples.count) return drawn_text(out, plan, setup);
    switch (plan->sheets) {
    case WD_SHEETS_TOO_SLOW:
        snprintf(out, WD_SHEETS_TEXT,
                 "no sample sheets: one would take %s of the time %s; --save_samples true draws "
                 "them",
                 share_text(share, plan->sheets_share),
                 setup->options.sample_interval ? "between two" : "of the run");
        break;
    case WD_SHEETS_TOO_LARGE:
        snprintf(out, WD_SHEETS_TEXT,
                 "no sample sheets: there is no memory for them; --save_samples true says how much "
                 "is missing");
        break;
    case WD_SHEETS_UNKNOWN:
        snprintf(out, WD_SHEETS_TEXT,
                 "sample sheets: whether there are any follows from the length of the run, and "
                 "that from --data_path or --num_steps");
        break;
    case WD_SHEETS_UNPLANNED:
        snprintf(out, WD_SHEETS_TEXT,
                 "sample sheets are not planned for a preset, which has no VAE to draw them with");
        break;
    case WD_SHEETS_ASKED:
    case WD_SHEETS_CHEAP:
        break;
    }
    return out;
}
