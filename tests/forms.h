/* Components of wan-tiny as single files: under other names, in other dtypes. */
#ifndef WD_TESTS_FORMS_H
#define WD_TESTS_FORMS_H

#include "testing.h"

#include "model/files/pipeline.h"
#include "model/tables/names.h"

typedef struct wd_test_form {
    bool original;
    const char *prefix;
    wd_dtype dtype; /* of all tensors; WD_DTYPE_COUNT: as they are */
} wd_test_form;

static inline void wd_test_form_name(char out[256], const char *name, wd_component c,
                                     const wd_pipeline *p, const wd_test_form *form)
{
    char other[WD_TENSOR_NAME_MAX];
    snprintf(other, sizeof other, "%s", name);
    bool known = true;
    if (form->original && c == WD_COMPONENT_VAE)
        known = wd__names_vae_to_original(other, sizeof other, name, &p->vae);
    else if (form->original && c == WD_COMPONENT_TEXT_ENCODER)
        known = wd__names_umt5_to_original(other, sizeof other, name);
    else if (form->original)
        known = wd_names_to_original(other, sizeof other, name);
    if (!known) fail_msg("%s has no original name", name);
    snprintf(out, 256, "%s%s", form->prefix, other);
}

/* Value i of a tensor as float. */
static inline float wd_test_value(const wd_tensor *t, size_t i)
{
    float f;
    uint16_t half;
    const char *data = t->data;
    if (t->dtype == WD_F32) {
        memcpy(&f, data + 4 * i, 4);
        return f;
    }
    memcpy(&half, data + 2 * i, 2);
    return t->dtype == WD_F16 ? wd_f16_to_f32(half) : wd_bf16_to_f32(half);
}

static inline void wd_test_put(wd_safetensors_writer *writer, const wd_tensor *t, wd_dtype dtype)
{
    wd_err err;
    const size_t count = (size_t)wd_tensor_count(t);
    if (dtype == t->dtype) {
        wd_test_ok(wd_safetensors_put(writer, t->data, wd_tensor_bytes(t), &err), &err);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const float f = wd_test_value(t, i);
        const uint16_t half = dtype == WD_F16 ? wd_f32_to_f16(f) : wd_f32_to_bf16(f);
        const void *data = dtype == WD_F32 ? (const void *)&f : &half;
        wd_test_ok(wd_safetensors_put(writer, data, wd_dtype_bytes(dtype), &err), &err);
    }
}

/* Writes the component's weights to `path`, with the SentencePiece model as a tensor if there is
 * one. */
static inline void wd_test_write_form(const char *path, const wd_pipeline *p, wd_component c,
                                      const wd_test_form *form, const char *spiece, size_t bytes)
{
    wd_err err;
    wd_safetensors *set;
    wd_safetensors_writer *writer;
    wd_test_ok(wd_pipeline_open_weights(&set, p, c, &err), &err);
    const int64_t count = wd_safetensors_count(set);
    char(*names)[256] = calloc((size_t)count + 1, sizeof *names);
    wd_safetensors_item *items = calloc((size_t)count + 1, sizeof *items);
    for (int64_t i = 0; i < count; i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        wd_test_form_name(names[i], e->name, c, p, form);
        items[i] = (wd_safetensors_item){names[i], e->tensor.dtype, e->tensor.ndim, {0}};
        if (form->dtype != WD_DTYPE_COUNT) items[i].dtype = form->dtype;
        memcpy(items[i].dim, e->tensor.dim, sizeof items[i].dim);
    }
    items[count] = (wd_safetensors_item){"spiece_model", WD_U8, 1, {(int64_t)bytes}};
    wd_test_ok(wd_safetensors_create(&writer, path, items, count + (spiece ? 1 : 0), NULL, &err),
               &err);
    for (int64_t i = 0; i < count; i++)
        wd_test_put(writer, &wd_safetensors_at(set, i)->tensor, items[i].dtype);
    if (spiece) wd_test_ok(wd_safetensors_put(writer, spiece, bytes, &err), &err);
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
    wd_safetensors_close(set);
    free(names);
    free(items);
}

/* Copies <model>/<below>/config.json into `folder`, for what no tensor says: wan-tiny has heads of
 * another size than Wan's, and a VAE of its own. */
static inline void wd_test_copy_config(const char *folder, const char *model, const char *below)
{
    char from[WD_PATH_MAX], to[WD_PATH_MAX];
    wd_err err;
    snprintf(from, sizeof from, "%s/%s/config.json", model, below);
    wd_test_ok(wd_path_join(to, folder, "config.json", &err), &err);
    wd_test_ok(wd_file_copy(to, from, &err), &err);
}

/* wan-tiny as ComfyUI's models folder, in `root`: the transformers under original names behind a
 * prefix, the tokenizer in the text encoder's file. */
static inline void wd_test_comfyui_folder(const char *root, const wd_pipeline *p, wd_dtype dtype)
{
    static const struct {
        wd_component component;
        const char *folder, *file;
        wd_test_form form;
    } files[] = {
        {WD_COMPONENT_TRANSFORMER,
         "diffusion_models",
         "tiny_high_noise.safetensors",
         {true, "model.diffusion_model.", WD_DTYPE_COUNT}},
        {WD_COMPONENT_TRANSFORMER_2,
         "diffusion_models",
         "tiny_low_noise.safetensors",
         {true, "", WD_DTYPE_COUNT}},
        {WD_COMPONENT_TEXT_ENCODER,
         "text_encoders",
         "umt5_tiny.safetensors",
         {false, "", WD_DTYPE_COUNT}},
        {WD_COMPONENT_VAE, "vae", "wan_tiny_vae.safetensors", {true, "", WD_DTYPE_COUNT}},
    };
    wd_err err;
    char folder[WD_PATH_MAX], path[WD_PATH_MAX], *spiece;
    size_t bytes;
    snprintf(path, sizeof path, "%s/tokenizer/spiece.model", p->path);
    wd_test_ok(wd_file_read(&spiece, &bytes, path, 1 << 24, &err), &err);
    for (int i = 0; i < 4; i++) {
        const wd_component c = files[i].component;
        wd_test_form form = files[i].form;
        if (c < WD_COMPONENT_TEXT_ENCODER) form.dtype = dtype;
        wd_test_ok(wd_path_join(folder, root, files[i].folder, &err), &err);
        wd_test_ok(wd_folder_make(folder, &err), &err);
        wd_test_ok(wd_path_join(path, folder, files[i].file, &err), &err);
        wd_test_write_form(path, p, c, &form, c == WD_COMPONENT_TEXT_ENCODER ? spiece : NULL,
                           bytes);
        if (c != WD_COMPONENT_TEXT_ENCODER)
            wd_test_copy_config(folder, p->path, wd_component_name(c));
    }
    wd_free(spiece);
}

#endif
