/* Finds values that are not finite: see wd_machine_check_finite in distill/machine.h. */
#include <string.h>

#include "distill/machine.h"

/* Tensors of the objective. One that makes another not finite comes before it. */
static const struct {
    const char *tensor, *what, *advice;
} states[] = {
    {"targets.velocity", "the teacher's velocities",
     "the teacher's weights or its prompt embeddings are damaged, or --teacher_dtype is too narrow "
     "for them"},
    {"targets.latents", "the latents that the teacher is asked about", "begin a new run"},
    {"trajectories.latents", "the latents of the trajectories", "begin a new run"},
};

static const struct {
    wd_params_buffer buffer;
    const char *what;
} parts[] = {
    {WD_PARAMS_P, "the student's weights"},
    {WD_PARAMS_M, "the first moments of AdamW"},
    {WD_PARAMS_V, "the second moments of AdamW"},
    {WD_PARAMS_EMA, "the average (EMA) of the student's weights"},
};

static wd_status check_states(const wd_machine *m, const wd_checkpoint_tensor *tensors,
                              int64_t count, wd_err *err)
{
    for (size_t k = 0; k < sizeof states / sizeof *states; k++)
        for (int64_t i = 0; i < count; i++) {
            const wd_tensor *t = &tensors[i].tensor;
            if (strcmp(tensors[i].name, states[k].tensor)) continue;
            if (wd_optimizer_finds_finite(&m->optimizer, t->data, wd_tensor_count(t), m->queue))
                continue;
            return wd_fail(err, WD_NOT_FINITE, "%s are not finite: %s", states[k].what,
                           states[k].advice);
        }
    return WD_OK;
}

wd_status wd_machine_check_finite(const wd_machine *m, const wd_checkpoint_tensor *tensors,
                                  int64_t count, wd_err *err)
{
    WD_TRY(check_states(m, tensors, count, err));
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        const float *x = m->params.buffer[parts[k].buffer];
        if (!x || wd_optimizer_finds_finite(&m->optimizer, x,
                                            wd_params_elements(&m->params, parts[k].buffer),
                                            m->queue))
            continue;
        return wd_fail(err, WD_NOT_FINITE,
                       "training diverged: %s are not finite. Lower --lr, or go on from an earlier "
                       "checkpoint with a lower one",
                       parts[k].what);
    }
    return WD_OK;
}
