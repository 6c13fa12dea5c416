/* See job/comm/shared.h. */
#include "job/comm/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/file_space.h"
#include "core/memory.h"

struct wd_shared {
    char *data;
    size_t bytes;
};

/* A rank's record, which all ranks exchange: its memory file, if it is the one that makes it, and
 * its error. */
typedef struct offer {
    int host, host_rank;
    int fd;
    int error; /* errno; 0: none */
    pid_t pid;
    dev_t device; /* with `file` it tells the file from that of another process with this pid */
    ino_t file;
} offer;

/* ---- one rank ---- */

static int map(wd_shared *s, int fd)
{
    void *data = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return errno;
    madvise(data, s->bytes, MADV_HUGEPAGE); /* if the system has them for shared memory */
    s->data = data;
    return 0;
}

static void make(offer *own, wd_shared *s)
{
    struct stat file;
    own->pid = getpid();
    own->fd = memfd_create("wandistiller", MFD_CLOEXEC);
    if (own->fd < 0 || fstat(own->fd, &file) || ftruncate(own->fd, (off_t)s->bytes)) {
        own->error = errno;
        return;
    }
    own->device = file.st_dev;
    own->file = file.st_ino;
    own->error = map(s, own->fd);
    /* all pages are taken now: later the lack of one would be a signal and no error */
    if (!own->error) own->error = wd_file_take_space(own->fd, s->bytes);
}

static int join(wd_shared *s, const offer *first)
{
    char path[64];
    struct stat file;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)first->pid, first->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return errno;
    int error = fstat(fd, &file) ? errno : 0;
    if (!error && (file.st_dev != first->device || file.st_ino != first->file)) error = ESRCH;
    if (!error) error = map(s, fd);
    close(fd);
    return error;
}

/* ---- all ranks ---- */

static const offer *first_of_host(const offer *all, const wd_comm *comm)
{
    int r = 0;
    while (r < comm->ranks && (all[r].host != comm->host || all[r].host_rank)) r++;
    WD_REQUIRE(r < comm->ranks, "host %d has no first rank", comm->host);
    return &all[r];
}

/* The error of the lowest rank that has one, which is the same on all ranks. */
static wd_status check(const offer *all, const wd_comm *comm, size_t bytes, const char *what,
                       wd_err *err)
{
    int r = 0;
    while (r < comm->ranks && !all[r].error) r++;
    if (r == comm->ranks) return WD_OK;
    if (!all[r].host_rank)
        return wd_fail_of(err, r, WD_OUT_OF_MEMORY,
                          "no memory for %s that the ranks of a host share: %zu bytes: %s (rank "
                          "%d)",
                          what, bytes, strerror(all[r].error), r);
    return wd_fail_of(err, r, WD_UNSUPPORTED,
                      "rank %d cannot open %s that the first rank of its host has made: %s: ranks "
                      "of one host must be one user's and in one container (see /proc/PID/fd)",
                      r, what, strerror(all[r].error));
}

wd_status wd_shared_open(wd_shared **out, wd_comm *comm, size_t bytes, const char *what,
                         wd_err *err)
{
    wd_shared *s = NULL;
    offer all[comm->ranks], *own = &all[comm->rank];
    const bool shares = bytes && comm->host_ranks > 1;
    *out = NULL;
    if (comm->ranks == 1) return WD_OK;
    *own = (offer){.host = comm->host, .host_rank = comm->host_rank, .fd = -1};
    if (shares && wd_alloc((void **)&s, 1, sizeof *s, "shared memory", err)) own->error = ENOMEM;
    if (s) s->bytes = bytes;
    if (s && !comm->host_rank) make(own, s);
    wd_comm_allgather_small(comm, all, sizeof *all);
    wd_status status = check(all, comm, bytes, what, err);
    if (status == WD_OK) {
        if (s && comm->host_rank) own->error = join(s, first_of_host(all, comm));
        wd_comm_allgather_small(comm, all, sizeof *all);
        status = check(all, comm, bytes, what, err);
    }
    if (own->fd >= 0) close(own->fd);
    if (status == WD_OK)
        *out = s;
    else
        wd_shared_close(s);
    return status;
}

void *wd_shared_data(const wd_shared *shared)
{
    return shared ? shared->data : NULL;
}

void wd_shared_seal(wd_shared *shared, wd_comm *comm)
{
    wd_comm_barrier(comm);
    if (shared) mprotect(shared->data, shared->bytes, PROT_READ);
}

void wd_shared_close(wd_shared *shared)
{
    if (!shared) return;
    if (shared->data) munmap(shared->data, shared->bytes);
    wd_free(shared);
}
