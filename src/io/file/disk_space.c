/* Free disk space: see io/file/disk_space.h. */
#include "io/file/disk_space.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Cuts the last component of a path off; false: there is none left. */
static bool cut(char path[WD_PATH_MAX])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') path[--n] = 0;
    char *slash = strrchr(path, '/');
    if (!strcmp(path, "/") || !strcmp(path, ".")) return false;
    if (!slash)
        strcpy(path, ".");
    else
        slash[slash == path] = 0; /* of "/name" the slash stays */
    return true;
}

/* root may use the blocks that are reserved for it. Some file systems, of networks and of FUSE, say
 * that they have no blocks at all. A tmpfs without a limit says so, too. */
static uint64_t free_bytes(const struct statvfs *s)
{
    uint64_t bytes;
    const uint64_t blocks = geteuid() ? s->f_bavail : s->f_bfree;
    if (!s->f_blocks || __builtin_mul_overflow(blocks, (uint64_t)s->f_frsize, &bytes))
        return UINT64_MAX;
    return bytes;
}

wd_status wd_disk_space_of(wd_disk_space *out, const char *path, wd_err *err)
{
    struct stat info;
    struct statvfs space;
    WD_TRY(wd_path_join(out->path, "", path, err));
    bool found = !stat(out->path, &info);
    while (!found && (errno == ENOENT || errno == ENOTDIR) && cut(out->path))
        found = !stat(out->path, &info);
    out->device = found ? info.st_dev : 0;
    out->bytes_free = found && !statvfs(out->path, &space) ? free_bytes(&space) : UINT64_MAX;
    return WD_OK;
}
