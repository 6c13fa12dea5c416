/* Blocks of host memory: see dev/host_block.h. */
#include "dev/host_block.h"

#include <sys/mman.h>
#include <unistd.h>

#include "core/checked.h"

enum { HUGE_PAGE = 2 << 20 };

wd_status wd_host_block_map(void **out, size_t bytes, wd_err *err)
{
    size_t extra = bytes < HUGE_PAGE ? 0 : HUGE_PAGE; /* so that it can begin at a huge page */
    char *start = MAP_FAILED;
    if (bytes + extra >= bytes)
        start =
            mmap(NULL, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return wd_fail(err, WD_OUT_OF_MEMORY, "the system has no %zu bytes of memory", bytes);
    char *block = start;
    if (extra) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE), before = -(uintptr_t)start % HUGE_PAGE;
        block += before;
        if (before) munmap(start, before);
        if (before < extra) munmap(block + wd_round_up(bytes, page), extra - before);
        madvise(block, bytes, MADV_HUGEPAGE);
    }
    *out = block;
    return WD_OK;
}

void wd_host_block_unmap(void *block, size_t bytes)
{
    munmap(block, bytes);
}
