/* Plans of a quantised Wan2.2-A14B, from sparse files of its true sizes: host memory, disk and
 * links have the file's bytes, and what is widened is counted beside them. */
#include "gguf_forms.h"
#include "program.h"
#include "sparse.h"
#include "test_preset.h"

#include <fcntl.h>
#include <unistd.h>

#include "io/json.h"
#include "wan/dit_table.h"
#include "wan/umt5.h"

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

static bool is_matrix(const wd_tensor_spec *s)
{
    return s->ndim == 2 && !s->keep_f32 && !strncmp(s->name, "blocks.", 7);
}

static void write_sparse(const char *path, const char *header, size_t used, size_t data)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || write(fd, header, used) != (ssize_t)used || ftruncate(fd, (off_t)(used + data)))
        fail_msg("%s: cannot be made", path);
    close(fd);
}

/* The matrices of blocks in F8_E4M3, each with one scale, the rest in BF16. */
static void write_scaled_fp8(const char *path)
{
    char *header = malloc(1 << 20), shape[128], layer[256];
    size_t used = 8, data = 0;
    used += (size_t)sprintf(header + used, "{\"scaled_fp8\":{\"dtype\":\"F8_E4M3\",\"shape\":[0],"
                                           "\"data_offsets\":[0,0]}");
    for (int64_t i = 0; i < table.count; i++) {
        const wd_tensor_spec *s = &table.spec[i];
        const wd_dtype dtype = is_matrix(s) ? WD_F8_E4M3 : WD_BF16;
        int64_t count = 1;
        for (int d = 0; d < s->ndim; d++) count *= s->dim[d];
        const size_t bytes = wd_dtype_size(dtype, count);
        wd_dims_text(shape, sizeof shape, s->dim, s->ndim);
        used += (size_t)sprintf(
            header + used, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
            s->name, wd_dtype_file_name(dtype), shape, data, data + bytes);
        data += bytes;
        if (!is_matrix(s)) continue;
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
}

/* The matrices of blocks in Q4_K, the rest in BF16. */
static void write_q4_k(const char *path)
{
    wd_test_bytes file = {0};
    size_t data = 0;
    wd_test_append(&file, "GGUF", 4);
    wd_test_u32(&file, 3);
    wd_test_u64(&file, (uint64_t)table.count);
    wd_test_u64(&file, 0);
    for (int64_t i = 0; i < table.count; i++) {
        const wd_tensor_spec *s = &table.spec[i];
        const wd_dtype dtype = is_matrix(s) ? WD_Q4_K : WD_BF16;
        int64_t count = 1;
        wd_test_text(&file, s->name);
        wd_test_u32(&file, (uint32_t)s->ndim);
        for (int d = s->ndim - 1; d >= 0; d--) wd_test_u64(&file, (uint64_t)s->dim[d]);
        for (int d = 0; d < s->ndim; d++) count *= s->dim[d];
        wd_test_u32(&file, is_matrix(s) ? 12 : 30);
        wd_test_u64(&file, data);
        data += (wd_dtype_size(dtype, count) + 31) / 32 * 32;
    }
    wd_test_append(&file, NULL, (32 - file.used % 32) % 32);
    write_sparse(path, (const char *)file.data, file.used, data);
    free(file.data);
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

static void check(void (*write)(const char *), const char *name, const char *memory,
                  double host_least, double host_most)
{
    char high[512], low[512];
    wd_err err;
    json_t *plan;
    snprintf(high, sizeof high, "%s-high_noise", wd_test_path(name));
    snprintf(low, sizeof low, "%s-low_noise", wd_test_path(name));
    write(high);
    write(low);
    wd_program_run(&program, "plan", "--transformer", high, "--transformer_2", low,
                   "--text_encoder", text, "--tokenizer",
                   WD_SOURCE_DIR "/models/wan-tiny/tokenizer", "--vae",
                   WD_SOURCE_DIR "/tests/fixtures/vae-2.1/vae", "--teacher_preset", "wan2.2-a14b",
                   "--teacher_dtype", "bfloat16", "--mixed_precision", "--gradient_checkpointing",
                   "--height", "512", "--width", "512", "--host_memory", memory, "--json",
                   "--devices", "sim:24GiB@link=25GB/s,compute=150TFLOP/s");
    wd_program_succeeded(&program);
    wd_test_ok(wd_json_parse(&plan, program.out, strlen(program.out), "plan", &err), &err);
    const json_t *offload = strategy_of(plan, "offload");
    assert_true(json_is_true(json_object_get(offload, "fits")));
    const double host = json_number_value(json_object_get(offload, "host_peak"));
    if (host < host_least || host > host_most)
        fail_msg("%s: %.2f GB of host memory, expected %.1f to %.1f", name, host * 1e-9,
                 host_least * 1e-9, host_most * 1e-9);
    const json_t *device = json_array_get(json_object_get(offload, "devices"), 0);
    const double widened = json_number_value(json_object_get(device, "widening"));
    assert_true(widened > 2 * 346e6 && widened < 2 * 360e6); /* a block's matrices in bfloat16 */
    json_decref(plan);
    unlink(high);
    unlink(low);
}

static void scaled_fp8(void **state)
{
    (void)state;
    check(write_scaled_fp8, "fp8", "30GiB", 28.5e9, 32e9);
}

static void q4_k(void **state)
{
    (void)state;
    check(write_q4_k, "q4", "18GiB", 16e9, 18e9);
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
        cmocka_unit_test(scaled_fp8),
        cmocka_unit_test(q4_k),
    };
    return cmocka_run_group_tests(tests, open_table, NULL);
}
