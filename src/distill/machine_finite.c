/* Finds values that are not finite: see wd_machine_check_finite in distill/machine.h. */
#include <string.h>

#include "distill/machine_impl.h"

/* Tensors of the trajectory source. One that makes another not finite comes before it. */
static const struct {
    const char *tensor, *what, *advice;
} states[] = {
    {"targets.velocity", "the teacher's velocities",
     "the teacher's weights or its prompt embeddings are damaged, or --teacher_dtype is too narrow "
     "for them"},
    {"targets.latents", "the latents that the teacher is asked about", "begin a new run"},
    {"trajectories.latents", "the latents of the trajectories", "begin a new run"},
};

/* Another cause, where the student's own steps make latents for the teacher. */
static const char led_astray[] =
    ", or the student diverged, whose own steps lead to latents of the teacher: lower --lr, or "
    "train with --on_policy_share 0";

static const wd_params_buffer kept[] = {WD_PARAMS_P, WD_PARAMS_M, WD_PARAMS_V, WD_PARAMS_EMA};

static bool is_finite(const wd_machine *m, int network, const float *x, int64_t count)
{
    return wd_optimizer_finds_finite(wd_network_optimizer(m->network[network]), x, count, m->queue);
}

static wd_status check_states(const wd_machine *m, const wd_checkpoint_tensors *tensors,
                              wd_err *err)
{
    for (size_t k = 0; k < sizeof states / sizeof *states; k++)
        for (int64_t i = 0; i < tensors->others; i++) {
            const wd_tensor *t = &tensors->other[i].tensor;
            if (strcmp(tensors->other[i].name, states[k].tensor)) continue;
            if (is_finite(m, 0, t->data, wd_tensor_count(t))) continue;
            return wd_fail(err, WD_NOT_FINITE, "%s are not finite: %s%s", states[k].what,
                           states[k].advice,
                           m->options.trajectory.on_policy_share > 0 ? led_astray : "");
        }
    return WD_OK;
}

static wd_status check_network(const wd_machine *m, int network, wd_err *err)
{
    const wd_params *params = m->params[network];
    for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
        const float *x = params->buffer[kept[k]];
        if (!x || is_finite(m, network, x, wd_params_elements(params, kept[k]))) continue;
        return wd_fail(err, WD_NOT_FINITE,
                       "training diverged: values of the %s are not finite. Lower --lr, or go on "
                       "from an earlier checkpoint with a lower one",
                       params->names->buffer[kept[k]]);
    }
    return WD_OK;
}

wd_status wd_machine_check_finite(const wd_machine *m, const wd_checkpoint_tensors *tensors,
                                  wd_err *err)
{
    for (int k = 0; k < m->networks; k++) WD_TRY(check_network(m, k, err));
    return check_states(m, tensors, err);
}
