/* Gradients of all ranks, added in a fixed order while backward still runs.
 *
 * Data flow: a bucket (job/comm/pieces.h) that is final on the device is exchanged, so that each
 * rank has its own piece from all -> which the owner adds in rank order -> the sums are gathered by
 * all. That happens on a queue of its own, beside what is computed.
 *
 * There are two ways. By way of host memory (reduce_host.c) a bucket is copied to staging, what is
 * there goes by the communicator, and sums are copied back; a few buckets are under way at a time,
 * and which step of which bucket comes next is the same on all ranks. Where devices are peers
 * (dev/peers.h, reduce_direct.c) pieces go from device to device and are added there; nobody waits
 * for them but queues. Both send the same pieces to the same ranks, and add them in the same order,
 * so that sums have the same bits.
 *
 * Where hosts have several ranks each, which follow one another (wd_comm's in_blocks), both go by
 * hosts, whose ranks share one link: they exchange and add among themselves first, so that each
 * host sends one sum instead of one gradient per rank, receives each result once, and passes it on
 * to its ranks. The hosts' sums, each made in rank order, are then added in the order of hosts.
 *
 * A round is one backward pass. With `by_round` each round's data is reduced by itself and the
 * owner adds on: round after round, in each rank after rank. Nobody's sum depends on how rounds
 * times ranks are divided: 1 rank's 4 rounds give the bits of 4 ranks' one. Adding host by host
 * would give other bits, because (a + b) + (c + d) is not ((a + b) + c) + d. With by_round only the
 * gathering therefore goes by hosts.
 *
 * Data may be in BF16. Sums are then taken in F32, and rounded when they are sent on, or are there:
 * by hosts a host's sum is rounded, too. Rounds are added up in F32, and rounded once.
 *
 * With `scatter` sums are not gathered: each rank has those of its own pieces, in their places.
 *
 * Bytes sent by rank r in a step, of F32 (half of them of BF16), with N elements of which it owns
 * n, R ranks, A exchanged rounds (1 without by_round): exchange 4 A (N - n); gather 4 (R - 1) n.
 * The mean over ranks, without by_round: 2 (R - 1) / R 4 N. By hosts, of which there are H of L
 * ranks, these are as many, but for what pieces differ by: gather 4 (H - 1) n + 4 (L - 1) of all
 * own pieces of the H ranks that are r on their host. To other hosts it sends 4 (H - 1) n of each,
 * L times fewer: all of a host 2 (H - 1) / H 4 N. */
#ifndef WD_JOB_COMM_REDUCE_H
#define WD_JOB_COMM_REDUCE_H

#include "job/comm/comm.h"
#include "job/comm/pieces.h"

typedef struct wd_reduce_options {
    wd_comm *comm; /* borrowed. With peers the arrays are on this rank's peer (or a dry device):
                    * they go from device to device; without, by way of host memory */
    wd_pieces pieces;
    wd_dtype type; /* of the data that is reduced: F32 or BF16 */
    bool by_round, scatter;
} wd_reduce_options;

typedef struct wd_reduce wd_reduce;

/* For arrays on `device`. All memory there will be is allocated here: staging in host memory, or,
 * with peers, room on the device for what comes. */
wd_status wd_reduce_open(wd_reduce **out, const wd_reduce_options *options, wd_device *device,
                         wd_err *err);
/* NULL is allowed. Within a round, which is how a rank ends that has failed, nobody is waited for,
 * and staging that others may still write to is left to the end of the process. */
void wd_reduce_close(wd_reduce *reduce);

/* Of a round's elements, in parts of one, those of buckets that may still be on their way to be
 * exchanged when the last is posted: for the others wd_reduce_ready has waited by then. With peers
 * it waits for none. */
double wd_reduce_unsent_share(const wd_reduce_options *options);

const wd_pieces *wd__reduce_pieces(const wd_reduce *reduce);

/* A round begins: data [count] type, device, written by `queue` from now on. Rounds that are not
 * the last are only begun with by_round. All ranks. */
typedef enum wd_round { WD_ROUND_FIRST = 1, WD_ROUND_LAST = 2 } wd_round; /* or both, or neither */
void wd_reduce_begin(wd_reduce *reduce, void *data, unsigned round, wd_queue *queue);

/* The elements from `first` on are final, once the work launched so far is done. */
void wd_reduce_ready(wd_reduce *reduce, int64_t first);

/* All elements are final. When it returns, later work of the queue finds the sums (last round), or
 * may write the data again. */
void wd_reduce_finish(wd_reduce *reduce);

/* Every rank's own pieces of data [count] (elements of `element_bytes` <= 4, device) to all, in
 * their places, for later work of the queue. Not within a round. Rank r sends element_bytes
 * (R - 1) n. All ranks. */
void wd_reduce_gather(wd_reduce *reduce, void *data, size_t element_bytes, wd_queue *queue);

#endif
