/* The mapped files: see io/file/mapped.h. The table has no lock, since a signal handler reads it;
 * entries are claimed and released atomically. */
#include "io/file/mapped.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "core/text.h"
#include "wandistiller_status.h"

enum { FILES_MAX = 16384 };

static struct {
    _Atomic uintptr_t begin; /* 0: the entry is free */
    _Atomic size_t bytes;    /* 0: the entry is not valid yet, or no longer */
    const char *_Atomic path;
} files[FILES_MAX];

void wd_mapped_note(const void *begin, size_t bytes, const char *path)
{
    for (int i = 0; i < FILES_MAX; i++) {
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&files[i].begin, &none, (uintptr_t)begin)) continue;
        atomic_store(&files[i].path, path);
        atomic_store(&files[i].bytes, bytes);
        return;
    }
}

void wd_mapped_forget(const void *begin)
{
    for (int i = 0; i < FILES_MAX; i++) {
        if (atomic_load(&files[i].begin) != (uintptr_t)begin) continue;
        atomic_store(&files[i].bytes, 0);
        atomic_store(&files[i].path, NULL);
        atomic_store(&files[i].begin, 0);
        return;
    }
}

bool wd_mapped_file_at(char *out, size_t out_bytes, const void *address)
{
    for (int i = 0; i < FILES_MAX; i++) {
        const uintptr_t offset = (uintptr_t)address - atomic_load(&files[i].begin);
        const char *path = atomic_load(&files[i].path);
        if (offset >= atomic_load(&files[i].bytes) || !path) continue;
        const size_t length = strlen(path), n = length < out_bytes ? length : out_bytes - 1;
        memcpy(out, path, n);
        out[n] = '\0';
        wd_make_terminal_safe(out);
        return true;
    }
    return false;
}
