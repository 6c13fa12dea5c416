/* A network that is trained: weights, gradients, optimizer, EMA, passes, and what ranks exchange.
 *
 * Data flow of a step: for each of its rounds, begin_round -> forward -> a loss (student/loss.h) ->
 * backward, whose gradients leave for the other ranks stage by stage -> end_round; then step, in
 * which the optimizer takes the gradients of all rounds and all ranks.
 *
 * A round is one micro-batch of each rank. Where gradients are reduced by rounds each round begins
 * with zeros, and is on its way to the others while the next is computed; else a rank adds up its
 * own, and those of the last round leave with what was added before.
 *
 * A recipe may train any number of networks (distill/recipe.h). Each has names of its own, by which
 * checkpoints keep its tensors apart and plans its memory. */
#ifndef WD_STUDENT_NETWORK_H
#define WD_STUDENT_NETWORK_H

#include "dist/comm.h"
#include "student/optimizer.h"
#include "student/pass.h"

typedef struct wd_network_options {
    const wd_params_names *names; /* borrowed for good */
    const wd_dit_config *config;  /* borrowed during the call */
    wd_dtype dtype;               /* compute: F32 or BF16 */
    wd_dit_shape shape;           /* of a micro-batch */
    wd_pass_mode mode;
    wd_optimizer_options optimizer;
    bool ema;
    bool by_round; /* gradients are reduced by rounds: the same bits for any number of ranks */
    bool shared;   /* each rank has moments, EMA and master weights of its share (ZeRO-1) */
    wd_comm *comm; /* borrowed; NULL: there is one rank */
} wd_network_options;

typedef struct wd_network wd_network;

/* On `queue`'s device (borrowed), where all its work is launched. Weights are zero. */
wd_status wd_network_open(wd_network **out, const wd_network_options *options, wd_queue *queue,
                          wd_err *err);
void wd_network_close(wd_network *network); /* the queue is done; NULL is allowed */

wd_params *wd_network_params(wd_network *network);
wd_optimizer *wd_network_optimizer(wd_network *network);
wd_pass *wd_network_pass(wd_network *network);

/* Round `round` of a step of `rounds`. All ranks call these four, in the same order for all
 * networks. Without begin_round gradients are added to and stay on this rank. */
void wd_network_begin_round(wd_network *network, int64_t round, int64_t rounds);
void wd_network_backward(wd_network *network); /* after wd_pass_forward, and a loss */
void wd_network_end_round(wd_network *network);
void wd_network_step(wd_network *network, double lr);

/* Of a round's gradients of a network with `weights` elements, in parts of one, those that may
 * still be on their way to other ranks when the last are posted: see wd_reduce_left. */
double wd_network_left(int64_t weights, wd_comm *comm, bool by_round);

#endif
