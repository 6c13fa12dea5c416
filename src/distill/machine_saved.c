/* What a checkpoint holds of the machine: its networks' tensors and its source's, the source's
 * state, and how many steps each optimizer has taken. */
#include <inttypes.h>
#include <stdio.h>

#include "distill/machine_impl.h"

enum { KEY_BYTES = 64 };

/* Of the student, whose prefix is empty, "optimizer_steps". */
static const char *steps_key(char out[KEY_BYTES], const wd_params *params)
{
    snprintf(out, KEY_BYTES, "%soptimizer_steps", params->names->prefix);
    return out;
}

void wd_machine_list_networks(wd_machine *m, wd_checkpoint_tensors *out)
{
    *out = (wd_checkpoint_tensors){.params = m->saved, .networks = m->networks};
    for (int k = 0; k < m->networks; k++) m->saved[k] = m->params[k];
    if (m->source->snapshot) m->saved[out->networks++] = m->source->snapshot;
}

static wd_status list_tensors(wd_machine *m, json_t **stream, wd_checkpoint_tensors *tensors,
                              wd_err *err)
{
    wd_machine_list_networks(m, tensors);
    return wd_source_save(m->source, stream, &tensors->other, &tensors->others, err);
}

wd_status wd_machine_save(wd_machine *m, json_t **run, wd_checkpoint_tensors *tensors, wd_err *err)
{
    char key[KEY_BYTES];
    json_t *stream;
    WD_TRY(list_tensors(m, &stream, tensors, err));
    json_t *json = json_pack("{s:o}", "stream", stream);
    bool failed = !json;
    for (int k = 0; !failed && k < m->networks; k++) {
        const int64_t steps = wd_optimizer_steps(wd_network_optimizer(m->network[k]), m->queue);
        failed = json_object_set_new(json, steps_key(key, m->params[k]),
                                     json_integer((json_int_t)steps)) != 0;
    }
    if (!failed) {
        *run = json;
        return WD_OK;
    }
    json_decref(json);
    return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for a checkpoint's state");
}

/* Whether the targets that were made, as the restored source says, are those that the samples of
 * the checkpoint's steps need: whole rounds, of up to a step more. Otherwise batches would draw
 * targets that are not there. */
static wd_status check_targets(const wd_machine *m, const wd_checkpoint *checkpoint, wd_err *err)
{
    const wd_machine_options *o = &m->options;
    const int64_t steps = checkpoint->step - o->first_step, each = wd_machine_step_samples(o);
    const int64_t made = m->source->targets;
    if (steps < 0 || steps >= WD_STREAM_SAMPLES_MAX / each)
        return wd_fail(err, WD_BAD_FORMAT,
                       "%s: expected the step at which its phase began, found %" PRId64
                       ", for a checkpoint of step %" PRId64 ": it is damaged, resume another one",
                       checkpoint->path, o->first_step, checkpoint->step);
    const int64_t least = wd_stream_targets(&o->trajectory, steps * each, o->reuse);
    const int64_t most = wd_stream_targets(&o->trajectory, (steps + 1) * each, o->reuse);
    if (made >= least && made <= most + o->trajectory.slots) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: its round has %" PRId64 " targets before it, and the %" PRId64
                   " steps of its phase need %" PRId64 " to %" PRId64
                   ": it is damaged, resume another one",
                   checkpoint->path, made, steps, least, most + o->trajectory.slots);
}

wd_status wd_machine_load(wd_machine *m, const wd_checkpoint *checkpoint, wd_err *err)
{
    char key[KEY_BYTES];
    const wd_json_reader r = {.object = checkpoint->run, .where = checkpoint->path};
    int64_t steps[WD_NETWORKS_MAX];
    json_t *unused = NULL;
    wd_checkpoint_tensors tensors;
    for (int k = 0; k < m->networks; k++)
        WD_TRY(wd_json_int(&steps[k], r, steps_key(key, m->params[k]), 0, checkpoint->step,
                           WD_JSON_REQUIRED, err));
    WD_TRY(wd_source_restore(m->source, json_object_get(checkpoint->run, "stream"), err));
    WD_TRY(check_targets(m, checkpoint, err));
    WD_TRY(list_tensors(m, &unused, &tensors, err));
    json_decref(unused);
    WD_TRY(wd_checkpoint_load(checkpoint, &tensors, m->queue, err));
    for (int k = 0; k < m->networks; k++)
        wd_optimizer_set_steps(wd_network_optimizer(m->network[k]), steps[k], m->queue);
    return WD_OK;
}
