/* Files: see io/file/file.h.
 *
 * Every file is written as a temporary file in the target's folder, flushed to the device, and
 * renamed to the target's name. So a reader, also one after a crash, finds either the old content
 * or the new. */
#include "io/file/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY /* declares the state's size, so that wd_alloc can allocate it */
#include <xxhash.h>

#include "core/file_space.h"
#include "core/memory.h"
#include "core/text.h"

enum { CHUNK_BYTES = 1 << 20, FOLDERS_OPEN_MAX = 16, DAY_S = 24 * 60 * 60, ATTEMPTS = 100 };

static const char temporary_suffix[] = ".tmp";

/* Fills `err` from errno. */
static wd_status refuse(wd_err *err, const char *path, const char *verb)
{
    int code = errno;
    wd_file_space_note(code);
    wd_status status = code == ENOENT || code == ENOTDIR ? WD_NOT_FOUND : WD_IO;
    const char *hint = "";
    if (code == ENOSPC || code == EDQUOT) hint = "; free some space or choose another folder";
    if (code == EROFS || code == EACCES) hint = "; choose a folder that this user may write to";
    if (!strcmp(verb, "read")) hint = "";
    return wd_fail(err, status, "%s: cannot be %s: %s%s", path, verb, strerror(code), hint);
}

wd_status wd_path_join(char out[WD_PATH_MAX], const char *folder, const char *name, wd_err *err)
{
    size_t length = strlen(folder);
    const char *slash = length && folder[length - 1] != '/' ? "/" : "";
    int n = snprintf(out, WD_PATH_MAX, "%s%s%s", folder, slash, name);
    if (n < 0 || n >= WD_PATH_MAX)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%.200s.../%.200s: path of %d characters, at most %d", folder, name, n,
                       WD_PATH_MAX - 1);
    return WD_OK;
}

wd_status wd_path_beside(char out[WD_PATH_MAX], const char *path, const char *name, wd_err *err)
{
    char folder[WD_PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash + 1 - path) : 0;
    if (length >= WD_PATH_MAX)
        return wd_path_join(out, path, name, err); /* fails: the path is too long */
    snprintf(folder, sizeof folder, "%.*s", length, path);
    return wd_path_join(out, folder, name, err);
}

const char *wd_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool wd_path_exists(const char *path)
{
    struct stat info;
    return !stat(path, &info);
}

bool wd_path_is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

/* Sets `out` to the real path of `path`, or of its nearest existing parent. */
static bool real_path(char out[PATH_MAX], const char *path)
{
    char part[WD_PATH_MAX];
    if (wd_path_join(part, "", path, NULL) != WD_OK) return false;
    while (!realpath(part, out)) {
        char *slash = strrchr(part, '/');
        if (!slash && !strcmp(part, ".")) return false;
        if (!slash)
            strcpy(part, ".");
        else
            slash[slash == part] = 0; /* of "/name" the slash stays */
    }
    return true;
}

bool wd_path_is_inside(const char *path, const char *folder)
{
    char inner[PATH_MAX], outer[PATH_MAX];
    if (!realpath(folder, outer) || !real_path(inner, path)) return false;
    const size_t length = strcmp(outer, "/") ? strlen(outer) : 0;
    return !strncmp(inner, outer, length) && (!inner[length] || inner[length] == '/');
}

wd_status wd_folder_make(const char *path, wd_err *err)
{
    char part[WD_PATH_MAX];
    WD_TRY(wd_path_join(part, path, "", err)); /* ends with a slash, unless it is empty */
    for (char *p = part; *p; p++) {
        if (*p != '/' || p == part) continue;
        *p = '\0';
        if (mkdir(part, 0777)) {
            int cause = errno;
            bool there = wd_path_is_folder(part);
            errno = cause;
            if (!there && cause == EEXIST)
                return wd_fail(err, WD_IO, "%s: is a file, expected a folder", part);
            if (!there) return refuse(err, part, "created");
        }
        *p = '/';
    }
    return WD_OK;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

wd_status wd_folder_remove(const char *path, wd_err *err)
{
    if (nftw(path, remove_one, FOLDERS_OPEN_MAX, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
        return refuse(err, path, "removed");
    return WD_OK;
}

/* Writes all bytes; false: an error, with errno set. */
static bool write_all(int fd, const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

static ssize_t read_some(int fd, void *data, size_t bytes)
{
    ssize_t n;
    do n = read(fd, data, bytes);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Sets `temporary` to a name beside `path` that this process has not used; false: it is too long.
 */
static bool next_name(char temporary[WD_PATH_MAX], const char *path)
{
    static _Atomic unsigned serial;
    const int n = snprintf(temporary, WD_PATH_MAX, "%s.%ld-%u%s", path, (long)getpid(),
                           atomic_fetch_add(&serial, 1), temporary_suffix);
    return n >= 0 && n < WD_PATH_MAX;
}

static wd_status refuse_length(const char *path, wd_err *err)
{
    return wd_fail(err, WD_INVALID_ARGUMENT, "%.400s...: path is too long", path);
}

wd_status wd_file_temporary(int *fd, char temporary[WD_PATH_MAX], const char *path, wd_err *err)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (!next_name(temporary, path)) return refuse_length(path, err);
        *fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*fd >= 0) return WD_OK;
        if (errno != EEXIST) break;
    }
    return refuse(err, path, "written");
}

wd_status wd_file_name(char temporary[WD_PATH_MAX], int fd, const char *path, wd_err *err)
{
    char name[64]; /* that Linux gives a file that the process has open */
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (!next_name(temporary, path)) return refuse_length(path, err);
        if (!linkat(AT_FDCWD, name, AT_FDCWD, temporary, AT_SYMLINK_FOLLOW)) return WD_OK;
        if (errno != EEXIST) break;
    }
    *temporary = '\0';
    return refuse(err, path, "written");
}

static int open_unnamed(const char *path)
{
    char folder[WD_PATH_MAX];
    if (wd_path_beside(folder, path, ".", NULL) != WD_OK) return -1;
    return open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

/* Whether an open file has the permissions that other new files get: Linux before 6.0 does not
 * apply the umask to files without a name on some file systems. */
static bool has_usual_mode(int fd, const char *path)
{
    char name[WD_PATH_MAX];
    struct stat is, usual;
    int other;
    if (wd_file_temporary(&other, name, path, NULL) != WD_OK) return false;
    const bool same = !fstat(fd, &is) && !fstat(other, &usual) && is.st_mode == usual.st_mode;
    close(other);
    wd_file_abandon(name);
    return same;
}

/* Whether such a file gets its name in the end: it does not where there is no /proc, or where a
 * container forbids it. An empty one is tried. */
static bool can_be_named(const char *path)
{
    char name[WD_PATH_MAX];
    const int fd = open_unnamed(path);
    if (fd < 0) return false;
    bool can = wd_file_name(name, fd, path, NULL) == WD_OK;
    if (can) wd_file_abandon(name);
    can = can && has_usual_mode(fd, path);
    close(fd);
    return can;
}

bool wd_file_unnamed(int *fd, char temporary[WD_PATH_MAX], const char *path)
{
    *temporary = '\0';
    *fd = can_be_named(path) ? open_unnamed(path) : -1;
    return *fd >= 0;
}

wd_status wd_file_scratch(int *fd, const char *path, wd_err *err)
{
    char name[WD_PATH_MAX];
    if (wd_path_beside(name, path, ".", NULL) == WD_OK)
        *fd = open(name, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    else
        *fd = -1;
    for (int attempt = 0; *fd < 0 && attempt < ATTEMPTS; attempt++) {
        if (!next_name(name, path)) return refuse_length(path, err);
        *fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (*fd >= 0) unlink(name);
        if (*fd < 0 && errno != EEXIST) break;
    }
    return *fd >= 0 ? WD_OK : refuse(err, path, "written");
}

void wd_file_abandon(const char *temporary)
{
    unlink(temporary);
}

/* The age of a file decides, since a process id means nothing where machines share the folder. */
void wd_file_remove_abandoned(const char *folder, const char *begin)
{
    const struct dirent *entry;
    struct stat is;
    const time_t now = time(NULL);
    const size_t suffix = sizeof temporary_suffix - 1;
    DIR *dir = opendir(folder);
    while (dir && (entry = readdir(dir))) {
        const size_t n = strlen(entry->d_name);
        if (n < suffix || strcmp(entry->d_name + n - suffix, temporary_suffix) ||
            strncmp(entry->d_name, begin, strlen(begin)) ||
            fstatat(dirfd(dir), entry->d_name, &is, AT_SYMLINK_NOFOLLOW))
            continue;
        if (S_ISREG(is.st_mode) && now - is.st_mtime > DAY_S)
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir) closedir(dir);
}

/* Flushes the folder of `path`, so that a rename in it survives a crash. EINVAL, from file systems
 * that cannot flush folders, is no error. */
static wd_status flush_folder_of(const char *path, wd_err *err)
{
    char folder[WD_PATH_MAX];
    WD_TRY(wd_path_beside(folder, path, ".", err));
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return refuse(err, folder, "flushed");
    int failed = fsync(fd) && errno != EINVAL && errno != EROFS;
    if (failed) refuse(err, folder, "flushed");
    close(fd);
    return failed ? WD_IO : WD_OK;
}

static wd_status flush_file(const char *temporary, const char *path, wd_err *err)
{
    wd_status status = WD_OK;
    int fd = open(temporary, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fsync(fd)) status = refuse(err, path, "written");
    if (fd >= 0) close(fd);
    return status;
}

static wd_status rename_file(const char *temporary, const char *path, wd_err *err)
{
    if (!rename(temporary, path)) return flush_folder_of(path, err);
    const wd_status status = refuse(err, path, "written");
    wd_file_abandon(temporary);
    return status;
}

wd_status wd_file_commit(const char *temporary, const char *path, wd_err *err)
{
    const wd_status status = flush_file(temporary, path, err);
    if (status == WD_OK) return rename_file(temporary, path, err);
    wd_file_abandon(temporary);
    return status;
}

wd_status wd_file_commit_first(bool *is_first, const char *temporary, const char *path, wd_err *err)
{
    const wd_status status = flush_file(temporary, path, err);
    *is_first = false;
    if (status != WD_OK || !link(temporary, path)) {
        *is_first = status == WD_OK;
        wd_file_abandon(temporary);
        return status == WD_OK ? flush_folder_of(path, err) : status;
    }
    if (errno == EEXIST && wd_path_exists(path)) {
        wd_file_abandon(temporary);
        return WD_OK;
    }
    *is_first = true; /* file systems without links, and links to nothing */
    return rename_file(temporary, path, err);
}

wd_status wd_file_write(const char *path, const void *data, size_t bytes, wd_err *err)
{
    int fd;
    char temporary[WD_PATH_MAX];
    WD_TRY(wd_file_temporary(&fd, temporary, path, err));
    bool written = write_all(fd, data, bytes);
    wd_status status = written ? WD_OK : refuse(err, path, "written");
    if (close(fd) && status == WD_OK) status = refuse(err, path, "written");
    if (status == WD_OK) return wd_file_commit(temporary, path, err);
    wd_file_abandon(temporary);
    return status;
}

/* Opens a regular file for reading, and sets *bytes to its length. */
static wd_status open_file(int *fd, size_t *bytes, const char *path, wd_err *err)
{
    struct stat info;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (*fd < 0) return refuse(err, path, "read");
    wd_status status = WD_OK;
    if (fstat(*fd, &info)) {
        status = refuse(err, path, "read");
    } else if (!S_ISREG(info.st_mode)) {
        status = wd_fail(err, WD_IO, "%s: cannot be read: it is %s, not a file", path,
                         S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    }
    if (status != WD_OK) {
        close(*fd);
        return status;
    }
    *bytes = (size_t)info.st_size;
    return WD_OK;
}

wd_status wd_file_read(char **out, size_t *bytes, const char *path, size_t bytes_max, wd_err *err)
{
    int fd;
    size_t size, used = 0;
    void *text = NULL;
    wd_status status;
    WD_TRY(open_file(&fd, &size, path, err));
    if (size > bytes_max) {
        status = wd_fail(err, WD_BAD_FORMAT, "%s: is %zu bytes long, expected at most %zu", path,
                         size, bytes_max);
        goto out;
    }
    WD_TRY_OUT(wd_alloc(&text, size + 1, 1, path, err));
    while (used < size) {
        ssize_t n = read_some(fd, (char *)text + used, size - used);
        if (n < 0) status = refuse(err, path, "read");
        if (n < 0) goto out;
        if (n == 0) break; /* it shrank meanwhile */
        used += (size_t)n;
    }
    *out = text;
    *bytes = used;
    text = NULL;
out:
    wd_free(text);
    close(fd);
    return status;
}

wd_status wd_file_copy(const char *to, const char *from, wd_err *err)
{
    char temporary[WD_PATH_MAX];
    void *chunk = NULL;
    int in = -1, out = -1;
    size_t bytes;
    ssize_t n;
    wd_status status;
    WD_TRY(open_file(&in, &bytes, from, err));
    WD_TRY_OUT(wd_alloc(&chunk, CHUNK_BYTES, 1, "copying a file", err));
    WD_TRY_OUT(wd_file_temporary(&out, temporary, to, err));
    while (status == WD_OK && (n = read_some(in, chunk, CHUNK_BYTES)) != 0) {
        if (n < 0)
            status = refuse(err, from, "read");
        else if (!write_all(out, chunk, (size_t)n))
            status = refuse(err, to, "written");
    }
    if (close(out) && status == WD_OK) status = refuse(err, to, "written");
    if (status == WD_OK)
        status = wd_file_commit(temporary, to, err);
    else
        wd_file_abandon(temporary);
out:
    wd_free(chunk);
    close(in);
    return status;
}

wd_status wd_file_hash(char out[33], const char *path, wd_err *err)
{
    int fd;
    size_t bytes;
    ssize_t n;
    void *state = NULL, *chunk = NULL;
    XXH128_canonical_t digest;
    wd_status status;
    WD_TRY(open_file(&fd, &bytes, path, err));
    WD_TRY_OUT(wd_alloc(&state, 1, sizeof(XXH3_state_t), "hashing a file", err));
    WD_TRY_OUT(wd_alloc(&chunk, CHUNK_BYTES, 1, "hashing a file", err));
    XXH3_128bits_reset(state);
    while ((n = read_some(fd, chunk, CHUNK_BYTES)) > 0)
        XXH3_128bits_update(state, chunk, (size_t)n);
    if (n < 0) status = refuse(err, path, "read");
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state));
    for (int i = 0; i < 16; i++) snprintf(out + 2 * i, 3, "%02x", digest.digest[i]);
out:
    wd_free(chunk);
    wd_free(state);
    close(fd);
    return status;
}

/* ---- the names in a folder ---- */

wd_status wd_folder_list_open(wd_folder_list *out, const char *folder,
                              int (*filter)(const struct dirent *),
                              int (*compare)(const struct dirent **, const struct dirent **),
                              wd_err *err)
{
    *out = (wd_folder_list){0};
    out->count = scandir(folder, &out->entry, filter, compare);
    if (out->count >= 0) return WD_OK;
    out->count = 0;
    if (errno == ENOENT) return WD_OK;
    return wd_fail(err, WD_IO, "%s: cannot be listed: %s", folder, strerror(errno));
}

void wd_folder_list_close(wd_folder_list *list)
{
    for (int i = 0; i < list->count; i++) free(list->entry[i]); /* scandir's */
    free(list->entry);
    *list = (wd_folder_list){0};
}

/* ---- mapped files ----
 *
 * The table has no lock, since a signal handler reads it; entries are claimed and released
 * atomically. */

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
