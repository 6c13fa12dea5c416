/* Options from and to JSON: --config FILE.json, and the options part of run.json. See
 * api/options/options.h. */
#include "api/options/options.h"

#include <stdio.h>
#include <string.h>

#include "api/options/tables.h"
#include "core/locale.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/file/file.h"

/* ---- options from JSON ---- */

struct wd_config {
    json_t *file;    /* owns the strings that options borrow */
    json_t *options; /* an object in `file`, borrowed */
    char *path;
    char *folder;     /* of a run.json, without a final slash; NULL: the file is no run.json */
    bool is_resolved; /* the paths of `options` are */
};

/* The keys of a run.json: see write_run in api/jobs/train.c. */
static const char *const of_a_run[] = {"command", "version", "options",     "resolved",
                                       "student", "device",  "kernels",     "prompts",
                                       "teacher", "memory",  "text_tokens", "error"};

/* Refuses other keys beside "options", which would be ignored silently. */
static wd_status check_neighbours(const json_t *file, const char *path, wd_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)file, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < sizeof of_a_run / sizeof *of_a_run; i++)
            known |= !strcmp(key, of_a_run[i]);
        if (!known)
            return wd_fail(
                err, WD_INVALID_ARGUMENT,
                "%s: \"%.*s\" stands beside \"options\": expected it in there, or that a "
                "run has written it",
                path, WD_TERMINAL_SAFE(key, 60));
    }
    return WD_OK;
}

static wd_status find_folder(wd_config *config, wd_err *err)
{
    char folder[WD_PATH_MAX];
    WD_TRY(wd_path_beside(folder, config->path, "", err));
    const size_t n = strlen(folder);
    if (n > 1 && folder[n - 1] == '/') folder[n - 1] = 0;
    return wd_copy_text(&config->folder, *folder ? folder : ".", err);
}

wd_status wd_config_open(wd_config **out, const char *path, wd_err *err)
{
    WD_C_LOCALE;
    wd_config *config;
    wd_status status;
    WD_TRY(wd_alloc((void **)&config, 1, sizeof *config, "config", err));
    WD_TRY_OUT(wd_copy_text(&config->path, path, err));
    WD_TRY_OUT(wd_json_load(&config->file, path, err));
    config->options = json_object_get(config->file, "options"); /* a run.json */
    if (config->options) {
        WD_TRY_OUT(check_neighbours(config->file, path, err));
        WD_TRY_OUT(find_folder(config, err));
    } else {
        config->options = config->file;
    }
    if (!json_is_object(config->options)) {
        status =
            wd_fail(err, WD_BAD_FORMAT,
                    "%s: expected a JSON object of options, such as {\"batch_size\": 4}", path);
        goto out;
    }
    *out = config;
    return WD_OK;
out:
    wd_config_close(config);
    return status;
}

void wd_config_close(wd_config *config)
{
    if (!config) return;
    json_decref(config->file);
    wd_free(config->folder);
    wd_free(config->path);
    wd_free(config);
}

static wd_status other_type(wd_err *err, const wd_option *o, const json_t *value)
{
    static const char *const expected[] = {
        [WD_OPTION_FLAG] = "true or false",
        [WD_OPTION_INT] = "a whole number",
        [WD_OPTION_FLOAT] = "a number",
        [WD_OPTION_TEXT] = "a text",
        [WD_OPTION_SEED] = "a whole number, as a text if it is above 9223372036854775807",
        [WD_OPTION_CHOICE] = "a text",
        [WD_OPTION_TEXTS] = "a text or an array of texts",
    };
    static const char *const found[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array",
        [JSON_STRING] = "a text",    [JSON_INTEGER] = "a whole number",
        [JSON_REAL] = "a number",    [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null",
    };
    return wd_fail(err, WD_INVALID_ARGUMENT, "--%s: expected %s, found %s", o->name,
                   expected[o->type], found[json_typeof(value)]);
}

static wd_status apply_one(wd_option_source *source, void *options, const wd_option *o,
                           const json_t *value, wd_err *err)
{
    char number[64];
    const bool choice =
        o->type == WD_OPTION_CHOICE; /* for any other type the error lists the choices */
    const bool numeric = o->type == WD_OPTION_INT || o->type == WD_OPTION_FLOAT ||
                         o->type == WD_OPTION_SEED || choice;
    switch (json_typeof(value)) {
    case JSON_STRING:
        return wd_option_give(source, options, o, json_string_value(value), err);
    case JSON_INTEGER:
        if (!numeric) break;
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        return wd_option_give(source, options, o, number, err);
    case JSON_REAL:
        if (!numeric || o->type == WD_OPTION_SEED) break; /* of a seed it has lost digits */
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
        return wd_option_give(source, options, o, number, err);
    case JSON_TRUE:
        if (!o->bare && !choice) break;
        return wd_option_give(source, options, o, o->bare ? o->bare : "true", err);
    case JSON_FALSE:
        if (o->type != WD_OPTION_FLAG && !choice) break;
        return wd_option_give(source, options, o, "false", err);
    case JSON_NULL:
        return WD_OK; /* not given */
    default:
        break;
    }
    return other_type(err, o, value);
}

static wd_status apply_list(wd_option_source *source, void *options, const wd_option *o,
                            const json_t *list, wd_err *err)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        if (!json_is_string(item)) return other_type(err, o, item);
        WD_TRY(wd_option_give(source, options, o, json_string_value(item), err));
    }
    return WD_OK;
}

/* If a run's folder was moved, its output folder is that of the run.json. */
static void find_moved_run(const wd_config *config, wd_train_options *options)
{
    char checkpoints[WD_PATH_MAX];
    if (!config->folder || !options->output_dir || wd_path_exists(options->output_dir)) return;
    if (wd_path_join(checkpoints, config->folder, "checkpoints", NULL) != WD_OK) return;
    if (!wd_path_is_folder(checkpoints)) return;
    wd_log(WD_LOG_WARNING,
           "%s: its output folder %s is not there, so --output_dir is %s, where the file lies, "
           "unless the command line says otherwise",
           config->path, options->output_dir, config->folder);
    options->output_dir = config->folder;
}

/* The paths of a file are relative to its folder. Those of a run.json are whole: a run has
 * completed them. */
static wd_status resolve_paths(const wd_config *config, wd_job job, wd_err *err)
{
    char folder[WD_PATH_MAX];
    WD_TRY(wd_path_beside(folder, config->path, "", err));
    return *folder ? wd_option_paths_resolve(config->options, job, folder, err) : WD_OK;
}

wd_status wd_config_apply(wd_config *config, wd_job job, void *options, wd_err *err)
{
    WD_C_LOCALE;
    const char *key;
    json_t *value;
    wd_status status = WD_OK;
    wd_option_source file = {0};
    if (!config->folder && !config->is_resolved) WD_TRY(resolve_paths(config, job, err));
    config->is_resolved = true;
    json_object_foreach(config->options, key, value)
    {
        const wd_option *o = wd_option_find(job, key, err);
        status = !o ? WD_INVALID_ARGUMENT
                 : o->type == WD_OPTION_TEXTS && json_is_array(value)
                     ? apply_list(&file, options, o, value, err)
                     : apply_one(&file, options, o, value, err);
        if (status != WD_OK) break;
    }
    if (status == WD_OK) status = wd_option_source_end(&file, job, options, err);
    if (status != WD_OK) return wd_fail_in(err, "%s", config->path);
    if (job == WD_JOB_TRAIN) find_moved_run(config, options);
    return WD_OK;
}

/* ---- options to JSON ---- */

/* JSON's integers are those of int64_t; a larger seed is a text. */
static json_t *seed_json(uint64_t seed)
{
    char text[32];
    if (seed <= INT64_MAX) return json_integer((json_int_t)seed);
    snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    return json_string(text);
}

static json_t *value_json(const void *options, const wd_option *o)
{
    const void *field = (const char *)options + o->offset;
    const char *text;
    switch (o->type) {
    case WD_OPTION_FLAG:
        return json_boolean(*(const bool *)field);
    case WD_OPTION_INT:
        text = wd__option_word(o, *(const int64_t *)field);
        return text ? json_string(text) : json_integer(*(const int64_t *)field);
    case WD_OPTION_SEED:
        return seed_json(*(const uint64_t *)field);
    case WD_OPTION_FLOAT: {
        json_t *number = json_real(*(const double *)field); /* NULL for NaN */
        return number ? number : json_null();
    }
    case WD_OPTION_TEXT:
    case WD_OPTION_CHOICE:
        text = *(const char *const *)field;
        return text ? wd_json_string(text) : json_null();
    case WD_OPTION_TEXTS:
        break;
    }
    const wd_texts *texts = field;
    json_t *list = json_array();
    for (int64_t i = 0; i < texts->count; i++)
        json_array_append_new(list, wd_json_string(texts->item[i]));
    return list;
}

json_t *wd_train_options_json(const wd_train_options *options, const wd_train_options *but)
{
    int64_t count;
    const wd_option *table = wd_options_of(WD_JOB_TRAIN, &count);
    json_t *object = json_object();
    for (int64_t i = 0; i < count; i++) {
        const wd_option *o = &table[i];
        if (o->flags & WD_OPTION_LEGACY || (but && wd__option_same(o, options, but))) continue;
        json_object_set_new(object, o->name, value_json(options, o));
    }
    return object;
}

/* ---- JSON as text ---- */

wd_status wd_json_text_of(char **out, const json_t *json, wd_err *err)
{
    const size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(9) | JSON_ENSURE_ASCII;
    const size_t bytes = json_dumpb(json, NULL, 0, flags);
    if (!bytes) return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for JSON");
    WD_TRY(wd_alloc((void **)out, bytes + 2, 1, "JSON text", err));
    json_dumpb(json, *out, bytes, flags);
    (*out)[bytes] = '\n';
    return WD_OK;
}
