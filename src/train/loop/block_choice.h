/* Which blocks of a model a shallower student starts from: those without which the model's own
 * velocities change least.
 *
 * Data flow: noise -> a few steps of the model's own trajectories, which give a state for each of
 * four noise levels -> its velocities there -> blocks are left out one after another, each time the
 * one whose absence changes these velocities least. The first and the last block always stay. */
#ifndef WD_TRAIN_LOOP_BLOCK_CHOICE_H
#define WD_TRAIN_LOOP_BLOCK_CHOICE_H

#include "train/loop/memory_plan.h"

enum {
    WD_BLOCK_CHOICE_STATES = 4,
    WD_BLOCK_CHOICE_SIDE = 32 /* latents are cut to so many rows and columns, for speed */
};

typedef struct wd_block_choice_options {
    const wd_pipeline *from; /* borrowed */
    int64_t layers;          /* that stay: at least 2 */
    wd_dtype dtype;          /* that is computed in: F32 or BF16 */
    int64_t latent_height, latent_width;
    int64_t text_tokens, text_repeat; /* as in wd_dit_shape */
    int64_t prompts;                  /* at least 1: the first of them are taken */
    double flow_shift;
    int64_t num_train_timesteps;
    uint64_t seed;
    wd_sweep_text_fn *text;
    void *text_context;
    bool (*stop)(void *context); /* NULL: never */
    void *stop_context;
} wd_block_choice_options;

/* Whether blocks are chosen so: from a model of up to 4 billion weights, of which fewer than all
 * and at least 2 stay. Of others they are spread evenly. It depends on nothing else, so that a
 * student does not depend on the machine. */
bool wd_block_choice_is_measured(const wd_dit_config *from, int64_t layers);

/* block[i], i < layers: the chosen blocks, ascending. Opens all that it needs on the queue's device
 * and closes it. Depends on the options and on the kind of device alone. WD_INTERRUPTED: `stop`
 * said so. On a dry queue nothing is read, and blocks are spread in any way. */
wd_status wd_block_choice_make(int64_t *block, const wd_block_choice_options *options,
                               wd_queue *queue, wd_err *err);

/* Adds the memory of wd_block_choice_make on a device. */
wd_status wd_block_choice_plan(wd_memory_plan *plan, const wd_block_choice_options *options,
                               const wd_devices *devices, int device, wd_err *err);

#endif
