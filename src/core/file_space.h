/* Disk space for a file that is about to be filled. */
#ifndef WD_CORE_FILE_SPACE_H
#define WD_CORE_FILE_SPACE_H

#include <stdint.h>

/* Reserves space for the first `bytes` of the file, so that writing them cannot fail for lack of
 * it. Returns 0 or an error number of fallocate(); EOPNOTSUPP: the file system cannot reserve
 * space. Signals that arrive meanwhile do not disturb it. */
int wd_file_take_space(int fd, uint64_t bytes);

#endif
