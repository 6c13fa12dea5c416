/* Sources: see train/targets/source.h. */
#include "train/targets/source.h"

wd_status wd_source_prepare(wd_source *source, int64_t end, wd_err *err)
{
    return source->vtable->prepare(source, end, err);
}

wd_status wd_source_begin_step(wd_source *source, int64_t step, double progress, wd_err *err)
{
    return source->vtable->begin_step(source, step, progress, err);
}

void wd_source_fill(wd_source *source, wd_batch *out, int64_t first, int64_t samples)
{
    source->vtable->fill(source, out, first, samples);
}

wd_status wd_source_save(wd_source *source, json_t **json, const wd_checkpoint_tensor **tensors,
                         int64_t *count, wd_err *err)
{
    return source->vtable->save(source, json, tensors, count, err);
}

const wd_checkpoint_tensor *wd_source_saved(const wd_source *source, int64_t *count)
{
    return source->vtable->saved(source, count);
}

wd_status wd_source_restore(wd_source *source, const json_t *json, int64_t steps, wd_err *err)
{
    return source->vtable->restore(source, json, steps, err);
}

wd_status wd_source_check_finite(const wd_source *source, const wd_optimizer *optimizer,
                                 wd_err *err)
{
    return source->vtable->check_finite(source, optimizer, err);
}

void wd_source_close(wd_source *source)
{
    if (source) source->vtable->close(source);
}
