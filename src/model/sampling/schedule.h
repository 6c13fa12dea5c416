/* Noise schedules and their steps: UniPC (flow prediction) and flow-match Euler, as in diffusers. A
 * schedule is a table of numbers; a step is a linear combination of tensors, so the latents may be
 * on any device. */
#ifndef WD_MODEL_SAMPLING_SCHEDULE_H
#define WD_MODEL_SAMPLING_SCHEDULE_H

#include "core/error.h"
#include "model/tables/config.h"

enum {
    WD_SCHEDULE_STEPS_MAX = 1000,
    WD_SCHEDULE_TIMESTEPS = 1000,   /* num_train_timesteps of wd_scheduler_of_few_steps */
    WD_SCHEDULE_FEW_STEPS_MAX = 63, /* of a corrector that is disabled step by step */
    WD_SOLVER_ORDER_MAX = 3
};

typedef struct wd_schedule {
    wd_scheduler_config config;
    int64_t steps;
    float *sigma;    /* [steps + 1], equal to diffusers' fp32 table */
    float *timestep; /* [steps]; UniPC: integers; Euler: 1000 sigma */
} wd_schedule;

/* Errors: steps outside of 1 ... num_train_timesteps, a shift of 0 or less, a solver order or form
 * that is not implemented. */
wd_status wd_schedule_open(wd_schedule *out, const wd_scheduler_config *config, int64_t steps,
                           wd_err *err);
void wd_schedule_close(wd_schedule *schedule);

/* UniPC of order 1 without corrector, which makes Euler's steps on an even grid, shifted: what
 * samples a student of so few steps. diffusers' Euler scheduler would not do: its grid of few steps
 * has a last one that hardly moves. `steps`: at most WD_SCHEDULE_FEW_STEPS_MAX. */
wd_scheduler_config wd_scheduler_of_few_steps(int64_t steps, double flow_shift);

/* Whether sampling in so many steps makes Euler's: FlowMatchEulerDiscreteScheduler, or UniPC of
 * order 1 that corrects none of them, as wd_scheduler_of_few_steps has it. */
bool wd_scheduler_is_euler(const wd_scheduler_config *config, int64_t steps);

/* sigma after the flow shift: s u / (1 + (s - 1) u). */
double wd_flow_shift(double u, double shift);

#endif
