/* Where a model is: a folder, or a Hub id found in the local Hub cache. No network is used. */
#ifndef WD_IO_HUB_H
#define WD_IO_HUB_H

#include "core/error.h"
#include "io/file.h"

/* Resolves `name` to an existing folder: itself if it is one, else, if it looks like "org/name" or
 * "org/name@revision", <cache>/models--org--name/snapshots/<commit>, where refs/<revision, default
 * main> says the commit. <cache> is HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else HF_HOME/hub,
 * else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. Not found: says where it
 * looked and the `hf download` line. */
wd_status wd_hub_find(char out[WD_PATH_MAX], const char *name, wd_err *err);

#endif
