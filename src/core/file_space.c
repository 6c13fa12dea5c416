/* See core/file_space.h. */
#include "core/file_space.h"

#include <errno.h>
#include <fcntl.h>

/* Until Linux 6.10 a signal ended fallocate() on a tmpfs, which then gave back all that the call
 * had taken: at one signal a second, what takes more than a second was never there. A piece takes
 * milliseconds, and those before it stay. */
static const uint64_t piece_bytes = 16 << 20;

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
