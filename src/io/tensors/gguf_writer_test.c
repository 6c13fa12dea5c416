/* GGUF files that are written: every byte of a small one, what is read back, what is refused. */
#include "gguf_forms.h"

#include "io/tensors/gguf.h"
#include "io/tensors/safetensors.h"

static const wd_safetensors_item items[] = {
    {"patch.weight", WD_F32, 5, {2, 1, 1, 2, 3}}, /* 48 bytes: 16 of padding follow */
    {"q.weight", WD_Q8_0, 2, {2, 64}},            /* 136 bytes: 24 follow */
    {"bias", WD_BF16, 1, {5}},                    /* 10 bytes: 22 follow */
};
enum { ITEMS = 3 };

static const wd_gguf_pair pairs[] = {{"general.architecture", "wan", 0},
                                     {"general.file_type", NULL, 7}};

static size_t bytes_of(int i)
{
    int64_t count = 1;
    for (int d = 0; d < items[i].ndim; d++) count *= items[i].dim[d];
    return wd_dtype_size(items[i].dtype, count);
}

static const char *at(const char *name)
{
    static char path[WD_PATH_MAX];
    wd_err err;
    wd_test_ok(wd_path_join(path, wd_test_folder(), name, &err), &err);
    return path;
}

/* Byte k of tensor i. */
static uint8_t byte_of(int i, size_t k)
{
    return (uint8_t)(k * 7 + (size_t)i * 31 + 1);
}

static const char *write_file(void)
{
    wd_err err;
    wd_safetensors_writer *writer;
    const char *path = at("a.gguf");
    uint8_t data[256];
    wd_test_ok(wd_gguf_create(&writer, path, items, ITEMS, pairs, 2, &err), &err);
    for (int i = 0; i < ITEMS; i++) {
        for (size_t k = 0; k < bytes_of(i); k++) data[k] = byte_of(i, k);
        wd_test_ok(wd_safetensors_put(writer, data, bytes_of(i), &err), &err);
        wd_test_ok(wd_gguf_pad(writer, &err), &err);
    }
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
    return path;
}

/* The file by ggml's description of the format (docs/gguf.md). */
static wd_test_bytes expected(void)
{
    static const uint32_t types[] = {0, 8, 30};
    static const uint64_t offsets[] = {0, 64, 224};
    wd_test_bytes b = {0};
    wd_test_append(&b, "GGUF", 4);
    wd_test_u32(&b, 3);
    wd_test_u64(&b, ITEMS);
    wd_test_u64(&b, 2);
    wd_test_text(&b, "general.architecture");
    wd_test_u32(&b, 8);
    wd_test_text(&b, "wan");
    wd_test_text(&b, "general.file_type");
    wd_test_u32(&b, 4);
    wd_test_u32(&b, 7);
    for (int i = 0; i < ITEMS; i++) {
        wd_test_text(&b, items[i].name);
        wd_test_u32(&b, (uint32_t)items[i].ndim);
        for (int d = items[i].ndim; d-- > 0;) wd_test_u64(&b, (uint64_t)items[i].dim[d]);
        wd_test_u32(&b, types[i]);
        wd_test_u64(&b, offsets[i]);
    }
    wd_test_append(&b, NULL, (32 - b.used % 32) % 32);
    for (int i = 0; i < ITEMS; i++) {
        for (size_t k = 0; k < bytes_of(i); k++) wd_test_append(&b, (uint8_t[]){byte_of(i, k)}, 1);
        wd_test_append(&b, NULL, (32 - bytes_of(i) % 32) % 32);
    }
    return b;
}

static void every_byte(void **state)
{
    (void)state;
    wd_err err;
    char *text;
    size_t bytes;
    wd_test_bytes b = expected();
    wd_test_ok(wd_file_read(&text, &bytes, write_file(), 1 << 20, &err), &err);
    assert_int_equal(bytes, b.used);
    assert_memory_equal(text, b.data, bytes);
    wd_free(text);
    free(b.data);
}

static void read_back(void **state)
{
    (void)state;
    wd_err err;
    wd_safetensors *set;
    wd_test_ok(wd_safetensors_open(&set, write_file(), &err), &err);
    assert_int_equal(wd_safetensors_count(set), ITEMS);
    assert_string_equal(wd_safetensors_metadata(set, "general.architecture"), "wan");
    for (int i = 0; i < ITEMS; i++) {
        const wd_safetensors_entry *e = wd_safetensors_find(set, items[i].name);
        assert_non_null(e);
        assert_int_equal(e->tensor.dtype, items[i].dtype);
        assert_int_equal(e->tensor.ndim, items[i].ndim);
        assert_memory_equal(e->tensor.dim, items[i].dim,
                            (size_t)items[i].ndim * sizeof *items[i].dim);
        assert_int_equal(((const uint8_t *)e->tensor.data)[9], byte_of(i, 9));
    }
    wd_safetensors_close(set);
}

static void refused(void **state)
{
    (void)state;
    static const wd_safetensors_item bad[] = {
        {"row", WD_Q8_0, 2, {2, 48}},
        {"none", WD_F32, 1, {0}},
        {"huge", WD_F32, 3, {1 << 30, 1 << 30, 1 << 30}},
        {"dims", WD_F32, WD_DIMS_MAX + 1, {1, 1, 1, 1, 1, 1}},
    };
    wd_err err;
    wd_safetensors_writer *writer;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const wd_status status =
            wd_gguf_create(&writer, at("bad.gguf"), &bad[i], 1, pairs, 2, &err);
        wd_test_refused(status, &err, WD_INTERNAL, bad[i].name);
    }
    assert_false(wd_path_exists(at("bad.gguf")));
    wd_test_refused(wd_gguf_create(&writer, at("none/a.gguf"), items, ITEMS, pairs, 2, &err), &err,
                    WD_NOT_FOUND, "none/a.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte),
        cmocka_unit_test(read_back),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
