/* Files that grow record by record: see io/file/record_file.h. */
#include "io/file/record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static wd_status fail(const wd_record_file *file, wd_err *err)
{
    return wd_fail(err, WD_IO, "%s: cannot be written: %s", file->path, strerror(errno));
}

/* Refuses what is no file: writing to a FIFO would wait for a reader. */
static wd_status check_kind(const wd_record_file *file, const struct stat *found, wd_err *err)
{
    if (S_ISREG(found->st_mode)) return WD_OK;
    return wd_fail(err, WD_IO, "%s: expected a file, found a device or pipe: move it away",
                   file->path);
}

/* Links are not followed: their target is not of this run. */
static wd_status cannot_open(const wd_record_file *file, wd_err *err)
{
    if (errno == ELOOP)
        return wd_fail(err, WD_IO,
                       "%s: expected a file, found a symbolic link: put the file that it "
                       "leads to in its place, or remove the link",
                       file->path);
    return fail(file, err);
}

wd_status wd_record_file_open(wd_record_file *out, const char *path, wd_err *err)
{
    struct stat found;
    *out = (wd_record_file){.fd = -1};
    snprintf(out->path, sizeof out->path, "%s", path);
    out->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (out->fd < 0) return cannot_open(out, err);
    wd_status status = fstat(out->fd, &found) ? fail(out, err) : check_kind(out, &found, err);
    if (status != WD_OK) {
        wd_record_file_close(out);
        return status;
    }
    out->bytes = found.st_size;
    return WD_OK;
}

wd_status wd_record_file_cut(wd_record_file *file, int64_t bytes, wd_err *err)
{
    if (bytes != file->bytes && ftruncate(file->fd, bytes))
        return wd_fail(err, WD_IO, "%s: cannot be cut back to %" PRId64 " bytes: %s", file->path,
                       bytes, strerror(errno));
    file->bytes = bytes;
    return WD_OK;
}

void wd_record_file_close(wd_record_file *file)
{
    if (file->fd >= 0) close(file->fd); /* every record was written by then */
    file->fd = -1;
}

/* Cuts off the partial record that a failed write has left after the last whole record. */
static bool mend(wd_record_file *file)
{
    file->torn = ftruncate(file->fd, file->bytes) != 0;
    return !file->torn;
}

wd_status wd_record_file_write(wd_record_file *file, const void *record, size_t bytes, wd_err *err)
{
    size_t done = 0;
    if (file->torn && !mend(file)) return fail(file, err);
    while (done < bytes) {
        const ssize_t n =
            pwrite(file->fd, (const char *)record + done, bytes - done, file->bytes + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            const wd_status status = fail(file, err);
            mend(file);
            return status;
        }
        done += (size_t)n;
    }
    file->bytes += (int64_t)bytes;
    return WD_OK;
}
