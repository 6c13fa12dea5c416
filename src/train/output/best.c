/* See train/output/best.h. */
#include "train/output/best.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "io/file/file.h"
#include "io/json/json.h"
#include "train/output/replace_folder.h"

static const char record[] = WD_BEST_FOLDER "/validation.json";
static const char fresh_folder[] = ".tmp-best";

static bool is_there(const char *path, bool *is_folder)
{
    struct stat info;
    if (lstat(path, &info)) return false;
    *is_folder = S_ISDIR(info.st_mode);
    return true;
}

wd_status wd_best_read(wd_validation_result *out, const char *output, wd_err *err)
{
    const char *states = "";
    json_t *json;
    char path[WD_PATH_MAX];
    WD_TRY(wd_path_join(path, output, record, err));
    if (!wd_path_exists(path)) return wd_fail(err, WD_NOT_FOUND, "%s: is not there", path);
    WD_TRY(wd_json_load(&json, path, err));
    const wd_json_reader r = {.object = json, .where = path};
    *out = (wd_validation_result){0};
    wd_status status = wd_json_int(&out->step, r, "step", 0, INT64_MAX, WD_JSON_REQUIRED, err);
    if (status == WD_OK)
        status = wd_json_float(&out->error, r, "validation_error", WD_JSON_REQUIRED, err);
    if (status == WD_OK) status = wd_json_text(&states, r, "states", WD_JSON_REQUIRED, err);
    snprintf(out->states, sizeof out->states, "%s", states);
    json_decref(json);
    if (status == WD_OK && !(out->error >= 0 && isfinite(out->error)))
        return wd_fail(err, WD_BAD_FORMAT, "%s: validation_error: expected 0 or more, found %g",
                       path, out->error);
    return status;
}

wd_status wd_best_check(const char *output, wd_err *err)
{
    char path[WD_PATH_MAX];
    wd_validation_result best;
    bool is_folder;
    WD_TRY(wd_path_join(path, output, WD_BEST_FOLDER, err));
    if (!is_there(path, &is_folder)) return WD_OK;
    if (is_folder && wd_best_read(&best, output, NULL) == WD_OK) return WD_OK;
    return wd_fail(
        err, WD_INVALID_ARGUMENT,
        "%s: is not the best student of an earlier run, which has a validation.json, and "
        "--keep_best would replace it: move it away, or choose another --output_dir",
        path);
}

static json_t *levels_json(const wd_validation_result *result)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < result->levels; i++)
        json_array_append_new(
            list, json_pack("{s:f, s:f}", "sigma", result->sigma[i], "error", result->by_level[i]));
    return list;
}

static wd_status write_record(const char *folder, const wd_validation_result *result, wd_err *err)
{
    char path[WD_PATH_MAX];
    WD_TRY(wd_path_join(path, folder, wd_path_name(record), err));
    json_t *json = json_pack("{s:I, s:s, s:f, s:o}", "step", (json_int_t)result->step, "states",
                             result->states, "validation_error", result->error,
                             "validation_error_by_level", levels_json(result));
    if (!json) return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to write it", path);
    const wd_status status = wd_json_save(json, path, err);
    json_decref(json);
    return status;
}

wd_status wd_best_write(const char *output, const wd_params *params, const wd_pipeline *teacher,
                        const wd_export_options *options, const wd_validation_result *result,
                        wd_queue *queue, wd_err *err)
{
    char fresh[WD_PATH_MAX], path[WD_PATH_MAX];
    wd_status status;
    WD_TRY(wd_best_check(output, err));
    WD_TRY(wd_path_join(path, output, WD_BEST_FOLDER, err));
    WD_TRY(wd_path_join(fresh, output, fresh_folder, err));
    WD_TRY(wd_folder_remove(fresh, err)); /* what a kill left */
    WD_TRY(wd_folder_make(fresh, err));
    WD_TRY_OUT(wd_export_student(fresh, params, teacher, options, queue, err));
    WD_TRY_OUT(write_record(fresh, result, err));
    WD_TRY_OUT(wd__folder_replace(path, fresh, err));
out:
    if (status == WD_OK) return status;
    wd_folder_remove(fresh, NULL);
    return wd_fail_in(err, "--keep_best");
}
