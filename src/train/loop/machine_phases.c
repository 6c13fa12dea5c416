/* Phases of a machine: see train/loop/phases.h. */
#include "train/loop/machine_impl.h"

wd_machine_options wd_machine_of_phase(const wd_machine_options *run, const wd_phase_begin *begin,
                                       int64_t last)
{
    wd_machine_options o = *run;
    const wd_phase *phase = &run->phases.phase[begin->phase];
    o.phase = begin->phase;
    o.first_step = begin->step;
    o.steps = last;
    if (run->phases.count) {
        o.recipe = phase->recipe;
        o.reuse = phase->reuse;
    }
    o.recipe->settle(&o);
    return o;
}

wd_machine_options wd_machine_of_dearest_phase(const wd_machine_options *run)
{
    wd_machine_options dearest = wd_machine_of_phase(run, &(wd_phase_begin){0}, run->steps);
    for (int p = 1; p < run->phases.count; p++) {
        const wd_machine_options o =
            wd_machine_of_phase(run, &(wd_phase_begin){.phase = p}, run->steps);
        if (wd_machine_step_targets(&o) >= wd_machine_step_targets(&dearest)) dearest = o;
    }
    return dearest;
}

wd_status wd_machine_enter_phase(wd_machine *m, const wd_machine_options *phase, wd_err *err)
{
    wd_source_close(m->source);
    m->source = NULL;
    if (m->sweep) wd_sweep_forget_next(m->sweep); /* the next window is one of the new phase */
    m->options = *phase;
    return wd_machine_open_source(m, err);
}

/* Returns how many targets the steps [first, end) of a phase need. */
static int64_t targets_of(const wd_machine_options *o, int64_t first, int64_t end)
{
    const wd_source_options source = wd_machine_source_options(o);
    return o->recipe->source->targets(&source, (end - first) * wd_machine_step_samples(o));
}

/* Returns how many targets the phase before this one needed. That phase is the run's first, since a
 * run has at most two. */
static int64_t targets_before(const wd_machine_options *o)
{
    if (!o->phase) return 0;
    const wd_machine_options first = wd_machine_of_phase(o, &(wd_phase_begin){0}, o->first_step);
    return targets_of(&first, 0, o->first_step);
}

int64_t wd_machine_targets_until(const wd_machine_options *o, int64_t step)
{
    return targets_before(o) + targets_of(o, o->first_step, step);
}

int64_t wd_machine_targets(const wd_machine *machine)
{
    return targets_before(&machine->options) + machine->source->targets;
}
