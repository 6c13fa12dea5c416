/* See core/temporary_folder.h. */
#include "core/temporary_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDERS_OPEN_MAX = 16 };

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

/* ---- the lock ---- */

/* The file of a folder that is locked, since folders themselves are not on network file systems. It
 * says who made it: another host's locks may not be seen here. */
static const char lock_name[] = ".wandistiller-lock";

enum { MARK_BYTES = 160 };

static void mark_of_host(char out[MARK_BYTES])
{
    char host[MARK_BYTES / 2] = "";
    gethostname(host, sizeof host - 1);
    snprintf(out, MARK_BYTES, "temporary folder of wandistiller on %s\n", host);
}

/* Whether the name is the prefix and what mkdtemp puts behind it. */
static bool is_made_name(const char *name, const char *prefix)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const size_t length = strlen(prefix);
    return !strncmp(name, prefix, length) && strlen(name + length) == 6 &&
           strspn(name + length, letters) == 6;
}

/* Whether the open file is the mark that a process of this user and host has written, and that no
 * process has locked; it is locked then. */
static bool take_abandoned(int lock)
{
    char expected[MARK_BYTES], found[MARK_BYTES] = "";
    struct stat is;
    mark_of_host(expected);
    if (fstat(lock, &is) || !S_ISREG(is.st_mode) || is.st_uid != geteuid()) return false;
    if (pread(lock, found, sizeof found - 1, 0) < 0 || strcmp(found, expected)) return false;
    return !flock(lock, LOCK_EX | LOCK_NB);
}

static void remove_if_abandoned(const char *place, const char *name)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", place, name) >= (int)sizeof path) return;
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) return;
    const int lock = openat(folder, lock_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (lock >= 0 && take_abandoned(lock)) wd_temporary_folder_remove(path);
    if (lock >= 0) close(lock);
    close(folder);
}

void wd_temporary_folder_remove_abandoned(const char *place, const char *prefix)
{
    const struct dirent *entry;
    DIR *dir = opendir(place);
    while (dir && (entry = readdir(dir)))
        if (is_made_name(entry->d_name, prefix)) remove_if_abandoned(place, entry->d_name);
    if (dir) closedir(dir);
}

/* ---- making ---- */

/* Before the mark is written nobody takes the folder for an abandoned one, and from then on it is
 * locked. */
static int make_lock(const char *folder)
{
    char path[PATH_MAX], mark[MARK_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", folder, lock_name) >= (int)sizeof path) return -1;
    const int lock = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (lock < 0) return -1;
    flock(lock, LOCK_EX); /* where there are no locks, folders are not taken for abandoned either */
    mark_of_host(mark);
    if (write(lock, mark, strlen(mark)) == (ssize_t)strlen(mark)) return lock;
    close(lock);
    return -1;
}

int wd_temporary_folder_make(char *path, size_t path_bytes, const char *place, const char *prefix)
{
    if ((size_t)snprintf(path, path_bytes, "%s/%sXXXXXX", place, prefix) >= path_bytes) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (!mkdtemp(path)) return -1;
    const int lock = make_lock(path);
    if (lock >= 0) return lock;
    const int cause = errno;
    wd_temporary_folder_remove(path);
    errno = cause;
    return -1;
}
