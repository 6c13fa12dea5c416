/* Objectives: see distill/objective.h. */
#include "distill/objective.h"

wd_status wd_objective_prepare(wd_objective *objective, int64_t end, wd_err *err)
{
    return objective->vtable->prepare(objective, end, err);
}

wd_status wd_objective_fill(wd_objective *objective, wd_batch *out, float *sigma, int64_t first,
                            int64_t samples, wd_err *err)
{
    return objective->vtable->fill(objective, out, sigma, first, samples, err);
}

wd_status wd_objective_save(wd_objective *objective, json_t **json,
                            const wd_checkpoint_tensor **tensors, int64_t *count, wd_err *err)
{
    return objective->vtable->save(objective, json, tensors, count, err);
}

wd_status wd_objective_restore(wd_objective *objective, const json_t *json, wd_err *err)
{
    return objective->vtable->restore(objective, json, err);
}

void wd_objective_close(wd_objective *objective)
{
    if (objective) objective->vtable->close(objective);
}
