/* Tests of the safetensors reader: real files, sets of shards, and a table of hostile files. */
#include "failing.h"

#include <unistd.h>

#include "io/json/json.h"

static const char wan_tiny[] = WD_SOURCE_DIR "/models/wan-tiny/transformer";
static const char sharded[] = WD_SOURCE_DIR "/tests/fixtures/dit-head128/transformer";

static void reads_a_single_file(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *set;
    wd_test_ok(wd_safetensors_open_stem(&set, wan_tiny, "diffusion_pytorch_model", &err), &err);
    assert_int_equal(wd_safetensors_count(set), 6 * 27 + 15);
    assert_int_equal(wd_safetensors_file_count(set), 1);
    const wd_safetensors_entry *e = wd_safetensors_find(set, "patch_embedding.weight");
    assert_non_null(e);
    assert_int_equal(e->tensor.dtype, WD_BF16);
    assert_int_equal(e->tensor.ndim, 5);
    assert_int_equal(e->tensor.dim[0], 160);
    assert_int_equal(e->tensor.dim[1], 16);
    assert_false(e->unaligned);
    e = wd_safetensors_find(set, "blocks.3.scale_shift_table");
    assert_int_equal(e->tensor.dtype, WD_F32);
    assert_null(wd_safetensors_find(set, "blocks.6.scale_shift_table"));
    assert_string_equal(wd_safetensors_metadata(set, "format"), "pt");
    assert_null(wd_safetensors_metadata(set, "nothing"));
    for (int64_t i = 1; i < wd_safetensors_count(set); i++)
        assert_true(strcmp(wd_safetensors_at(set, i - 1)->name, wd_safetensors_at(set, i)->name) <
                    0);
    wd_safetensors_will_need(e);
    wd_safetensors_dont_need(e);
    wd_safetensors_close(set);
}

static void reads_shards_by_index(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *set;
    wd_test_ok(wd_safetensors_open_stem(&set, sharded, "diffusion_pytorch_model", &err), &err);
    assert_int_equal(wd_safetensors_file_count(set), 7);
    assert_non_null(wd_safetensors_find(set, "proj_out.weight"));
    wd_safetensors_close(set);
}

static void expects_shape_and_dtype(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *set;
    wd_tensor t;
    wd_tensor_spec spec = {.name = "proj_out.bias", .ndim = 1, .dim = {64}};
    wd_test_ok(wd_safetensors_open_stem(&set, wan_tiny, "diffusion_pytorch_model", &err), &err);
    wd_test_ok(wd_safetensors_expect(&t, set, &spec, &err), &err);
    assert_int_equal(t.dim[0], 64);
    spec.dim[0] = 192;
    wd_test_refused(wd_safetensors_expect(&t, set, &spec, &err), &err, WD_MISMATCH,
                    "\"proj_out.bias\": expected shape [192], found [64]");
    spec = (wd_tensor_spec){.name = "proj_out.bias", .ndim = 2, .dim = {1, 64}};
    wd_test_refused(wd_safetensors_expect(&t, set, &spec, &err), &err, WD_MISMATCH, "[1, 64]");
    strcpy(spec.name, "proj_in.bias");
    wd_test_refused(wd_safetensors_expect(&t, set, &spec, &err), &err, WD_NOT_FOUND,
                    "\"proj_in.bias\" is missing");
    wd_safetensors_close(set);
}

/* Writes a file of that header and `data_bytes` zeros; `length` < 0: the true one. */
static const char *make_file(const char *name, const char *header, int64_t length,
                             size_t data_bytes)
{
    static char path[WD_PATH_MAX];
    wd_err err;
    size_t n = strlen(header);
    uint64_t stated = length < 0 ? n : (uint64_t)length;
    char *bytes = calloc(1, 8 + n + data_bytes);
    memcpy(bytes, &stated, 8);
    memcpy(bytes + 8, header, n);
    wd_test_ok(wd_path_join(path, wd_test_folder(), name, &err), &err);
    wd_test_ok(wd_file_write(path, bytes, 8 + n + data_bytes, &err), &err);
    free(bytes);
    return path;
}

#define T(dtype, shape, begin, end)                                                                \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
#define H63 "9223372036854775807"

typedef struct hostile {
    const char *header;
    int64_t length; /* stated; -1: the true one */
    size_t data_bytes;
    wd_status status;
    const char *named;
} hostile;

static const hostile hostile_files[] = {
    {"", 0, 0, WD_BAD_FORMAT, "JSON"},
    {"", 5, 0, WD_BAD_FORMAT, "header length 5 overruns the file of 8 bytes"},
    {"{}", 3, 0, WD_BAD_FORMAT, "overruns"},
    {"{}", 100000001, 0, WD_BAD_FORMAT, "100000001 is above"},
    {"{}", INT64_MAX, 0, WD_BAD_FORMAT, "above the format's limit"},
    {"{}", 1, 8, WD_BAD_FORMAT, "JSON"},
    {"[]", -1, 0, WD_BAD_FORMAT, "not a JSON object"},
    {"{\"a\":1}", -1, 0, WD_BAD_FORMAT, "\"a\" is not a JSON object"},
    {"{\"a\":", -1, 4, WD_BAD_FORMAT, "JSON"},
    {"{\"\xff\":1}", -1, 4, WD_BAD_FORMAT, "JSON"},
    {"{\"a\\u0000b\":1}", -1, 4, WD_BAD_FORMAT, "JSON"},
    {"{\"a\":" T("U8", "[4]", "0", "4") ",\"a\":" T("U8", "[4]", "0", "4") "}", -1, 4,
     WD_BAD_FORMAT, "duplicate"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", -1, 4, WD_BAD_FORMAT,
     "\"a\": dtype is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", -1, 4, WD_BAD_FORMAT,
     "\"a\": shape is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", -1, 4, WD_BAD_FORMAT,
     "\"a\": data_offsets is not"},
    {"{\"a\":" T("F31", "[1]", "0", "4") "}", -1, 4, WD_BAD_FORMAT, "unknown dtype \"F31\""},
    {"{\"a\":" T("float32", "[1]", "0", "4") "}", -1, 4, WD_BAD_FORMAT, "unknown dtype"},
    {"{\"a\":" T("F8_E8M0", "[4]", "0", "4") "}", -1, 4, WD_UNSUPPORTED, "quantised to mxfp8"},
    {"{\"a\":" T("F4", "[4]", "0", "2") "}", -1, 2, WD_UNSUPPORTED, "quantised to nvfp4"},
    {"{\"a\":" T("F6_E2M3", "[4]", "0", "3") "}", -1, 3, WD_UNSUPPORTED, "quantised to mxfp6"},
    {"{\"a\":" T("Q8_0", "[32]", "0", "34") "}", -1, 34, WD_BAD_FORMAT, "unknown dtype \"Q8_0\""},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", -1, 4, WD_BAD_FORMAT,
     "not a string"},
    {"{\"a\":" T("F32", "[-1]", "0", "4") "}", -1, 4, WD_BAD_FORMAT, "\"a\": dimension 0"},
    {"{\"a\":" T("F32", "[1,1.0]", "0", "4") "}", -1, 4, WD_BAD_FORMAT, "dimension 1"},
    {"{\"a\":" T("F32", "[\"1\"]", "0", "4") "}", -1, 4, WD_BAD_FORMAT, "dimension 0"},
    {"{\"a\":" T("F32", "{}", "0", "4") "}", -1, 4, WD_BAD_FORMAT, "shape"},
    {"{\"a\":" T("F32", "[" H63 "]", "0", "4") "}", -1, 4, WD_BAD_FORMAT, "overflows"},
    {"{\"a\":" T("F32", "[" H63 "0]", "0", "4") "}", -1, 4, WD_BAD_FORMAT, "dimension 0"},
    {"{\"a\":" T("F32", "[4294967296,4294967296]", "0", "0") "}", -1, 0, WD_BAD_FORMAT,
     "overflows"},
    {"{\"a\":" T("F32", "[4611686018427387905]", "0", "4") "}", -1, 4, WD_BAD_FORMAT, "overflows"},
    {"{\"a\":" T("F32", "[" H63 "," H63 ",0]", "0", "0") "}", -1, 0, WD_BAD_FORMAT, "overflows"},
    {"{\"a\":" T("F32", "[0," H63 ",2]", "0", "0") "}", -1, 0, WD_BAD_FORMAT, "overflows"},
    {"{\"a\":" T("F32", "[1,1,1,1,1,1,1]", "0", "4") "}", -1, 4, WD_UNSUPPORTED, "7 dimensions"},
    {"{\"a\":" T("F32", "[1]", "4", "0") "}", -1, 4, WD_BAD_FORMAT, "\"a\": data_offsets end at 0"},
    {"{\"a\":" T("F32", "[1]", "-4", "0") "}", -1, 4, WD_BAD_FORMAT, "data_offsets is not"},
    {"{\"a\":" T("F32", "[1]", "0.0", "4") "}", -1, 4, WD_BAD_FORMAT, "data_offsets is not"},
    {"{\"a\":" T("F32", "[1]", "0", "3") "}", -1, 3, WD_BAD_FORMAT, "span 3 bytes, expected 4"},
    {"{\"a\":" T("F32", "[1]", "0", "5") "}", -1, 5, WD_BAD_FORMAT, "span 5 bytes"},
    {"{\"a\":" T("BF16", "[2,2]", "0", "16") "}", -1, 16, WD_BAD_FORMAT,
     "expected 8 for its shape and BF16"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", -1, 8, WD_BAD_FORMAT,
     "two whole"},
    {"{\"a\":" T("F32", "[2]", "0", "8") "}", -1, 4, WD_BAD_FORMAT, "\"a\" ends at data byte 8"},
    {"{\"a\":" T("F32", "[1]", "9223372036854775800", "9223372036854775804") "}", -1, 4,
     WD_BAD_FORMAT, "ends at data byte"},
    {"{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F32", "[2]", "4", "12") "}", -1, 12,
     WD_BAD_FORMAT, "\"a\" and \"b\" overlap"},
    {"{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "0", "4") "}", -1, 4,
     WD_BAD_FORMAT, "overlap"},
    {"{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "8", "12") "}", -1, 12,
     WD_BAD_FORMAT, "4 bytes between a and tensor \"b\""},
    {"{\"a\":" T("F32", "[1]", "4", "8") "}", -1, 8, WD_BAD_FORMAT,
     "between the header and tensor \"a\""},
    {"{\"a\":" T("F32", "[1]", "0", "4") "}", -1, 8, WD_BAD_FORMAT, "4 bytes behind a"},
    {"{\"ab\\nwandistiller: c\":" T("F32", "[1]", "0", "4") "}", -1, 4, WD_BAD_FORMAT,
     "the name of a tensor has a control character after \"ab\""},
    {"{}", -1, 8, WD_BAD_FORMAT, "8 bytes behind the header"},
    {"{\"__metadata__\":[]}", -1, 0, WD_BAD_FORMAT, "__metadata__"},
    {"{\"__metadata__\":{\"step\":3}}", -1, 0, WD_BAD_FORMAT, "\"step\" is not a string"},
};

static void refuses_hostile_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hostile_files / sizeof *hostile_files; i++) {
        const hostile *h = &hostile_files[i];
        wd_err err = {0};
        wd_safetensors *set = NULL;
        const char *path = make_file("hostile.safetensors", h->header, h->length, h->data_bytes);
        wd_status status = wd_safetensors_open(&set, path, &err);
        if (status != h->status || !strstr(err.message, h->named) ||
            !strstr(err.message, "hostile.safetensors"))
            fail_msg("case %zu (%s): got %s: %s", i, h->header, wd_status_text(status),
                     err.message);
        assert_null(set);
    }
}

static void refuses_what_is_no_safetensors(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *set;
    char path[WD_PATH_MAX];
    wd_test_ok(wd_path_join(path, wd_test_folder(), "short.safetensors", &err), &err);
    wd_test_ok(wd_file_write(path, "1234567", 7, &err), &err);
    wd_test_refused(wd_safetensors_open(&set, path, &err), &err, WD_BAD_FORMAT, "7 bytes long");
    const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    wd_test_ok(wd_file_write(path, lfs, sizeof lfs - 1, &err), &err);
    wd_test_refused(wd_safetensors_open(&set, path, &err), &err, WD_BAD_FORMAT, "git lfs pull");
    wd_test_refused(wd_safetensors_open(&set, wd_test_folder(), &err), &err, WD_IO,
                    "is not a file");
    wd_test_ok(wd_path_join(path, wd_test_folder(), "none.safetensors", &err), &err);
    wd_test_refused(wd_safetensors_open(&set, path, &err), &err, WD_NOT_FOUND, "none.safetensors");
}

static void takes_odd_but_valid_files(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *set;
    /* No tensor at all; null metadata; a header padded with spaces. */
    wd_test_ok(wd_safetensors_open(
                   &set, make_file("empty.safetensors", "{\"__metadata__\":null}   ", -1, 0), &err),
               &err);
    assert_int_equal(wd_safetensors_count(set), 0);
    assert_null(wd_safetensors_find(set, "a"));
    wd_safetensors_close(set);
    /* Empty tensors anywhere, scalars, a header whose length leaves the data unaligned. */
    static const char header[] =
        "{\"e\":" T("F32", "[0,3]", "0", "0") ",\"s\":" T("F32", "[]", "0", "4") ",\"b\":" T(
            "BF16", "[2,1]", "4", "8") ",\"f\":" T("F16", "[0]", "4", "4") "}";
    char padded[sizeof header + 8];
    snprintf(padded, sizeof padded, "%s%*s", header, (int)((9 - (sizeof header - 1) % 8) % 8), "");
    wd_test_ok(wd_safetensors_open(&set, make_file("odd.safetensors", padded, -1, 8), &err), &err);
    assert_int_equal(wd_safetensors_count(set), 4);
    const wd_safetensors_entry *s = wd_safetensors_find(set, "s");
    assert_int_equal(s->tensor.ndim, 0);
    assert_int_equal(wd_tensor_bytes(&s->tensor), 4);
    assert_int_equal((uintptr_t)s->tensor.data % 4 != 0, s->unaligned);
    assert_true(s->unaligned);
    assert_int_equal(wd_tensor_bytes(&wd_safetensors_find(set, "e")->tensor), 0);
    wd_safetensors_close(set);
}

typedef struct bad_index {
    const char *text;
    wd_status status;
    const char *named;
} bad_index;

/* a.safetensors has "a", b.safetensors has "b", again.safetensors has "a". */
static const bad_index bad_indexes[] = {
    {"{}", WD_BAD_FORMAT, "weight_map"},
    {"{\"weight_map\":{}}", WD_BAD_FORMAT, "weight_map"},
    {"{\"weight_map\":[1]}", WD_BAD_FORMAT, "weight_map"},
    {"[]", WD_BAD_FORMAT, "weight_map"},
    {"{\"weight_map\":{\"a\":1}}", WD_BAD_FORMAT, "of tensor \"a\" is not a string"},
    {"{\"weight_map\":{\"a\":\"../a.safetensors\"}}", WD_BAD_FORMAT, "\"../a.safetensors\""},
    {"{\"weight_map\":{\"a\":\"/etc/a.safetensors\"}}", WD_BAD_FORMAT, "plain file name"},
    {"{\"weight_map\":{\"a\":\"..\"}}", WD_BAD_FORMAT, "plain file name"},
    {"{\"weight_map\":{\"a\":\"\"}}", WD_BAD_FORMAT, "not a .safetensors file"},
    {"{\"weight_map\":{\"a\":\"a.bin\"}}", WD_BAD_FORMAT, "\"a.bin\""},
    {"{\"weight_map\":{\"a\":\"gone.safetensors\"}}", WD_NOT_FOUND,
     "shard gone.safetensors is missing"},
    {"{\"weight_map\":{\"a\":\"a.safetensors\",\"c\":\"b.safetensors\"}}", WD_NOT_FOUND,
     "\"c\" is missing in shard \"b.safetensors\""},
    {"{\"weight_map\":{\"a\":\"b.safetensors\",\"b\":\"a.safetensors\"}}", WD_BAD_FORMAT,
     "is said to be in"},
    {"{\"weight_map\":{\"a\":\"a.safetensors\",\"b\":\"again.safetensors\"}}", WD_BAD_FORMAT,
     "\"a\" is in both"},
};

static void refuses_bad_indexes(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_safetensors *set;
    char path[WD_PATH_MAX];
    make_file("a.safetensors", "{\"a\":" T("U8", "[1]", "0", "1") "}", -1, 1);
    make_file("again.safetensors", "{\"a\":" T("U8", "[1]", "0", "1") "}", -1, 1);
    make_file("b.safetensors", "{\"b\":" T("U8", "[1]", "0", "1") "}", -1, 1);
    wd_test_ok(wd_path_join(path, wd_test_folder(), "m.safetensors.index.json", &err), &err);
    for (size_t i = 0; i < sizeof bad_indexes / sizeof *bad_indexes; i++) {
        const bad_index *b = &bad_indexes[i];
        wd_test_ok(wd_file_write(path, b->text, strlen(b->text), &err), &err);
        wd_test_refused(wd_safetensors_open(&set, path, &err), &err, b->status, b->named);
    }
    /* A good one, its shard behind a link as in a Hub snapshot. */
    char link[WD_PATH_MAX],
        good[] = "{\"weight_map\":{\"a\":\"link.safetensors\",\"b\":\"b.safetensors\"}}";
    wd_test_ok(wd_path_join(link, wd_test_folder(), "link.safetensors", &err), &err);
    assert_int_equal(symlink("a.safetensors", link), 0);
    wd_test_ok(wd_file_write(path, good, strlen(good), &err), &err);
    wd_test_ok(wd_safetensors_open_stem(&set, wd_test_folder(), "m", &err), &err);
    assert_int_equal(wd_safetensors_count(set), 2);
    wd_safetensors_close(set);
    assert_int_equal(unlink(link), 0);
    wd_test_refused(wd_safetensors_open_stem(&set, wd_test_folder(), "m", &err), &err, WD_NOT_FOUND,
                    "shard link.safetensors is missing");
}

static void says_what_is_there_instead(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *set;
    char folder[WD_PATH_MAX], path[WD_PATH_MAX];
    wd_test_ok(wd_path_join(folder, wd_test_folder(), "variant", &err), &err);
    wd_test_refused(wd_safetensors_open_stem(&set, folder, "model", &err), &err, WD_NOT_FOUND,
                    "there is no such folder");
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_refused(wd_safetensors_open_stem(&set, folder, "model", &err), &err, WD_NOT_FOUND,
                    "neither model.safetensors.index.json nor model.safetensors");
    wd_test_ok(wd_path_join(path, folder, "pytorch_model.bin", &err), &err);
    wd_test_ok(wd_file_write(path, "", 0, &err), &err);
    wd_test_refused(wd_safetensors_open_stem(&set, folder, "model", &err), &err, WD_NOT_FOUND,
                    "\"pytorch_model.bin\"");
    wd_test_ok(wd_path_join(path, folder, "model.fp16.safetensors", &err), &err);
    wd_test_ok(wd_file_write(path, "", 0, &err), &err);
    wd_test_refused(wd_safetensors_open_stem(&set, folder, "model", &err), &err, WD_NOT_FOUND,
                    "\"model.fp16.safetensors\"");
}

/* Shards without their index, and links of the Hub cache to blobs that are gone. */
static void says_what_to_download(void **state)
{
    (void)state;
    static const char snapshot[] = "models--org--name/snapshots/abc/vae";
    wd_err err;
    wd_safetensors *set;
    char folder[WD_PATH_MAX], path[WD_PATH_MAX];
    wd_test_ok(wd_path_join(folder, wd_test_folder(), snapshot, &err), &err);
    wd_test_ok(wd_folder_make(folder, &err), &err);
    wd_test_ok(wd_path_join(path, folder, "m-00001-of-00003.safetensors", &err), &err);
    wd_test_ok(wd_file_write(path, "", 0, &err), &err);
    wd_test_refused(wd_safetensors_open_stem(&set, folder, "m", &err), &err, WD_NOT_FOUND,
                    "hf download org/name vae/m.safetensors.index.json --revision abc");
    assert_non_null(
        strstr(err.message, "index of shards such as \"m-00001-of-00003.safetensors\""));
    wd_test_ok(wd_path_join(path, folder, "m.safetensors", &err), &err);
    assert_int_equal(symlink("../../../blobs/gone", path), 0);
    wd_test_refused(wd_safetensors_open_stem(&set, folder, "m", &err), &err, WD_NOT_FOUND,
                    "hf download org/name vae/m.safetensors --revision abc");
    assert_true(wd_safetensors_is_shard("a/m-00002-of-00003.safetensors"));
    assert_false(wd_safetensors_is_shard("a/m-00001-of-00001.safetensors"));
    assert_false(wd_safetensors_is_shard("m.safetensors"));
}

static wd_status open_and_close(void *context, wd_err *err)
{
    (void)context;
    wd_safetensors *set;
    WD_TRY(wd_safetensors_open_stem(&set, sharded, "diffusion_pytorch_model", err));
    wd_safetensors_close(set);
    return WD_OK;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    wd_test_failing_allocations(open_and_close, NULL, NULL, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_single_file),
        cmocka_unit_test(reads_shards_by_index),
        cmocka_unit_test(expects_shape_and_dtype),
        cmocka_unit_test(refuses_hostile_files),
        cmocka_unit_test(refuses_what_is_no_safetensors),
        cmocka_unit_test(takes_odd_but_valid_files),
        cmocka_unit_test(refuses_bad_indexes),
        cmocka_unit_test(says_what_is_there_instead),
        cmocka_unit_test(says_what_to_download),
        cmocka_unit_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
