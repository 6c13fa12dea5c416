/* See core/temporary_folder.h. */
#include "core/temporary_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 10, FOLDERS_OPEN_MAX = 16 };

static int remove_one(const char *path, const struct stat *is, int kind, struct FTW *at)
{
    (void)is, (void)kind, (void)at;
    remove(path); /* a file that cannot be removed stays */
    return 0;
}

void wd_temporary_folder_remove(const char *path)
{
    nftw(path, remove_one, FOLDERS_OPEN_MAX, FTW_DEPTH | FTW_PHYS);
}

static void remove_if_abandoned(const char *place, const char *name)
{
    char path[PATH_MAX];
    struct stat is;
    if (snprintf(path, sizeof path, "%s/%s", place, name) >= (int)sizeof path) return;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    if (!fstat(fd, &is) && is.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB))
        wd_temporary_folder_remove(path);
    close(fd);
}

void wd_temporary_folder_remove_abandoned(const char *place, const char *prefix)
{
    const struct dirent *entry;
    DIR *dir = opendir(place);
    while (dir && (entry = readdir(dir)))
        if (!strncmp(entry->d_name, prefix, strlen(prefix)))
            remove_if_abandoned(place, entry->d_name);
    if (dir) closedir(dir);
}

/* Another process that removes abandoned folders may see the new one before it is locked; then this
 * one makes another. */
int wd_temporary_folder_make(char *path, size_t path_bytes, const char *place, const char *prefix)
{
    struct stat is;
    for (int i = 0; i < TRIES; i++) {
        if ((size_t)snprintf(path, path_bytes, "%s/%sXXXXXX", place, prefix) >= path_bytes) {
            errno = ENAMETOOLONG;
            return -1;
        }
        if (!mkdtemp(path)) return -1;
        const int lock = open(path, O_RDONLY | O_DIRECTORY);
        if (lock >= 0 && !flock(lock, LOCK_EX) && !fstat(lock, &is) && is.st_nlink) return lock;
        const int cause = errno;
        if (lock >= 0) close(lock);
        rmdir(path);
        errno = cause;
    }
    return -1;
}
