/* Disk space for files: see core/file_space.h. */
#include "core/file_space.h"

#include <errno.h>
#include <fcntl.h>

/* Until Linux 6.10 a signal ended fallocate() on a tmpfs, which then freed all space that the call
 * had reserved: with a signal every second, a call that takes longer never succeeded. So space is
 * reserved in pieces that take milliseconds each, and earlier pieces stay reserved. */
static const uint64_t piece_bytes = 16 << 20;

static _Thread_local bool lacked, full;

int wd_file_take_space(int fd, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        const uint64_t piece = bytes - at < piece_bytes ? bytes - at : piece_bytes;
        if (fallocate(fd, 0, (off_t)at, (off_t)piece) == 0)
            at += piece;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

/* Whether an error number says that the disk is full (ENOSPC), or this user's share of it
 * (EDQUOT). */
static bool is_full(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

void wd_file_space_watch(void)
{
    lacked = full = false;
}

void wd_file_space_note(int error)
{
    full = full || is_full(error);
    lacked = lacked || is_full(error) || error == EFBIG; /* longer than `ulimit -f` allows */
}

bool wd_file_space_lacked(void)
{
    return lacked;
}

bool wd_file_space_full(void)
{
    return full;
}
