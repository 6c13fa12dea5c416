/* Paths among a job's options, which are relative to some folder: that of a file of options, or the
 * one in which a run began. */
#ifndef WD_API_OPTIONS_OPTION_PATHS_H
#define WD_API_OPTIONS_OPTION_PATHS_H

#include "io/json/json.h"
#include "wandistiller.h"

/* Puts `folder` before each relative path among `options`, an object of option names and values:
 * paths of files to read where such a file is in `folder`, since a value may be a Hub id or a text,
 * and paths of what the job writes. Of several prompts none is a path. "~" is no path here: a shell
 * would have replaced it. */
wd_status wd_option_paths_resolve(json_t *options, wd_job job, const char *folder, wd_err *err);

#endif
