/* Failing system calls, for tests of code that writes and reads files: the n-th call alone, the
 * n-th and all later ones, or one that does only half of its work. The calls are recorded in order.
 *
 * The test is linked with -Wl,--wrap for every call of WD_FAULT_MAP (cmake/tests.cmake), so that
 * the library's calls come here. Those of the C library itself do not. */
#ifndef WD_TESTS_FAULTS_H
#define WD_TESTS_FAULTS_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/types.h>
#include <unistd.h>

#include "testing.h"

/* The calls, with the errno of their failures. */
#define WD_FAULT_MAP(X)                                                                            \
    X(open, EMFILE)                                                                                \
    X(read, EIO)                                                                                   \
    X(write, ENOSPC)                                                                               \
    X(pwrite, ENOSPC)                                                                              \
    X(fallocate, ENOSPC)                                                                           \
    X(ftruncate, EIO)                                                                              \
    X(fsync, EIO)                                                                                  \
    X(close, EIO)                                                                                  \
    X(rename, EACCES)                                                                              \
    X(renameat2, EACCES)                                                                           \
    X(remove, EACCES)

typedef enum wd_fault_call {
#define X(name, cause) WD_FAULT_##name,
    WD_FAULT_MAP(X)
#undef X
        WD_FAULT_CALLS
} wd_fault_call;

typedef enum wd_fault_how {
    WD_FAULT_ONCE,
    WD_FAULT_FROM_THEN_ON,
    WD_FAULT_HALF, /* half of the bytes are read or written, which is no error */
    WD_FAULT_TORN, /* half of the bytes, and all later calls fail, as on a disk that becomes full */
    WD_FAULT_HOWS
} wd_fault_how;

enum { WD_FAULT_KEPT = 4096, WD_FAULT_PATHS = 64 };

/* A call that succeeded. */
typedef struct wd_fault_kept {
    wd_fault_call call;
    char path[256], to[256]; /* `to`: of renames */
} wd_fault_kept;

static struct {
    bool on, keeps;
    wd_fault_call call;
    wd_fault_how how;
    int64_t n;
    const char *only;               /* calls count whose path contains this; NULL: all */
    int64_t seen;                   /* calls that counted */
    int64_t refused;                /* in full or in part */
    bool lost;                      /* written bytes may be lost, so the attempt must not succeed */
    char path[WD_FAULT_PATHS][256]; /* of the first refused calls */
    wd_fault_kept kept[WD_FAULT_KEPT];
    int count; /* of the recorded calls */
} wd_faults;

static const char *const wd_fault_names[] = {
#define X(name, cause) #name,
    WD_FAULT_MAP(X)
#undef X
};

static inline void wd_fault_arm(wd_fault_call call, wd_fault_how how, int64_t n, const char *only)
{
    wd_faults.on = true;
    wd_faults.call = call;
    wd_faults.how = how;
    wd_faults.n = n;
    wd_faults.only = only;
    wd_faults.seen = wd_faults.refused = 0;
    wd_faults.lost = false;
}

static inline void wd_fault_disarm(void)
{
    wd_faults.on = false;
}

static inline void wd_fault_path_(char out[256], int fd)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, out, 255);
    out[n > 0 ? n : 0] = 0;
}

/* Whether this call must fail, or do half of its work. */
static inline bool wd_fault_hits_(wd_fault_call call, const char *path)
{
    if (!wd_faults.on || call != wd_faults.call) return false;
    if (wd_faults.only && !strstr(path, wd_faults.only)) return false;
    const int64_t number = ++wd_faults.seen;
    if (number < wd_faults.n) return false;
    const bool goes_on = wd_faults.how == WD_FAULT_FROM_THEN_ON || wd_faults.how == WD_FAULT_TORN;
    if (number > wd_faults.n && !goes_on) return false;
    if (wd_faults.refused < WD_FAULT_PATHS)
        snprintf(wd_faults.path[wd_faults.refused], sizeof wd_faults.path[0], "%s", path);
    wd_faults.refused++;
    return true;
}

/* The failure of a call: -1, and errno. */
static inline int wd_fault_fail_(wd_fault_call call)
{
    static const int cause[] = {
#define X(name, number) number,
        WD_FAULT_MAP(X)
#undef X
    };
    errno = cause[call];
    wd_faults.lost |= call == WD_FAULT_write || call == WD_FAULT_pwrite || call == WD_FAULT_fsync;
    return -1;
}

static inline void wd_fault_keep_(wd_fault_call call, const char *path, const char *to, bool well)
{
    if (!wd_faults.keeps || !well) return;
    assert_true(wd_faults.count < WD_FAULT_KEPT);
    wd_fault_kept *k = &wd_faults.kept[wd_faults.count++];
    k->call = call;
    snprintf(k->path, sizeof k->path, "%s", path);
    snprintf(k->to, sizeof k->to, "%s", to);
}

/* ---- calls of an open file ---- */

/* The bytes that a call must read or write: all, half of them, or -1: it fails. */
static inline ssize_t wd_fault_bytes_(wd_fault_call call, const char *path, size_t bytes)
{
    if (!wd_fault_hits_(call, path)) return (ssize_t)bytes;
    const bool first = wd_faults.seen == wd_faults.n;
    if (wd_faults.how == WD_FAULT_HALF || (wd_faults.how == WD_FAULT_TORN && first))
        return (ssize_t)((bytes + 1) / 2);
    return wd_fault_fail_(call);
}

ssize_t __real_read(int fd, void *to, size_t bytes);
ssize_t __wrap_read(int fd, void *to, size_t bytes);
ssize_t __wrap_read(int fd, void *to, size_t bytes)
{
    char path[256];
    wd_fault_path_(path, fd);
    const ssize_t n = wd_fault_bytes_(WD_FAULT_read, path, bytes);
    return n < 0 ? n : __real_read(fd, to, (size_t)n);
}

ssize_t __real_write(int fd, const void *from, size_t bytes);
ssize_t __wrap_write(int fd, const void *from, size_t bytes);
ssize_t __wrap_write(int fd, const void *from, size_t bytes)
{
    char path[256];
    wd_fault_path_(path, fd);
    const ssize_t n = wd_fault_bytes_(WD_FAULT_write, path, bytes);
    const ssize_t done = n < 0 ? n : __real_write(fd, from, (size_t)n);
    wd_fault_keep_(WD_FAULT_write, path, "", done > 0);
    return done;
}

ssize_t __real_pwrite(int fd, const void *from, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t at)
{
    char path[256];
    wd_fault_path_(path, fd);
    const ssize_t n = wd_fault_bytes_(WD_FAULT_pwrite, path, bytes);
    const ssize_t done = n < 0 ? n : __real_pwrite(fd, from, (size_t)n, at);
    wd_fault_keep_(WD_FAULT_pwrite, path, "", done > 0);
    return done;
}

int __real_fallocate(int fd, int mode, off_t at, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes)
{
    char path[256];
    wd_fault_path_(path, fd);
    if (wd_fault_hits_(WD_FAULT_fallocate, path)) return wd_fault_fail_(WD_FAULT_fallocate);
    return __real_fallocate(fd, mode, at, bytes);
}

int __real_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes)
{
    char path[256];
    wd_fault_path_(path, fd);
    if (wd_fault_hits_(WD_FAULT_ftruncate, path)) return wd_fault_fail_(WD_FAULT_ftruncate);
    return __real_ftruncate(fd, bytes);
}

/* Only recorded: a test need not wait for the disk thousands of times. */
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    char path[256];
    wd_fault_path_(path, fd);
    if (wd_fault_hits_(WD_FAULT_fsync, path)) return wd_fault_fail_(WD_FAULT_fsync);
    wd_fault_keep_(WD_FAULT_fsync, path, "", true);
    return 0;
}

/* A file is closed even if close fails; then written bytes may be lost, which must be noticed if
 * the file replaces another. */
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    char path[256];
    wd_fault_path_(path, fd);
    const bool hits = wd_fault_hits_(WD_FAULT_close, path);
    const bool writes = hits && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
    const int result = __real_close(fd);
    wd_faults.lost |= writes && strstr(path, ".tmp");
    return hits ? wd_fault_fail_(WD_FAULT_close) : result;
}

/* ---- calls that name files ---- */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (wd_fault_hits_(WD_FAULT_open, path)) return wd_fault_fail_(WD_FAULT_open);
    return __real_open(path, flags, mode);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (wd_fault_hits_(WD_FAULT_rename, from)) return wd_fault_fail_(WD_FAULT_rename);
    const int result = __real_rename(from, to);
    wd_fault_keep_(WD_FAULT_rename, from, to, !result);
    return result;
}

int __real_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags);
int __wrap_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags);
int __wrap_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
    if (wd_fault_hits_(WD_FAULT_renameat2, from)) return wd_fault_fail_(WD_FAULT_renameat2);
    const int result = __real_renameat2(from_at, from, to_at, to, flags);
    wd_fault_keep_(WD_FAULT_renameat2, from, to, !result);
    return result;
}

int __real_remove(const char *path);
int __wrap_remove(const char *path);
int __wrap_remove(const char *path)
{
    if (wd_fault_hits_(WD_FAULT_remove, path)) return wd_fault_fail_(WD_FAULT_remove);
    const int result = __real_remove(path);
    wd_fault_keep_(WD_FAULT_remove, path, "", !result);
    return result;
}

/* ---- every call in turn ---- */

/* One attempt at something that writes files; `err` is its own. */
typedef wd_status wd_fault_attempt(void *context, wd_err *err);

/* Checks the state after an attempt, while no call fails. */
typedef void wd_fault_check(void *context, wd_status status);

/* The name in a message of the file at `path`: without the suffix of a temporary file, nor the
 * prefix of a folder that is being written. */
static inline void wd_fault_name_(char out[256], const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!strncmp(name, ".tmp-", 5)) name += 5;
    snprintf(out, 256, "%s", name);
    char *tmp = strstr(out, ".tmp");
    if (!tmp) return;
    for (*tmp = 0; tmp > out && *tmp != '.'; tmp--) continue;
    *tmp = 0;
}

/* Whether a message names a file that a call was refused for. */
static inline bool wd_fault_is_named_(const char *message)
{
    for (int64_t i = 0; i < wd_faults.refused && i < WD_FAULT_PATHS; i++) {
        char name[256];
        wd_fault_name_(name, wd_faults.path[i]);
        if (strstr(message, name)) return true;
    }
    return false;
}

/* Makes each call of a kind fail in turn, in each way, until an attempt makes fewer calls. An
 * attempt that fails must name the file. It must not succeed after a failure by which written bytes
 * may be lost; if it succeeds after another failure, `check` decides. Returns the number of calls
 * of the kind that an attempt makes. */
static inline int64_t wd_fault_each(wd_fault_call call, wd_fault_attempt *attempt,
                                    wd_fault_check *check, void *context)
{
    const bool moves = call == WD_FAULT_read || call == WD_FAULT_write || call == WD_FAULT_pwrite;
    int64_t calls = 0;
    for (int how = 0; how < (moves ? WD_FAULT_HOWS : WD_FAULT_HALF); how++) {
        int64_t n = 1;
        for (bool reached = true; reached; n++) {
            wd_err err = {0};
            wd_fault_arm(call, (wd_fault_how)how, n, NULL);
            const wd_status status = attempt(context, &err);
            wd_fault_disarm();
            reached = wd_faults.refused > 0;
            if (status != WD_OK && (!reached || how == WD_FAULT_HALF))
                fail_msg("%s %lld: failed without a cause: %s", wd_fault_names[call], (long long)n,
                         err.message);
            if (status == WD_OK && wd_faults.lost)
                fail_msg("%s %lld of %s failed, and the attempt ended well", wd_fault_names[call],
                         (long long)n, wd_faults.path[0]);
            if (status != WD_OK && !wd_fault_is_named_(err.message))
                fail_msg("%s %lld of %s: the message does not name it: %s", wd_fault_names[call],
                         (long long)n, wd_faults.path[0], err.message);
            check(context, status);
        }
        calls = n - 2;
    }
    return calls;
}

/* ---- the order of calls ---- */

/* Whether the last bytes written to `path` before call number `end` were flushed. */
static inline bool wd_fault_is_flushed_(const char *path, int end)
{
    for (int i = end - 1; i >= 0; i--) {
        const wd_fault_kept *k = &wd_faults.kept[i];
        if (strcmp(k->path, path)) continue;
        if (k->call == WD_FAULT_fsync) return true;
        if (k->call == WD_FAULT_write || k->call == WD_FAULT_pwrite) return false;
    }
    return true; /* nothing was written */
}

/* Every file that was written is flushed before it, or a folder above it, is renamed. */
static inline void wd_fault_assert_flushed_before_renames(void)
{
    int renames = 0;
    for (int r = 0; r < wd_faults.count; r++) {
        const wd_fault_kept *rename = &wd_faults.kept[r];
        const size_t n = strlen(rename->path);
        if (rename->call != WD_FAULT_rename && rename->call != WD_FAULT_renameat2) continue;
        renames++;
        for (int i = 0; i < r; i++) {
            const wd_fault_kept *k = &wd_faults.kept[i];
            const bool inside =
                !strncmp(k->path, rename->path, n) && (k->path[n] == 0 || k->path[n] == '/');
            if (inside && !wd_fault_is_flushed_(k->path, r))
                fail_msg("%s is renamed to %s before %s is flushed", rename->path, rename->to,
                         k->path);
        }
    }
    assert_true(renames > 0);
}

/* The index of the last rename to `path`. */
static inline int wd_fault_last_rename_to_(const char *path)
{
    int at = -1;
    for (int i = 0; i < wd_faults.count; i++)
        if (!strcmp(wd_faults.kept[i].to, path)) at = i;
    if (at < 0) fail_msg("nothing was renamed to %s", path);
    return at;
}

/* The index of the first call of a kind after `at` on the folder of `path`, or, with `below`, on
 * anything in that folder; the number of all calls: there is none. */
static inline int wd_fault_next_(wd_fault_call call, int at, const char *path, bool below)
{
    const size_t n = (size_t)(strrchr(path, '/') - path);
    for (int i = at; i < wd_faults.count; i++) {
        const wd_fault_kept *k = &wd_faults.kept[i];
        if (k->call == call && !strncmp(k->path, path, n) && (below || !k->path[n])) return i;
    }
    return wd_faults.count;
}

/* The folder of `path` is flushed after the last rename to it, so that the rename survives a crash.
 */
static inline void wd_fault_assert_flushed_after_rename(const char *path)
{
    const int at = wd_fault_last_rename_to_(path);
    if (wd_fault_next_(WD_FAULT_fsync, at, path, false) == wd_faults.count)
        fail_msg("the folder of %s is not flushed after its rename", path);
}

/* The earlier file at `path` is removed only after that flush; otherwise a loss of power could lose
 * both. */
static inline void wd_fault_assert_flushed_before_removal(const char *path)
{
    const int at = wd_fault_last_rename_to_(path);
    const int removal = wd_fault_next_(WD_FAULT_remove, at, path, true);
    if (removal == wd_faults.count) fail_msg("what stood at %s is not removed", path);
    if (wd_fault_next_(WD_FAULT_fsync, at, path, false) > removal)
        fail_msg("%s is removed before the folder of %s is flushed", wd_faults.kept[removal].path,
                 path);
}

#endif
