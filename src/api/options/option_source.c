/* The options that a source gives: the command line, or a file. Two options of a source that
 * contradict one another are an error; options of the command line replace those of the file. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "api/options/tables.h"
#include "api/options/teacher_choice.h"
#include "core/error.h"

/* The option of the source that has given the field at `offset`; NULL: none. */
static const wd_option *given(const wd_option_source *source, size_t offset)
{
    for (int64_t i = 0; i < source->count; i++)
        if (source->given[i]->offset == offset) return source->given[i];
    return NULL;
}

static void note(wd_option_source *source, const wd_option *option)
{
    int64_t i = 0;
    while (i < source->count && source->given[i]->offset != option->offset) i++;
    assert(i < WD_OPTIONS_MAX);
    source->given[i] = option;
    if (i == source->count) source->count++;
}

wd_status wd_option_give(wd_option_source *source, void *options, const wd_option *option,
                         const char *value, wd_err *err)
{
    char before[128], after[128];
    const wd_option *other = given(source, option->offset);
    if (option->type == WD_OPTION_TEXTS && !other)
        ((wd_texts *)(void *)((char *)options + option->offset))->count = 0;
    wd_option_text(before, sizeof before, options, option);
    WD_TRY(wd_option_set(options, option, value, err));
    wd_option_text(after, sizeof after, options, option);
    if (other && strcmp(other->name, option->name) && strcmp(before, after))
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--%s (%s) and --%s (%s) contradict one another: leave one of them out",
                       other->name, before, option->name, after);
    note(source, option);
    return WD_OK;
}

wd_status wd_option_source_end(const wd_option_source *source, wd_job job, void *options,
                               wd_err *err)
{
    if (job != WD_JOB_TRAIN && job != WD_JOB_PLAN) return WD_OK;
    wd_train_options *all = options, said = wd_train_defaults();
    const wd_option *strategy = given(source, offsetof(wd_train_options, teacher_device_strategy));
    if (strategy) said.teacher_device_strategy = all->teacher_device_strategy;
    if (given(source, offsetof(wd_train_options, teacher_device_map)))
        said.teacher_device_map = all->teacher_device_map;
    if (given(source, offsetof(wd_train_options, teacher_rank)))
        said.teacher_rank = all->teacher_rank;
    WD_TRY(wd_teacher_choice_check(&said, strategy ? strategy->name : "", err));
    wd_teacher_choice_yield(all, &said);
    return WD_OK;
}
