/* See api/setup/train_setup.h. */
#include "api/setup/train_setup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/random.h"
#include "train/output/best.h"

static const char file_name[] = "validation-prompts.jsonl";

/* A number that --validation_prompts may be. */
static const int64_t count_max = 100000;

/* Whether the option's value is a number of prompts, *out. */
static bool is_number(int64_t *out, const char *text)
{
    *out = 0;
    if (!text || !*text || strspn(text, "0123456789") != strlen(text)) return !text || !*text;
    *out = strlen(text) < 10 ? strtoll(text, NULL, 10) : INT64_MAX;
    return true;
}

/* ---- texts, as the tokenizer sees them ---- */

/* Clean texts in order, each once; owned. */
typedef struct text_set {
    char **text;
    int64_t count;
} text_set;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool has(const text_set *set, const char *text)
{
    return set->count && bsearch(&text, set->text, (size_t)set->count, sizeof text, by_text);
}

/* Adds a text unless it is there. `set` has room for it. */
static wd_status add(bool *is_new, text_set *set, const char *text, wd_err *err)
{
    char *clean;
    WD_TRY(wd_prompt_clean(&clean, text, err));
    *is_new = !has(set, clean);
    if (!*is_new) {
        wd_free(clean);
        return WD_OK;
    }
    int64_t at = set->count++;
    for (; at > 0 && strcmp(set->text[at - 1], clean) > 0; at--) set->text[at] = set->text[at - 1];
    set->text[at] = clean;
    return WD_OK;
}

static void close_set(text_set *set)
{
    for (int64_t i = 0; i < set->count; i++) wd_free(set->text[i]);
    wd_free(set->text);
}

/* Takes the texts of the set out of the data; *gone = how many. */
static wd_status leave_out(int64_t *gone, wd_prompts *data, const text_set *set, wd_err *err)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < data->count; i++) {
        char *clean;
        WD_TRY(wd_prompt_clean(&clean, data->text[i], err));
        if (!has(set, clean)) data->text[kept++] = data->text[i];
        wd_free(clean);
    }
    *gone = data->count - kept;
    data->count = kept;
    return WD_OK;
}

/* ---- the choice ---- */

static bool says(const wd_train_setup *s)
{
    return !s->comm || !s->comm->rank;
}

static wd_status too_few(const wd_train_setup *s, int64_t different, wd_err *err)
{
    return wd_fail(err, WD_INVALID_ARGUMENT,
                   "--validation_prompts %.200s: expected fewer than the different prompts of the "
                   "data, found %" PRId64 " of these: none would be left to train on",
                   s->options.validation_prompts, different);
}

/* So many different prompts of the data, in an order that follows from the seed. */
static wd_status pick(text_set *set, wd_train_setup *s, int64_t count, wd_err *err)
{
    const wd_prompts *data = &s->data;
    const wd_random key = {.seed = s->options.seed, .stream = WD_RANDOM_VALIDATION};
    for (int64_t i = 0; i < data->count && set->count < count; i++) {
        bool is_new;
        const char *text = data->text[wd_permute(i, data->count, key)];
        WD_TRY(add(&is_new, set, text, err));
        if (is_new) s->held_out[set->count - 1] = text;
    }
    return set->count == count ? WD_OK : too_few(s, set->count, err);
}

static wd_status take_number(text_set *set, wd_train_setup *s, int64_t count, wd_err *err)
{
    int64_t gone;
    const int64_t before = s->data.count;
    if (s->store)
        return wd_fail(
            err, WD_INVALID_ARGUMENT,
            "--validation_prompts %" PRId64
            " with --targets: the targets are of all prompts that the folder has: give "
            "the file of those that the run with --save_targets held out, which is %s in "
            "its output folder",
            count, file_name);
    WD_TRY(pick(set, s, count, err));
    WD_TRY(leave_out(&gone, &s->data, set, err));
    if (!s->data.count) return too_few(s, set->count, err);
    if (says(s))
        wd_log(WD_LOG_INFO, "validation: %" PRId64 " of %" PRId64 " prompts are held out%s", gone,
               before, gone > count ? ", those that are repeated included" : "");
    return WD_OK;
}

static wd_status take_file(text_set *set, wd_train_setup *s, wd_err *err)
{
    int64_t gone;
    const int64_t before = s->data.count;
    const wd_prompts *file = &s->validation_file;
    for (int64_t i = 0; i < file->count; i++) {
        bool is_new;
        s->held_out[i] = file->text[i];
        WD_TRY(add(&is_new, set, file->text[i], err));
    }
    WD_TRY(leave_out(&gone, &s->data, set, err));
    if (gone && s->store)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--validation_prompts %.400s with --targets: %" PRId64
                       " of the prompts of the targets are in it, and targets cannot be left out: "
                       "give other prompts",
                       s->options.validation_prompts, gone);
    if (before && !s->data.count)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--validation_prompts %.400s: it has all %" PRId64
                       " prompts of the data: none would be left to train on",
                       s->options.validation_prompts, before);
    if (gone && says(s))
        wd_log(WD_LOG_INFO,
               "validation: %s has %" PRId64
               " of the data's prompts, too, which training leaves out",
               s->options.validation_prompts, gone);
    return WD_OK;
}

static wd_status choose(text_set *set, wd_train_setup *s, int64_t count, bool is_file, wd_err *err)
{
    const size_t all = (size_t)count;
    WD_TRY(wd_alloc((void **)&set->text, all, sizeof *set->text, "prompts of validation", err));
    WD_TRY(wd_alloc((void **)&s->held_out, all, sizeof *s->held_out, "prompts of validation", err));
    return is_file ? take_file(set, s, err) : take_number(set, s, count, err);
}

wd_status wd__validation_prompts_choose(wd_train_setup *s, bool given, wd_err *err)
{
    text_set set = {0};
    int64_t count;
    const char *value = s->options.validation_prompts;
    const bool is_file = !is_number(&count, value);
    if (is_file) {
        const char *column = wd_prompts_have_columns(value) ? s->options.prompt_column : NULL;
        WD_TRY(wd_prompts_open(&s->validation_file, value, column, err));
        count = s->validation_file.count;
    }
    if (count > count_max)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--validation_prompts: expected at most %" PRId64 " prompts, found more",
                       count_max);
    s->validation.prompts = count;
    if (!count || (!given && !is_file)) return WD_OK;
    const wd_status status = choose(&set, s, count, is_file, err);
    close_set(&set);
    return status;
}

/* ---- beside it ---- */

wd_status wd__validation_check(const wd_train_setup *s, wd_err *err)
{
    const wd_train_options *o = &s->options;
    const char *option = o->keep_best             ? "--keep_best"
                         : o->validation_interval ? "--validation_interval"
                                                  : NULL;
    if (option && !s->validation.prompts)
        return wd_fail(
            err, WD_INVALID_ARGUMENT,
            "%s needs --validation_prompts, a number of prompts to hold out or a file of "
            "them: give it, or leave %s out",
            option, option);
    return o->keep_best && says(s) ? wd_best_check(o->output_dir, err) : WD_OK;
}

wd_status wd_validation_prompts_write(const wd_train_setup *s, const char *folder, wd_err *err)
{
    char path[WD_PATH_MAX];
    if (!s->held_out) return WD_OK;
    WD_TRY(wd_path_join(path, folder, file_name, err));
    return wd_prompts_write(path, s->held_out, s->validation.prompts, err);
}
