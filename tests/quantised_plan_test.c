/* Plans of a quantised Wan2.2-A14B, from sparse files of its true sizes: host memory, disk and
 * links have the file's bytes, and what is widened is counted beside them. */
#include "gguf_forms.h"
#include "program.h"
#include "sparse.h"
#include "test_preset.h"
#include "core/text.h"

#include <fcntl.h>
#include <unistd.h>

#include "io/json/json.h"
#include "model/tables/dit_table.h"
#include "model/text/umt5.h"

static const wd_umt5_config umt5_xxl = {.layers = 24,
                                        .d_model = 4096,
                                        .d_ff = 10240,
                                        .d_kv = 64,
                                        .heads = 64,
                                        .vocab_size = 256384,
                                        .buckets = 32,
                                        .max_distance = 128,
                                        .eps = 1e-6};

static wd_program program;
static char text[512];
static wd_tensor_table table;

static void write_sparse(const char *path, const char *header, size_t used, size_t data)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || write(fd, header, used) != (ssize_t)used || ftruncate(fd, (off_t)(used + data)))
        fail_msg("%s: cannot be made", path);
    close(fd);
}

/* A form of the matrices of blocks; all else is BF16. GGUF's number of the dtype, or 0: scaled fp8
 * in safetensors. What plans say of it: GB of both files, GiB of host memory under offload, and the
 * strategies that are recommended with 24, 48 and 64 GiB. docs/models.md has the same table. */
static const struct form {
    const char *name;
    wd_dtype dtype;
    uint32_t number;
    double files_gb, offload_gib;
    const char *with[3];
} forms[] = {
    {"BF16", WD_BF16, 30, 57.2, 53.4, {"disk", "disk", "offload"}},
    {"Q8_0", WD_Q8_0, 8, 30.8, 28.9, {"disk", "offload", "offload"}},
    {"scaled fp8", WD_F8_E4M3, 0, 29.1, 27.2, {"disk", "offload", "offload"}},
    {"Q6_K", WD_Q6_K, 14, 24.0, 22.5, {"offload", "offload", "offload"}},
    {"Q5_K", WD_Q5_K, 13, 20.3, 19.1, {"offload", "offload", "offload"}},
    {"Q5_0", WD_Q5_0, 6, 20.3, 19.1, {"offload", "offload", "offload"}},
    {"Q4_K", WD_Q4_K, 12, 16.8, 15.8, {"offload", "offload", "offload"}},
    {"Q4_0", WD_Q4_0, 2, 16.8, 15.8, {"offload", "offload", "offload"}},
    {"Q3_K", WD_Q3_K, 11, 13.0, 12.2, {"offload", "offload", "offload"}},
    {"Q2_K", WD_Q2_K, 10, 10.1, 9.6, {"gpu", "gpu", "gpu"}},
};
enum { FORMS = sizeof forms / sizeof *forms, HOSTS = 3 };

/* Writes it; the bytes of the file. */
static size_t write_scaled_fp8(const char *path)
{
    char *header = malloc(1 << 20), shape[128], layer[256];
    size_t used = 8, data = 0;
    used += (size_t)sprintf(header + used, "{\"scaled_fp8\":{\"dtype\":\"F8_E4M3\",\"shape\":[0],"
                                           "\"data_offsets\":[0,0]}");
    for (int64_t i = 0; i < table.count; i++) {
        const wd_tensor_spec *s = &table.spec[i];
        const wd_dtype dtype = wd_dit_is_matrix(s) ? WD_F8_E4M3 : WD_BF16;
        int64_t count = 1;
        for (int d = 0; d < s->ndim; d++) count *= s->dim[d];
        const size_t bytes = wd_dtype_size(dtype, count);
        wd_dims_text(shape, sizeof shape, s->dim, s->ndim);
        used += (size_t)sprintf(
            header + used, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
            s->name, wd_dtype_file_name(dtype), shape, data, data + bytes);
        data += bytes;
        if (!wd_dit_is_matrix(s)) continue;
        snprintf(layer, sizeof layer, "%.*s", (int)strlen(s->name) - 7, s->name);
        used += (size_t)sprintf(header + used,
                                ",\"%s.scale_weight\":{\"dtype\":\"F32\",\"shape\":[],"
                                "\"data_offsets\":[%zu,%zu]}",
                                layer, data, data + 4);
        data += 4;
    }
    header[used++] = '}';
    const uint64_t length = used - 8;
    memcpy(header, &length, 8);
    write_sparse(path, header, used, data);
    free(header);
    return used + data;
}

static size_t write_gguf(const char *path, const struct form *f)
{
    wd_test_bytes file = {0};
    size_t data = 0;
    wd_test_append(&file, "GGUF", 4);
    wd_test_u32(&file, 3);
    wd_test_u64(&file, (uint64_t)table.count);
    wd_test_u64(&file, 0);
    for (int64_t i = 0; i < table.count; i++) {
        const wd_tensor_spec *s = &table.spec[i];
        const wd_dtype dtype = wd_dit_is_matrix(s) ? f->dtype : WD_BF16;
        int64_t count = 1;
        wd_test_text(&file, s->name);
        wd_test_u32(&file, (uint32_t)s->ndim);
        for (int d = s->ndim - 1; d >= 0; d--) wd_test_u64(&file, (uint64_t)s->dim[d]);
        for (int d = 0; d < s->ndim; d++) count *= s->dim[d];
        wd_test_u32(&file, wd_dit_is_matrix(s) ? f->number : 30);
        wd_test_u64(&file, data);
        data += (wd_dtype_size(dtype, count) + 31) / 32 * 32;
    }
    wd_test_append(&file, NULL, (32 - file.used % 32) % 32);
    write_sparse(path, (const char *)file.data, file.used, data);
    const size_t all = file.used + data;
    free(file.data);
    return all;
}

static size_t write_form(const char *path, const struct form *f)
{
    return f->number ? write_gguf(path, f) : write_scaled_fp8(path);
}

/* The strategy of that name in the plan. */
static const json_t *strategy_of(const json_t *plan, const char *name)
{
    size_t i;
    const json_t *s, *all = json_object_get(plan, "strategies");
    json_array_foreach(all, i, s)
    {
        if (!strcmp(json_string_value(json_object_get(s, "strategy")), name)) return s;
    }
    fail_msg("the plan has no strategy %s", name);
    return NULL;
}

#define OTHER_FILES                                                                                \
    "--text_encoder", text, "--tokenizer", WD_SOURCE_DIR "/models/wan-tiny/tokenizer", "--vae",    \
        WD_SOURCE_DIR "/tests/fixtures/vae-2.1/vae"

/* The plan of a student at 512x512 with a GPU of 24 GiB and so much host memory. */
static json_t *plan_of(const char *high, const char *low, const char *memory)
{
    wd_err err;
    json_t *plan;
    wd_program_run(&program, "plan", "--transformer", high, "--transformer_2", low, OTHER_FILES,
                   "--teacher_preset", "wan2.2-a14b", "--teacher_dtype", "bfloat16",
                   "--mixed_precision", "--gradient_checkpointing", "--height", "512", "--width",
                   "512", "--host_memory", memory, "--json", "--devices",
                   "sim:24GiB@link=25GB/s,compute=150TFLOP/s,cpu=1TFLOP/s");
    wd_program_succeeded(&program);
    wd_test_ok(wd_json_parse(&plan, program.out, strlen(program.out), "plan", &err), &err);
    return plan;
}

/* Libraries, which are measured, take some 50 MB of host memory more or less. */
static void assert_near(const char *what, const struct form *f, double found, double expected)
{
    if (!(fabs(found - expected) <= 0.1))
        fail_msg("%s: %s: %.3f, expected %.1f", f->name, what, found, expected);
}

static void check_offload(const struct form *f, const json_t *plan)
{
    const json_t *offload = strategy_of(plan, "offload");
    const json_t *device = json_array_get(json_object_get(offload, "devices"), 0);
    const double widened = json_number_value(json_object_get(device, "widening"));
    assert_near("GiB of host memory", f,
                json_number_value(json_object_get(offload, "host_peak")) / (1 << 30),
                f->offload_gib);
    if (f->dtype == WD_BF16)
        assert_true(widened == 0);
    else /* a block's matrices in bfloat16 */
        assert_true(widened > 2 * 346e6 && widened < 2 * 360e6);
}

/* Each form with the least memory that does not take disk, and with the most that does: what is
 * recommended for the others of three machines follows. */
static void every_form_on_three_machines(void **state)
{
    (void)state;
    static const char *const memory[HOSTS] = {"24GiB", "48GiB", "64GiB"};
    char high[512], low[512];
    snprintf(high, sizeof high, "%s", wd_test_path("high_noise"));
    snprintf(low, sizeof low, "%s", wd_test_path("low_noise"));
    for (int i = 0; i < FORMS; i++) {
        const struct form *f = &forms[i];
        const size_t bytes = write_form(high, f) + write_form(low, f);
        int least = 0;
        while (!strcmp(f->with[least], "disk")) least++;
        assert_near("GB of both files", f, (double)bytes * 1e-9, f->files_gb);
        for (int m = least ? least - 1 : 0; m <= least; m++) {
            json_t *plan = plan_of(high, low, memory[m]);
            const char *best = json_string_value(json_object_get(plan, "recommended"));
            if (!best || strcmp(best, f->with[m]))
                fail_msg("%s with %s: %s, expected %s", f->name, memory[m], best ? best : "nothing",
                         f->with[m]);
            if (m == least) check_offload(f, plan);
            json_decref(plan);
        }
    }
    unlink(high);
    unlink(low);
}

/* The plan of a student of four steps, whose teacher has guidance, with 64 GiB of host memory and a
 * slow link. */
static json_t *plan_of_four_steps(const struct form *f)
{
    wd_err err;
    json_t *plan;
    char high[512], low[512];
    snprintf(high, sizeof high, "%s", wd_test_path("high_noise"));
    snprintf(low, sizeof low, "%s", wd_test_path("low_noise"));
    write_form(high, f);
    write_form(low, f);
    wd_program_run(&program, "plan", "--transformer", high, "--transformer_2", low, OTHER_FILES,
                   "--teacher_preset", "wan2.2-a14b", "--gradient_checkpointing", "--height", "512",
                   "--width", "512", "--student_steps", "4", "--trajectory_steps", "8",
                   "--host_memory", "64GiB", "--json", "--devices",
                   "sim:24GiB@link=2GB/s,compute=600TFLOP/s,cpu=1TFLOP/s");
    wd_program_succeeded(&program);
    wd_test_ok(wd_json_parse(&plan, program.out, strlen(program.out), "plan", &err), &err);
    unlink(high);
    unlink(low);
    return plan;
}

/* What LoRAs for four steps would save is planned with the weights that they would leave: those
 * that the files have quantised are quantised anew, whatever their form was, and the option for
 * that is named. */
static void loras_quantise_anew(void **state)
{
    (void)state;
    double seconds[WD_DTYPE_COUNT] = {0};
    for (int i = 0; i < FORMS; i++) {
        const wd_dtype dtype = forms[i].dtype;
        if (dtype != WD_BF16 && dtype != WD_F8_E4M3 && dtype != WD_Q8_0 && dtype != WD_Q4_K)
            continue;
        json_t *plan = plan_of_four_steps(&forms[i]);
        const char *named = json_string_value(json_object_get(plan, "step_loras_teacher_dtype"));
        seconds[dtype] = json_number_value(json_object_get(plan, "step_loras_seconds_per_step"));
        if (dtype == WD_F8_E4M3 || dtype == WD_Q8_0)
            assert_string_equal(named ? named : "none", "float8_e4m3fn");
        else
            assert_null(named);
        json_decref(plan);
    }
    assert_true(seconds[WD_F8_E4M3] > 0);
    assert_float_equal(seconds[WD_Q8_0], seconds[WD_F8_E4M3], 1e-9);
    assert_true(seconds[WD_Q4_K] == 0); /* fewer bytes are faster here than no guidance */
}

static int open_table(void **state)
{
    wd_err err;
    (void)state;
    wd_test_ok(wd_umt5_table_open(&table, &umt5_xxl, &err), &err);
    snprintf(text, sizeof text, "%s", wd_test_path("umt5.safetensors"));
    wd_test_sparse_file(text, &table, 0, 1, WD_BF16, "encoder.embed_tokens.weight");
    wd_umt5_table_close(&table);
    const wd_dit_config a14b = wd_test_preset("wan2.2-a14b").dit;
    wd_test_ok(wd_dit_table_open(&table, &a14b, &err), &err);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_on_three_machines),
        cmocka_unit_test(loras_quantise_anew),
    };
    return cmocka_run_group_tests(tests, open_table, NULL);
}
