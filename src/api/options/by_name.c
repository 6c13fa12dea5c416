/* Options by name: see wd_options_new in wandistiller.h.
 *
 * A job's struct and the texts that it borrows live together, so a caller needs neither the layout
 * of the struct nor memory for texts. A file of options is an earlier source than the names that
 * are set, as on the command line. */
#include "api/options/by_name.h"

#include <math.h>
#include <string.h>

#include "api/options/options.h"
#include "core/error.h"
#include "core/locale.h"
#include "core/memory.h"

wd_status wd_options_new(wd_options **out, wd_job job, wd_err *err)
{
    wd_options *o;
    if ((unsigned)job >= WD_JOB_COUNT)
        return wd_fail(err, WD_INVALID_ARGUMENT, "wd_options_new: expected a job, found %d",
                       (int)job);
    WD_TRY(wd_alloc((void **)&o, 1, sizeof *o, "options", err));
    o->job = job;
    const size_t bytes = wd_options_bytes(job);
    const wd_status status = wd_alloc(&o->fields, 1, bytes, "options", err);
    if (status != WD_OK) {
        wd_options_free(o);
        return status;
    }
    wd_options_default(o->fields, bytes, job);
    *out = o;
    return WD_OK;
}

void wd_options_free(wd_options *options)
{
    if (!options) return;
    wd_config_close(options->config);
    for (size_t i = 0; i < options->texts; i++) wd_free(options->text[i]);
    wd_free(options->text);
    wd_free(options->fields);
    wd_free(options);
}

/* Copies `value` into *copy, which `options` owns. */
static wd_status keep(const char **copy, wd_options *options, const char *value, wd_err *err)
{
    WD_TRY(wd_resize((void **)&options->text, options->texts + 1, sizeof *options->text,
                     "texts of options", err));
    WD_TRY(wd_copy_text(&options->text[options->texts], value, err));
    *copy = options->text[options->texts++];
    return WD_OK;
}

static wd_status set_config(wd_options *o, const char *path, wd_err *err)
{
    if (o->config || o->given.count)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--config %s: expected before all other options, which replace those of the "
                       "file, and once",
                       path);
    WD_TRY(wd_config_open(&o->config, path, err));
    return wd_config_apply(o->config, o->job, o->fields, err);
}

wd_status wd_options_set(wd_options *options, const char *name, const char *value, wd_err *err)
{
    WD_C_LOCALE;
    const char *copy;
    wd_err ignored;
    const wd_option *common = wd_option_find(WD_JOB_COMMON, name, &ignored);
    if (common && !strcmp(common->name, "config"))
        return value ? set_config(options, value, err)
                     : wd_fail(err, WD_INVALID_ARGUMENT, "--config: expected a file, found none");
    if (common)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--%s: expected an option of %s; wd_log_to says which messages are received",
                       common->name, wd_job_name(options->job));
    const wd_option *option = wd_option_find(options->job, name, err);
    if (!option) return WD_INVALID_ARGUMENT;
    if (!value) value = option->bare;
    if (!value && option->type == WD_OPTION_TEXTS) {
        wd__option_give_none(&options->given, options->fields, option);
        return WD_OK;
    }
    if (!value)
        return wd_fail(err, WD_INVALID_ARGUMENT, "--%s: expected a value, found none",
                       option->name);
    WD_TRY(keep(&copy, options, value, err));
    return wd_option_give(&options->given, options->fields, option, copy, err);
}

/* ---- the table of a job as JSON ---- */

static json_t *text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

static json_t *bound(const wd_option *o, double value)
{
    const bool is_number = o->type == WD_OPTION_INT || o->type == WD_OPTION_FLOAT;
    return is_number && isfinite(value) ? json_real(value) : json_null();
}

static json_t *option_json(const wd_option *o)
{
    static const char *const type[] = {
        [WD_OPTION_FLAG] = "flag",   [WD_OPTION_INT] = "int",   [WD_OPTION_SEED] = "seed",
        [WD_OPTION_FLOAT] = "float", [WD_OPTION_TEXT] = "text", [WD_OPTION_CHOICE] = "choice",
        [WD_OPTION_TEXTS] = "texts",
    };
    json_t *choices = o->choices ? json_array() : json_null();
    for (const char *const *c = o->choices; c && *c; c++)
        json_array_append_new(choices, json_string(*c));
    return json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:b, s:b, s:b, s:b, s:b}", "name",
        o->name, "type", type[o->type], "default", text_or_null(o->default_text), "bare",
        text_or_null(o->bare), "choices", choices, "min", bound(o, o->min), "max", bound(o, o->max),
        "metavar", text_or_null(o->metavar), "group", text_or_null(o->group), "help", o->help,
        "required", (o->flags & WD_OPTION_REQUIRED) != 0, "positional",
        (o->flags & WD_OPTION_POSITIONAL) != 0, "file", (o->flags & WD_OPTION_FILE) != 0, "written",
        (o->flags & WD_OPTION_WRITTEN) != 0, "legacy", (o->flags & WD_OPTION_LEGACY) != 0);
}

wd_status wd_options_list(char **text, wd_job job, wd_err *err)
{
    int64_t count;
    if ((unsigned)job > WD_JOB_COUNT)
        return wd_fail(err, WD_INVALID_ARGUMENT, "wd_options_list: expected a job, found %d",
                       (int)job);
    const wd_option *table = wd_options_of(job, &count);
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) json_array_append_new(list, option_json(&table[i]));
    const wd_status status = wd_json_text_of(text, list, err);
    json_decref(list);
    return status;
}
