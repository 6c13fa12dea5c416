/* Folder train/network. What learns: parameters, passes, losses, AdamW, EMA, what a student starts
 * from.
 *
 * A network that is trained: weights, gradients, optimizer, EMA, passes, and what ranks exchange.
 *
 * Data flow of a step: for each of its rounds, begin_round -> forward -> a loss
 * (train/network/loss.h) -> backward, whose gradients leave for the other ranks stage by stage ->
 * end_round; then step, in which the optimizer takes the gradients of all rounds and all ranks.
 *
 * A round is one micro-batch of each rank. Where gradients are reduced by rounds, each round begins
 * with zeros and is exchanged while the next is computed. Otherwise a rank adds up the gradients of
 * its rounds, and they are exchanged during the last round's backward pass.
 *
 * A recipe may train several networks (train/loop/recipe.h). Each has names of its own, which tell
 * its tensors in checkpoints and its memory in plans from those of the others. */
#ifndef WD_TRAIN_NETWORK_NETWORK_H
#define WD_TRAIN_NETWORK_NETWORK_H

#include "job/comm/comm.h"
#include "train/network/optimizer.h"
#include "train/network/pass.h"

/* Where the optimizer's state is. No difference where the device is the processor. */
typedef enum wd_state_place {
    WD_STATE_ON_DEVICE,   /* all of it */
    WD_STATE_EMA_ON_HOST, /* the EMA is in host memory, and the processor updates it there; without
                           * an EMA no difference */
    WD_STATE_ON_HOST /* moments, EMA and, in BF16, master weights are there, and stepped there */
} wd_state_place;

typedef struct wd_network_options {
    const wd_params_names *names; /* borrowed for good */
    const wd_dit_config *config;  /* borrowed during the call */
    wd_dtype dtype;               /* compute: F32 or BF16 */
    wd_dtype gradients;           /* F32, or BF16 where a network computes in it, and a round makes
                                   * a step, or gradients are reduced by rounds: each round's are
                                   * sums in F32, rounded once */
    wd_dit_shape shape;           /* of a micro-batch */
    wd_pass_mode mode;
    wd_optimizer_options optimizer;
    bool ema;
    bool by_round; /* gradients are reduced by rounds: the same bits for any number of ranks */
    bool shared;   /* each rank has moments, EMA and master weights of its share (ZeRO-1) */
    wd_state_place place;
    wd_comm *comm; /* borrowed; NULL: there is one rank */
} wd_network_options;

typedef struct wd_network wd_network;

/* All work is launched on `queue` (borrowed), on whose device the network is. Weights are zero. */
wd_status wd_network_open(wd_network **out, const wd_network_options *options, wd_queue *queue,
                          wd_err *err);
void wd_network_close(wd_network *network); /* the queue is done; NULL is allowed */

wd_params *wd_network_params(wd_network *network);
wd_optimizer *wd_network_optimizer(wd_network *network);
wd_pass *wd_network_pass(wd_network *network);

/* The parts of a step, of `rounds` rounds. All ranks call these four functions, in the same order
 * for all networks. Without begin_round the backward pass adds to this rank's gradients, and
 * exchanges nothing. */
void wd_network_begin_round(wd_network *network, int64_t round, int64_t rounds);
void wd_network_backward(wd_network *network); /* after wd_pass_forward, and a loss */
void wd_network_end_round(wd_network *network);
void wd_network_step(wd_network *network, double lr, double progress); /* wd_optimizer_step */

/* The share of a round's gradients, of a network of `weights` elements, that may still have to be
 * exchanged when the last bucket is posted: see wd_reduce_unsent_share. */
double wd_network_unsent_share(int64_t weights, wd_comm *comm, bool by_round);

#endif
