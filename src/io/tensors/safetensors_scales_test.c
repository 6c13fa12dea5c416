/* Scales of quantised weights: what is paired, and a table of damaged and unknown files, each
 * refused by name. */
#include "testing.h"
#include "core/text.h"

#include "io/tensors/safetensors.h"

typedef struct tensor {
    const char *name, *dtype;
    int64_t dim[4];   /* ends with 0 */
    const char *data; /* NULL: zeros */
} tensor;

enum { TENSORS = 5 };

static const char *write_file(const tensor t[TENSORS], const char *metadata)
{
    static char path[WD_PATH_MAX];
    char header[4096] = "{", data[4096] = {0};
    wd_err err;
    size_t used = 1, at = 0;
    if (metadata) used += (size_t)sprintf(header + used, "\"__metadata__\":{%s}", metadata);
    for (int i = 0; i < TENSORS && t[i].name; i++) {
        wd_dtype dtype = WD_U8;
        char shape[128];
        int ndim = 0;
        int64_t count = 1;
        for (; t[i].dim[ndim]; ndim++) count *= t[i].dim[ndim];
        assert_true(wd_dtype_parse(&dtype, t[i].dtype));
        const size_t bytes = wd_dtype_size(dtype, count);
        wd_dims_text(shape, sizeof shape, t[i].dim, ndim);
        if (t[i].data) memcpy(data + at, t[i].data, bytes);
        used += (size_t)sprintf(
            header + used, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
            used > 1 ? "," : "", t[i].name, t[i].dtype, shape, at, at + bytes);
        at += bytes;
    }
    header[used++] = '}';
    const uint64_t length = used;
    char *file = malloc(8 + used + at);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, used);
    memcpy(file + 8 + used, data, at);
    wd_test_ok(wd_path_join(path, wd_test_folder(), "scales.safetensors", &err), &err);
    wd_test_ok(wd_file_write(path, file, 8 + used + at, &err), &err);
    free(file);
    return path;
}

static void paired(void **state)
{
    (void)state;
    static const tensor t[TENSORS] = {{"a.weight", "F8_E4M3", {4, 6}, NULL},
                                      {"a.scale_weight", "F32", {4, 3, 1}, NULL},
                                      {"b.weight", "I8", {4, 6}, NULL},
                                      {"b.weight_scale", "BF16", {4, 1}, NULL},
                                      {"b.input_scale", "F32", {1}, NULL}};
    wd_err err;
    wd_safetensors *set;
    wd_tensor out;
    wd_tensor_spec spec = {.name = "a.weight", .ndim = 2, .dim = {4, 6}};
    wd_test_ok(wd_safetensors_open(&set, write_file(t, NULL), &err), &err);
    wd_test_refused(wd_safetensors_expect(&out, set, &spec, &err), &err, WD_UNSUPPORTED,
                    "expected dtype F32, F16 or BF16, found F8_E4M3");
    wd_test_ok(wd_safetensors_pair_scales(set, &err), &err);
    assert_int_equal(wd_safetensors_count(set), 2);
    wd_test_ok(wd_safetensors_expect(&out, set, &spec, &err), &err);
    assert_int_equal(out.scales.rows, 4);
    assert_int_equal(out.scales.columns, 3);
    assert_int_equal(out.scales.dtype, WD_F32);
    const wd_safetensors_entry *b = wd_safetensors_find(set, "b.weight");
    assert_int_equal(b->tensor.scales.rows, 4);
    assert_int_equal(b->tensor.scales.columns, 1);
    assert_string_equal(b->scale->name, "b.weight_scale");
    assert_ptr_equal(b->tensor.scales.data, b->scale->tensor.data);
    wd_safetensors_close(set);
}

/* The name says inverse, and the number is the scale itself. */
static void scale_inv(void **state)
{
    (void)state;
    static const tensor t[TENSORS] = {{"a.weight", "F8_E4M3", {4, 6}, NULL},
                                      {"a.weight_scale_inv", "F32", {0}, "\0\0\0\x40"},
                                      {"a.bias", "F32", {4}, NULL}};
    wd_err err;
    wd_safetensors *set;
    wd_test_ok(wd_safetensors_open(&set, write_file(t, NULL), &err), &err);
    wd_test_ok(wd_safetensors_pair_scales(set, &err), &err);
    assert_int_equal(wd_safetensors_count(set), 2);
    const wd_scales *s = &wd_safetensors_find(set, "a.weight")->tensor.scales;
    assert_true(*(const float *)s->data == 2 && s->rows * s->columns == 1);
    wd_safetensors_close(set);
}

/* 8-bit floats without any scale or mark in the file are as they are. */
static void plain(void **state)
{
    (void)state;
    static const tensor t[TENSORS] = {{"a.weight", "F8_E5M2", {4, 6}, NULL},
                                      {"a.bias", "F8_E5M2", {4}, NULL}};
    wd_err err;
    wd_safetensors *set;
    wd_test_ok(wd_safetensors_open(&set, write_file(t, NULL), &err), &err);
    wd_test_ok(wd_safetensors_pair_scales(set, &err), &err);
    assert_true(wd_safetensors_find(set, "a.weight")->scaled);
    assert_null(wd_safetensors_find(set, "a.weight")->tensor.scales.data);
    wd_safetensors_close(set);
}

#define WEIGHT                                                                                     \
    {                                                                                              \
        "a.weight", "F8_E4M3", {4, 6}, NULL                                                        \
    }
#define MARK(format) "\"_quantization_metadata\":\"{\\\"layers\\\":{\\\"a\\\":" format "}}\""

static void refused(void **state)
{
    (void)state;
    static const struct {
        tensor t[TENSORS];
        const char *metadata, *named;
    } cases[] = {
        {{{"a.weight", "I8", {4, 6}, NULL}}, NULL, "\"a.weight\" is quantised (I8), and its scale"},
        {{WEIGHT, {"scaled_fp8", "F8_E4M3", {2}, NULL}}, NULL, "its scale is missing"},
        {{WEIGHT, {"x.scaled_fp8", "F8_E4M3", {2}, NULL}}, NULL, "its scale is missing"},
        {{WEIGHT}, MARK("{\\\"format\\\":\\\"float8_e4m3fn\\\"}"), "its scale is missing"},
        {{WEIGHT, {"b.weight", "F8_E4M3", {4, 6}, NULL}, {"b.scale_weight", "F32", {1}, NULL}},
         NULL,
         "\"a.weight\" is quantised (F8_E4M3), and its scale is missing"},
        {{{"a.scale_weight", "F32", {1}, NULL}}, NULL, "is a scale, but there is no \"a.weight\""},
        {{{"a.weight", "BF16", {4, 6}, NULL}, {"a.weight_scale", "F32", {1}, NULL}},
         NULL,
         "\"a.weight\" has scales, but is BF16"},
        {{{"a.weight", "U8", {4, 6}, NULL}, {"a.weight_scale", "F32", {1}, NULL}},
         NULL,
         "\"a.weight\" has scales, but is U8"},
        {{WEIGHT, {"a.weight_scale", "F32", {1}, NULL}, {"a.scale_weight", "F32", {1}, NULL}},
         NULL,
         "has scales twice"},
        {{WEIGHT, {"a.weight_scale", "F8_E4M3", {4, 1}, NULL}}, NULL, "found F8_E4M3 (as nvfp4"},
        {{WEIGHT, {"a.weight_scale", "U8", {4, 1}, NULL}}, NULL, "found U8 (as nvfp4"},
        {{WEIGHT, {"a.weight_scale_2", "F32", {1}, NULL}}, NULL, "nvfp4"},
        {{WEIGHT, {"a.weight_scalar", "F32", {1}, NULL}}, NULL, "hybrid mxfp8"},
        {{WEIGHT, {"a.weight_scale", "F32", {5}, NULL}}, NULL, "has shape [5]: expected one scale"},
        {{WEIGHT, {"a.weight_scale", "F32", {2, 2}, NULL}}, NULL, "scales of other blocks"},
        {{WEIGHT, {"a.weight_scale", "F32", {4, 4, 1}, NULL}}, NULL, "has shape [4, 4, 1]"},
        {{WEIGHT, {"a.weight_scale", "F32", {4, 2}, NULL}}, NULL, "has shape [4, 2]"},
        {{WEIGHT, {"a.weight_scale", "F32", {1}, "\0\0\xc0\x7f"}}, NULL, "scale 0 is nan"},
        {{WEIGHT, {"a.weight_scale", "F16", {2}, "\0\0\0\x7c"}}, NULL, "scale 1 is inf"},
        {{WEIGHT, {"a.weight_scale_inv", "F32", {1, 2}, NULL}}, NULL, "has shape [1, 2]"},
        {{{"a.weight", "F8_E4M3", {130, 3}, NULL}, {"a.weight_scale_inv", "F32", {2, 1}, NULL}},
         NULL,
         "has shape [2, 1], a scale for each block of 128 x 128: expected"},
        {{WEIGHT, {"a.scale", "F32", {1}, NULL}}, NULL, "\"a.scale\" belongs to the quantised"},
        {{WEIGHT, {"a.bias", "F32", {4}, NULL}, {"a.zero_point", "F32", {1}, NULL}},
         NULL,
         "\"a.zero_point\" belongs to the quantised (F8_E4M3) tensor \"a.weight\""},
        {{WEIGHT, {"a.weight_scale", "F32", {1}, NULL}, {"a.a_scale", "F32", {1}, NULL}},
         NULL,
         "\"a.a_scale\" belongs to"},
        {{{"x.table", "F8_E4M3", {4}, NULL}, {"x.table_scale", "F32", {1}, NULL}},
         NULL,
         "\"x.table_scale\" belongs to"},
        {{WEIGHT, {"a.weight._scale", "F32", {1}, NULL}}, NULL, "quanto"},
        {{{"a.weight", "U8", {4, 6}, NULL}, {"a.weight.absmax", "F32", {1}, NULL}},
         NULL,
         "\"a.weight.absmax\" is of weights in 4 bits of bitsandbytes"},
        {{{"a.weight", "U8", {4, 6}, NULL},
          {"a.weight.quant_state.bitsandbytes__nf4", "U8", {1}, NULL}},
         NULL,
         "(nf4)"},
        {{{"a.weight", "I8", {4, 6}, NULL}, {"a.SCB", "F32", {4}, NULL}},
         NULL,
         "\"a.SCB\" is of weights in int8 of bitsandbytes"},
        {{{"a.weight._data", "I8", {4, 6}, NULL}}, NULL, "a form of quanto"},
        {{WEIGHT}, MARK("{\\\"format\\\":\\\"nvfp4\\\"}"), "layer \"a\" is quantised as \"nvfp4\""},
        {{WEIGHT}, MARK("\\\"mxfp8\\\""), "layer \"a\" is quantised as \"mxfp8\""},
        {{WEIGHT}, MARK("7"), "quantised as \"?\""},
        {{WEIGHT},
         MARK("{\\\"format\\\":\\\"int8_tensorwise\\\",\\\"convrot\\\":true}"),
         "quantised with ConvRot"},
        {{WEIGHT}, "\"_quantization_metadata\":\"{}\"", "has no object \"layers\""},
        {{WEIGHT}, "\"_quantization_metadata\":\"{\"", "scales.safetensors"},
        {{WEIGHT, {"a.comfy_quant", "U8", {18}, "{\"format\":\"nvfp4\"}"}}, NULL, "\"nvfp4\""},
        {{WEIGHT, {"a.comfy_quant", "U8", {3}, "{\"a"}}, NULL, "scales.safetensors"},
        {{WEIGHT, {"a.comfy_quant", "F32", {3}, NULL}},
         NULL,
         "bytes of JSON, found 12 bytes of F32"},
    };
    wd_err err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_safetensors *set;
        wd_test_ok(wd_safetensors_open(&set, write_file(cases[i].t, cases[i].metadata), &err),
                   &err);
        assert_int_not_equal(wd_safetensors_pair_scales(set, &err), WD_OK);
        if (!strstr(err.message, cases[i].named))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err.message, cases[i].named);
        wd_safetensors_close(set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paired),
        cmocka_unit_test(scale_inv),
        cmocka_unit_test(plain),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
