/* The command line of a run, which the user can paste. */
#ifndef WD_API_OPTIONS_TRAIN_COMMAND_H
#define WD_API_OPTIONS_TRAIN_COMMAND_H

#include "wandistiller.h"

/* Writes "wandistiller train --teacher_path ..." with all options that differ from the defaults,
 * quoted for a shell, into `out`. The command gives the same options. If it does not fit, `out` is
 * "wandistiller train ...". */
void wd_train_command(char *out, size_t out_bytes, const wd_train_options *options);

#endif
