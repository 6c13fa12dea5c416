/* The stepper's own fields, for its recipes, which are part of it, and for its memory plan. The
 * trainer and the samples use train/loop/stepper.h alone. */
#ifndef WD_TRAIN_LOOP_STEPPER_IMPL_H
#define WD_TRAIN_LOOP_STEPPER_IMPL_H

#include "train/loop/stepper.h"
#include "train/network/readback.h"

enum { WD_NETWORKS_MAX = 4 }; /* of one recipe */

struct wd_stepper {
    wd_stepper_options options;
    wd_queue *queue;                      /* borrowed */
    wd_sweep *sweep;                      /* NULL: there is no teacher */
    wd_queue *home;                       /* where trajectories move on; borrowed */
    wd_source *source;                    /* of batches */
    wd_network *network[WD_NETWORKS_MAX]; /* the student is the first */
    wd_params *params[WD_NETWORKS_MAX];   /* of each network */
    int networks;
    wd_params *saved[WD_NETWORKS_MAX + 1]; /* of each network, and the source's snapshot */
    wd_readback *readback;
    float *loss;         /* [batch] device: of a micro-batch's samples */
    float *losses;       /* [ranks, accumulation, batch] host: of a result; NULL without ranks */
    int64_t state_count; /* elements of one state's latents */
};

/* Opens a network of this configuration, and adds it to the stepper. */
wd_status wd__stepper_add_network(wd_stepper *stepper, const wd_params_names *names,
                                  const wd_dit_config *config, wd_err *err);

/* *out = the parameters that a checkpoint has, with no other tensors: valid until the next call. */
void wd__stepper_list_networks(wd_stepper *stepper, wd_checkpoint_tensors *out);

/* 1 / (samples of a step, of all ranks). */
float wd__stepper_loss_factor(const wd_stepper *stepper);

#endif
