/* The command line of a job, which the user can paste. */
#ifndef WD_API_OPTIONS_JOB_COMMAND_H
#define WD_API_OPTIONS_JOB_COMMAND_H

#include "wandistiller.h"

/* A value that an option gets, by name. */
typedef struct wd_option_value {
    const char *option, *value;
} wd_option_value;

/* Writes "wandistiller sample --model ..." with all options that differ from the job's defaults,
 * after the `changes` changes [changes], quoted for a shell, into `out`. The command gives the same
 * options. If it does not fit, `out` is "wandistiller sample ...". */
void wd_job_command(char *out, size_t out_bytes, wd_job job, const void *options,
                    const wd_option_value *change, int changes);

/* The same for `train`, without changes: "wandistiller train --teacher_path ...". */
void wd_train_command(char *out, size_t out_bytes, const wd_train_options *options);

#endif
