/* Students for ComfyUI: see train/output/comfyui.h. */
#include "train/output/comfyui.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/json/json.h"
#include "model/convert/convert.h"
#include "model/convert/convert_lines.h"
#include "model/convert/workflow.h"
#include "model/sampling/schedule.h"
#include "model/tables/dit_table.h"

static const char workflow_name[] = "student.json";

/* Comfy-Org/Wan_2.1_ComfyUI_repackaged, split_files/text_encoders. */
static const char small_text_encoder[] = "umt5_xxl_fp8_e4m3fn_scaled.safetensors";

static const struct {
    const char *name, *file; /* of the folder, and of the file in it */
    wd_dtype dtype;
} known[WD_STUDENT_FORMS] = {
#define X(form, folder, file, dtype) [WD_STUDENT_##form] = {folder, file, WD_##dtype},
    WD_STUDENT_FORM_MAP(X)
#undef X
};

wd_export_options wd_student_sampling(const wd_pipeline *student)
{
    wd_export_options o = wd_export_defaults();
    o.flow_shift = student->scheduler.flow_shift;
    o.sampling_steps = student->default_steps;
    o.height = student->default_height;
    o.width = student->default_width;
    if (wd_scheduler_is_euler(&student->scheduler, student->default_steps))
        o.student_steps = student->default_steps;
    return o;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The file that ComfyUI loads the text encoder from: the one that was read, if it is one for
 * ComfyUI, else the smallest of those that Comfy-Org publishes. */
static const char *text_encoder_of(const wd_pipeline *student, const wd_export_options *o)
{
    const bool has_tokenizer = !*student->part[WD_COMPONENT_TOKENIZER];
    const char *part = has_tokenizer ? student->part[WD_COMPONENT_TEXT_ENCODER] : "";
    const char *read = o->text_encoder_file ? o->text_encoder_file : part;
    if (wd_ends_with(read, ".safetensors")) return name_of(read);
    wd_log(WD_LOG_INFO,
           "the workflow loads the text encoder %s; choose another file of the same encoder in its "
           "node, such as umt5_xxl_fp16.safetensors, if you have that",
           small_text_encoder);
    return small_text_encoder;
}

wd_status wd_student_write_workflow(const char *path, const char *file, bool is_gguf,
                                    const wd_pipeline *student, const wd_export_options *o,
                                    wd_err *err)
{
    json_t *json;
    const bool large = student->dit.in_channels == 48;
    /* This one of ComfyUI's samplers comes nearest to the student's own scheduler. For UniPC it is
     * not uni_pc, which steps along other noise levels: of a student of wan-tiny that was
     * trained for 14 minutes, final latents differ from those of `sample`, by their root mean
     * square, in 10 and in 20 steps by 0.020 and 0.010 with dpmpp_2m, 0.024 and 0.012 with
     * res_multistep, 0.057 and 0.038 with euler, 0.081 and 0.041 with uni_pc (24 prompts, ComfyUI
     * 0.8.0). */
    const bool is_euler =
        o->student_steps || wd_scheduler_is_euler(&student->scheduler, o->sampling_steps);
    const wd_workflow workflow = {
        .unet = name_of(file),
        .unet_is_gguf = is_gguf,
        .clip = text_encoder_of(student, o),
        .vae = large ? "wan2.2_vae.safetensors" : "wan_2.1_vae.safetensors",
        .prompt = o->prompt,
        .latent_channels = student->dit.in_channels,
        .width = o->width,
        .height = o->height,
        .steps = o->sampling_steps,
        .shift = o->flow_shift,
        .cfg = 1, /* guidance is folded in */
        .sampler = is_euler ? "euler" : "dpmpp_2m",
    };
    WD_TRY(wd_workflow_make(&json, &workflow, err));
    const wd_status status = wd_json_save(json, path, err);
    json_decref(json);
    return status;
}

/* ---- forms ---- */

wd_status wd_student_forms_parse(wd_student_forms *out, const char *text, wd_err *err)
{
    *out = (wd_student_forms){{false}};
    while (text) {
        const size_t length = strcspn(text, ",");
        int form = 0;
        while (form < WD_STUDENT_FORMS &&
               (strlen(known[form].name) != length || memcmp(known[form].name, text, length)))
            form++;
        if (form == WD_STUDENT_FORMS || out->has[form])
            return wd_fail(err, WD_INVALID_ARGUMENT,
                           "--export \"%.*s\": expected comfyui, gguf, or comfyui,gguf",
                           length < 60 ? (int)length : 60, text);
        out->has[form] = true;
        text = text[length] ? text + length + 1 : NULL;
    }
    return WD_OK;
}

/* Where a form is prepared. */
static wd_status fresh_path(char out[WD_PATH_MAX], const char *folder, wd_student_form form,
                            wd_err *err)
{
    char name[32];
    snprintf(name, sizeof name, ".tmp-%s", known[form].name);
    return wd_path_join(out, folder, name, err);
}

/* Sets `out` to the folder of a form, in which nothing else may be in its place. */
static wd_status place_of(char out[WD_PATH_MAX], const char *folder, wd_student_form form,
                          wd_err *err)
{
    struct stat info;
    WD_TRY(wd_path_join(out, folder, known[form].name, err));
    if (lstat(out, &info) || S_ISDIR(info.st_mode)) return WD_OK;
    return wd_fail(
        err, WD_INVALID_ARGUMENT,
        "%s: is a %s, expected the run's own folder, or none: move it away, or leave out "
        "--export %s",
        out, S_ISLNK(info.st_mode) ? "link" : "file", known[form].name);
}

wd_status wd_student_check_forms(const char *folder, const wd_student_forms *forms, wd_err *err)
{
    char place[WD_PATH_MAX];
    for (int form = 0; form < WD_STUDENT_FORMS; form++)
        if (forms->has[form]) WD_TRY(place_of(place, folder, form, err));
    return WD_OK;
}

static wd_status remove_form(const char *folder, wd_student_form form, wd_err *err)
{
    const char *const names[] = {known[form].file, workflow_name};
    char place[WD_PATH_MAX], path[WD_PATH_MAX];
    struct stat info;
    WD_TRY(fresh_path(path, folder, form, err));
    WD_TRY(wd_folder_remove(path, err)); /* of a run that was killed */
    WD_TRY(wd_path_join(place, folder, known[form].name, err));
    if (lstat(place, &info) || !S_ISDIR(info.st_mode)) return WD_OK;
    for (int i = 0; i < 2; i++) {
        WD_TRY(wd_path_join(path, place, names[i], err));
        if (unlink(path) && errno != ENOENT)
            return wd_fail(err, WD_IO, "%s: an earlier student's file cannot be removed: %s", path,
                           strerror(errno));
    }
    (void)rmdir(place); /* unless there is something else in it */
    return WD_OK;
}

wd_status wd__student_remove_forms(const char *folder, wd_err *err)
{
    for (int form = 0; form < WD_STUDENT_FORMS; form++) WD_TRY(remove_form(folder, form, err));
    return WD_OK;
}

/* Moves a file of the folder `fresh` into the folder `place`. */
static wd_status move_file(const char *place, const char *fresh, const char *name, wd_err *err)
{
    char from[WD_PATH_MAX], to[WD_PATH_MAX];
    WD_TRY(wd_path_join(from, fresh, name, err));
    WD_TRY(wd_path_join(to, place, name, err));
    return wd_file_commit(from, to, err);
}

static wd_status write_form(const char *folder, wd_student_form form, const wd_pipeline *student,
                            const wd_export_options *options, wd_err *err)
{
    const bool is_gguf = form == WD_STUDENT_GGUF;
    char place[WD_PATH_MAX], fresh[WD_PATH_MAX], path[WD_PATH_MAX];
    wd_status status;
    WD_TRY(remove_form(folder, form, err));
    WD_TRY(place_of(place, folder, form, err));
    WD_TRY(fresh_path(fresh, folder, form, err));
    WD_TRY_OUT(wd_folder_make(fresh, err));
    WD_TRY_OUT(wd_path_join(path, fresh, known[form].file, err));
    WD_TRY_OUT((is_gguf ? wd_convert_to_gguf : wd_convert_to_original)(
        path, student, WD_COMPONENT_TRANSFORMER, &known[form].dtype, err));
    WD_TRY_OUT(wd_path_join(path, fresh, workflow_name, err));
    WD_TRY_OUT(wd_student_write_workflow(path, known[form].file, is_gguf, student, options, err));
    WD_TRY_OUT(wd_folder_make(place, err));
    WD_TRY_OUT(move_file(place, fresh, known[form].file, err));
    WD_TRY_OUT(move_file(place, fresh, workflow_name, err));
    WD_TRY_OUT(wd_folder_remove(fresh, err));
    wd_log(WD_LOG_INFO, "for ComfyUI: %s/%s, and the workflow %s", place, known[form].file,
           workflow_name);
out:
    if (status != WD_OK) remove_form(folder, form, NULL); /* no half of it stays */
    return status;
}

wd_status wd_student_write_forms(const char *folder, const wd_student_forms *forms,
                                 const wd_export_options *options, wd_err *err)
{
    void *student = NULL;
    wd_status status;
    WD_TRY_OUT(wd_alloc(&student, 1, sizeof(wd_pipeline), "a pipeline", err));
    WD_TRY_OUT(wd_pipeline_open(student, folder, err));
    for (int form = 0; form < WD_STUDENT_FORMS; form++)
        if (forms->has[form]) WD_TRY_OUT(write_form(folder, form, student, options, err));
out:
    wd_free(student);
    return status;
}

/* Bytes of a tensor in a form, with its entry in the header. */
static uint64_t form_bytes(const wd_tensor_spec *spec, wd_student_form form)
{
    enum { ENTRY_BYTES = 512 }; /* name, dtype, shape, offsets, alignment */
    const bool is_gguf = form == WD_STUDENT_GGUF;
    const wd_dtype dtype = (is_gguf ? wd_convert_gguf_dtype : wd_convert_safetensors_dtype)(
        spec, WD_F32, known[form].dtype);
    int64_t count = 1;
    for (int i = 0; i < spec->ndim; i++) count *= spec->dim[i];
    return wd_dtype_size(dtype, count) + ENTRY_BYTES;
}

wd_status wd_student_forms_size(uint64_t *bytes, const wd_student_forms *forms,
                                const wd_dit_config *student, wd_err *err)
{
    enum { REST_BYTES = 256 << 10 }; /* workflow, configuration */
    wd_tensor_table table;
    WD_TRY(wd_dit_table_open(&table, student, err));
    *bytes = 0;
    for (int form = 0; form < WD_STUDENT_FORMS; form++) {
        if (!forms->has[form]) continue;
        *bytes += REST_BYTES;
        for (int64_t i = 0; i < table.count; i++) *bytes += form_bytes(&table.spec[i], form);
    }
    wd_dit_table_close(&table);
    return WD_OK;
}
