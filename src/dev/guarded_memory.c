/* Guarded memory: see dev/guarded_memory.h. */
#include "dev/guarded_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/checked.h"

/* Blocks of so many bytes end where a huge page would: the system opens and closes such a page in
 * the time of a small one. */
enum { HUGE_PAGE = 2 << 20 };

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The pages of a block, without the one after it. */
typedef struct span {
    char *start;
    size_t bytes;
} span;

static span span_of(void *block, size_t bytes)
{
    const size_t page = page_bytes(), offset = (uintptr_t)block % page;
    return (span){(char *)block - offset, wd_round_up(offset + (bytes ? bytes : 1), page)};
}

void *wd_guarded_map(size_t bytes, size_t alignment)
{
    const size_t page = page_bytes(), rounded = wd_round_up(bytes ? bytes : 1, alignment);
    const size_t inside = wd_round_up(rounded, page);
    const size_t unit = inside < HUGE_PAGE ? page : HUGE_PAGE, mapped = inside + unit + page;
    char *all = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return NULL;
    char *end = all + inside + unit;
    end -= (uintptr_t)end % unit;
    char *start = end - inside, *after = end + page;
    if (start > all) munmap(all, (size_t)(start - all));
    if (after < all + mapped) munmap(after, (size_t)(all + mapped - after));
    if (unit == HUGE_PAGE) madvise(start, inside, MADV_HUGEPAGE); /* refused: small pages */
    return end - rounded;
}

void wd_guarded_unmap(void *block, size_t bytes)
{
    const span s = span_of(block, bytes);
    munmap(s.start, s.bytes + page_bytes());
}

void wd_guarded_set_open(void *block, size_t bytes, bool open)
{
    const span s = span_of(block, bytes);
    if (mprotect(s.start, s.bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE)) abort();
}
