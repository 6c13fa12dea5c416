/* A network that ranks share (ZeRO-1): each rank has moments, EMA and, in BF16, what master weights
 * have beside the copy, of its own pieces alone, steps those, and gets the other weights from their
 * owners.
 *
 * Data flow of a step: own pieces' summed gradients (job/comm/reduce.h, scattered) -> sums of
 * squares by chunk, gathered, added in the order of the whole -> norm and factor as without shares,
 * to the bit -> AdamW on own pieces, in place in what passes read -> gathered by all.
 *
 * Bytes sent by rank r for it, with N elements of which it owns n, R ranks, c bytes of the compute
 * dtype, i of the islands' elements its own: (R - 1) (c n + 8 n / WD_SUM_CHUNK + 4 i where c is 2),
 * the chunks rounded up by piece. */
#ifndef WD_TRAIN_NETWORK_SHARD_H
#define WD_TRAIN_NETWORK_SHARD_H

#include "job/comm/reduce.h"
#include "train/network/params.h"

/* For `params` that are shared, whose `shard` it becomes. `reduce` (borrowed) has params' pieces,
 * and scatters. All ranks. */
wd_status wd__shard_open(wd_shard **out, wd_params *params, wd_reduce *reduce, wd_comm *comm,
                         wd_err *err);
void wd__shard_close(wd_shard *shard); /* NULL is allowed */

/* ---- called by all ranks together ---- */

/* sum (device, =) = sum of squares of all gradients, of which each rank has its own pieces. */
void wd__shard_sum_squares(wd_shard *shard, float *sum, wd_queue *queue);

/* Sends the rank's own pieces of the weights that passes read to all ranks. */
void wd__shard_publish(wd_shard *shard, wd_queue *queue);

/* ---- called by each rank by itself ---- */

/* The rank's own pieces of a packed buffer = those of P. */
void wd__shard_copy_weights(wd_shard *shard, wd_params_buffer to, wd_queue *queue);

#endif
