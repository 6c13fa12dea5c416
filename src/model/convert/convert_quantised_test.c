/* Transformers as quantised files: which tensor has which dtype, that values are the nearest ones,
 * what loaders ask of names and metadata, and that a file reads back as what it was. */
#include "testing.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/stop.h"
#include "dev/codec/values.h"
#include "io/tensors/gguf_cursor.h"
#include "model/convert/convert.h"
#include "model/convert/convert_lines.h"
#include "model/files/pipeline.h"
#include "model/tables/dit_table.h"

/* Rows of 256 and 768 values, as Q4_K wants them, and heads of 128, as ComfyUI does. */
static const wd_dit_config config = {16, 16, 2, 128, 768, 1, 256, 96, {1, 2, 2}, 1024, true, 1e-6};
static wd_pipeline model; /* with these weights, in F32 */

static const char *below(char path[WD_PATH_MAX], const char *name)
{
    wd_err err;
    wd_test_ok(wd_path_join(path, wd_test_folder(), name, &err), &err);
    return path;
}

static float factor = 1; /* of all values */

/* Value i of line k: about as large as weights are. `odd`: that of one value of each matrix. */
static float value_of(int64_t k, int64_t i, float odd)
{
    const uint64_t bits = (uint64_t)(k * 7919 + i + 1) * 0x9e3779b97f4a7c15u;
    const float u = ((float)(bits >> 40) / (1 << 24) - 0.5f) * factor;
    return i == 300 && odd != 0 ? odd : u * (0.02f + 0.01f * (float)(i % 7));
}

/* Writes <name>/transformer with random weights and opens it. */
static void write_model(wd_pipeline *out, const char *name, float odd)
{
    wd_err err;
    wd_tensor_table table;
    wd_safetensors_writer *writer;
    char path[WD_PATH_MAX], folder[WD_PATH_MAX], root[WD_PATH_MAX];
    below(root, name);
    wd_test_ok(wd_path_join(folder, root, "transformer", &err), &err);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd_dit_table_open(&table, &config, &err), &err);
    wd_safetensors_item *items = calloc((size_t)table.count, sizeof *items);
    for (int64_t k = 0; k < table.count; k++) {
        items[k] = (wd_safetensors_item){table.spec[k].name, WD_F32, table.spec[k].ndim, {0}};
        memcpy(items[k].dim, table.spec[k].dim, sizeof items[k].dim);
    }
    wd_test_ok(wd_path_join(path, folder, "diffusion_pytorch_model.safetensors", &err), &err);
    wd_test_ok(wd_safetensors_create(&writer, path, items, table.count, NULL, &err), &err);
    for (int64_t k = 0; k < table.count; k++) {
        int64_t count = 1;
        for (int d = 0; d < items[k].ndim; d++) count *= items[k].dim[d];
        const bool is_odd = wd_dit_is_matrix(&table.spec[k]);
        for (int64_t i = 0; i < count; i++) {
            const float v = value_of(k, i, is_odd ? odd : 0);
            wd_test_ok(wd_safetensors_put(writer, &v, sizeof v, &err), &err);
        }
    }
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
    json_t *json = wd_dit_config_json(&config);
    wd_test_ok(wd_path_join(path, folder, "config.json", &err), &err);
    wd_test_ok(wd_json_save(json, path, &err), &err);
    json_decref(json);
    free(items);
    wd_dit_table_close(&table);
    wd_test_ok(wd_pipeline_open(out, root, &err), &err);
}

/* Opens a file as a transformer, under diffusers' names. */
static wd_safetensors *open_file(wd_pipeline *p, const char *path)
{
    wd_err err;
    wd_safetensors *set;
    const wd_pipeline_parts parts = {.part = {[WD_COMPONENT_TRANSFORMER] = path}};
    wd_test_ok(wd_pipeline_open_parts(p, NULL, &parts, &err), &err);
    assert_true(wd_dit_config_same(&p->dit, &config));
    wd_test_ok(wd_pipeline_open_weights(&set, p, WD_COMPONENT_TRANSFORMER, &err), &err);
    return set;
}

static wd_safetensors *open_model(const wd_pipeline *p)
{
    wd_err err;
    wd_safetensors *set;
    wd_test_ok(wd_pipeline_open_weights(&set, p, WD_COMPONENT_TRANSFORMER, &err), &err);
    return set;
}

static bool is_matrix(const wd_safetensors_entry *e)
{
    return e->tensor.ndim == 2 && !strncmp(e->name, "blocks.", 7);
}

/* ---- dtypes ---- */

static void dtypes_of_tensors(void **state)
{
    (void)state;
    const wd_dtype none = WD_DTYPE_COUNT;
    static const wd_tensor_spec q = {"blocks.0.attn1.to_q.weight", 2, {256, 512}, 1, 0, 0},
                                thin = {"blocks.0.attn1.to_q.weight", 2, {256, 160}, 1, 0, 0},
                                odd = {"blocks.0.attn1.to_q.weight", 2, {256, 100}, 1, 0, 0},
                                small = {"blocks.0.attn1.to_q.weight", 2, {2, 512}, 1, 0, 0},
                                bias = {"blocks.0.attn1.to_q.bias", 1, {4096}, 1, 0, 0},
                                head = {"proj_out.weight", 2, {64, 512}, 3, 0, 0},
                                time = {"time.weight", 2, {512, 512}, 0, true, 0},
                                patch = {"patch_embedding.weight", 5, {512, 16, 1, 2, 2}, 0, 0, 0};
    const struct {
        const wd_tensor_spec *spec;
        wd_dtype stored, asked, gguf, safetensors; /* WD_U8: is not asked */
    } cases[] = {
        {&q, WD_F32, WD_Q4_K, WD_Q4_K, WD_U8},       {&q, WD_BF16, WD_Q8_0, WD_Q8_0, WD_U8},
        {&thin, WD_F32, WD_Q4_K, WD_Q8_0, WD_U8},    {&odd, WD_F32, WD_Q4_K, WD_F16, WD_U8},
        {&odd, WD_BF16, WD_Q8_0, WD_BF16, WD_U8},    {&small, WD_F32, WD_Q8_0, WD_F32, WD_U8},
        {&bias, WD_BF16, WD_Q8_0, WD_F32, WD_U8},    {&head, WD_F32, WD_Q4_K, WD_F16, WD_U8},
        {&head, WD_BF16, WD_Q4_K, WD_BF16, WD_U8},   {&head, WD_F8_E4M3, WD_Q4_K, WD_BF16, WD_U8},
        {&time, WD_BF16, WD_Q4_K, WD_F32, WD_U8},    {&patch, WD_BF16, WD_Q4_K, WD_F32, WD_U8},
        {&q, WD_F32, WD_BF16, WD_BF16, WD_BF16},     {&bias, WD_F32, WD_BF16, WD_F32, WD_BF16},
        {&time, WD_BF16, WD_F16, WD_F32, WD_F32},    {&q, WD_Q6_K, none, WD_Q6_K, WD_BF16},
        {&q, WD_F16, none, WD_F16, WD_F16},          {&q, WD_F8_E4M3, none, WD_BF16, WD_BF16},
        {&thin, WD_Q4_K, none, WD_BF16, WD_BF16},    {&bias, WD_BF16, none, WD_F32, WD_BF16},
        {&q, WD_F32, WD_F8_E4M3, WD_U8, WD_F8_E4M3}, {&head, WD_F32, WD_F8_E4M3, WD_U8, WD_BF16},
        {&time, WD_F32, WD_F8_E4M3, WD_U8, WD_F32},  {&bias, WD_F32, WD_F8_E4M3, WD_U8, WD_BF16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const wd_dtype stored = cases[i].stored, asked = cases[i].asked;
        if (cases[i].gguf != WD_U8 &&
            wd_convert_gguf_dtype(cases[i].spec, stored, asked) != cases[i].gguf)
            fail_msg("GGUF, case %d", (int)i);
        if (cases[i].safetensors != WD_U8 &&
            wd_convert_safetensors_dtype(cases[i].spec, stored, asked) != cases[i].safetensors)
            fail_msg("safetensors, case %d", (int)i);
    }
}

/* ---- values ---- */

/* The root of the mean squared error over the root of the mean square. */
static double relative_error(const wd_tensor *exact, const wd_tensor *found)
{
    double errors = 0, squares = 0;
    float x[256], y[256];
    const int64_t count = wd_tensor_count(exact);
    for (int64_t at = 0; at < count; at += 256) {
        const int64_t n = count - at < 256 ? count - at : 256;
        wd_tensor_values(x, exact, at, n);
        wd_tensor_values(y, found, at, n);
        for (int64_t i = 0; i < n; i++) {
            errors += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
            squares += (double)x[i] * (double)x[i];
        }
    }
    return sqrt(errors / squares);
}

/* Every tensor of the file is one of the model's, rounded as its dtype rounds. */
static void check_values(const char *path, wd_dtype matrices, wd_dtype others, double most)
{
    wd_pipeline p;
    wd_safetensors *exact = open_model(&model), *found = open_file(&p, path);
    int64_t quantised = 0;
    assert_int_equal(wd_safetensors_count(exact), wd_safetensors_count(found));
    for (int64_t i = 0; i < wd_safetensors_count(exact); i++) {
        const wd_safetensors_entry *x = wd_safetensors_at(exact, i);
        const wd_safetensors_entry *y = wd_safetensors_find(found, x->name);
        const double error = relative_error(&x->tensor, &y->tensor);
        if (is_matrix(x)) {
            assert_int_equal(y->tensor.dtype, matrices);
            if (error > most || error < most / 8) fail_msg("%s: error %g", x->name, error);
            quantised++;
        } else if (y->tensor.dtype == WD_F32) {
            assert_true(error == 0);
        } else {
            assert_int_equal(y->tensor.dtype, others);
            if (error > 0x1p-8) fail_msg("%s: error %g", x->name, error); /* 2^-8 at most */
        }
    }
    assert_int_equal(quantised, 10);
    wd_safetensors_close(exact);
    wd_safetensors_close(found);
}

static void convert(const char *path, bool gguf, const wd_pipeline *p, wd_dtype dtype)
{
    wd_err err;
    const wd_component c = WD_COMPONENT_TRANSFORMER;
    const wd_dtype *asked = dtype == WD_DTYPE_COUNT ? NULL : &dtype;
    wd_file_abandon(path);
    wd_test_ok(gguf ? wd_convert_to_gguf(path, p, c, asked, &err)
                    : wd_convert_to_original(path, p, c, asked, &err),
               &err);
}

static void values_are_rounded(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    convert(below(path, "q8.gguf"), true, &model, WD_Q8_0);
    check_values(path, WD_Q8_0, WD_F16, 0.007); /* 1 / (127 sqrt 12) of the largest */
    convert(below(path, "q4.gguf"), true, &model, WD_Q4_K);
    check_values(path, WD_Q4_K, WD_F16, 0.07); /* 15 steps */
    convert(below(path, "f8.safetensors"), false, &model, WD_F8_E4M3);
    check_values(path, WD_F8_E4M3, WD_BF16, 0.03); /* 3 bits of mantissa */
}

/* Values that are all below what scales can hold become 0. */
static void tiny_values(void **state)
{
    (void)state;
    static const wd_dtype dtypes[] = {WD_F8_E4M3, WD_Q8_0, WD_Q4_K};
    char path[WD_PATH_MAX];
    wd_pipeline tiny, p;
    factor = 0x1p-140f;
    write_model(&tiny, "tiny", 0);
    factor = 1;
    for (int d = 0; d < 3; d++) {
        convert(below(path, d ? "tiny.gguf" : "tiny.safetensors"), d > 0, &tiny, dtypes[d]);
        wd_safetensors *set = open_file(&p, path);
        for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
            const wd_safetensors_entry *e = wd_safetensors_at(set, i);
            for (int64_t k = 0; is_matrix(e) && k < wd_tensor_count(&e->tensor); k++) {
                float value;
                wd_tensor_values(&value, &e->tensor, k, 1);
                if (value != 0)
                    fail_msg("%s: value %lld is %g", e->name, (long long)k, (double)value);
            }
        }
        wd_safetensors_close(set);
    }
}

/* ---- loaders ---- */

/* ComfyUI's scaled fp8 (comfy/utils.py, convert_old_quants): a mark of two values, which asks for
 * products in full precision, and one scale, a scalar, for each quantised weight, with which the
 * largest magnitude is 448. Everything has an original name. */
static void scaled_fp8_is_comfyuis(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *set;
    char path[WD_PATH_MAX], name[WD_TENSOR_NAME_MAX];
    int64_t scales = 0, weights = 0;
    convert(below(path, "names.safetensors"), false, &model, WD_F8_E4M3);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    const wd_safetensors_entry *mark = wd_safetensors_find(set, "scaled_fp8");
    assert_true(mark && mark->tensor.dtype == WD_F8_E4M3 && wd_tensor_count(&mark->tensor) == 2);
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        const char *end = strstr(e->name, ".scale_weight");
        assert_false(e->unaligned);
        if (e->tensor.dtype == WD_F8_E4M3 && e != mark) weights++;
        if (!end) continue;
        scales++;
        assert_int_equal(e->tensor.ndim, 0);
        assert_int_equal(e->tensor.dtype, WD_F32);
        snprintf(name, sizeof name, "%.*s.weight", (int)(end - e->name), e->name);
        const wd_safetensors_entry *weight = wd_safetensors_find(set, name);
        assert_true(weight && weight->tensor.dtype == WD_F8_E4M3);
        int most = 0;
        for (int64_t k = 0; k < wd_tensor_count(&weight->tensor); k++) {
            const int magnitude = ((const uint8_t *)weight->tensor.data)[k] & 0x7f;
            most = magnitude > most ? magnitude : most;
        }
        assert_int_equal(most, 0x7e);
    }
    assert_int_equal(scales, 10);
    assert_int_equal(weights, scales);
    assert_non_null(wd_safetensors_find(set, "blocks.0.cross_attn.o.scale_weight"));
    assert_non_null(wd_safetensors_find(set, "blocks.0.ffn.2.scale_weight"));
    wd_safetensors_close(set);
}

/* ComfyUI-GGUF (loader.py) asks for the architecture, and takes it for Wan by three names.
 * stable-diffusion.cpp reads files with a tensor of five dimensions by a reader of its own
 * (gguf_reader_ext.h), which knows no arrays among the metadata. ggml's names have at most 63
 * bytes, and its data begin at multiples of 32. */
static void gguf_is_what_loaders_expect(void **state)
{
    (void)state;
    static const char *const asked[] = {"blocks.0.self_attn.norm_q.weight",
                                        "text_embedding.2.weight", "head.modulation",
                                        "blocks.0.cross_attn.norm_k.weight"};
    wd_err err;
    char path[WD_PATH_MAX], *text;
    size_t bytes;
    uint64_t tensors, values, number, type = 0, version = 0;
    wd_gguf_value v;
    wd_safetensors *set;
    convert(below(path, "loaders.gguf"), true, &model, WD_Q4_K);
    wd_test_ok(wd_file_read(&text, &bytes, path, 1 << 26, &err), &err);
    const uint8_t *at = (const uint8_t *)text;
    wd_gguf_cursor c = {path, at, at, at + bytes, false};
    wd_test_ok(wd__gguf_begin(&tensors, &values, &c, &err), &err);
    for (uint64_t i = 0; i < values; i++) {
        wd_test_ok(wd__gguf_value_next(&v, &c, &err), &err);
        assert_false(v.is_array);
        assert_true(v.type == WD_GGUF_STRING || v.type == WD_GGUF_U32);
        if (i == 0) assert_true(wd__gguf_is_key(&v, "general.architecture"));
        if (wd__gguf_is_key(&v, "general.file_type") && wd__gguf_integer(&number, &v, 0))
            type = number;
        if (wd__gguf_is_key(&v, "general.quantization_version") && wd__gguf_integer(&number, &v, 0))
            version = number;
    }
    wd_free(text);
    assert_int_equal(type, 14); /* mostly Q4_K_S */
    assert_int_equal(version, 2);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    assert_string_equal(wd_safetensors_metadata(set, "general.architecture"), "wan");
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        assert_non_null(wd_safetensors_find(set, asked[i]));
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        assert_true(strlen(e->name) < 64 && e->file_offset % 32 == 0);
        if (e->tensor.ndim != 2) assert_int_equal(e->tensor.dtype, WD_F32);
    }
    assert_int_equal(wd_safetensors_find(set, "patch_embedding.weight")->tensor.ndim, 5);
    assert_int_equal(wd_safetensors_find(set, "head.modulation")->tensor.ndim, 3);
    wd_safetensors_close(set);
}

/* ---- back again ---- */

/* A file that is converted again to its form has the same bytes; and back in diffusers' layout its
 * values are those of the file. */
static void they_read_back(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool gguf;
        wd_dtype dtype, again;
    } forms[] = {
        {"again-f8.safetensors", false, WD_F8_E4M3, WD_F8_E4M3},
        {"again-q8.gguf", true, WD_Q8_0, WD_DTYPE_COUNT},
        {"again-q8-too.gguf", true, WD_Q8_0, WD_Q8_0},
        {"again-q4.gguf", true, WD_Q4_K, WD_Q4_K},
        {"again-bf16.gguf", true, WD_BF16, WD_DTYPE_COUNT},
        {"again-f16.gguf", true, WD_F16, WD_F16},
        {"again-f32.gguf", true, WD_F32, WD_F32},
    };
    const wd_dtype wide = WD_F32;
    wd_err err;
    wd_pipeline p, q;
    char path[WD_PATH_MAX], second[WD_PATH_MAX], folder[WD_PATH_MAX], name[64];
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        convert(below(path, forms[f].name), forms[f].gguf, &model, forms[f].dtype);
        wd_safetensors *first = open_file(&p, path);
        convert(below(second, "second"), forms[f].gguf, &p, forms[f].again);
        wd_test_same_files(path, second);
        snprintf(name, sizeof name, "%s-back/transformer", forms[f].name);
        wd_test_ok(
            wd_convert_to_diffusers(below(folder, name), path, NULL, NULL, &wide, false, &err),
            &err);
        *strrchr(folder, '/') = 0;
        wd_test_ok(wd_pipeline_open(&q, folder, &err), &err);
        assert_true(wd_dit_config_same(&q.dit, &config));
        wd_safetensors *back = open_model(&q);
        for (int64_t i = 0; i < wd_safetensors_count(first); i++) {
            const wd_safetensors_entry *x = wd_safetensors_at(first, i);
            assert_true(relative_error(&x->tensor, &wd_safetensors_find(back, x->name)->tensor) ==
                        0);
        }
        wd_safetensors_close(first);
        wd_safetensors_close(back);
    }
}

/* From one quantised form to another by way of its values. */
static void from_another_quantised_form(void **state)
{
    (void)state;
    wd_pipeline p;
    char path[WD_PATH_MAX], other[WD_PATH_MAX];
    convert(below(path, "one.gguf"), true, &model, WD_Q8_0);
    wd_safetensors *set = open_file(&p, path);
    convert(below(other, "two.safetensors"), false, &p, WD_F8_E4M3);
    check_values(other, WD_F8_E4M3, WD_BF16, 0.03);
    convert(below(other, "three.safetensors"), false, &p, WD_DTYPE_COUNT);
    wd_safetensors_close(set);
    set = open_file(&p, other);
    for (int64_t i = 0; i < wd_safetensors_count(set); i++)
        if (is_matrix(wd_safetensors_at(set, i)))
            assert_int_equal(wd_safetensors_at(set, i)->tensor.dtype, WD_BF16);
    wd_safetensors_close(set);
}

/* ---- refused ---- */

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        float odd;
    } bad[] = {
        {"huge", "has the value 1e+06", 1e6f}, {"nan", "nan", NAN}, {"inf", "inf", INFINITY}};
    wd_err err;
    wd_pipeline p;
    char folder[WD_PATH_MAX], path[WD_PATH_MAX];
    const wd_component c = WD_COMPONENT_TRANSFORMER;
    const wd_dtype q4 = WD_Q4_K, q8 = WD_Q8_0, f8 = WD_F8_E4M3;
    wd_test_ok(wd_folder_make(below(folder, "refused"), &err), &err);
    below(path, "refused/out");
    for (int i = 0; i < 3; i++) {
        write_model(&p, bad[i].name, bad[i].odd);
        wd_test_refused(wd_convert_to_gguf(path, &p, c, &q4, &err), &err, WD_UNSUPPORTED,
                        bad[i].text);
        wd_test_refused(wd_convert_to_gguf(path, &p, c, &q8, &err), &err, WD_UNSUPPORTED,
                        "blocks.0.attn1.to_q.weight");
        if (i == 0) continue; /* its scale holds it */
        wd_test_refused(wd_convert_to_original(path, &p, c, &f8, &err), &err, WD_UNSUPPORTED,
                        bad[i].text);
    }
    wd_request_stop();
    const wd_status status = wd_convert_to_gguf(path, &model, c, &q4, &err);
    wd__stop_forget();
    wd_test_refused(status, &err, WD_INTERRUPTED, "stopped on request");
    wd_test_refused(wd_convert_to_gguf(path, &model, WD_COMPONENT_VAE, &q8, &err), &err,
                    WD_INVALID_ARGUMENT, "vae");
    assert_int_equal(rmdir(folder), 0); /* it is empty */
    wd_test_ok(wd_file_write(below(path, "kept.gguf"), "kept", 4, &err), &err);
    wd_test_refused(wd_convert_to_gguf(path, &model, c, &q8, &err), &err, WD_INVALID_ARGUMENT,
                    "kept.gguf: is there already");
}

/* A disk that takes no more ends with an error that names the file, of which nothing stays. */
static void nothing_stays_where_no_room_is(void **state)
{
    (void)state;
    struct rlimit before, small;
    wd_err err;
    char folder[WD_PATH_MAX], path[WD_PATH_MAX];
    const wd_dtype q8 = WD_Q8_0, f8 = WD_F8_E4M3;
    const wd_component c = WD_COMPONENT_TRANSFORMER;
    wd_test_ok(wd_folder_make(below(folder, "full"), &err), &err);
    below(path, "full/out");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1 << 16;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    wd_err errors[2];
    const wd_status status[] = {wd_convert_to_gguf(path, &model, c, &q8, &errors[0]),
                                wd_convert_to_original(path, &model, c, &f8, &errors[1])};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    for (int i = 0; i < 2; i++) wd_test_refused(status[i], &errors[i], WD_IO, "full/out");
    assert_int_equal(rmdir(folder), 0);
}

static int set_up(void **state)
{
    (void)state;
    write_model(&model, "model", 0);
    return 0;
}

/* ---- memory ---- */

/* Resident bytes of the mapping that has `at`. */
static size_t resident(const void *at)
{
    char line[512];
    unsigned long begin, end;
    size_t kib = 0;
    bool is_it = false, found = false;
    FILE *maps = fopen("/proc/self/smaps", "r");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            is_it = (uintptr_t)at >= begin && (uintptr_t)at < end;
        found = is_it && sscanf(line, "Rss: %zu kB", &kib) == 1;
    }
    if (maps) fclose(maps);
    if (!found) wd_test_skip("/proc/self/smaps does not tell what is resident");
    return kib << 10;
}

/* Of scaled fp8 all tensors are read for their scales before the first one is written: their pages
 * are given back one tensor after the other. The last tensor's infinity ends the conversion between
 * the two. */
static void float8_keeps_no_source_in_memory(void **state)
{
    (void)state;
    enum { TENSORS = 8, ROWS = 256, COLUMNS = 1024 };
    static float values[ROWS * COLUMNS];
    wd_err err;
    wd_safetensors_writer *writer;
    wd_safetensors *set;
    wd_safetensors_item items[TENSORS];
    wd_convert_line lines[TENSORS];
    char path[WD_PATH_MAX], out[WD_PATH_MAX], name[TENSORS][16];
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name[i], sizeof name[i], "%d.weight", i);
        items[i] = (wd_safetensors_item){name[i], WD_F32, 2, {ROWS, COLUMNS}};
    }
    wd_test_ok(wd_safetensors_create(&writer, below(path, "large.safetensors"), items, TENSORS,
                                     NULL, &err),
               &err);
    for (int i = 0; i < TENSORS; i++) {
        if (i == TENSORS - 1) values[ROWS * COLUMNS - 1] = INFINITY;
        wd_test_ok(wd_safetensors_put(writer, values, sizeof values, &err), &err);
    }
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    for (int i = 0; i < TENSORS; i++) {
        lines[i] =
            (wd_convert_line){.from = wd_safetensors_find(set, name[i]), .dtype = WD_F8_E4M3};
        memcpy(lines[i].name, name[i], sizeof name[i]);
    }
    wd_test_refused(wd__convert_write_safetensors(below(out, "large-fp8.safetensors"), lines,
                                                  TENSORS, NULL, &err),
                    &err, WD_UNSUPPORTED, "\"7.weight\" has the value inf");
    assert_true(resident(lines[0].from->tensor.data) < 3 * sizeof values);
    wd_safetensors_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_of_tensors),
        cmocka_unit_test(values_are_rounded),
        cmocka_unit_test(tiny_values),
        cmocka_unit_test(scaled_fp8_is_comfyuis),
        cmocka_unit_test(gguf_is_what_loaders_expect),
        cmocka_unit_test(they_read_back),
        cmocka_unit_test(from_another_quantised_form),
        cmocka_unit_test(refused),
        cmocka_unit_test(nothing_stays_where_no_room_is),
        cmocka_unit_test(float8_keeps_no_source_in_memory),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
