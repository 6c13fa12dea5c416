/* See api/train_command.h. */
#include "api/train_command.h"

#include <stdio.h>
#include <string.h>

#include "api/tables.h"

enum { TEXT_MAX = 1 << 14 };

static void append(char *out, size_t out_bytes, const char *text)
{
    const size_t used = strlen(out), more = strlen(text);
    if (used + more < out_bytes)
        memcpy(out + used, text, more + 1);
    else if (out_bytes > used + 4)
        strcpy(out + used, "...");
}

static bool is_plain(const char *text)
{
    return *text && !text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789_-./:=,@+%")];
}

/* In single quotes where it needs any. */
static void append_quoted(char *out, size_t out_bytes, const char *text)
{
    if (is_plain(text)) {
        append(out, out_bytes, text);
        return;
    }
    append(out, out_bytes, "'");
    for (; *text; text++) {
        const char one[] = {*text, 0};
        append(out, out_bytes, *text == '\'' ? "'\\''" : one);
    }
    append(out, out_bytes, "'");
}

static void append_option(char *out, size_t out_bytes, const wd_option *o, const char *value)
{
    append(out, out_bytes, " --");
    append(out, out_bytes, o->name);
    if (o->type == WD_OPTION_FLAG && !strcmp(value, "true")) return;
    append(out, out_bytes, " ");
    append_quoted(out, out_bytes, value);
}

void wd_train_command(char *out, size_t out_bytes, const wd_train_options *options)
{
    int64_t count;
    const wd_train_options usual = wd_train_defaults();
    const wd_option *table = wd_options_of(WD_JOB_TRAIN, &count);
    snprintf(out, out_bytes, "wandistiller train");
    for (int64_t i = 0; i < count; i++) {
        char now[TEXT_MAX], then[TEXT_MAX];
        const wd_option *o = &table[i];
        bool again = false; /* another name of a field that was there */
        for (int64_t k = 0; k < i && !again; k++) again = table[k].offset == o->offset;
        if (again) continue;
        if (o->type == WD_OPTION_TEXTS) {
            const wd_texts *texts =
                (const wd_texts *)(const void *)((const char *)options + o->offset);
            for (int64_t k = 0; k < texts->count; k++)
                append_option(out, out_bytes, o, texts->item[k]);
            continue;
        }
        wd_option_text(now, sizeof now, options, o);
        wd_option_text(then, sizeof then, &usual, o);
        if (strcmp(now, then)) append_option(out, out_bytes, o, now);
    }
}
