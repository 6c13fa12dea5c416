/* The command line of a job: see api/options/options.h. */
#include "api/options/options.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "api/options/tables.h"
#include "core/text.h"

enum { SHORT_WORD = 2048 };

/* A text that grows as long as it fits its buffer. */
typedef struct text {
    char *out;
    size_t bytes, used;
    bool full;
} text;

static void append(text *t, const char *more)
{
    const size_t n = strlen(more);
    t->full |= n >= t->bytes - t->used;
    if (t->full) return;
    memcpy(t->out + t->used, more, n + 1);
    t->used += n;
}

/* Most words are no longer than their text, though WD_SHELL_WORD_BYTES allows for four times that.
 */
static void append_word(text *t, const char *value)
{
    char word[SHORT_WORD];
    const size_t bytes = WD_SHELL_WORD_BYTES(strlen(value)), room = t->bytes - t->used;
    if (t->full) return;
    if (bytes <= room)
        t->used += strlen(wd_shell_word(t->out + t->used, room, value));
    else if (bytes <= sizeof word)
        append(t, wd_shell_word(word, sizeof word, value));
    else
        t->full = true;
}

/* Appends an option and its value. A flag takes no separate word, and a value that begins with "--"
 * would be read as a name. */
static void append_option(text *t, const wd_option *o, const char *value)
{
    append(t, " --");
    append(t, o->name);
    if (o->type == WD_OPTION_FLAG && !strcmp(value, "true")) return;
    append(t, o->type == WD_OPTION_FLAG || !strncmp(value, "--", 2) ? "=" : " ");
    append_word(t, value);
}

static void append_value(text *t, const wd_option *o, const void *options)
{
    char number[64];
    const void *field = (const char *)options + o->offset;
    const wd_texts *texts = field;
    switch (o->type) {
    case WD_OPTION_TEXTS:
        for (int64_t i = 0; i < texts->count; i++) append_option(t, o, texts->item[i]);
        break;
    case WD_OPTION_TEXT:
    case WD_OPTION_CHOICE:
        if (*(const char *const *)field) append_option(t, o, *(const char *const *)field);
        break;
    default:
        append_option(t, o, wd_option_text(number, sizeof number, options, o));
    }
}

/* Whether an earlier line is another name of the same field. */
static bool is_alias(const wd_option *table, int64_t i)
{
    for (int64_t k = 0; k < i; k++)
        if (table[k].offset == table[i].offset) return true;
    return false;
}

static void append_all(text *t, wd_job job, const void *options, const void *usual)
{
    int64_t count;
    const wd_option *table = wd_options_of(job, &count);
    for (int64_t i = 0; i < count; i++)
        if (!is_alias(table, i) && !wd__option_same(&table[i], options, usual))
            append_value(t, &table[i], options);
}

void wd_job_command(char *out, size_t out_bytes, wd_job job, const void *options,
                    const wd_option_value *change, int changes)
{
    union {
        wd_train_options train;
        wd_plan_options plan;
        wd_sample_options sample;
        wd_eval_options eval;
        wd_forward_options forward;
        char bytes[1];
    } usual, changed;
    const size_t bytes = wd_options_bytes(job);
    text t = {.out = out, .bytes = out_bytes};
    assert(bytes <= sizeof usual);
    wd_options_default(&usual, bytes, job);
    memcpy(changed.bytes, options, bytes);
    for (int i = 0; i < changes; i++) {
        const wd_option *option = wd_option_find(job, change[i].option, NULL);
        assert(option);
        wd_option_set(&changed, option, change[i].value, NULL);
    }
    append(&t, "wandistiller ");
    append(&t, wd_job_name(job));
    append_all(&t, job, &changed, &usual);
    if (t.full) snprintf(out, out_bytes, "wandistiller %s ...", wd_job_name(job));
}

void wd_train_command(char *out, size_t out_bytes, const wd_train_options *options)
{
    wd_job_command(out, out_bytes, WD_JOB_TRAIN, options, NULL, 0);
}
