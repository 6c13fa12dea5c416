/* Requests to a run: see train/output/request.h. */
#include "train/output/request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "io/file/file.h"

enum { TEXT_MAX = 256 };

static const char file_name[] = ".wandistiller-request";
static const char taken_name[] = ".wandistiller-request-taken";

static const struct {
    const char *name;
    unsigned request;
} requests_of[] = {
    {"sample", WD_REQUEST_SAMPLE}, {"save", WD_REQUEST_SAVE}, {"stop", WD_REQUEST_STOP}};

enum { REQUESTS = sizeof requests_of / sizeof *requests_of };

unsigned wd_request_find(const char *name)
{
    for (int i = 0; i < REQUESTS; i++)
        if (!strcmp(requests_of[i].name, name)) return requests_of[i].request;
    return 0;
}

/* The requests in a file of the open folder; 0: there is none, or it is not of this program. */
static unsigned read_requests(int folder, const char *name)
{
    char text[TEXT_MAX], *rest, *line;
    unsigned found = 0;
    struct stat is;
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return 0;
    ssize_t n = -1;
    if (!fstat(fd, &is) && S_ISREG(is.st_mode)) n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 0;
    text[n] = 0;
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const unsigned request = wd_request_find(line);
        if (!request) return 0;
        found |= request;
    }
    return found;
}

wd_status wd_request_leave(const char *folder, unsigned requests, wd_err *err)
{
    char path[WD_PATH_MAX], text[TEXT_MAX] = "";
    size_t used = 0;
    WD_TRY(wd_path_join(path, folder, file_name, err));
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return wd_fail(err, WD_IO, "%s: cannot be opened: %s", folder, strerror(errno));
    const unsigned all = requests | read_requests(fd, file_name);
    close(fd);
    for (int i = 0; i < REQUESTS; i++)
        if (all & requests_of[i].request)
            used = wd_append_text(text, sizeof text, used, "%s\n", requests_of[i].name);
    return wd_file_write(path, text, used, err);
}

void wd_request_forget(int folder)
{
    unlinkat(folder, file_name, 0);
    unlinkat(folder, taken_name, 0);
}

/* A folder of this name is left alone: it is no request. */
unsigned wd_request_take(int folder)
{
    struct stat is;
    if (fstatat(folder, file_name, &is, AT_SYMLINK_NOFOLLOW) || S_ISDIR(is.st_mode)) return 0;
    if (renameat(folder, file_name, folder, taken_name)) return 0;
    const unsigned found = read_requests(folder, taken_name);
    unlinkat(folder, taken_name, 0);
    if (!found)
        wd_log(WD_LOG_WARNING,
               "%s in the run's folder was no request of `wandistiller tell`, and "
               "is removed",
               file_name);
    return found;
}
