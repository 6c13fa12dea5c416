/* Options that name files: see api/options/options.h. */
#include "api/options/options.h"

#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "io/file/file.h"
#include "io/text/prompts.h"

/* ---- paths ---- */

/* Options whose value is a list "FILE:STRENGTH,FILE". */
static bool is_list(const wd_option *o)
{
    return !strncmp(o->name, "teacher_lora", strlen("teacher_lora"));
}

/* The new value of a path; false: it stays as it is. */
static bool resolve(char out[WD_PATH_MAX], const wd_option *o, const char *folder,
                    const char *value)
{
    char joined[WD_PATH_MAX];
    if (!*value || *value == '/' || *value == '~') return false;
    if (!strncmp(value, "./", 2)) value += 2;
    if (wd_path_join(joined, folder, value, NULL) != WD_OK) return false;
    if (!(o->flags & WD_OPTION_WRITTEN) && !wd_path_exists(joined)) return false;
    if (!strstr(value, "..") || !realpath(joined, out)) memcpy(out, joined, sizeof joined);
    return true;
}

/* The bytes of a list's item before its strength. */
static size_t path_bytes(const char *item, size_t bytes)
{
    char number[32], *end;
    size_t at = bytes;
    while (at > 0 && item[at - 1] != ':' && item[at - 1] != '/') at--;
    if (!at || item[at - 1] != ':' || at == bytes || bytes - at >= sizeof number) return bytes;
    memcpy(number, item + at, bytes - at);
    number[bytes - at] = 0;
    strtod(number, &end);
    return *end ? bytes : at - 1;
}

/* Resolves each path of a list. */
static json_t *resolve_list(const wd_option *o, const char *folder, const char *value)
{
    char all[4 * WD_PATH_MAX] = "", path[WD_PATH_MAX], found[WD_PATH_MAX];
    size_t used = 0;
    if (!*value || strlen(value) >= WD_PATH_MAX) return NULL;
    for (const char *item = value; *item;) {
        const size_t bytes = strcspn(item, ","), n = path_bytes(item, bytes);
        memcpy(path, item, n);
        path[n] = 0;
        const bool is_new = resolve(found, o, folder, path);
        used = wd_append_text(all, sizeof all, used, "%s%s%.*s", item == value ? "" : ",",
                              is_new ? found : path, (int)(bytes - n), item + n);
        item += bytes + (item[bytes] == ',');
    }
    return used + 1 < sizeof all ? wd_json_string(all) : NULL;
}

/* The new value of one text; NULL: it stays as it is. */
static json_t *resolve_text(const wd_option *o, const char *folder, const json_t *value)
{
    char path[WD_PATH_MAX];
    if (!json_is_string(value)) return NULL;
    if (is_list(o)) return resolve_list(o, folder, json_string_value(value));
    return resolve(path, o, folder, json_string_value(value)) ? wd_json_string(path) : NULL;
}

/* Texts are prompts, but a single one may be a file of prompts. The new value of that one; NULL: it
 * stays as it is. */
static json_t *resolve_prompts(const wd_option *o, const char *folder, const json_t *value)
{
    const json_t *text = json_is_array(value) ? json_array_get(value, 0) : value;
    if (json_array_size(value) > 1) return NULL;
    json_t *found = resolve_text(o, folder, text);
    if (found && wd_prompts_is_file(json_string_value(found))) return found;
    json_decref(found);
    return NULL;
}

/* The new value of a list of paths; NULL: it stays as it is. */
static json_t *resolve_paths(const wd_option *o, const char *folder, const json_t *value)
{
    size_t i;
    json_t *item;
    if (!json_is_array(value)) return resolve_text(o, folder, value);
    json_t *all = json_array();
    json_array_foreach(value, i, item)
    {
        json_t *found = resolve_text(o, folder, item);
        json_array_append_new(all, found ? found : json_incref(item));
    }
    return all;
}

wd_status wd_option_paths_resolve(json_t *options, wd_job job, const char *folder, wd_err *err)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(options, next, key, value)
    {
        const wd_option *o = wd_option_find(job, key, NULL);
        if (!o || !(o->flags & WD_OPTION_FILE || o->type == WD_OPTION_TEXTS)) continue;
        json_t *found = o->flags & WD_OPTION_FILE ? resolve_paths(o, folder, value)
                                                  : resolve_prompts(o, folder, value);
        if (found && json_object_set_new(options, key, found))
            return wd_fail(err, WD_OUT_OF_MEMORY, "no memory for the paths of options");
    }
    return WD_OK;
}

/* ---- parts of a model ---- */

bool wd_parts_any(const wd_pipeline_parts *parts)
{
    for (int c = 0; c < WD_COMPONENT_COUNT; c++)
        if (parts->part[c]) return true;
    return false;
}
