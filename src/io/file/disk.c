/* Disks: see io/file/disk.h. */
#include "io/file/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/memory.h"
#include "io/file/file_reader.h"

/* ---- free space ---- */

/* Cuts the last component of a path off; false: there is none left. */
static bool cut(char path[WD_PATH_MAX])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') path[--n] = 0;
    char *slash = strrchr(path, '/');
    if (!strcmp(path, "/") || !strcmp(path, ".")) return false;
    if (!slash)
        strcpy(path, ".");
    else
        slash[slash == path] = 0; /* of "/name" the slash stays */
    return true;
}

/* root may use the blocks that are reserved for it. Some file systems, of networks and of FUSE, say
 * that they have no blocks at all. A tmpfs without a limit says so, too. */
static uint64_t free_bytes(const struct statvfs *s)
{
    uint64_t bytes;
    const uint64_t blocks = geteuid() ? s->f_bavail : s->f_bfree;
    if (!s->f_blocks || __builtin_mul_overflow(blocks, (uint64_t)s->f_frsize, &bytes))
        return UINT64_MAX;
    return bytes;
}

wd_status wd_disk_space_of(wd_disk_space *out, const char *path, wd_err *err)
{
    struct stat info;
    struct statvfs space;
    WD_TRY(wd_path_join(out->path, "", path, err));
    bool found = !stat(out->path, &info);
    while (!found && (errno == ENOENT || errno == ENOTDIR) && cut(out->path))
        found = !stat(out->path, &info);
    out->device = found ? info.st_dev : 0;
    out->bytes_free = found && !statvfs(out->path, &space) ? free_bytes(&space) : UINT64_MAX;
    return WD_OK;
}

/* ---- the speed of reading ---- */

enum {
    READ_LEAST = 64 << 10,
    READ_MOST = 8 << 20 /* systems seldom read more ahead */
};

/* Drops the file's pages; returns its bytes, 0 if it cannot be opened. */
static uint64_t forget_pages(const char *path)
{
    struct stat about = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return 0;
    if (fstat(fd, &about)) about.st_size = 0;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return (uint64_t)about.st_size;
}

typedef struct disk {
    wd_file_reader *reader;
    const char *path;
    void *to;
    int64_t at, whole;
} disk;

/* Finds nothing in memory: what others left there is forgotten, and what the system read ahead for
 * the one before, or still does, is not asked for. */
static wd_status sample_read(double *seconds, void *context, int64_t bytes, wd_err *err)
{
    disk *d = context;
    if (bytes > d->whole - d->at) d->at = 0;
    forget_pages(d->path);
    const double begun = wd_clock_s();
    WD_TRY(
        wd_file_reader_read_pages(d->reader, d->to, d->path, (uint64_t)d->at, (size_t)bytes, err));
    *seconds = wd_clock_s() - begun;
    d->at += bytes + READ_MOST;
    return WD_OK;
}

wd_status wd_rate_of_disk(double *bytes_per_s, const char *path, wd_err *err)
{
    wd_status status;
    void *block = NULL;
    disk d = {.path = path, .whole = (int64_t)forget_pages(path)};
    if (!d.whole) return wd_fail(err, WD_IO, "%s: cannot be read", path);
    const int64_t most = READ_MOST < d.whole ? READ_MOST : d.whole;
    WD_TRY_OUT(wd_file_reader_open(&d.reader, err));
    WD_TRY_OUT(
        wd_alloc(&block, wd_file_reader_room(READ_MOST) + WD_READ_PAGE, 1, "a measurement", err));
    d.to = (char *)block + WD_READ_PAGE - (uintptr_t)block % WD_READ_PAGE;
    WD_TRY_OUT(wd_rate_measure(bytes_per_s, sample_read, &d, READ_LEAST, most, err));
out:
    wd_file_reader_close(d.reader);
    wd_free(block);
    return status;
}
