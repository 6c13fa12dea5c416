/* Disk space for a file that is about to be filled. */
#ifndef WD_CORE_FILE_SPACE_H
#define WD_CORE_FILE_SPACE_H

#include <stdbool.h>
#include <stdint.h>

/* Reserves space for the first `bytes` of the file, so that writing them cannot fail for lack of
 * it. Returns 0 or an error number of fallocate(); EOPNOTSUPP: the file system cannot reserve
 * space. Signals that arrive meanwhile do not disturb it. */
int wd_file_take_space(int fd, uint64_t bytes);

/* For callers that go on without a file for which there was no space: an error's message says so,
 * its status does not. From now on such errors of this thread are noted; earlier ones are
 * forgotten. */
void wd_file_space_watch(void);

/* Code that writes files notes the error number of each failure. */
void wd_file_space_note(int error);

/* Whether one was noted since then that says that there was no space. */
bool wd_file_space_lacked(void);

/* Whether one of them says that the disk, or this user's share of it, is full: there is space once
 * other files are removed. */
bool wd_file_space_full(void);

#endif
