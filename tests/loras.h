/* LoRA files of tests. */
#ifndef WD_TESTS_LORAS_H
#define WD_TESTS_LORAS_H

#include "testing.h"

#include "model/tables/names.h"

enum { WD_TEST_LORA_MAX = 16 };

/* A tensor of a file. */
typedef struct wd_test_lora {
    char name[192];
    int ndim;
    int64_t dim[WD_DIMS_MAX];
    float value; /* of a tensor of one element; others get values of their own */
} wd_test_lora;

/* Values between -1 and 1 that follow from the tensor's name behind its last prefix. */
static inline float wd_test_lora_value(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state * 0x1p-31f;
}

/* Writes a LoRA file; the values of tensor i follow from `seed` and i alone. */
static inline void wd_test_write_lora(const char *path, const wd_test_lora *tensors, int64_t count,
                                      wd_dtype dtype, uint32_t seed)
{
    wd_err err;
    wd_safetensors_item items[WD_TEST_LORA_MAX];
    wd_safetensors_writer *writer;
    assert_true(count <= WD_TEST_LORA_MAX);
    for (int64_t i = 0; i < count; i++) {
        items[i] = (wd_safetensors_item){tensors[i].name, dtype, tensors[i].ndim, {0}};
        memcpy(items[i].dim, tensors[i].dim, sizeof items[i].dim);
    }
    wd_test_ok(wd_safetensors_create(&writer, path, items, count, NULL, &err), &err);
    for (int64_t i = 0; i < count; i++) {
        uint32_t state = seed + 7919u * (uint32_t)i;
        int64_t elements = 1;
        for (int d = 0; d < tensors[i].ndim; d++) elements *= tensors[i].dim[d];
        for (int64_t k = 0; k < elements; k++) {
            const float f = elements == 1 ? tensors[i].value : wd_test_lora_value(&state);
            const uint16_t half = dtype == WD_F16 ? wd_f32_to_f16(f) : wd_f32_to_bf16(f);
            const void *data = dtype == WD_F32 ? (const void *)&f : &half;
            wd_test_ok(wd_safetensors_put(writer, data, wd_dtype_bytes(dtype), &err), &err);
        }
    }
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
}

/* A file of one tensor, all of whose values are 1. */
static inline void wd_test_write_ones(const char *path, const wd_test_lora *tensor)
{
    wd_err err;
    wd_safetensors_item item = {tensor->name, WD_F32, tensor->ndim, {0}};
    wd_safetensors_writer *writer;
    int64_t elements = 1;
    memcpy(item.dim, tensor->dim, sizeof item.dim);
    for (int d = 0; d < tensor->ndim; d++) elements *= tensor->dim[d];
    wd_test_ok(wd_safetensors_create(&writer, path, &item, 1, NULL, &err), &err);
    for (int64_t k = 0; k < elements; k++)
        wd_test_ok(wd_safetensors_put(writer, &(float){1}, sizeof(float), &err), &err);
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
}

/* How a trainer names the tensors of a module. */
typedef enum wd_test_lora_style {
    WD_TEST_LORA_DIFFUSERS, /* transformer.blocks.0.attn1.to_q.lora_A.weight */
    WD_TEST_LORA_PEFT,      /* diffusion_model.blocks.0.attn1.to_q.lora_A.default.weight */
    WD_TEST_LORA_COMFYUI,   /* diffusion_model.blocks.0.self_attn.q.lora_A.weight */
    WD_TEST_LORA_DOWN_UP,   /* model.diffusion_model.blocks.0.self_attn.q.lora_down.weight */
    WD_TEST_LORA_KOHYA,     /* lora_unet_blocks_0_self_attn_q.lora_down.weight */
    WD_TEST_LORA_STYLES
} wd_test_lora_style;

/* The name of a module's part: 'A', 'B' or 'a' (alpha), 'd' (diff), 'b' (diff_b). `module` is a
 * diffusers name without ".weight". */
static inline void wd_test_lora_name(char out[192], const char *module, char part,
                                     wd_test_lora_style style)
{
    static const char *const prefix[] = {"transformer.", "diffusion_model.", "diffusion_model.",
                                         "model.diffusion_model.", "lora_unet_"};
    char name[WD_TENSOR_NAME_MAX], original[WD_TENSOR_NAME_MAX];
    const char *suffix = part == 'a' ? ".alpha" : part == 'd' ? ".diff" : ".diff_b";
    snprintf(name, sizeof name, "%s", module);
    if (style >= WD_TEST_LORA_COMFYUI) {
        snprintf(name, sizeof name, "%s.weight", module);
        if (wd_names_to_original(original, sizeof original, name))
            original[strlen(original) - strlen(".weight")] = '\0';
        else
            assert_true(wd_names_to_original(original, sizeof original, module));
        memcpy(name, original, sizeof name);
    }
    for (char *c = name; style == WD_TEST_LORA_KOHYA && *c; c++)
        if (*c == '.') *c = '_';
    if (part == 'A' || part == 'B') {
        const bool peft = style == WD_TEST_LORA_PEFT, letters = style <= WD_TEST_LORA_COMFYUI;
        if (letters && peft)
            suffix = part == 'A' ? ".lora_A.default.weight" : ".lora_B.default.weight";
        else if (letters)
            suffix = part == 'A' ? ".lora_A.weight" : ".lora_B.weight";
        else
            suffix = part == 'A' ? ".lora_down.weight" : ".lora_up.weight";
    }
    snprintf(out, 192, "%s%s%s", prefix[style], name, suffix);
}

#endif
