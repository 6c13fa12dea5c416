/* `tell`: leaves a request in the folder of a run that is under way. */
#include "core/log.h"
#include "io/file/file.h"
#include "train/output/output.h"
#include "train/output/request.h"
#include "wandistiller.h"

static wd_status check_run(const char *folder, wd_err *err)
{
    char lock[WD_PATH_MAX];
    WD_TRY(wd_path_join(lock, folder, ".lock", err));
    if (!wd_path_is_folder(folder) || !wd_path_exists(lock))
        return wd_fail(err, WD_NOT_FOUND,
                       "%s: expected the output folder of a run of train that is under way, found "
                       "no file .lock in it",
                       folder);
    if (wd_output_is_running(folder)) return WD_OK;
    return wd_fail(err, WD_MISMATCH,
                   "%s: no run is under way there: the lock of its file .lock is free. `train "
                   "--resume` goes on with a run that has ended",
                   folder);
}

wd_status wd_tell(const wd_tell_options *options, wd_err *err)
{
    WD_TRY(wd_options_check(WD_JOB_TELL, options, err));
    WD_TRY(check_run(options->run, err));
    WD_TRY(wd_request_leave(options->run, wd_request_find(options->request), err));
    WD_TRY(check_run(options->run, err)); /* it may have ended meanwhile */
    wd_log(WD_LOG_INFO, "the run in %s is told to %s; it will do so between two steps",
           options->run, options->request);
    return WD_OK;
}
