/* The output folder of a run: see output.h. */
#include "train/output/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "io/json/json.h"
#include "train/output/checkpoint_list.h"
#include "train/output/earlier.h"
#include "train/output/export.h"
#include "train/output/request.h"

/* ---- which folders may be one ---- */

/* *out = whether `folder` has the run.json of a run of `train`. */
static wd_status has_run_file(bool *out, const char *folder, wd_err *err)
{
    char path[WD_PATH_MAX];
    json_t *run = NULL;
    WD_TRY(wd_path_join(path, folder, "run.json", err));
    const wd_status status = wd_json_load(&run, path, err);
    const char *command = json_string_value(json_object_get(run, "command"));
    *out = command && !strcmp(command, "train") && json_is_object(json_object_get(run, "options"));
    json_decref(run);
    return status == WD_OUT_OF_MEMORY ? status : WD_OK;
}

static wd_status is_a_runs(bool *out, const char *folder, wd_err *err)
{
    char checkpoints[WD_PATH_MAX];
    WD_TRY(has_run_file(out, folder, err));
    if (!*out) WD_TRY(wd_export_is_student(out, folder, err));
    if (*out) return WD_OK;
    WD_TRY(wd_path_join(checkpoints, folder, "checkpoints", err));
    return wd__checkpoint_list_has_one(out, checkpoints, err);
}

static wd_status check_owner(const char *folder, wd_err *err)
{
    bool ours;
    const char *part = wd__earlier_part(folder);
    if (!part) return WD_OK;
    WD_TRY(is_a_runs(&ours, folder, err));
    if (ours) return WD_OK;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "%s/%s is not of a run of this program, and this run would put its own there: "
                   "move it away, or choose another --output_dir",
                   folder, part);
}

static wd_status check_place(const char *path, const wd_pipeline *teacher, wd_err *err)
{
    if (wd_path_exists(path) && !wd_path_is_folder(path))
        return wd_fail(err, WD_IO, "%s: is a file, expected a folder", path);
    if (wd_path_is_inside(path, teacher->path))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "%s lies in the teacher's folder %s; choose another --output_dir", path,
                       teacher->path);
    return check_owner(path, err);
}

/* ---- the lock ---- */

static wd_status refuse_second(const char *folder, int lock, wd_err *err)
{
    char holder[128];
    const ssize_t n = pread(lock, holder, sizeof holder - 1, 0);
    holder[n > 0 ? n : 0] = 0;
    holder[strcspn(holder, "\n")] = 0;
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "%s: another run writes into this folder (%s): wait until it has ended, or "
                   "choose another --output_dir",
                   folder, *holder ? holder : "its process is not known");
}

/* Writes into the lock file which process holds it, for the message of a run that is refused. */
static void say_holder(int lock)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    if (!ftruncate(lock, 0)) dprintf(lock, "process %ld on %s\n", (long)getpid(), host);
}

static int try_lock(int lock, int kind)
{
    int failed;
    do failed = flock(lock, kind | LOCK_NB);
    while (failed && errno == EINTR);
    return failed;
}

/* Locks the open file `lock`. A file system without locks is a warning. wd_output_is_running holds
 * such a lock for an instant, so it is tried more than once. */
static wd_status hold(const wd_output *o, int lock, wd_err *err)
{
    int failed = try_lock(lock, LOCK_EX);
    for (int again = 0; failed && errno == EWOULDBLOCK && again < 5; again++) {
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
        failed = try_lock(lock, LOCK_EX);
    }
    if (failed && errno == EWOULDBLOCK) return refuse_second(o->path, lock, err);
    if (failed)
        wd_log(WD_LOG_WARNING,
               "%s: cannot be locked: %s; see to it that no other run writes into it", o->path,
               strerror(errno));
    say_holder(lock);
    return WD_OK;
}

static wd_status cannot_open(const char *path, wd_err *err)
{
    return wd_fail(err, WD_IO,
                   "%s: cannot be opened for writing: %s; choose an --output_dir that this user "
                   "may write to",
                   path, strerror(errno));
}

/* Opens .lock and locks it. `create`: O_CREAT makes the file; with 0 a folder that has none is not
 * locked, since no run has written into it. */
static wd_status take_lock(wd_output *o, int create, wd_err *err)
{
    char path[WD_PATH_MAX];
    if (o->locked) return WD_OK;
    WD_TRY(wd_path_join(path, o->path, ".lock", err));
    const int lock = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | create, 0666);
    if (lock < 0 && !create && errno == ENOENT) return WD_OK;
    if (lock < 0) return cannot_open(path, err);
    const int folder = open(o->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const wd_status status = folder < 0 ? cannot_open(o->path, err) : hold(o, lock, err);
    if (status != WD_OK) {
        if (folder >= 0) close(folder);
        close(lock);
        return status;
    }
    o->locked = true;
    o->lock = lock;
    o->folder = folder;
    wd_request_take(folder); /* those that a killed run has not taken */
    return WD_OK;
}

bool wd_output_is_running(const char *folder)
{
    char path[WD_PATH_MAX];
    if (wd_path_join(path, folder, ".lock", NULL) != WD_OK) return false;
    const int lock = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (lock < 0) return false;
    const bool is_held = try_lock(lock, LOCK_SH) && errno == EWOULDBLOCK;
    close(lock);
    return is_held;
}

static void release(wd_output *o)
{
    if (!o->locked) return;
    wd_request_take(o->folder); /* nobody obeys them */
    close(o->lock);
    close(o->folder);
    o->locked = false;
}

/* ---- the folder's place ---- */

/* Whether `path` names the file or folder that is open as descriptor `fd`. */
static bool is_open_as(const char *path, int fd)
{
    struct stat there, here;
    return !stat(path, &there) && !fstat(fd, &here) && there.st_dev == here.st_dev &&
           there.st_ino == here.st_ino;
}

/* Whether `path` is the folder that this run has locked, with the .lock that it has locked. */
static bool is_ours(const wd_output *o, const char *path)
{
    char lock[WD_PATH_MAX];
    return is_open_as(path, o->folder) && wd_path_join(lock, path, ".lock", NULL) == WD_OK &&
           is_open_as(lock, o->lock);
}

/* *out = where the locked folder is now, as the system knows it; false: it is gone. */
static bool find_moved(char out[WD_PATH_MAX], const wd_output *o)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", o->folder);
    const ssize_t n = readlink(link, out, WD_PATH_MAX - 1);
    if (n < 0) return false;
    out[n] = 0;
    return is_ours(o, out);
}

/* ---- the interface ---- */

wd_status wd_output_open(wd_output *out, const char *path, const wd_pipeline *teacher, wd_err *err)
{
    wd_output output = {0};
    WD_TRY(wd_path_join(output.path, "", path, err));
    WD_TRY(check_place(path, teacher, err));
    WD_TRY(take_lock(&output, 0, err));
    const wd_status status = output.locked ? wd__earlier_finish(path, err) : WD_OK;
    if (status == WD_OK)
        *out = output;
    else
        wd_output_close(&output);
    return status;
}

void wd_output_close(wd_output *output)
{
    release(output);
    *output = (wd_output){0};
}

static wd_status make_and_lock(wd_output *output, wd_err *err)
{
    WD_TRY(wd_folder_make(output->path, err));
    return take_lock(output, O_CREAT, err);
}

wd_status wd_output_lock(wd_output *output, int64_t first_step, wd_err *err)
{
    WD_TRY(make_and_lock(output, err));
    return wd__earlier_check(output->path, first_step, err);
}

wd_status wd_output_begin(wd_output *output, int64_t first_step, wd_err *err)
{
    WD_TRY(wd_output_follow(output, err));
    return wd__earlier_move(output->path, first_step, err);
}

wd_status wd_output_follow(wd_output *output, wd_err *err)
{
    char moved[WD_PATH_MAX];
    if (is_ours(output, output->path)) return WD_OK;
    if (find_moved(moved, output)) {
        wd_log(WD_LOG_WARNING,
               "%s: was moved to %s while a run writes into it, and the run goes "
               "on there",
               output->path, moved);
        memcpy(output->path, moved, sizeof moved);
        return WD_OK;
    }
    wd_log(WD_LOG_WARNING,
           "%s: it, or .lock in it, was removed while a run writes into it; the "
           "run makes it anew",
           output->path);
    release(output);
    return make_and_lock(output, err);
}
