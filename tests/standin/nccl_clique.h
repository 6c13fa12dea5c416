/* Tests: what the ranks of one communicator of NCCL's stand-in share, which may be threads of one
 * process or processes of one machine: who has joined, and data on its way. It lies in memory
 * without a name in any file system, so that nothing is left of it when a process is killed.
 * Counters are atomic; each route has one writer and one reader.
 */
#ifndef WD_TESTS_STANDIN_NCCL_CLIQUE_H
#define WD_TESTS_STANDIN_NCCL_CLIQUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dev/cuda/api_nccl.h"
#include "standin/nccl.h"

enum { WD_NCCL_ROUTE_BYTES = 16 << 20 }; /* of data on its way from one rank to another */

/* From one rank to another. */
typedef struct wd_nccl_route {
    atomic_llong sends, receives; /* that have begun at the two ends */
    atomic_llong put, taken;      /* bytes so far */
    unsigned char data[WD_NCCL_ROUTE_BYTES];
} wd_nccl_route;

/* The ranks of one key; zeroed when it is new. */
typedef struct wd_nccl_clique {
    atomic_int ranks;                             /* 0: none has joined */
    atomic_int device[WD_STANDIN_NCCL_RANKS_MAX]; /* of each rank, from 1; 0: it has not joined */
    atomic_int finalized;
    atomic_bool fails;
    wd_nccl_route route[WD_STANDIN_NCCL_RANKS_MAX][WD_STANDIN_NCCL_RANKS_MAX]; /* [from][to] */
} wd_nccl_clique;

/* Makes the key of a new clique, whose memory lasts as long as this process or one that has joined.
 */
void wd_nccl_clique_make_key(wd_nccl_key *key);

/* This process' mapping of the clique with that key; NULL: there is none. */
wd_nccl_clique *wd_nccl_clique_open(const wd_nccl_key *key);
/* Unmaps it; and no rank can join it any more where this process has made the key. */
void wd_nccl_clique_close(wd_nccl_clique *clique, const wd_nccl_key *key);

/* How many ranks have joined; two with the same device make the clique fail. */
int wd_nccl_clique_joined(wd_nccl_clique *clique);

/* Whether messages of so many bytes can be put on the route now; each needs sizeof(size_t) bytes
 * more.
 */
bool wd_nccl_route_has_room(wd_nccl_route *route, size_t bytes);
/* Puts a message on the route, which has room. */
void wd_nccl_route_put(wd_nccl_route *route, const void *data, size_t bytes);
/* Takes the next message, which is there; returns its bytes. `data` has been written if it is
 * `bytes` long. */
size_t wd_nccl_route_take(wd_nccl_route *route, void *data, size_t bytes);

#endif
