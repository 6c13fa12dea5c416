/* The guard device's memory, whose pages are inaccessible (PROT_NONE) except while one of the
 * device's kernels or copies runs. A test on it proves that only these dereference tensor memory,
 * as on a GPU. A block ends at the end of a page (to 64 bytes), and the next page is never
 * accessible, so a kernel that runs beyond its array faults, too. */
#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/checked.h"
#include "dev/cpu/cpu.h"

/* The accessible part of a block's mapping, without the page after it. */
typedef struct span {
    char *start;
    size_t bytes;
} span;

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static span span_of(void *block, size_t bytes)
{
    size_t page = page_bytes(), offset = (uintptr_t)block % page;
    return (span){(char *)block - offset, wd_round_up(offset + bytes, page)};
}

wd_status wd__guard_alloc(void **out, bool entered, size_t bytes, wd_err *err)
{
    size_t page = page_bytes(), rounded = wd_round_up(bytes, 64);
    size_t inside = wd_round_up(rounded, page);
    char *start = mmap(NULL, inside + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return wd_fail(err, WD_OUT_OF_MEMORY, "the system has no %zu bytes of memory", bytes);
    if (entered) mprotect(start, inside, PROT_READ | PROT_WRITE);
    *out = start + inside - rounded;
    return WD_OK;
}

void wd__guard_free(void *block, size_t bytes)
{
    span s = span_of(block, bytes);
    munmap(s.start, s.bytes + page_bytes());
}

void wd__guard_protect(const wd_device *device, bool open)
{
    for (size_t i = 0; i < device->blocks; i++) {
        const wd_block *block = &device->block[i];
        span s = span_of(block->address, block->bytes ? block->bytes : 1);
        int failed = mprotect(s.start, s.bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
        assert(!failed);
        (void)failed;
    }
}
