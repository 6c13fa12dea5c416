/* Losses: how far a network's outputs are from their targets, and the gradients of the outputs that
 * follow from it. A loss is a function between wd_pass_forward and wd_pass_backward. */
#ifndef WD_TRAIN_NETWORK_LOSS_H
#define WD_TRAIN_NETWORK_LOSS_H

#include "train/network/pass.h"

/* loss [B] (device, =) = mean squared error of each sample's velocity against target [B, C, F, H,
 * W] F32, device. Writes the gradient of factor * (sum over samples of weight * loss) to
 * outputs->dvelocity. `weight` [B] F32, device; NULL: 1. `factor`: 1 / (samples of the whole
 * optimiser step, of all ranks). */
void wd_loss_velocity(float *loss, const wd_pass_outputs *outputs, const float *target,
                      const float *weight, float factor, wd_queue *queue);

#endif
