/* The command line of a run: see api/options/train_command.h. */
#include "api/options/train_command.h"

#include "api/options/job_command.h"

void wd_train_command(char *out, size_t out_bytes, const wd_train_options *options)
{
    wd_job_command(out, out_bytes, WD_JOB_TRAIN, options, NULL, 0);
}
