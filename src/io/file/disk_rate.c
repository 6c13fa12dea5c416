/* The rate of a disk: see io/file/disk_rate.h. */
#include "io/file/disk_rate.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/memory.h"
#include "core/rate.h"
#include "io/file/file_reader.h"

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
