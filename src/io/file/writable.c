/* Checks before writing: see io/file/writable.h. */
#include "io/file/writable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "io/file/file.h"

bool wd_path_has_ending(const char *path, const char *ending)
{
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && path[n - m - 1] != '/' && !strcasecmp(path + n - m, ending);
}

wd_status wd_path_refuse_endings(const char *path, const char *option, const char *const *endings,
                                 const char *expected, wd_err *err)
{
    for (; *endings; endings++)
        if (wd_path_has_ending(path, *endings))
            return wd_fail(err, WD_INVALID_ARGUMENT, "%s %s: expected %s, found a name with %s",
                           option, path, expected, *endings);
    return WD_OK;
}

/* Whether the file's content can be mapped, as weights and encoded prompts are read. */
static wd_status try_map(const char *path, wd_err *err)
{
    wd_status status = WD_OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        status = wd_fail(err, WD_IO,
                         "%s: a file was written there, but cannot be read back by mmap: %s; "
                         "choose a folder on another file system",
                         path, strerror(errno));
    else
        munmap(map, 1);
    if (fd >= 0) close(fd);
    return status;
}

/* Does what saving does: writes a new file beside `path`, flushes it, renames it over another one,
 * and maps it. Some network file systems and those of FUSE refuse one of these. */
static wd_status try_all(const char *path, wd_err *err)
{
    int fd;
    char probe[WD_PATH_MAX];
    WD_TRY(wd_file_temporary(&fd, probe, path, err));
    close(fd);
    wd_status status = wd_file_write(probe, "", 1, err);
    if (status == WD_OK) status = try_map(probe, err);
    wd_file_abandon(probe);
    return status;
}

static wd_status try_beside(const char *path, const char *option, wd_err *err)
{
    const wd_status status = try_all(path, err);
    return status == WD_OK ? WD_OK : wd_fail_in(err, "%s", option);
}

wd_status wd_file_check_writable(const char *path, const char *option, wd_err *err)
{
    if (*path && !wd_path_is_folder(path)) return try_beside(path, option, err);
    return wd_fail(err, WD_IO, "%s: expected the name of a file, found %s%s", option,
                   *path ? "the folder " : "nothing", path);
}

/* Replaces a path by its parent: "a/b" by "a", "b" by ".", "/b" by "/". */
static void go_up(char path[WD_PATH_MAX])
{
    char *slash = strrchr(path, '/');
    if (!slash)
        snprintf(path, WD_PATH_MAX, ".");
    else
        slash[slash == path] = '\0';
}

wd_status wd_folder_check_writable(const char *path, const char *option, wd_err *err)
{
    static const char *const files[] = {".safetensors", ".sft",  ".gguf", ".png",
                                        ".jpg",         ".json", ".svg",  NULL};
    char folder[WD_PATH_MAX], probe[WD_PATH_MAX];
    WD_TRY(wd_path_join(folder, "", path, err));
    if (!wd_path_exists(folder))
        WD_TRY(wd_path_refuse_endings(path, option, files, "a folder", err));
    WD_TRY(wd_path_join(probe, path, "", err)); /* ends with a slash: in the folder */
    while (!wd_path_exists(folder)) {
        memcpy(probe, folder, sizeof probe);
        go_up(folder);
    }
    if (wd_path_is_folder(folder)) return try_beside(probe, option, err);
    return wd_fail(err, WD_IO, "%s: %s: is a file, expected a folder", option, folder);
}

wd_status wd_file_check_replaced(const char *path, const char *begin, const char *what, wd_err *err)
{
    char found[64];
    struct stat is;
    const size_t bytes = strlen(begin);
    WD_REQUIRE(bytes <= sizeof found, "%s: a longer begin than expected", what);
    if (lstat(path, &is)) return WD_OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool is_own =
        fd >= 0 && read(fd, found, bytes) == (ssize_t)bytes && !memcmp(found, begin, bytes);
    if (fd >= 0) close(fd);
    if (is_own) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "%s is there, and is no %s of this program, which alone is replaced: move it "
                   "away, or choose another file",
                   path, what);
}
