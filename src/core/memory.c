/* Host memory: see core/memory.h. */
#include "core/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/checked.h"

static _Atomic int64_t calls;   /* so far */
static _Atomic int64_t fail_at; /* value of `calls` whose call fails; 0: none */

static bool must_fail(void) { return atomic_fetch_add(&calls, 1) + 1 == atomic_load(&fail_at); }

static wd_status refuse(size_t count, size_t size, const char *what, wd_err *err)
{
    return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for %s: %zu times %zu bytes", what, count,
                   size);
}

wd_status wd_alloc(void **out, size_t count, size_t size, const char *what, wd_err *err)
{
    size_t bytes;
    void *block = NULL;
    if (must_fail() || !wd_mul_size(&bytes, count, size) || bytes > SIZE_MAX / 2)
        return refuse(count, size, what, err);
    if (posix_memalign(&block, 64, bytes ? bytes : 1)) return refuse(count, size, what, err);
    memset(block, 0, bytes);
    *out = block;
    return WD_OK;
}

wd_status wd_resize(void **block, size_t count, size_t size, const char *what, wd_err *err)
{
    size_t bytes;
    if (must_fail() || !wd_mul_size(&bytes, count, size)) return refuse(count, size, what, err);
    void *grown = realloc(*block, bytes ? bytes : 1);
    if (!grown) return refuse(count, size, what, err);
    *block = grown;
    return WD_OK;
}

wd_status wd_copy_text(char **out, const char *text, wd_err *err)
{
    size_t bytes = strlen(text) + 1;
    void *copy;
    WD_TRY(wd_alloc(&copy, bytes, 1, "a text", err));
    memcpy(copy, text, bytes);
    *out = copy;
    return WD_OK;
}

void wd_free(void *block) { free(block); }

int64_t wd_alloc_count(void) { return atomic_load(&calls); }

void wd_alloc_fail_at(int64_t n) { atomic_store(&fail_at, n ? atomic_load(&calls) + n : 0); }
