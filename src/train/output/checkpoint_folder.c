/* The folder of a run's checkpoints: see checkpoint_folder.h. */
#include "train/output/checkpoint_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file/file.h"
#include "train/output/replace_folder.h"

static const char step_prefix[] = "step-";

wd_status wd_checkpoint_folder_path(char out[WD_PATH_MAX], const char *folder, const char *prefix,
                                    int64_t step, wd_err *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s%08" PRId64, prefix, step_prefix, step);
    return wd_path_join(out, folder, name, err);
}

/* The rest of `name` after `prefix`; NULL: the name does not begin with it. */
static const char *after_prefix(const char *name, const char *prefix)
{
    const size_t length = strlen(prefix);
    return strncmp(name, prefix, length) ? NULL : name + length;
}

static bool is_aside(const char *name)
{
    return after_prefix(name, WD_FOLDER_ASIDE) != NULL;
}

int64_t wd__checkpoint_folder_step(const char *name)
{
    const char *digits =
        after_prefix(is_aside(name) ? after_prefix(name, WD_FOLDER_ASIDE) : name, step_prefix);
    if (!digits || !*digits || strspn(digits, "0123456789") != strlen(digits)) return -1;
    return strtoll(digits, NULL, 10);
}

/* Whether the entry is an unfinished checkpoint, or one that has made room for another. */
static int names_leftover(const struct dirent *entry)
{
    const char *unfinished = after_prefix(entry->d_name, WD_CHECKPOINT_UNFINISHED);
    if (unfinished) return after_prefix(unfinished, step_prefix) != NULL;
    return is_aside(entry->d_name) && wd__checkpoint_folder_step(entry->d_name) >= 0;
}

wd_status wd__checkpoint_folder_tidy(const char *folder, wd_err *err)
{
    wd_folder_list list;
    wd_status status = WD_OK;
    WD_TRY(wd_folder_list_open(&list, folder, names_leftover, alphasort, err));
    for (int i = 0; i < list.count; i++) {
        char path[WD_PATH_MAX];
        const char *name = list.entry[i]->d_name, *own = after_prefix(name, WD_FOLDER_ASIDE);
        WD_TRY_OUT(wd_path_join(path, folder, own ? own : name, err));
        WD_TRY_OUT(own ? wd__folder_restore(path, err) : wd_folder_remove(path, err));
    }
out:
    wd_folder_list_close(&list);
    return status;
}
