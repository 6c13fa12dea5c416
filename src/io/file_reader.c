/* Reading ranges: see io/file_reader.h. */
#include "io/file_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"

typedef struct open_file {
    char *path;
    int fd;
} open_file;

struct wd_file_reader {
    open_file *file;
    size_t files;
};

wd_status wd_file_reader_open(wd_file_reader **out, wd_err *err)
{
    return wd_alloc((void **)out, 1, sizeof **out, "a file reader", err);
}

void wd_file_reader_close(wd_file_reader *reader)
{
    if (!reader) return;
    for (size_t i = 0; i < reader->files; i++) {
        close(reader->file[i].fd);
        wd_free(reader->file[i].path);
    }
    wd_free(reader->file);
    wd_free(reader);
}

static wd_status find(int *fd, wd_file_reader *reader, const char *path, wd_err *err)
{
    for (size_t i = 0; i < reader->files; i++)
        if (!strcmp(reader->file[i].path, path)) {
            *fd = reader->file[i].fd;
            return WD_OK;
        }
    WD_TRY(wd_resize((void **)&reader->file, reader->files + 1, sizeof *reader->file,
                     "a file reader", err));
    open_file *file = &reader->file[reader->files];
    WD_TRY(wd_copy_text(&file->path, path, err));
    *fd = file->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) {
        wd_free(file->path);
        return wd_fail(err, WD_IO, "%s: cannot be opened: %s", path, strerror(errno));
    }
    reader->files++;
    return WD_OK;
}

wd_status wd_file_reader_read(wd_file_reader *reader, void *to, const char *path, uint64_t offset,
                              size_t bytes, wd_err *err)
{
    int fd;
    size_t done = 0;
    WD_TRY(find(&fd, reader, path, err));
    while (done < bytes) {
        ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return wd_fail(err, WD_IO, "%s: bytes %" PRIu64 " to %" PRIu64 " cannot be read: %s",
                           path, offset, offset + bytes, n ? strerror(errno) : "the file ends");
        done += (size_t)n;
    }
    posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
    return WD_OK;
}
