/* The tables of a noise schedule.
 *
 * UniPC: u = linspace(1, 1/1000, steps + 1) without its last element is shifted in float64 and
 * rounded to fp32 last; timesteps are the integer part of 1000 sigma before this rounding. Euler:
 * the constructor shifts once in fp32 to find the smallest sigma, set_timesteps spaces the
 * timesteps evenly down to it in float64 and shifts again: the minimum is shifted twice. Both
 * follow diffusers 0.42.1 exactly (scheduling_unipc_multistep.py and
 * scheduling_flow_match_euler_discrete.py, set_timesteps), since another rounding would give other
 * integer timesteps. */
#include "model/sampling/schedule.h"

#include <math.h>

#include "core/memory.h"

/* Keeps log(1 - sigma) finite at the first step (UniPC's set_timesteps). */
static const double sigma_margin = 1e-6;

wd_scheduler_config wd_scheduler_of_few_steps(int64_t steps, double flow_shift)
{
    return (wd_scheduler_config){.kind = WD_SCHEDULER_UNIPC,
                                 .num_train_timesteps = WD_SCHEDULE_TIMESTEPS,
                                 .flow_shift = flow_shift,
                                 .solver_order = 1,
                                 .lower_order_final = true,
                                 .predict_x0 = true,
                                 .final_sigma_zero = true,
                                 .disable_corrector = (UINT64_C(1) << steps) - 1};
}

bool wd_scheduler_is_euler(const wd_scheduler_config *c, int64_t steps)
{
    const uint64_t all = steps < 64 ? (UINT64_C(1) << steps) - 1 : UINT64_MAX;
    return c->kind == WD_SCHEDULER_EULER ||
           (c->solver_order == 1 && c->predict_x0 && (c->disable_corrector & all) == all);
}

double wd_flow_shift(double u, double shift)
{
    return shift * u / (1 + (shift - 1) * u);
}

static void fill_unipc(wd_schedule *s)
{
    const double train = (double)s->config.num_train_timesteps;
    const double step = (1 / train - 1) / (double)s->steps;
    for (int64_t i = 0; i < s->steps; i++) {
        double sigma = wd_flow_shift((double)i * step + 1, s->config.flow_shift);
        if (i == 0 && fabs(sigma - 1) < sigma_margin) sigma -= sigma_margin;
        s->timestep[i] = (float)trunc(sigma * train);
        s->sigma[i] = (float)sigma;
    }
    s->sigma[s->steps] = s->config.final_sigma_zero ? 0 : s->sigma[s->steps - 1];
}

/* The flow shift computed in fp32. */
static float shift_f32(float u, double shift)
{
    return (float)shift * u / ((float)(shift - 1) * u + 1.0f);
}

static void fill_euler(wd_schedule *s)
{
    const double shift = s->config.flow_shift;
    const double train = (double)s->config.num_train_timesteps;
    const double first = (double)shift_f32(1.0f, shift) * train;
    const double last = (double)shift_f32(1.0f / (float)train, shift) * train;
    const double step = s->steps > 1 ? (last - first) / (double)(s->steps - 1) : 0;
    for (int64_t i = 0; i < s->steps; i++) {
        double t = i > 0 && i == s->steps - 1 ? last : (double)i * step + first;
        s->sigma[i] = (float)wd_flow_shift(t / train, shift);
        s->timestep[i] = s->sigma[i] * (float)train;
    }
    s->sigma[s->steps] = 0;
}

static wd_status check(const wd_scheduler_config *config, int64_t steps, wd_err *err)
{
    if (steps < 1 || steps > WD_SCHEDULE_STEPS_MAX)
        return wd_fail(err, WD_INVALID_ARGUMENT, "steps: expected 1 to %d, found %lld",
                       WD_SCHEDULE_STEPS_MAX, (long long)steps);
    if (config->num_train_timesteps < 1 || steps > config->num_train_timesteps)
        return wd_fail(
            err, WD_INVALID_ARGUMENT,
            "scheduler: num_train_timesteps is %lld, expected at least the number of steps, "
            "%lld",
            (long long)config->num_train_timesteps, (long long)steps);
    if (!(config->flow_shift > 0) || !isfinite(config->flow_shift))
        return wd_fail(err, WD_INVALID_ARGUMENT, "flow_shift: expected a number above 0, found %g",
                       config->flow_shift);
    if (config->kind == WD_SCHEDULER_EULER) return WD_OK;
    if (config->solver_order < 1 || config->solver_order > WD_SOLVER_ORDER_MAX)
        return wd_fail(err, WD_UNSUPPORTED, "scheduler: solver_order is %lld, expected 1 to %d",
                       (long long)config->solver_order, WD_SOLVER_ORDER_MAX);
    if (!config->predict_x0)
        return wd_fail(
            err, WD_UNSUPPORTED,
            "scheduler: predict_x0 is false, expected true: flow prediction has no other "
            "form");
    return WD_OK;
}

wd_status wd_schedule_open(wd_schedule *out, const wd_scheduler_config *config, int64_t steps,
                           wd_err *err)
{
    WD_TRY(check(config, steps, err));
    wd_schedule s = {.config = *config, .steps = steps};
    wd_status status;
    WD_TRY_OUT(wd_alloc((void **)&s.sigma, (size_t)steps + 1, sizeof *s.sigma, "sigmas", err));
    WD_TRY_OUT(wd_alloc((void **)&s.timestep, (size_t)steps, sizeof *s.timestep, "timesteps", err));
    if (config->kind == WD_SCHEDULER_UNIPC)
        fill_unipc(&s);
    else
        fill_euler(&s);
    *out = s;
    return WD_OK;
out:
    wd_schedule_close(&s);
    return status;
}

void wd_schedule_close(wd_schedule *schedule)
{
    wd_free(schedule->sigma);
    wd_free(schedule->timestep);
    *schedule = (wd_schedule){0};
}
