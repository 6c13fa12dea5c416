/* Shared by peers.c (communicators and exchanges) and peers.c (the check at open). */
#ifndef WD_DEV_CUDA_PEERS_H
#define WD_DEV_CUDA_PEERS_H

#include <pthread.h>

#include "dev/cuda/impl.h"

typedef struct cuda_peers {
    wd_peers base;
    const wd_cuda_nccl *nccl;
    wd_nccl_comm comm;
    double until;         /* when an exchange must be on its stream; INFINITY once they are open */
    wd_event *last;       /* the last exchange is done: the next may be on another queue */
    pthread_mutex_t lock; /* of the communicator: NCCL's functions are not for several threads */
    wd_peers_fault_fn *on_fault;
    void *context;
    bool looks; /* there is a thread that looks after it */
    pthread_t thread;
    pthread_mutex_t gate; /* of: */
    pthread_cond_t changed;
    bool closing;
} cuda_peers;

/* Sleeps between two looks at an operation that takes microseconds, or, at the start, seconds;
 * `looks`: the number of looks so far. */
void wd_cuda_peers_pause(int64_t looks);

#endif
