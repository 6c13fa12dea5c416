/* Tests: NCCL without a GPU, behind the same table of functions as NVIDIA's, for ranks that are
 * threads of one process or processes of one machine, each with a GPU of the stand-in driver
 * (standin/driver.h).
 *
 *   - Functions return before they are done; what an exchange puts on a stream is there only when
 *     ncclCommGetAsyncError has said so;
 *   - an exchange on a stream waits until those that its sends and receives belong to have begun,
 *     so that ranks which wait for one another in a circle hang, as they do with NCCL;
 *   - two ranks of one GPU, memory of another one, other sizes than the peer's, or a configuration
 *     that blocks are refused, or end the process.
 */
#ifndef WD_TESTS_STANDIN_NCCL_H
#define WD_TESTS_STANDIN_NCCL_H

#include <stdint.h>

#include "dev/cuda/api.h"

enum { WD_STANDIN_NCCL_RANKS_MAX = 8 };

/* Where NCCL hangs while it is opened. */
typedef enum wd_standin_nccl_hang {
    WD_STANDIN_NCCL_HANGS_NOWHERE,
    WD_STANDIN_NCCL_HANGS_IN_GET_KEY, /* the call does not return */
    WD_STANDIN_NCCL_HANGS_IN_OPEN,    /* the call does not return */
    WD_STANDIN_NCCL_NEVER_OPENS,      /* the call returns, and remains in progress */
    WD_STANDIN_NCCL_NEVER_EXCHANGES   /* the first exchange remains in progress */
} wd_standin_nccl_hang;

/* What goes wrong, once. Exchanges are counted over all ranks of this process, from 1; 0: none. */
typedef struct wd_standin_nccl_faults {
    int open_member;      /* the member from 1 that cannot be opened; 0: all can */
    int64_t refused;      /* an exchange that is refused when it is asked for */
    int64_t hung;         /* one that begins and never ends */
    int64_t garbled;      /* one that brings another byte */
    bool reports_hung;    /* the hung one's communicator says a while later that a peer is gone */
    int64_t bytes_opened; /* of memory that a communicator takes on its GPU */
    wd_standin_nccl_hang hangs;
} wd_standin_nccl_faults;

extern wd_standin_nccl_faults wd_the_standin_nccl_faults;

/* Fills the table, as new: no faults, no communicators. */
void wd_standin_nccl_fill(wd_cuda_api *api);

/* Communicators that are open. */
int wd_standin_nccl_open(void);

/* Exchanges that were asked for, over all ranks of this process, and bytes that they sent. */
typedef struct wd_standin_nccl_counts {
    int64_t exchanges, bytes;
} wd_standin_nccl_counts;

wd_standin_nccl_counts wd_standin_nccl_count(void);

#endif
