/* Files that grow record by record: see io/append.h. */
#include "io/append.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static wd_status fail(const wd_append *append, wd_err *err)
{
    return wd_fail(err, WD_IO, "%s: cannot be written: %s", append->path, strerror(errno));
}

/* Refuses what is no file: writing to a FIFO would wait for a reader. */
static wd_status check_kind(const wd_append *append, const struct stat *file, wd_err *err)
{
    if (S_ISREG(file->st_mode)) return WD_OK;
    return wd_fail(err, WD_IO, "%s: expected a file, found a device or pipe: move it away",
                   append->path);
}

/* Links are not followed: their target is not of this run. */
static wd_status cannot_open(const wd_append *append, wd_err *err)
{
    if (errno == ELOOP)
        return wd_fail(err, WD_IO,
                       "%s: expected a file, found a symbolic link: put the file that it "
                       "leads to in its place, or remove the link",
                       append->path);
    return fail(append, err);
}

wd_status wd_append_open(wd_append *out, const char *path, wd_err *err)
{
    struct stat file;
    *out = (wd_append){.fd = -1};
    snprintf(out->path, sizeof out->path, "%s", path);
    out->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (out->fd < 0) return cannot_open(out, err);
    wd_status status = fstat(out->fd, &file) ? fail(out, err) : check_kind(out, &file, err);
    if (status != WD_OK) {
        wd_append_close(out);
        return status;
    }
    out->bytes = file.st_size;
    return WD_OK;
}

wd_status wd_append_cut(wd_append *append, int64_t bytes, wd_err *err)
{
    if (bytes != append->bytes && ftruncate(append->fd, bytes))
        return wd_fail(err, WD_IO, "%s: cannot be cut back to %" PRId64 " bytes: %s", append->path,
                       bytes, strerror(errno));
    append->bytes = bytes;
    return WD_OK;
}

void wd_append_close(wd_append *append)
{
    if (append->fd >= 0) close(append->fd); /* every record was written by then */
    append->fd = -1;
}

/* Cuts off the partial record that a failed write has left after the last whole record. */
static bool mend(wd_append *append)
{
    append->torn = ftruncate(append->fd, append->bytes) != 0;
    return !append->torn;
}

wd_status wd_append_write(wd_append *append, const void *record, size_t bytes, wd_err *err)
{
    size_t done = 0;
    if (append->torn && !mend(append)) return fail(append, err);
    while (done < bytes) {
        const ssize_t n = pwrite(append->fd, (const char *)record + done, bytes - done,
                                 append->bytes + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            const wd_status status = fail(append, err);
            mend(append);
            return status;
        }
        done += (size_t)n;
    }
    append->bytes += (int64_t)bytes;
    return WD_OK;
}
