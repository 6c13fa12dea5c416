/* Room for a file that is about to be filled. */
#ifndef WD_CORE_FILE_SPACE_H
#define WD_CORE_FILE_SPACE_H

#include <stdint.h>

/* Takes room for the first `bytes` of the file: using them cannot fail then for want of it. 0, or
 * an error number as fallocate() has them; EOPNOTSUPP: this file system cannot. Signals that come
 * meanwhile do not matter. */
int wd_file_take_space(int fd, uint64_t bytes);

#endif
