/* Merged LoRAs of a job that has no folder of its own: they lie in a temporary folder until it
 * ends. If it is killed, the next such job removes the folder. */
#ifndef WD_API_JOBS_MERGED_H
#define WD_API_JOBS_MERGED_H

#include "model/files/pipeline.h"

typedef struct wd_merged {
    char folder[WD_PATH_MAX]; /* "": there is none */
    int lock;                 /* of the folder: see core/temporary_folder.h */
} wd_merged;

/* Makes a new folder below TMPDIR (or /tmp). */
wd_status wd__merged_make_folder(wd_merged *out, wd_err *err);

/* Merges the pipeline's LoRAs, if it has any, into such a folder, in `dtype` (see wd_overlay).
 * The pipeline refers to `out`, which must not be moved. Close it, too, where this fails. */
wd_status wd__merged_open(wd_merged *out, wd_pipeline *pipeline, wd_dtype dtype, wd_err *err);
void wd__merged_close(wd_merged *merged); /* a zeroed one is fine */

#endif
