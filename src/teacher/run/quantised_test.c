/* Quantised teachers: every stage is, bit for bit, that of the dequantised twin, wherever it is
 * kept and whatever it computes in, and takes no more memory than the file has. */
#include "gguf_forms.h"

#include "harness/host.h"
#include "teacher/plan/stage_layout.h"

static const wd_dtype storage[] = {WD_F32, WD_BF16, WD_F16};

/* The pipeline whose transformer is that file; what the file does not tell is wan-tiny's. */
static void open_with(wd_pipeline *out, const char *folder, const char *file)
{
    char path[WD_PATH_MAX];
    wd_err err;
    wd_pipeline_parts parts = {0};
    wd_test_copy_config(folder, tiny.path, "transformer");
    wd_test_ok(wd_path_join(path, folder, file, &err), &err);
    parts.part[WD_COMPONENT_TRANSFORMER] = path;
    wd_test_ok(wd_pipeline_open_parts(out, tiny.path, &parts, &err), &err);
}

static wd_pipeline quantised, twin;

enum { FORMS = WD_TEST_QUANTISED_FORMS + 2 };

/* Form `number`: those of safetensors, then GGUF files, whose tensors have every type. */
static void write_form(int number)
{
    char folder[WD_PATH_MAX], file[WD_PATH_MAX], other[WD_PATH_MAX];
    const int gguf = number - WD_TEST_QUANTISED_FORMS;
    const char *name = gguf >= 0 ? "wan.gguf" : "wan.safetensors";
    wd_err err;
    snprintf(folder, sizeof folder, "%s/%d", wd_test_folder(), number);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd_path_join(file, folder, name, &err), &err);
    wd_test_ok(wd_path_join(other, folder, "twin.safetensors", &err), &err);
    if (gguf >= 0)
        wd_test_write_gguf(file, other, &tiny, WD_COMPONENT_TRANSFORMER, gguf ? "wan" : NULL, gguf);
    else
        wd_test_write_quantised(file, other, &tiny, WD_COMPONENT_TRANSFORMER,
                                &wd_test_quantised_forms[number]);
    open_with(&quantised, folder, name);
    open_with(&twin, folder, "twin.safetensors");
}

/* All stages of the first expert, the quantised ones as `home` brings them. */
static void compare(const rank *r, wd_home home, wd_dtype dtype)
{
    wd_residency *there = open_teacher(r, &twin, WD_HOME_DEVICE, dtype, NULL);
    wd_residency *other = open_teacher(r, &quantised, home, dtype, NULL);
    wd__residency_begin(other, (wd_sweep_experts){1, 1}, (wd_sweep_experts){0, 0});
    for (int s = 0; s < stages_of(there); s++) compare_stage(r, other, there, 0, s);
    wd_residency_close(other);
    wd_residency_close(there);
}

static void compare_all(bool simulated)
{
    rank r;
    for (int f = 0; f < FORMS; f++) {
        write_form(f);
        open_devices(&r, simulated);
        for (int d = 0; d < 3; d++)
            for (int home = WD_HOME_DEVICE; home <= WD_HOME_DISK; home++) {
                if (!simulated && home == WD_HOME_HOST) continue; /* a processor has no other */
                compare(&r, (wd_home)home, storage[d]);
            }
        close_devices(&r);
    }
}

static void on_a_processor(void **state)
{
    (void)state;
    compare_all(false);
}

static void on_a_device(void **state)
{
    (void)state;
    compare_all(true);
}

/* In host memory and on the way to a device there are the file's bytes, whatever is computed in. */
static void bytes_are_the_files(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *set;
    wd_teacher_size size[2];
    write_form(2);
    wd_test_ok(wd_pipeline_open_weights(&set, &quantised, WD_COMPONENT_TRANSFORMER, &err), &err);
    const wd_teacher_files files = {.weights = set};
    for (int d = 0; d < 2; d++)
        wd_test_ok(wd_teacher_size_of(&size[d], &quantised.dit, 1, &files, storage[d], &err), &err);
    size_t block = 0;
    for (int i = 0; i < wd_dit_stage_slots(&quantised.dit, 1); i++) {
        char name[WD_TENSOR_NAME_MAX];
        const wd_safetensors_entry *e;
        wd_tensor_table table;
        wd_test_ok(wd_dit_table_open(&table, &quantised.dit, &err), &err);
        snprintf(name, sizeof name, "%s",
                 table.spec[wd_dit_stage_first(&quantised.dit, 1) + i].name);
        wd_dit_table_close(&table);
        e = wd_safetensors_find(set, name);
        block += wd_tensor_bytes(&e->tensor) + (e->scale ? wd_tensor_bytes(&e->scale->tensor) : 0);
    }
    assert_int_equal(size[0].stage[0][1].file, block);
    assert_int_equal(size[1].stage[0][1].file, block);
    assert_true(size[0].stage[0][1].widened > 3 * block); /* as fp32 */
    assert_in_range(size[1].stage[0][1].device, block / 2, block + 64 * 60);
    assert_true(size[1].stage[0][1].widened < size[0].stage[0][1].widened);
    wd_safetensors_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_a_processor),
        cmocka_unit_test(on_a_device),
        cmocka_unit_test(bytes_are_the_files),
    };
    return cmocka_run_group_tests(tests, open_pipelines, NULL);
}
