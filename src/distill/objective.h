/* Objectives: where a student's training batches come from.
 *
 * An objective owns a stream of samples, numbered from 0: which latents, noise level, prompt and
 * target sample s has is a pure function of the seed and the objective's options. How the targets
 * are computed (window, placement, when) is its own business. Kinds of objective are files beside
 * this one: objective_trajectory.c. */
#ifndef WD_DISTILL_OBJECTIVE_H
#define WD_DISTILL_OBJECTIVE_H

#include "dev/device.h"
#include "student/checkpoint.h"

/* One micro-batch, in device memory that the objective owns until the next fill. */
typedef struct wd_batch {
    int64_t samples;
    const float *latents;  /* [B, C, F, H, W] */
    const float *timestep; /* [B] */
    const float *target;   /* [B, C, F, H, W] */
    const void *text;      /* [B, S, text_dim] in the student's compute dtype */
} wd_batch;

typedef struct wd_objective wd_objective;

typedef struct wd_objective_vtable {
    /* Computes what samples [0, end) need and is not there yet. */
    wd_status (*prepare)(wd_objective *self, int64_t end, wd_err *err);
    /* The batch of samples [first, first + samples), prepared before. `sigma` [samples], host:
     * their noise levels. */
    wd_status (*fill)(wd_objective *self, wd_batch *out, float *sigma, int64_t first,
                      int64_t samples, wd_err *err);
    /* The state to save: a JSON object (new) and tensors; names and views live as long as self. */
    wd_status (*save)(wd_objective *self, json_t **json, const wd_checkpoint_tensor **tensors,
                      int64_t *count, wd_err *err);
    /* Takes up a saved state: `json` first, so that `tensors` then has the shapes to load into. */
    wd_status (*restore)(wd_objective *self, const json_t *json, wd_err *err);
    void (*close)(wd_objective *self);
} wd_objective_vtable;

struct wd_objective {
    const wd_objective_vtable *vtable;
    const char *name;   /* "trajectory" */
    int64_t targets;    /* computed so far */
};

wd_status wd_objective_prepare(wd_objective *objective, int64_t end, wd_err *err);
wd_status wd_objective_fill(wd_objective *objective, wd_batch *out, float *sigma, int64_t first,
                            int64_t samples, wd_err *err);
wd_status wd_objective_save(wd_objective *objective, json_t **json,
                            const wd_checkpoint_tensor **tensors, int64_t *count, wd_err *err);
wd_status wd_objective_restore(wd_objective *objective, const json_t *json, wd_err *err);
void wd_objective_close(wd_objective *objective); /* NULL is allowed */

#endif
