/* Tests of weights that are quantised on their way in: which they are, their values, what is known
 * before they are written, and how they go with LoRAs and with weights that are quantised already.
 */
#include "loras.h"
#include "quantised.h"
#include "tiny_teacher.h"

#include "dev/codec/values.h"
#include "io/tensors/safetensors.h"

static const char query[] = "blocks.0.attn1.to_q.weight";

static const char *at(const char *name)
{
    static char path[16][WD_PATH_MAX];
    static int next;
    wd_err err;
    char *out = path[next++ % 16];
    wd_test_ok(wd_path_join(out, wd_test_folder(), name, &err), &err);
    return out;
}

static wd_pipeline quantised(const char *loras, const char *folder, wd_dtype dtype)
{
    wd_err err;
    wd_pipeline p;
    const wd_pipeline_parts parts = {.lora = {loras}};
    wd_test_ok(wd_pipeline_open_parts(&p, teacher.path, &parts, &err), &err);
    p.overlay = (wd_overlay){.folder = at(folder), .dtype = WD_BF16, .quantised = dtype};
    return p;
}

static wd_safetensors *open_set(const wd_pipeline *p)
{
    wd_err err;
    wd_safetensors *set;
    wd_test_ok(wd_pipeline_open_weights(&set, p, WD_COMPONENT_TRANSFORMER, &err), &err);
    return set;
}

static void write_overlay(const wd_pipeline *p)
{
    wd_err err;
    wd_test_ok(wd_pipeline_make_overlay(p, &err), &err);
}

/* The quantised tensor is the other one in bytes, by the largest magnitude of each row. */
static void check_matrix(const wd_tensor *found, const wd_tensor *wide, wd_dtype dtype)
{
    const int64_t rows = wide->dim[0], columns = wide->dim[1];
    assert_int_equal(found->dtype, dtype);
    assert_int_equal(found->scales.dtype, WD_F32);
    assert_int_equal(found->scales.rows, rows);
    assert_int_equal(found->scales.columns, 1);
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *q = (const uint8_t *)found->data + r * columns;
        const float scale = ((const float *)found->scales.data)[r];
        float largest = 0;
        for (int64_t i = 0; i < columns; i++)
            largest = fmaxf(largest, fabsf(wd_test_value(wide, (size_t)(r * columns + i))));
        assert_true(scale == largest / wd_test_limit(dtype));
        for (int64_t i = 0; i < columns; i++) {
            const float v = wd_test_value(wide, (size_t)(r * columns + i));
            const float error = fabsf(wd_test_decode(q[i], dtype) * scale - v);
            /* half a step: of int8 the scale, of e4m3fn a 16th of the value, at least 2^-10 */
            const float step = dtype == WD_I8 ? 0.5f : fmaxf(0x1p-10f, fabsf(v / scale) / 16);
            assert_true(error <= step * scale * 1.00001f);
        }
    }
}

static void matrices_of_blocks(void **state)
{
    (void)state;
    static const wd_dtype dtypes[] = {WD_F8_E4M3, WD_I8};
    const wd_test_quantised like = {.scale = "scale"};
    wd_safetensors *base = open_set(&teacher);
    for (int d = 0; d < 2; d++) {
        const wd_pipeline p = quantised(NULL, "by-row", dtypes[d]);
        int matrices = 0;
        write_overlay(&p);
        wd_safetensors *set = open_set(&p);
        assert_int_equal(wd_safetensors_count(set), wd_safetensors_count(base));
        for (int64_t i = 0; i < wd_safetensors_count(base); i++) {
            const wd_safetensors_entry *a = wd_safetensors_at(base, i);
            const wd_safetensors_entry *b = wd_safetensors_at(set, i);
            assert_string_equal(a->name, b->name);
            if (wd_test_is_quantised(a, &like)) {
                check_matrix(&b->tensor, &a->tensor, dtypes[d]);
                matrices++;
                continue;
            }
            assert_int_equal(a->tensor.dtype, b->tensor.dtype);
            assert_memory_equal(a->tensor.data, b->tensor.data, wd_tensor_bytes(&a->tensor));
        }
        assert_int_equal(matrices, 10 * teacher.dit.layers);
        wd_safetensors_close(set);
    }
    wd_safetensors_close(base);
}

/* Before the file is written, plans know dtypes and sizes; the key tells dtypes apart. */
static void plans_need_no_data(void **state)
{
    (void)state;
    static const wd_dtype dtypes[] = {WD_F32, WD_F8_E4M3, WD_I8};
    char key[3][WD_LORA_KEY_MAX];
    wd_err err;
    for (int d = 0; d < 3; d++) {
        const wd_pipeline p = quantised(NULL, "planned", dtypes[d]);
        wd_test_ok(wd_pipeline_weights_key(key[d], &p, WD_COMPONENT_TRANSFORMER, "", &err), &err);
        for (int k = 0; k < d; k++) assert_string_not_equal(key[k], key[d]);
        for (int written = 0; d && written < 2; written++) {
            wd_safetensors *set = open_set(&p);
            const wd_safetensors_entry *e = wd_safetensors_find(set, query);
            assert_int_equal(e->tensor.dtype, dtypes[d]);
            assert_true((e->tensor.data != NULL) == written);
            assert_true(e->scaled);
            assert_int_equal(wd_tensor_bytes(&e->scale->tensor), 4 * e->tensor.dim[0]);
            assert_ptr_equal(e->scale->tensor.data, e->tensor.scales.data);
            wd_safetensors_close(set);
            write_overlay(&p);
        }
    }
}

/* LoRAs are merged in fp32, and the sum is quantised; what else they change is in bfloat16. */
static void after_loras(void **state)
{
    (void)state;
    static const wd_test_lora tensors[] = {
        {"diffusion_model.blocks.0.self_attn.q.lora_down.weight", 2, {2, 160}, 0},
        {"diffusion_model.blocks.0.self_attn.q.lora_up.weight", 2, {160, 2}, 0},
        {"diffusion_model.blocks.0.self_attn.q.diff_b", 1, {160}, 0},
        {"diffusion_model.blocks.0.modulation.diff", 3, {1, 6, 160}, 0},
    };
    static const char bias[] = "blocks.0.attn1.to_q.bias", table[] = "blocks.0.scale_shift_table";
    char lora[WD_PATH_MAX];
    wd_err err;
    wd_pipeline wide;
    snprintf(lora, sizeof lora, "%s", at("lora.safetensors"));
    wd_test_write_lora(lora, tensors, 4, WD_F32, 5);
    const wd_pipeline p = quantised(lora, "with-lora", WD_F8_E4M3);
    const wd_pipeline_parts parts = {.lora = {lora}};
    wd_test_ok(wd_pipeline_open_parts(&wide, teacher.path, &parts, &err), &err);
    wide.overlay = (wd_overlay){.folder = at("merged"), .dtype = WD_F32};
    write_overlay(&p);
    write_overlay(&wide);
    wd_safetensors *set = open_set(&p), *merged = open_set(&wide), *base = open_set(&teacher);
    const wd_tensor *before = &wd_safetensors_find(base, query)->tensor;
    const wd_tensor *sum = &wd_safetensors_find(merged, query)->tensor;
    assert_memory_not_equal(before->data, sum->data, wd_tensor_bytes(before));
    check_matrix(&wd_safetensors_find(set, query)->tensor, sum, WD_F8_E4M3);
    assert_int_equal(wd_safetensors_find(set, bias)->tensor.dtype, WD_BF16);
    assert_int_equal(wd_safetensors_find(set, table)->tensor.dtype, WD_F32);
    wd_safetensors_close(base);
    wd_safetensors_close(merged);
    wd_safetensors_close(set);
}

/* A pipeline whose transformer is a file in one of the forms of quantised.h. */
static wd_pipeline of_form(int form, const char *name)
{
    char folder[WD_PATH_MAX], file[WD_PATH_MAX], twin[WD_PATH_MAX];
    wd_pipeline p;
    wd_pipeline_parts parts = {0};
    wd_err err;
    snprintf(folder, sizeof folder, "%s", at(name));
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_copy_config(folder, teacher.path, "transformer");
    wd_test_ok(wd_path_join(file, folder, "wan.safetensors", &err), &err);
    wd_test_ok(wd_path_join(twin, folder, "twin.safetensors", &err), &err);
    wd_test_write_quantised(file, twin, &teacher, WD_COMPONENT_TRANSFORMER,
                            &wd_test_quantised_forms[form]);
    parts.part[WD_COMPONENT_TRANSFORMER] = file;
    wd_test_ok(wd_pipeline_open_parts(&p, teacher.path, &parts, &err), &err);
    return p;
}

/* What a file has quantised stays as it is there, and nothing is written where that is all. */
static void quantised_files_stay(void **state)
{
    (void)state;
    wd_pipeline p = of_form(2, "form");
    wd_safetensors *base = open_set(&p);
    p.overlay = (wd_overlay){.folder = at("nothing"), .dtype = WD_BF16, .quantised = WD_I8};
    p.has[WD_COMPONENT_TRANSFORMER_2] = false;
    write_overlay(&p);
    assert_false(wd_path_exists(p.overlay.folder));
    wd_safetensors *set = open_set(&p);
    const wd_safetensors_entry *a = wd_safetensors_find(base, query);
    const wd_safetensors_entry *b = wd_safetensors_find(set, query);
    assert_int_equal(b->tensor.dtype, WD_F8_E4M3);
    assert_string_equal(a->file, b->file);
    assert_int_equal(a->file_offset, b->file_offset);
    wd_safetensors_close(set);
    wd_safetensors_close(base);
}

/* A LoRA that changes tensors of a file that is fp8 throughout, each kept in the dtype of its own:
 * those that stay fp32 are merged to F32, the others to BF16. */
static void merged_islands_of_a_quantised_file(void **state)
{
    (void)state;
    static const wd_test_lora tensors[] = {
        {"diffusion_model.blocks.0.modulation.diff", 3, {1, 6, 160}, 0},
        {"diffusion_model.blocks.0.self_attn.q.diff", 2, {160, 160}, 0},
    };
    static const char table[] = "blocks.0.scale_shift_table";
    char lora[WD_PATH_MAX];
    wd_pipeline p = of_form(0, "fp8");
    wd_safetensors *base = open_set(&p);
    snprintf(lora, sizeof lora, "%s", at("island.safetensors"));
    wd_test_write_lora(lora, tensors, 2, WD_F32, 5);
    p.lora[0] = lora;
    p.overlay = (wd_overlay){.folder = at("islands"), .dtype = WD_DTYPE_COUNT};
    write_overlay(&p);
    wd_safetensors *set = open_set(&p);
    const wd_tensor *before = &wd_safetensors_find(base, table)->tensor;
    const wd_tensor *after = &wd_safetensors_find(set, table)->tensor;
    assert_int_equal(before->dtype, WD_F8_E4M3);
    assert_int_equal(after->dtype, WD_F32);
    assert_int_equal(wd_safetensors_find(set, query)->tensor.dtype, WD_BF16);
    uint32_t state_of = 5;
    for (int64_t i = 0; i < wd_tensor_count(after); i++)
        assert_true(((const float *)after->data)[i] ==
                    wd_test_decode(((const uint8_t *)before->data)[i], WD_F8_E4M3) +
                        wd_test_lora_value(&state_of));
    wd_safetensors_close(set);
    wd_safetensors_close(base);
}

/* Values that are no numbers are refused before anything is in the folder under its name. */
static void no_numbers(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    char folder[WD_PATH_MAX], command[3 * WD_PATH_MAX];
    wd_err err;
    wd_pipeline p = of_form(0, "broken");
    snprintf(folder, sizeof folder, "%s", at("broken"));
    for (int k = 0; k < 3; k++) {
        wd_safetensors *set;
        snprintf(command, sizeof command, "cp %s/twin.safetensors %s/wan.safetensors", folder,
                 folder);
        assert_int_equal(system(command), 0);
        set = open_set(&p);
        const wd_safetensors_entry *e = wd_safetensors_find(set, query);
        FILE *file = fopen(e->file, "r+b");
        assert_int_equal(fseek(file, (long)e->file_offset + 4 * 1000, SEEK_SET), 0);
        assert_int_equal(fwrite(&bad[k], 4, 1, file), 1);
        fclose(file);
        wd_safetensors_close(set);
        p.overlay = (wd_overlay){.folder = at("refused"), .dtype = WD_BF16, .quantised = WD_I8};
        wd_test_refused(wd_pipeline_make_overlay(&p, &err), &err, WD_UNSUPPORTED,
                        "which int8 cannot hold");
        assert_non_null(strstr(err.message, query));
        snprintf(command, sizeof command, "test -z \"$(ls %s)\"", at("refused"));
        assert_int_equal(system(command), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_of_blocks), cmocka_unit_test(plans_need_no_data),
        cmocka_unit_test(after_loras),        cmocka_unit_test(quantised_files_stay),
        cmocka_unit_test(no_numbers),         cmocka_unit_test(merged_islands_of_a_quantised_file),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
