/* Reading ranges: see io/file/file_reader.h. */
#include "io/file/file_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/checked.h"
#include "core/clock.h"
#include "core/memory.h"

typedef struct open_file {
    char *path;
    int fd;
    int direct; /* the same, past the page cache; -1: not tried yet, or it cannot be */
    bool tried;
} open_file;

struct wd_file_reader {
    open_file *file;
    size_t files;
    double free_s; /* when the slower disk has delivered what was asked for */
};

double wd_file_reader_bytes_per_s;

/* Waits as long as the slower disk would have taken from `begun_s` on. */
static void wait_for_disk(wd_file_reader *reader, double begun_s, size_t bytes)
{
    if (wd_file_reader_bytes_per_s == 0) return;
    if (reader->free_s < begun_s) reader->free_s = begun_s;
    reader->free_s += (double)bytes / wd_file_reader_bytes_per_s;
    const double whole_s = floor(reader->free_s);
    const struct timespec until = {.tv_sec = (time_t)whole_s,
                                   .tv_nsec = (long)((reader->free_s - whole_s) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
}

wd_status wd_file_reader_open(wd_file_reader **out, wd_err *err)
{
    return wd_alloc((void **)out, 1, sizeof **out, "a file reader", err);
}

void wd_file_reader_close(wd_file_reader *reader)
{
    if (!reader) return;
    for (size_t i = 0; i < reader->files; i++) {
        close(reader->file[i].fd);
        if (reader->file[i].direct >= 0) close(reader->file[i].direct);
        wd_free(reader->file[i].path);
    }
    wd_free(reader->file);
    wd_free(reader);
}

/* *out is good until the next call. */
static wd_status find(open_file **out, wd_file_reader *reader, const char *path, wd_err *err)
{
    for (size_t i = 0; i < reader->files; i++)
        if (!strcmp(reader->file[i].path, path)) {
            *out = &reader->file[i];
            return WD_OK;
        }
    WD_TRY(wd_resize((void **)&reader->file, reader->files + 1, sizeof *reader->file,
                     "a file reader", err));
    open_file *file = &reader->file[reader->files];
    WD_TRY(wd_copy_text(&file->path, path, err));
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    file->direct = -1;
    file->tried = false;
    if (file->fd < 0) {
        wd_free(file->path);
        return wd_fail(err, WD_IO, "%s: cannot be opened: %s", path, strerror(errno));
    }
    reader->files++;
    *out = file;
    return WD_OK;
}

wd_status wd_file_reader_read(wd_file_reader *reader, void *to, const char *path, uint64_t offset,
                              size_t bytes, wd_err *err)
{
    const double begun_s = wd_clock_s();
    open_file *file;
    size_t done = 0;
    WD_TRY(find(&file, reader, path, err));
    while (done < bytes) {
        ssize_t n = pread(file->fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return wd_fail(err, WD_IO, "%s: bytes %" PRIu64 " to %" PRIu64 " cannot be read: %s",
                           path, offset, offset + bytes, n ? strerror(errno) : "the file ends");
        done += (size_t)n;
    }
    posix_fadvise(file->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
    wait_for_disk(reader, begun_s, bytes);
    return WD_OK;
}

/* ---- past the page cache ---- */

size_t wd_file_reader_room(size_t bytes)
{
    return wd_round_up(bytes, WD_READ_PAGE) + WD_READ_PAGE;
}

void *wd_file_reader_place(void *room, uint64_t offset)
{
    return (char *)room + offset % WD_READ_PAGE;
}

/* Pages from `offset`, a multiple of theirs, until `needed` bytes are there; the last page of a
 * file may be short. False: they cannot be read so, or not at all. */
static bool read_direct(open_file *file, char *room, uint64_t offset, size_t needed)
{
    const size_t bytes = wd_round_up(needed, WD_READ_PAGE);
    size_t done = 0;
    if (!file->tried) file->direct = open(file->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    file->tried = true;
    if (file->direct < 0) return false;
    while (done < needed) {
        const ssize_t n = pread(file->direct, room + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

wd_status wd_file_reader_read_pages(wd_file_reader *reader, void *room, const char *path,
                                    uint64_t offset, size_t bytes, wd_err *err)
{
    open_file *file;
    const double begun_s = wd_clock_s();
    const size_t before = offset % WD_READ_PAGE;
    WD_TRY(find(&file, reader, path, err));
    if ((uintptr_t)room % WD_READ_PAGE == 0 &&
        read_direct(file, room, offset - before, before + bytes)) {
        wait_for_disk(reader, begun_s, bytes);
        return WD_OK;
    }
    return wd_file_reader_read(reader, wd_file_reader_place(room, offset), path, offset, bytes,
                               err);
}
