/* Moving an earlier run: see earlier.h. */
#include "train/output/earlier.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "io/file/file.h"
#include "train/output/best.h"
#include "train/output/checkpoint_folder.h"
#include "train/output/replace_folder.h"

/* What happens to a part of a run when its steps before `first_step` stay in the folder. */
typedef enum kind {
    STUDENT, /* it is moved as a whole: the last step made it */
    STEPS,   /* a folder with an entry for each of some steps: later entries are moved */
    BEST,    /* a student of one step: it is moved as a whole if that is a later one */
    EVAL,    /* of an evaluation of the student, and moved with it. `eval` writes it and no run, so
              * a folder is not refused for it */
    RECORD   /* a file that tells of all steps: it is copied */
} kind;

/* In the order in which they are moved. model_index.json is first of the student, so that nobody
 * takes half of it for a pipeline; run.json is last, for it says that the folder is a run's. */
static const struct {
    const char *name;
    kind kind;
} parts[] = {{"checkpoints", STEPS},
             {"samples", STEPS},
             {"model_index.json", STUDENT},
             {"README.md", STUDENT},
             {"transformer", STUDENT},
             {"scheduler", STUDENT},
             {"text_encoder", STUDENT},
             {"tokenizer", STUDENT},
             {"vae", STUDENT},
             {"comfyui", STUDENT},
             {"gguf", STUDENT},
             {"eval", EVAL},
             {"side-by-side.png", EVAL},
             {"eval.json", EVAL},
             {WD_BEST_FOLDER, BEST},
             {"validation-prompts.jsonl", RECORD},
             {"report.html", RECORD},
             {"plan.svg", RECORD},
             {"metrics.jsonl", RECORD},
             {"run.json", RECORD}};

enum { PARTS = sizeof parts / sizeof *parts };

static const char events_prefix[] = "events.out.tfevents.";
static const char unfinished_prefix[] = ".tmp-earlier-from-";

/* Whether `folder` has an entry called `name`, if only a symbolic link to nothing. */
static bool is_there(const char *folder, const char *name)
{
    char path[WD_PATH_MAX];
    struct stat info;
    return wd_path_join(path, folder, name, NULL) == WD_OK && !lstat(path, &info);
}

/* Whether a part has a name of an evaluation, and there is no eval.json, by which an evaluation is
 * known. That file is moved last, so that a move that was interrupted finds it. */
static bool is_anothers(const char *folder, int part)
{
    const char *name = parts[part].name;
    return parts[part].kind == EVAL &&
           !is_there(folder, strcmp(name, "eval") ? "eval.json" : "eval/eval.json");
}

static bool is_empty_folder(const char *folder, const char *name)
{
    char path[WD_PATH_MAX];
    if (wd_path_join(path, folder, name, NULL) != WD_OK) return false;
    DIR *dir = opendir(path);
    int entries = 0;
    while (dir && entries <= 2 && readdir(dir)) entries++; /* . and .. are two */
    if (dir) closedir(dir);
    return dir && entries <= 2;
}

const char *wd__earlier_part(const char *folder)
{
    for (int i = 0; i < PARTS; i++) {
        const char *name = parts[i].name;
        if (parts[i].kind == EVAL) continue;
        if (is_there(folder, name) && !is_empty_folder(folder, name)) return name;
    }
    return NULL;
}

/* ---- names in a folder ---- */

static int is_event_file(const struct dirent *entry)
{
    return !strncmp(entry->d_name, events_prefix, sizeof events_prefix - 1);
}

static void name_unfinished(char name[64], int64_t first_step)
{
    snprintf(name, 64, "%s%" PRId64, unfinished_prefix, first_step);
}

/* The first step in the name of a folder that a move was filling when it was killed; -1: it is
 * none, if only because this program would write the name in another way. */
static int64_t unfinished_step(const char *name)
{
    char own[64];
    const size_t prefix = sizeof unfinished_prefix - 1;
    if (strncmp(name, unfinished_prefix, prefix)) return -1;
    const int64_t step = strtoll(name + prefix, NULL, 10);
    name_unfinished(own, step);
    return step >= 0 && !strcmp(own, name) ? step : -1;
}

static int is_unfinished(const struct dirent *entry)
{
    return unfinished_step(entry->d_name) >= 0;
}

/* The step of a checkpoint or of a sheet; -1: it is neither. */
static int64_t step_of(const char *name)
{
    int64_t step = wd__checkpoint_folder_step(name);
    int length = 0;
    if (step >= 0) return step;
    return sscanf(name, "step-%" SCNd64 ".png%n", &step, &length) == 1 && length ? step : -1;
}

static int is_of_a_step(const struct dirent *entry)
{
    return step_of(entry->d_name) >= 0;
}

/* ---- one part ---- */

/* Moves a symbolic link so that it still leads to the same place. Called again after a kill it
 * finishes the move. */
static bool move_link(const char *target, const char *source)
{
    char leads_to[PATH_MAX];
    if (!realpath(source, leads_to)) return !rename(source, target);
    return (!symlink(leads_to, target) || errno == EEXIST) && !unlink(source);
}

/* Moves `name` from one folder to the other. If it is not there, it has been moved already. */
static wd_status move_one(const char *to, const char *from, const char *name, wd_err *err)
{
    char source[WD_PATH_MAX], target[WD_PATH_MAX];
    struct stat info;
    WD_TRY(wd_path_join(source, from, name, err));
    WD_TRY(wd_path_join(target, to, name, err));
    if (lstat(source, &info)) {
        if (errno == ENOENT) return WD_OK;
        return wd_fail(err, WD_IO, "%s: cannot be moved: %s", source, strerror(errno));
    }
    if (S_ISLNK(info.st_mode) ? move_link(target, source) : !rename(source, target)) return WD_OK;
    return wd_fail(err, WD_IO, "%s: cannot be moved to %s: %s", source, target, strerror(errno));
}

static wd_status copy_one(const char *to, const char *from, const char *name, wd_err *err)
{
    char source[WD_PATH_MAX], target[WD_PATH_MAX];
    WD_TRY(wd_path_join(source, from, name, err));
    WD_TRY(wd_path_join(target, to, name, err));
    return wd_path_exists(source) ? wd_file_copy(target, source, err) : WD_OK;
}

static wd_status move_later(const char *to, const char *from, int64_t first_step, wd_err *err)
{
    wd_folder_list list;
    wd_status status = WD_OK;
    WD_TRY(wd_folder_list_open(&list, from, is_of_a_step, alphasort, err));
    for (int i = 0; i < list.count; i++) {
        if (step_of(list.entry[i]->d_name) < first_step) continue;
        WD_TRY_OUT(wd_folder_make(to, err));
        WD_TRY_OUT(move_one(to, from, list.entry[i]->d_name, err));
    }
out:
    wd_folder_list_close(&list);
    return status;
}

/* Whether the best student is of a step that does not stay, or says of none. */
static bool best_is_later(const char *folder, int64_t first_step)
{
    wd_validation_result best;
    return wd_best_read(&best, folder, NULL) != WD_OK || best.step >= first_step;
}

static wd_status move_part(const char *to, const char *from, int part, int64_t first_step,
                           wd_err *err)
{
    char source[WD_PATH_MAX], target[WD_PATH_MAX];
    const char *name = parts[part].name;
    if (is_anothers(from, part)) return WD_OK;
    if (!first_step || parts[part].kind == STUDENT || parts[part].kind == EVAL)
        return move_one(to, from, name, err);
    if (parts[part].kind == RECORD) return copy_one(to, from, name, err);
    if (parts[part].kind == BEST)
        return best_is_later(from, first_step) ? move_one(to, from, name, err) : WD_OK;
    WD_TRY(wd_path_join(source, from, name, err));
    WD_TRY(wd_path_join(target, to, name, err));
    return move_later(target, source, first_step, err);
}

static wd_status move_event_files(const char *to, const char *from, int64_t first_step, wd_err *err)
{
    wd_folder_list list;
    wd_status status = WD_OK;
    WD_TRY(wd_folder_list_open(&list, from, is_event_file, alphasort, err));
    for (int i = 0; i < list.count; i++) {
        const char *name = list.entry[i]->d_name;
        WD_TRY_OUT(first_step ? copy_one(to, from, name, err) : move_one(to, from, name, err));
    }
out:
    wd_folder_list_close(&list);
    return status;
}

/* ---- all of them ---- */

/* *out = how many checkpoints, or sheets, of `first_step` and later a part of the run has. */
static wd_status count_later(int *out, const char *folder, const char *part, int64_t first_step,
                             wd_err *err)
{
    char path[WD_PATH_MAX];
    wd_folder_list list;
    WD_TRY(wd_path_join(path, folder, part, err));
    WD_TRY(wd_folder_list_open(&list, path, is_of_a_step, alphasort, err));
    *out = 0;
    for (int i = 0; i < list.count; i++) *out += step_of(list.entry[i]->d_name) >= first_step;
    wd_folder_list_close(&list);
    return WD_OK;
}

static bool has_metrics(const char *folder)
{
    char path[WD_PATH_MAX];
    struct stat info;
    return wd_path_join(path, folder, "metrics.jsonl", NULL) == WD_OK && !stat(path, &info) &&
           info.st_size > 0;
}

/* *out = whether the run has anything that is worth keeping. */
static wd_status is_worth_it(bool *out, const char *folder, int64_t first_step, wd_err *err)
{
    int checkpoints, sheets;
    WD_TRY(count_later(&checkpoints, folder, "checkpoints", first_step, err));
    WD_TRY(count_later(&sheets, folder, "samples", first_step, err));
    *out = checkpoints > 0;
    if (first_step) return WD_OK;
    *out = checkpoints || sheets || has_metrics(folder);
    for (int i = 0; i < PARTS; i++)
        *out = *out || ((parts[i].kind == STUDENT || parts[i].kind == BEST) &&
                        is_there(folder, parts[i].name));
    return WD_OK;
}

/* Whether `path` lies on the file system `device`, or is not there. `by_itself`: what lies in it is
 * moved, so that of a symbolic link its target counts. */
static bool can_be_moved(const char *path, dev_t device, bool by_itself)
{
    struct stat info;
    if (by_itself ? stat(path, &info) : lstat(path, &info)) return true; /* it is not there */
    return info.st_dev == device;
}

wd_status wd__earlier_check(const char *folder, int64_t first_step, wd_err *err)
{
    struct stat root;
    bool worth_it;
    WD_TRY(is_worth_it(&worth_it, folder, first_step, err));
    if (!worth_it || stat(folder, &root)) return WD_OK;
    for (int i = 0; i < PARTS; i++) {
        char path[WD_PATH_MAX];
        WD_TRY(wd_path_join(path, folder, parts[i].name, err));
        if (first_step && parts[i].kind == RECORD) continue; /* it is copied */
        if (is_anothers(folder, i)) continue;
        if (can_be_moved(path, root.st_dev, first_step && parts[i].kind == STEPS)) continue;
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: lies on another file system than %s, so that what an earlier run left "
                       "there cannot be moved aside: move it away, or choose another --output_dir",
                       path, folder);
    }
    return WD_OK;
}

static wd_status free_name(char out[WD_PATH_MAX], const char *folder, wd_err *err)
{
    char name[32];
    int n = 1;
    do snprintf(name, sizeof name, "earlier-%d", n++);
    while (is_there(folder, name));
    return wd_path_join(out, folder, name, err);
}

static void say_moved(const char *folder, const char *moved, int64_t first_step)
{
    char word[WD_SHELL_WORD_BYTES(WD_PATH_MAX)];
    wd_shell_word(word, sizeof word, moved);
    if (first_step)
        wd_log(WD_LOG_WARNING,
               "%s: goes on from step %" PRId64 "; its later checkpoints, with their metrics and "
               "student, were moved to %s. To go on from those instead: wandistiller train "
               "--resume %s",
               folder, first_step - 1, moved, word);
    else
        wd_log(WD_LOG_WARNING,
               "%s: the earlier run in this folder was moved to %s. To go on with it instead of "
               "beginning a new one: wandistiller train --resume %s",
               folder, moved, word);
}

/* Moves the parts into the folder `fresh`, then renames that. Called again after a kill it goes on
 * where it was. */
static wd_status collect(const char *folder, const char *fresh, int64_t first_step, wd_err *err)
{
    char moved[WD_PATH_MAX];
    WD_TRY(wd_folder_make(fresh, err));
    WD_TRY(move_event_files(fresh, folder, first_step, err));
    for (int i = 0; i < PARTS; i++) WD_TRY(move_part(fresh, folder, i, first_step, err));
    WD_TRY(wd__folder_sync(fresh, err));
    WD_TRY(free_name(moved, folder, err));
    if (rename(fresh, moved))
        return wd_fail(err, WD_IO, "%s: cannot be renamed to %s: %s", fresh, moved,
                       strerror(errno));
    WD_TRY(wd__folder_sync(folder, err));
    say_moved(folder, moved, first_step);
    return WD_OK;
}

wd_status wd__earlier_move(const char *folder, int64_t first_step, wd_err *err)
{
    char name[64], fresh[WD_PATH_MAX];
    bool worth_it;
    WD_TRY(is_worth_it(&worth_it, folder, first_step, err));
    if (!worth_it) return WD_OK;
    name_unfinished(name, first_step);
    WD_TRY(wd_path_join(fresh, folder, name, err));
    return collect(folder, fresh, first_step, err);
}

wd_status wd__earlier_finish(const char *folder, wd_err *err)
{
    wd_folder_list list;
    wd_status status = WD_OK;
    WD_TRY(wd_folder_list_open(&list, folder, is_unfinished, alphasort, err));
    for (int i = 0; i < list.count; i++) {
        char fresh[WD_PATH_MAX];
        struct stat info;
        const char *name = list.entry[i]->d_name;
        WD_TRY_OUT(wd_path_join(fresh, folder, name, err));
        if (lstat(fresh, &info) || !S_ISDIR(info.st_mode)) continue; /* a link leads elsewhere */
        WD_TRY_OUT(collect(folder, fresh, unfinished_step(name), err));
    }
out:
    wd_folder_list_close(&list);
    return status;
}
