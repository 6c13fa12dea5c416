/* Requests to a run: see train/output/request.h. */
#include "train/output/request.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "io/file/file.h"

static const struct {
    const char *name, *file;
    unsigned request;
} requests_of[] = {{"sample", ".wandistiller-sample", WD_REQUEST_SAMPLE},
                   {"save", ".wandistiller-save", WD_REQUEST_SAVE},
                   {"stop", ".wandistiller-stop", WD_REQUEST_STOP}};

enum { REQUESTS = sizeof requests_of / sizeof *requests_of };

unsigned wd_request_find(const char *name)
{
    for (int i = 0; i < REQUESTS; i++)
        if (!strcmp(requests_of[i].name, name)) return requests_of[i].request;
    return 0;
}

static wd_status leave(const char *folder, const char *file, wd_err *err)
{
    char path[WD_PATH_MAX];
    WD_TRY(wd_path_join(path, folder, file, err));
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int failed = fd < 0 ? errno : 0;
    if (failed == EEXIST) failed = wd_path_is_folder(path) ? EISDIR : 0; /* which is not taken */
    if (failed) return wd_fail(err, WD_IO, "%s: cannot be written: %s", path, strerror(failed));
    if (fd >= 0) close(fd);
    return WD_OK;
}

wd_status wd_request_leave(const char *folder, unsigned requests, wd_err *err)
{
    for (int i = 0; i < REQUESTS; i++)
        if (requests & requests_of[i].request) WD_TRY(leave(folder, requests_of[i].file, err));
    return WD_OK;
}

/* Whoever removes the name has taken the request. A folder cannot be removed so: it is none. */
unsigned wd_request_take(int folder)
{
    unsigned found = 0;
    for (int i = 0; i < REQUESTS; i++)
        if (!unlinkat(folder, requests_of[i].file, 0)) found |= requests_of[i].request;
    return found;
}
