/* Losses: see train/network/loss.h. */
#include "train/network/loss.h"

#include "dev/ops.h"

void wd_loss_velocity(float *loss, const wd_pass_outputs *outputs, const float *target,
                      const float *weight, float factor, wd_queue *queue)
{
    wd_op_mse(queue, &(wd_mse_args){.loss = loss,
                                    .dy = outputs->dvelocity,
                                    .y = outputs->velocity,
                                    .target = target,
                                    .weight = weight,
                                    .type = outputs->dtype,
                                    .samples = outputs->samples,
                                    .width = outputs->width,
                                    .factor = factor});
}
