/* What a kernel that runs on the host finds: its indices, the block's shared memory, and how it
 * waits for others. C and C++. Kernels get there by cuda/kernels/thread.cuh. */
#ifndef WD_TESTS_STANDIN_INSIDE_H
#define WD_TESTS_STANDIN_INSIDE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct wd_standin_index {
    unsigned x, y, z;
} wd_standin_index;

/* Of the thread that runs. */
#define WD_STANDIN_LOCAL __thread __attribute__((tls_model("initial-exec")))
extern WD_STANDIN_LOCAL wd_standin_index wd_standin_thread_index, wd_standin_block_index,
    wd_standin_block_size;

void *wd_standin_shared(void);
void wd_standin_barrier(void);
/* The value that lane `source_lane` of the warp gives; mask: all lanes. */
uint32_t wd_standin_shuffle(uint32_t mask, uint32_t value, unsigned source_lane);

#ifdef __cplusplus
}
#endif

#endif
