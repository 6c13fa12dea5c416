/* What a checkpoint holds of the machine: its networks' tensors and its source's, the source's
 * state, and how many steps each optimizer has taken. */
#include <inttypes.h>
#include <stdio.h>

#include "train/loop/machine_impl.h"

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

/* *out = the steps of this phase that the checkpoint's run has made. */
static wd_status read_phase_steps(int64_t *out, const wd_machine_options *o,
                                  const wd_checkpoint *checkpoint, wd_err *err)
{
    *out = checkpoint->step - o->first_step;
    if (*out >= 0 && *out < WD_STREAM_SAMPLES_MAX / wd_machine_step_samples(o)) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: expected the step at which its phase began, found %" PRId64
                   ", for a checkpoint of step %" PRId64 ": it is damaged, resume another one",
                   checkpoint->path, o->first_step, checkpoint->step);
}

static wd_status restore_source(wd_machine *m, const wd_checkpoint *checkpoint, wd_err *err)
{
    int64_t steps;
    WD_TRY(read_phase_steps(&steps, &m->options, checkpoint, err));
    const json_t *stream = json_object_get(checkpoint->run, "stream");
    const wd_status status = wd_source_restore(m->source, stream, steps, err);
    return status == WD_OK ? status : wd_fail_in(err, "%s", checkpoint->path);
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
    WD_TRY(restore_source(m, checkpoint, err));
    WD_TRY(list_tensors(m, &unused, &tensors, err));
    json_decref(unused);
    WD_TRY(wd_checkpoint_load(checkpoint, &tensors, m->queue, err));
    for (int k = 0; k < m->networks; k++)
        wd_optimizer_set_steps(wd_network_optimizer(m->network[k]), steps[k], m->queue);
    return WD_OK;
}
