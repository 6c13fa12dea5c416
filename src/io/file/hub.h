/* Finds the folder of a model, given as a path or as a Hub id in the local Hub cache. It uses no
 * network. */
#ifndef WD_IO_FILE_HUB_H
#define WD_IO_FILE_HUB_H

#include "core/error.h"
#include "io/file/file.h"

/* Resolves `name` to an existing folder: `name` itself if it is one, else, if it looks like
 * "org/name" or "org/name@revision", <cache>/models--org--name/snapshots/<commit>, where the file
 * refs/<revision, default main> contains the commit. <cache> is HF_HUB_CACHE, else
 * HUGGINGFACE_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
 * ~/.cache/huggingface/hub. If it is not found, the error lists the folders that were searched, and
 * the `hf download` line. */
wd_status wd_hub_find(char out[WD_PATH_MAX], const char *name, wd_err *err);

/* Writes what a message adds about a file that a snapshot of the Hub cache lacks, such as a link to
 * a blob that is gone: "; to download it: hf download ORG/NAME FILE --revision COMMIT". "" for a
 * path elsewhere. `file` NULL: the part of `path` behind the snapshot. Returns `out`. */
const char *wd_hub_advice(char *out, size_t bytes, const char *path, const char *file);

#endif
