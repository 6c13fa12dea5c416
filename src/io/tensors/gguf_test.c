/* GGUF files: what is read, and a table of damaged and unknown ones, each refused by name. */
#include "gguf_forms.h"
#include "json_failing.h"

#include <unistd.h>

#include "io/tensors/safetensors.h"

/* A file of two tensors, "a" and "b"; zeros and NULL mean what is right. */
typedef struct file {
    uint32_t version, type, ndim, key_type;
    uint64_t tensors, values, rows, row, offset, name_bytes, alignment, array;
    const char *name, *second, *shape_key;
    size_t cut;   /* bytes that the file lacks */
    uint32_t end; /* an extent of the original shape */
} file;

static uint64_t or_else(uint64_t value, uint64_t usual)
{
    return value ? value : usual;
}

static void add_values(wd_test_bytes *b, const file *f)
{
    wd_test_text(b, "general.architecture");
    wd_test_u32(b, f->key_type ? f->key_type - 1 : 8);
    wd_test_text(b, "wan");
    wd_test_text(b, "general.alignment");
    wd_test_u32(b, 4);
    wd_test_u32(b, (uint32_t)or_else(f->alignment, 64));
    wd_test_text(b, or_else(f->array, 0) ? "tokens" : "none");
    wd_test_u32(b, 9);
    wd_test_u32(b, f->array ? 8 : 4);
    wd_test_u64(b, f->array);
    wd_test_text(b, f->shape_key ? f->shape_key : "comfy.gguf.orig_shape.b");
    wd_test_u32(b, 9);
    wd_test_u32(b, 5);
    wd_test_u64(b, 2);
    wd_test_u32(b, 8);
    wd_test_u32(b, f->end ? f->end : 4);
}

static const char *write_file(const file *f)
{
    static char path[WD_PATH_MAX];
    wd_test_bytes b = {0};
    wd_err err;
    wd_test_append(&b, "GGUF", 4);
    wd_test_u32(&b, f->version ? f->version : 3);
    wd_test_u64(&b, or_else(f->tensors, 2));
    wd_test_u64(&b, or_else(f->values, 4));
    add_values(&b, f);
    wd_test_u64(&b, or_else(f->name_bytes, strlen(f->name ? f->name : "a")));
    wd_test_append(&b, f->name ? f->name : "a", strlen(f->name ? f->name : "a"));
    wd_test_u32(&b, f->ndim ? f->ndim : 2);
    wd_test_u64(&b, or_else(f->row, 32));
    wd_test_u64(&b, or_else(f->rows, 3));
    wd_test_u32(&b, f->type ? f->type : 8);
    wd_test_u64(&b, f->offset);
    wd_test_text(&b, f->second ? f->second : "b");
    wd_test_u32(&b, 1);
    wd_test_u64(&b, 32);
    wd_test_u32(&b, 1);
    wd_test_u64(&b, 128);
    wd_test_append(&b, NULL, (64 - b.used % 64) % 64);
    wd_test_append(&b, NULL, 128 + 64);
    wd_test_ok(wd_path_join(path, wd_test_folder(), "a.gguf", &err), &err);
    wd_test_ok(wd_file_write(path, b.data, b.used - f->cut, &err), &err);
    free(b.data);
    return path;
}

static void read_back(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *set;
    wd_tensor t;
    wd_tensor_spec spec = {.name = "a", .ndim = 2, .dim = {3, 32}};
    wd_test_ok(wd_safetensors_open(&set, write_file(&(file){0}), &err), &err);
    assert_string_equal(wd_safetensors_metadata(set, "general.architecture"), "wan");
    assert_null(wd_safetensors_metadata(set, "general.alignment"));
    wd_test_ok(wd_safetensors_pair_scales(set, &err), &err);
    wd_test_ok(wd_safetensors_expect(&t, set, &spec, &err), &err);
    assert_int_equal(t.dtype, WD_Q8_0);
    assert_int_equal(wd_tensor_bytes(&t), 3 * 34);
    const wd_safetensors_entry *b = wd_safetensors_find(set, "b");
    assert_int_equal(b->tensor.ndim, 2);
    assert_int_equal(b->tensor.dim[0], 8);
    assert_int_equal(b->tensor.dim[1], 4);
    assert_int_equal(b->file_offset % 64, 0);
    assert_int_equal(b->file_offset - wd_safetensors_find(set, "a")->file_offset, 128);
    wd_safetensors_close(set);
}

/* A shape with some dimensions as one, and without those of 1, is the shape; a transposed one is
 * not, nor is one of more dimensions. */
static void merged_shapes(void **state)
{
    (void)state;
    static const struct {
        wd_tensor_spec spec; /* of tensor "b", which is [8, 4] */
        bool is_it;
    } cases[] = {
        {{.name = "b", .ndim = 2, .dim = {8, 4}}, true},
        {{.name = "b", .ndim = 3, .dim = {1, 8, 4}}, true},
        {{.name = "b", .ndim = 5, .dim = {2, 4, 1, 4, 1}}, true},
        {{.name = "b", .ndim = 4, .dim = {4, 2, 2, 2}}, true},
        {{.name = "b", .ndim = 2, .dim = {4, 8}}, false},
        {{.name = "b", .ndim = 3, .dim = {4, 4, 2}}, false},
        {{.name = "b", .ndim = 1, .dim = {32}}, false},
        {{.name = "b", .ndim = 1, .dim = {8}}, false},
        {{.name = "b", .ndim = 3, .dim = {8, 4, 2}}, false},
        {{.name = "b", .ndim = 3, .dim = {INT64_MAX, INT64_MAX, 4}}, false},
    };
    wd_err err;
    wd_safetensors *set;
    wd_test_ok(wd_safetensors_open(&set, write_file(&(file){0}), &err), &err);
    const int64_t at = wd_safetensors_find(set, "b") - wd_safetensors_at(set, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const wd_tensor_spec *spec = &cases[i].spec;
        wd_tensor t;
        const wd_status status = wd_safetensors_expect(&t, set, spec, &err);
        assert_int_equal(status, cases[i].is_it ? WD_OK : WD_MISMATCH);
        if (!cases[i].is_it) continue;
        assert_int_equal(t.ndim, spec->ndim);
        assert_memory_equal(t.dim, spec->dim, sizeof t.dim);
        wd_safetensors_take_shape(set, at, spec);
        assert_int_equal(wd_safetensors_at(set, at)->tensor.ndim, spec->ndim);
        wd_safetensors_close(set);
        wd_test_ok(wd_safetensors_open(&set, write_file(&(file){0}), &err), &err);
    }
    wd_safetensors_close(set);
}

/* Blocks have scales of their own, so a tensor of scales beside them is refused. */
static void scales_of_blocks(void **state)
{
    (void)state;
    const file both = {.name = "b.weight", .second = "b.scale_weight"};
    wd_err err;
    wd_safetensors *set;
    wd_test_ok(wd_safetensors_open(&set, write_file(&both), &err), &err);
    wd_test_refused(wd_safetensors_pair_scales(set, &err), &err, WD_UNSUPPORTED,
                    "\"b.weight\" has scales, but is Q8_0");
    wd_safetensors_close(set);
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        file file;
        wd_status status;
        const char *named;
    } cases[] = {
        {{.version = 2}, WD_UNSUPPORTED, "version 2; expected version 3"},
        {{.version = 0x03000000}, WD_UNSUPPORTED, "version 3 (big-endian)"},
        {{.tensors = 3}, WD_BAD_FORMAT, "a tensor's name is empty"},
        {{.tensors = 1u << 20}, WD_BAD_FORMAT, "1048576 tensors"},
        {{.values = UINT64_MAX}, WD_BAD_FORMAT, "18446744073709551615 metadata"},
        {{.values = 3}, WD_BAD_FORMAT, "dimensions, expected at most"},
        {{.key_type = 14}, WD_BAD_FORMAT, "\"general.architecture\" has the unknown type 13"},
        {{.key_type = 10}, WD_BAD_FORMAT, "overruns the file"},
        {{.array = 1u << 30}, WD_BAD_FORMAT, "overruns the file"},
        {{.shape_key = "none"}, WD_BAD_FORMAT, "metadata key \"none\" occurs twice"},
        {{.shape_key = "general.alignment"}, WD_BAD_FORMAT, "general.alignment is not a power"},
        {{.alignment = 48}, WD_BAD_FORMAT, "general.alignment is not a power of two"},
        {{.alignment = 1u << 30}, WD_BAD_FORMAT, "general.alignment is not a power of two"},
        {{.name_bytes = 1u << 30}, WD_BAD_FORMAT, "its header overruns the file"},
        {{.name_bytes = UINT64_MAX}, WD_BAD_FORMAT, "its header overruns the file"},
        {{.name = "b", .shape_key = "another"}, WD_BAD_FORMAT, "are two names of \"b\""},
        {{.name = "a\nwandistiller: b"}, WD_BAD_FORMAT, "has a control character"},
        {{.name = "\xff"}, WD_BAD_FORMAT, "is not UTF-8"},
        {{.ndim = 7}, WD_BAD_FORMAT, "\"a\" has 7 dimensions"},
        {{.row = 33}, WD_BAD_FORMAT, "rows of 33 values, expected whole blocks of 32 (Q8_0)"},
        {{.type = 12}, WD_BAD_FORMAT, "whole blocks of 256 (Q4_K)"},
        {{.type = 10}, WD_BAD_FORMAT, "whole blocks of 256 (Q2_K)"},
        {{.type = 16},
         WD_UNSUPPORTED,
         "\"a\" is IQ2_XXS (type 16), which is not read; expected F32"},
        {{.type = 34}, WD_UNSUPPORTED, "\"a\" is TQ1_0 (type 34)"},
        {{.type = 39}, WD_UNSUPPORTED, "\"a\" is MXFP4 (type 39)"},
        {{.type = 40}, WD_UNSUPPORTED, "\"a\" is NVFP4 (type 40)"},
        {{.type = 41}, WD_UNSUPPORTED, "\"a\" is Q1_0 (type 41)"},
        {{.type = 1000}, WD_UNSUPPORTED, "is of an unknown type (type 1000)"},
        {{.rows = UINT64_MAX}, WD_BAD_FORMAT, "its product overflows"},
        {{.rows = 1u << 20}, WD_BAD_FORMAT, "not in the file of"},
        {{.rows = 4}, WD_BAD_FORMAT, "\"a\" and \"b\" overlap"},
        {{.offset = 32}, WD_BAD_FORMAT, "at 32, which is not a multiple of 64"},
        {{.offset = 128}, WD_BAD_FORMAT, "\"a\" ends at byte"},
        {{.offset = 192}, WD_BAD_FORMAT, "\"a\" ends at byte"},
        {{.offset = 1ull << 63}, WD_BAD_FORMAT, "not in the file of"},
        {{.cut = 1}, WD_BAD_FORMAT, "\"b\" ends at byte"},
        {{.cut = 300}, WD_BAD_FORMAT, "overruns the file"},
        {{.end = 5},
         WD_BAD_FORMAT,
         "\"comfy.gguf.orig_shape.b\" is not a shape of the tensor's 32"},
        {{.end = UINT32_MAX}, WD_BAD_FORMAT, "is not a shape of the tensor's 32"},
    };
    wd_err err;
    wd_safetensors *set;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const wd_status status = wd_safetensors_open(&set, write_file(&cases[i].file), &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].named))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i,
                     status == WD_OK ? "it opens" : err.message, cases[i].named);
    }
}

/* Metadata end at 256 MiB, however long the file is: one that is a hole would be read to its end,
 * since a hole is texts without bytes. */
static void long_metadata_are_refused(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    wd_test_bytes b = {0};
    wd_err err;
    wd_safetensors *set;
    wd_test_append(&b, "GGUF", 4);
    wd_test_u32(&b, 3);
    wd_test_u64(&b, 1);
    wd_test_u64(&b, 1);
    wd_test_text(&b, "tokens");
    wd_test_u32(&b, 9);
    wd_test_u32(&b, 8);
    wd_test_u64(&b, 1ull << 60);
    wd_test_ok(wd_path_join(path, wd_test_folder(), "long.gguf", &err), &err);
    wd_test_ok(wd_file_write(path, b.data, b.used, &err), &err);
    assert_int_equal(truncate(path, 257 << 20), 0);
    wd_test_refused(wd_safetensors_open(&set, path, &err), &err, WD_BAD_FORMAT,
                    "long.gguf: expected metadata of at most 256 MiB, found more");
    free(b.data);
}

static wd_status open_once(wd_err *err)
{
    char path[WD_PATH_MAX];
    wd_safetensors *set;
    WD_TRY(wd_path_join(path, wd_test_folder(), "a.gguf", err));
    WD_TRY(wd_safetensors_open(&set, path, err));
    wd_safetensors_close(set);
    return WD_OK;
}

/* Metadata are not dropped silently. */
static void metadata_without_memory(void **state)
{
    (void)state;
    write_file(&(file){0});
    wd_test_json_failing(open_once, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_back),
        cmocka_unit_test(merged_shapes),
        cmocka_unit_test(scales_of_blocks),
        cmocka_unit_test(refused),
        cmocka_unit_test(long_metadata_are_refused),
        cmocka_unit_test(metadata_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
