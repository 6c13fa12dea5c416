/* See replace_folder.h. A reader finds the old folder or the new one, each whole, also after a
 * crash. */
#include "train/output/replace_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/file_space.h"
#include "io/file/file.h"

wd_status wd__folder_sync(const char *path, wd_err *err)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some file systems cannot sync a folder and say EINVAL: then there is nothing to wait for. */
    bool failed = folder < 0 || (fsync(folder) && errno != EINVAL);
    int cause = errno;
    if (folder >= 0) close(folder);
    if (!failed) return WD_OK;
    wd_file_space_note(cause);
    return wd_fail(err, WD_IO, "%s: cannot be written to disk: %s", path, strerror(cause));
}

static wd_status sync_parent(const char *path, wd_err *err)
{
    char parent[WD_PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) : 0;
    if (!slash)
        snprintf(parent, sizeof parent, ".");
    else
        snprintf(parent, sizeof parent, "%.*s", length ? length : 1, path);
    return wd__folder_sync(parent, err);
}

static wd_status aside_of(char out[WD_PATH_MAX], const char *path, wd_err *err)
{
    char name[WD_PATH_MAX];
    const char *slash = strrchr(path, '/');
    const int n = snprintf(name, sizeof name, "%s%s", WD_FOLDER_ASIDE, slash ? slash + 1 : path);
    if (n >= (int)sizeof name)
        return wd_fail(err, WD_INVALID_ARGUMENT, "%.400s...: path is too long", path);
    return wd_path_beside(out, path, name, err);
}

wd_status wd__folder_restore(const char *path, wd_err *err)
{
    char aside[WD_PATH_MAX];
    WD_TRY(aside_of(aside, path, err));
    if (wd_path_exists(path)) return wd_folder_remove(aside, err);
    if (!wd_path_exists(aside)) return WD_OK;
    if (rename(aside, path))
        return wd_fail(err, WD_IO, "%s: cannot be renamed to %s: %s", aside, path, strerror(errno));
    return sync_parent(path, err);
}

/* Whether an error may mean that two names cannot be exchanged here, but can be changed one by one:
 * the kernel or the file system cannot (ENOSYS, EINVAL, EOPNOTSUPP), or a sandbox forbids the call
 * (EPERM). Where EPERM means that this folder may not be renamed, rename says that again. */
static bool lacks_exchange(int error)
{
    return error == ENOSYS || error == EINVAL || error == EOPNOTSUPP || error == EPERM;
}

/* Where two names cannot be exchanged: renames the old folder first, then the new. */
static int replace_in_two_steps(const char *path, const char *fresh, const char *aside)
{
    if (rename(path, aside)) return -1;
    if (!rename(fresh, path)) return 0;
    int cause = errno;
    (void)!rename(aside, path);
    errno = cause;
    return -1;
}

wd_status wd__folder_replace(const char *path, const char *fresh, wd_err *err)
{
    char aside[WD_PATH_MAX];
    bool exchanged = false;
    WD_TRY(aside_of(aside, path, err));
    WD_TRY(wd__folder_restore(path, err));
    int failed = renameat2(AT_FDCWD, fresh, AT_FDCWD, path, RENAME_EXCHANGE);
    if (!failed)
        exchanged = true;
    else if (errno == ENOENT || !wd_path_exists(path))
        failed = rename(fresh, path);
    else if (lacks_exchange(errno))
        failed = replace_in_two_steps(path, fresh, aside);
    if (failed) {
        wd_file_space_note(errno);
        return wd_fail(err, WD_IO, "%s: cannot be put in place from %s: %s", path, fresh,
                       strerror(errno));
    }
    WD_TRY(sync_parent(path, err));
    WD_TRY(wd_folder_remove(exchanged ? fresh : aside, err));
    return sync_parent(fresh, err);
}
