/* Sources: where a network's training batches come from.
 *
 * A source owns a stream of samples, numbered from 0: which latents, noise level, prompt and target
 * sample s has is a pure function of the seed and the source's options. How the targets are
 * computed (window, placement, when) is its own business. Kinds of source are files beside this
 * one: source_trajectory.c. */
#ifndef WD_DISTILL_SOURCE_H
#define WD_DISTILL_SOURCE_H

#include "distill/batch.h"
#include "student/checkpoint.h"

typedef struct wd_source wd_source;

typedef struct wd_source_vtable {
    /* Computes what samples [0, end) need and is not there yet. */
    wd_status (*prepare)(wd_source *self, int64_t end, wd_err *err);
    /* Step `step` of the phase begins, whose samples are prepared, and `progress`, 0 to 1, of the
     * phase is over: what the source takes of the networks' weights it takes here. All ranks. */
    wd_status (*begin_step)(wd_source *self, int64_t step, double progress, wd_err *err);
    /* The batch of samples [first, first + samples), prepared before, good until the next one. */
    void (*fill)(wd_source *self, wd_batch *out, int64_t first, int64_t samples);
    /* The state to save: a JSON object (new) and tensors; names and views live as long as self. */
    wd_status (*save)(wd_source *self, json_t **json, const wd_checkpoint_tensor **tensors,
                      int64_t *count, wd_err *err);
    /* Takes up a saved state: `json` first, so that `tensors` then has the shapes to load into. */
    wd_status (*restore)(wd_source *self, const json_t *json, wd_err *err);
    void (*close)(wd_source *self);
} wd_source_vtable;

struct wd_source {
    const wd_source_vtable *vtable;
    int64_t targets;         /* computed so far */
    double flops_per_sample; /* of making a sample, on the student's device, without the teacher */
    wd_params *snapshot;     /* weights that checkpoints keep beside the networks'; NULL: none */
};

wd_status wd_source_prepare(wd_source *source, int64_t end, wd_err *err);
wd_status wd_source_begin_step(wd_source *source, int64_t step, double progress, wd_err *err);
void wd_source_fill(wd_source *source, wd_batch *out, int64_t first, int64_t samples);
wd_status wd_source_save(wd_source *source, json_t **json, const wd_checkpoint_tensor **tensors,
                         int64_t *count, wd_err *err);
wd_status wd_source_restore(wd_source *source, const json_t *json, wd_err *err);
void wd_source_close(wd_source *source); /* NULL is allowed */

#endif
