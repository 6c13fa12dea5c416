/* The checkpoints of a run: see checkpoint_list.h. */
#include "train/output/checkpoint_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "io/file/file.h"
#include "train/output/checkpoint_folder.h"
#include "train/output/replace_folder.h"

static int names_checkpoint(const struct dirent *entry)
{
    return wd__checkpoint_folder_step(entry->d_name) >= 0;
}

/* Sorts the newest first; of two of the same step, the one called step-... before .old-step-... */
static int newest_first(const struct dirent **a, const struct dirent **b)
{
    const int64_t left = wd__checkpoint_folder_step((*a)->d_name),
                  right = wd__checkpoint_folder_step((*b)->d_name);
    if (left != right) return left < right ? 1 : -1;
    return ((*a)->d_name[0] == '.') - ((*b)->d_name[0] == '.');
}

/* Whether a checkpoint that was refused is damaged, or incomplete. What could not be read for want
 * of memory, of file descriptors or of a working disk may be whole. */
static bool is_damaged(wd_status status)
{
    return status != WD_OK && status != WD_OUT_OF_MEMORY && status != WD_IO;
}

wd_status wd__checkpoint_list_has_one(bool *out, const char *folder, wd_err *err)
{
    wd_folder_list list;
    wd_status status = WD_OK;
    *out = false;
    WD_TRY(wd_folder_list_open(&list, folder, names_checkpoint, newest_first, err));
    for (int i = 0; i < list.count && !*out; i++) {
        char path[WD_PATH_MAX];
        json_t *run = NULL;
        WD_TRY_OUT(wd_path_join(path, folder, list.entry[i]->d_name, err));
        const wd_status read = wd_checkpoint_read_run(&run, NULL, path, err);
        *out = read == WD_OK;
        json_decref(run);
        if (read != WD_OK && !is_damaged(read)) WD_TRY_OUT(read);
    }
out:
    wd_folder_list_close(&list);
    return status;
}

wd_status wd_checkpoint_list_count(int *out, const char *folder, int64_t end, wd_err *err)
{
    wd_folder_list list;
    WD_TRY(wd_folder_list_open(&list, folder, names_checkpoint, newest_first, err));
    *out = 0;
    for (int i = 0; i < list.count; i++)
        *out += wd__checkpoint_folder_step(list.entry[i]->d_name) < end;
    wd_folder_list_close(&list);
    return WD_OK;
}

/* ---- the newest ---- */

/* Names of damaged checkpoints, as far as there is room. */
typedef struct damage {
    char names[512];
    wd_err first; /* what is wrong with the first */
    int count;
} damage;

static void add_damage(damage *d, const char *name, const wd_err *why)
{
    const size_t used = strlen(d->names);
    snprintf(d->names + used, sizeof d->names - used, "%s%s", used ? ", " : "", name);
    if (!d->count++) d->first = *why;
    wd_log(WD_LOG_WARNING, "passing over a checkpoint: %s", why->message);
}

static wd_status none_is_whole(const damage *d, const char *folder, wd_err *err)
{
    if (!d->count) return wd_fail(err, WD_NOT_FOUND, "%s: no checkpoint is there", folder);
    return wd_fail(err, WD_BAD_FORMAT,
                   "%s: every checkpoint in it is damaged: %s (%.600s). Put a good copy of one in "
                   "its place; or begin a new run, without --resume: it moves these aside",
                   folder, d->names, d->first.message);
}

/* The status of a checkpoint that may be whole, although it was refused. */
static wd_status newest_is_unread(wd_status status, const wd_err *why, const char *folder,
                                  wd_err *err)
{
    if (status == WD_IO)
        return wd_fail(err, WD_IO,
                       "%.1200s. It is of the newest checkpoint in %s: see that it can be read; or "
                       "go on from an earlier one, by its name: --resume %s/step-...",
                       why->message, folder, folder);
    if (err) *err = *why;
    return status;
}

wd_status wd_checkpoint_open_latest(wd_checkpoint *out, const char *folder, wd_err *err)
{
    wd_folder_list list;
    damage damaged = {0};
    wd_err why = {0};
    wd_status status = WD_NOT_FOUND;
    WD_TRY(wd_folder_list_open(&list, folder, names_checkpoint, newest_first, err));
    for (int i = 0; i < list.count && is_damaged(status); i++) {
        char path[WD_PATH_MAX];
        status = wd_path_join(path, folder, list.entry[i]->d_name, &why);
        if (status == WD_OK) status = wd_checkpoint_open(out, path, &why);
        if (is_damaged(status)) add_damage(&damaged, list.entry[i]->d_name, &why);
    }
    if (is_damaged(status))
        status = none_is_whole(&damaged, folder, err);
    else if (status != WD_OK)
        status = newest_is_unread(status, &why, folder, err);
    wd_folder_list_close(&list);
    return status;
}

/* ---- which stay ---- */

/* *out = whether the files of the checkpoint `path` have the hashes that it states. */
static wd_status check_whole(bool *out, const char *path, wd_err *err)
{
    wd_checkpoint checkpoint = {0};
    wd_err why = {0};
    const wd_status status = wd_checkpoint_open(&checkpoint, path, &why);
    wd_checkpoint_close(&checkpoint);
    *out = status == WD_OK;
    if (status == WD_OUT_OF_MEMORY && err) *err = why;
    return status == WD_OUT_OF_MEMORY ? status : WD_OK;
}

/* Renames the folder to the name of an unfinished checkpoint before it removes it, so that a kill
 * leaves none that looks whole. */
static wd_status remove_step(const char *folder, const char *path, int64_t step, wd_err *err)
{
    char doomed[WD_PATH_MAX];
    WD_TRY(wd_checkpoint_folder_path(doomed, folder, WD_CHECKPOINT_UNFINISHED, step, err));
    WD_TRY(wd__folder_replace(doomed, path, err));
    return wd_folder_remove(doomed, err);
}

/* A checkpoint that may be removed. */
typedef struct candidate {
    char path[WD_PATH_MAX];
    int64_t step;
    bool whole;
} candidate;

static wd_status look_at(candidate *out, const char *folder, const char *name,
                         int64_t first_verified_step, wd_err *err)
{
    out->step = wd__checkpoint_folder_step(name);
    out->whole = out->step >= first_verified_step;
    WD_TRY(wd_path_join(out->path, folder, name, err));
    return out->whole ? WD_OK : check_whole(&out->whole, out->path, err);
}

wd_status wd_checkpoint_prune(const char *folder, int keep, int64_t first_verified_step,
                              wd_err *err)
{
    wd_folder_list list;
    candidate c;
    int kept = 0;
    wd_status status = WD_OK;
    WD_TRY(wd__checkpoint_folder_tidy(folder, err));
    WD_TRY(wd_folder_list_open(&list, folder, names_checkpoint, newest_first, err));
    for (int i = 0; i < list.count; i++) {
        WD_TRY_OUT(look_at(&c, folder, list.entry[i]->d_name, first_verified_step, err));
        if (!c.whole) continue;
        if (kept < keep || kept < 1)
            kept++;
        else
            WD_TRY_OUT(remove_step(folder, c.path, c.step, err));
    }
out:
    wd_folder_list_close(&list);
    return status;
}

wd_status wd_checkpoint_remove_oldest(int64_t *step, const char *folder,
                                      int64_t first_verified_step, wd_err *err)
{
    wd_folder_list list;
    candidate c = {.whole = false};
    int newest = -1;
    wd_status status = WD_OK;
    *step = -1;
    WD_TRY(wd__checkpoint_folder_tidy(folder, err));
    WD_TRY(wd_folder_list_open(&list, folder, names_checkpoint, newest_first, err));
    while (!c.whole && ++newest < list.count)
        WD_TRY_OUT(look_at(&c, folder, list.entry[newest]->d_name, first_verified_step, err));
    for (int i = list.count - 1; i > newest && *step < 0; i--) {
        WD_TRY_OUT(look_at(&c, folder, list.entry[i]->d_name, first_verified_step, err));
        if (!c.whole) continue;
        WD_TRY_OUT(remove_step(folder, c.path, c.step, err));
        *step = c.step;
    }
out:
    wd_folder_list_close(&list);
    return status;
}
