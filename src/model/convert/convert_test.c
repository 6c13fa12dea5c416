/* Tests of conversion: converting to a file and back gives the same bytes, dtypes are rounded
 * correctly, and files of other models are refused. */
#include "sparse.h"

#include "core/stop.h"
#include "model/convert/convert.h"
#include "model/dit/dit_file.h"
#include "model/tables/names.h"

static const char wan_tiny[] = WD_SOURCE_DIR "/models/wan-tiny";

static const char *below(char path[WD_PATH_MAX], const char *name)
{
    wd_err err;
    wd_test_ok(wd_path_join(path, wd_test_folder(), name, &err), &err);
    return path;
}

/* Every tensor of `a` is in `b` (whose names are diffusers'), byte by byte. */
static void assert_same(const wd_safetensors *a, const wd_safetensors *b)
{
    assert_int_equal(wd_safetensors_count(a), wd_safetensors_count(b));
    for (int64_t i = 0; i < wd_safetensors_count(a); i++) {
        const wd_safetensors_entry *x = wd_safetensors_at(a, i);
        const wd_safetensors_entry *y = wd_safetensors_find(b, x->name);
        assert_non_null(y);
        assert_int_equal(x->tensor.dtype, y->tensor.dtype);
        assert_false(y->unaligned);
        assert_memory_equal(x->tensor.data, y->tensor.data, wd_tensor_bytes(&x->tensor));
    }
}

static void there_and_back(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline p, q;
    wd_safetensors *original, *before, *after;
    char file[WD_PATH_MAX], root[WD_PATH_MAX], folder[WD_PATH_MAX];
    wd_test_ok(wd_pipeline_open(&p, wan_tiny, &err), &err);
    below(file, "comfy.safetensors");
    const wd_component c = WD_COMPONENT_TRANSFORMER_2;
    wd_test_ok(wd_convert_to_original(file, &p, c, NULL, &err), &err);
    wd_test_ok(wd_safetensors_open(&original, file, &err), &err);
    assert_non_null(wd_safetensors_find(original, "blocks.5.self_attn.o.weight"));
    assert_non_null(wd_safetensors_find(original, "head.modulation"));
    for (int64_t i = 0; i < wd_safetensors_count(original); i++)
        assert_false(wd_safetensors_at(original, i)->unaligned);
    wd_safetensors_close(original);
    wd_test_ok(wd_convert_to_diffusers(below(folder, "back/transformer"), file, NULL, NULL, NULL,
                                       false, &err),
               &err);
    wd_test_ok(wd_pipeline_open(&q, below(root, "back"), &err), &err);
    assert_true(wd_dit_config_same(&p.dit, &q.dit));
    wd_test_ok(wd_pipeline_open_weights(&before, &p, c, &err), &err);
    wd_test_ok(wd_pipeline_open_weights(&after, &q, WD_COMPONENT_TRANSFORMER, &err), &err);
    assert_same(before, after);
    wd_safetensors_close(before);
    wd_safetensors_close(after);
    wd_test_refused(wd_convert_to_original(file, &p, WD_COMPONENT_VAE, NULL, &err), &err,
                    WD_INVALID_ARGUMENT, "vae");
}

/* In every dtype keep_f32 tensors stay F32, and the others are rounded once. */
static void to_other_dtypes(void **state)
{
    (void)state;
    static const wd_dtype dtypes[] = {WD_F32, WD_F16, WD_BF16};
    wd_err err;
    wd_pipeline p;
    char file[WD_PATH_MAX], folder[WD_PATH_MAX];
    snprintf(folder, sizeof folder, "%s/tests/fixtures/dit-head128", WD_SOURCE_DIR);
    wd_test_ok(wd_pipeline_open(&p, folder, &err), &err);
    wd_safetensors *from;
    wd_test_ok(wd_pipeline_open_weights(&from, &p, WD_COMPONENT_TRANSFORMER, &err), &err);
    for (size_t d = 0; d < 3; d++) {
        wd_safetensors *to;
        wd_file_abandon(below(file, "as.safetensors")); /* an existing file is not replaced */
        wd_test_ok(wd_convert_to_original(file, &p, WD_COMPONENT_TRANSFORMER, &dtypes[d], &err),
                   &err);
        wd_test_ok(wd_safetensors_open(&to, file, &err), &err);
        for (int64_t i = 0; i < wd_safetensors_count(from); i++) {
            const wd_tensor *x = &wd_safetensors_at(from, i)->tensor;
            char name[WD_TENSOR_NAME_MAX];
            assert_true(wd_names_to_original(name, sizeof name, wd_safetensors_at(from, i)->name));
            const wd_tensor *y = &wd_safetensors_find(to, name)->tensor;
            bool island = strstr(name, "modulation") || strstr(name, "time_embedding") ||
                          strstr(name, "norm3");
            assert_int_equal(y->dtype, island ? WD_F32 : dtypes[d]);
            for (int64_t j = 0; j < wd_tensor_count(x); j++) {
                float want = ((const float *)x->data)[j], got = want;
                uint16_t half;
                if (y->dtype == WD_F32)
                    memcpy(&got, (const float *)y->data + j, 4);
                else
                    memcpy(&half, (const uint16_t *)y->data + j, 2);
                if (y->dtype == WD_F16)
                    assert_int_equal(half, wd_f32_to_f16(want));
                else if (y->dtype == WD_BF16)
                    assert_int_equal(half, wd_f32_to_bf16(want));
                else
                    assert_true(got == want);
            }
        }
        wd_safetensors_close(to);
    }
    wd_safetensors_close(from);
}

/* A file of another program: original names after ComfyUI's prefix, no configuration. */
static void reads_files_of_others(void **state)
{
    (void)state;
    wd_err err;
    wd_tensor_table table;
    wd_safetensors *set;
    wd_dit_file file;
    char path[WD_PATH_MAX];
    const wd_dit_config config = {16,  16,   12,        128,  8960, 30,
                                  256, 4096, {1, 2, 2}, 1024, true, 1e-6};
    below(path, "wan2.1_t2v_1.3B.safetensors");
    wd_test_ok(wd_dit_table_open(&table, &config, &err), &err);
    wd_tensor_spec last = table.spec[table.count - 1];
    wd_test_sparse_file(path, &table, 0, 1, WD_F16, NULL);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    wd_test_ok(wd_dit_file_read(&file, set, &err), &err);
    assert_false(file.naming.original);
    wd_safetensors_close(set);
    for (int64_t i = 0; i < table.count; i++) {
        char name[WD_TENSOR_NAME_MAX];
        assert_true(wd_names_to_original(name, sizeof name, table.spec[i].name));
        snprintf(table.spec[i].name, WD_TENSOR_NAME_MAX, "model.diffusion_model.%s", name);
    }
    wd_test_sparse_file(path, &table, 0, 1, WD_F16, NULL);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    wd_test_ok(wd_dit_file_read(&file, set, &err), &err);
    assert_true(file.naming.original);
    assert_true(wd_dit_config_same(&file.config, &config));
    assert_non_null(wd_dit_file_find(&file, last.name));
    wd_safetensors_close(set);
    wd_test_sparse_file(path, &table, 0, 1, WD_F16, "model.diffusion_model.blocks.7.ffn.2.bias");
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    wd_test_refused(wd_dit_file_read(&file, set, &err), &err, WD_NOT_FOUND,
                    "\"blocks.7.ffn.net.2.bias\" is missing");
    wd_safetensors_close(set);
    strcpy(table.spec[5].name, "model.diffusion_model.img_emb.proj.0.weight");
    wd_test_sparse_file(path, &table, 0, 1, WD_F16, NULL);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    wd_test_refused(wd_dit_file_read(&file, set, &err), &err, WD_UNSUPPORTED, "image-to-video");
    wd_safetensors_close(set);
    wd_dit_table_close(&table);
    snprintf(path, sizeof path, "%s/tests/fixtures/umt5/in.safetensors", WD_SOURCE_DIR);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    wd_test_refused(wd_dit_file_read(&file, set, &err), &err, WD_UNSUPPORTED, "no Wan transformer");
    wd_safetensors_close(set);
}

/* float16 cannot represent 1e5: the error names the tensor, and no file is left. */
static void refuses_what_float16_cannot_hold(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline p;
    wd_safetensors_writer *writer;
    wd_safetensors *set;
    char path[WD_PATH_MAX], folder[WD_PATH_MAX], root[WD_PATH_MAX];
    snprintf(folder, sizeof folder, "%s/tests/fixtures/dit-head128", WD_SOURCE_DIR);
    wd_test_ok(wd_pipeline_open(&p, folder, &err), &err);
    wd_test_ok(wd_convert_to_original(below(path, "one.safetensors"), &p, WD_COMPONENT_TRANSFORMER,
                                      NULL, &err),
               &err);
    wd_test_ok(wd_convert_to_diffusers(below(folder, "huge/transformer"), path, NULL, NULL, NULL,
                                       false, &err),
               &err);
    /* the same with one large value */
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    int64_t count = wd_safetensors_count(set);
    wd_safetensors_item *items = calloc((size_t)count, sizeof *items);
    for (int64_t i = 0; i < count; i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        items[i] = (wd_safetensors_item){e->name, e->tensor.dtype, e->tensor.ndim, {0}};
        memcpy(items[i].dim, e->tensor.dim, sizeof items[i].dim);
    }
    char huge[WD_PATH_MAX];
    wd_test_ok(
        wd_safetensors_create(&writer, below(huge, "huge.safetensors"), items, count, NULL, &err),
        &err);
    for (int64_t i = 0; i < count; i++) {
        const wd_safetensors_entry *e = wd_safetensors_at(set, i);
        size_t bytes = wd_tensor_bytes(&e->tensor), skip = 0;
        const float big = 1e5f;
        if (!strcmp(e->name, "head.head.bias")) skip = sizeof big;
        if (skip) wd_test_ok(wd_safetensors_put(writer, &big, skip, &err), &err);
        wd_test_ok(
            wd_safetensors_put(writer, (const char *)e->tensor.data + skip, bytes - skip, &err),
            &err);
    }
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
    wd_safetensors_close(set);
    free(items);
    const wd_dtype half = WD_F16, brain = WD_BF16;
    below(folder, "huge2/transformer");
    wd_test_refused(wd_convert_to_diffusers(folder, huge, NULL, NULL, &half, false, &err), &err,
                    WD_UNSUPPORTED, "\"head.head.bias\" has the value 100000");
    snprintf(root, sizeof root, "%s/diffusion_pytorch_model.safetensors", folder);
    assert_false(wd_path_exists(root));
    wd_test_ok(wd_convert_to_diffusers(folder, huge, NULL, NULL, &brain, false, &err), &err);
}

/* The index of an older model in shards is not replaced either; readers would prefer it to the new
 * file. */
static void nothing_is_replaced(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline p;
    char file[WD_PATH_MAX], folder[WD_PATH_MAX], path[WD_PATH_MAX], hash[2][33];
    wd_test_ok(wd_pipeline_open(&p, wan_tiny, &err), &err);
    below(file, "kept.safetensors");
    const wd_component c = WD_COMPONENT_TRANSFORMER;
    wd_test_ok(wd_convert_to_original(file, &p, c, NULL, &err), &err);
    wd_test_ok(wd_file_hash(hash[0], file, &err), &err);
    wd_test_refused(wd_convert_to_original(file, &p, c, NULL, &err), &err, WD_INVALID_ARGUMENT,
                    "kept.safetensors: is there already");
    static const char *const older[] = {"diffusion_pytorch_model.safetensors.index.json",
                                        "diffusion_pytorch_model-00001-of-00002.safetensors",
                                        "diffusion_pytorch_model.safetensors", "config.json"};
    wd_test_ok(wd_folder_make(below(folder, "older"), &err), &err);
    for (int i = 0; i < 4; i++) {
        wd_test_ok(wd_path_join(path, folder, older[i], &err), &err);
        wd_test_ok(wd_file_write(path, "older", 5, &err), &err);
        wd_test_refused(wd_convert_to_diffusers(folder, file, NULL, NULL, NULL, false, &err), &err,
                        WD_INVALID_ARGUMENT, older[i]);
        wd_file_abandon(path);
    }
    wd_test_ok(wd_file_write(below(path, "older/notes.txt"), "notes", 5, &err), &err);
    /* what a conversion leaves that is killed at its end */
    below(path, "older/diffusion_pytorch_model.safetensors.4711-0.tmp");
    wd_test_ok(wd_file_write(path, "part", 4, &err), &err);
    wd_test_ok(wd_convert_to_diffusers(folder, file, NULL, NULL, NULL, false, &err), &err);
    below(path, "older/diffusion_pytorch_model.safetensors"); /* the written file itself as input */
    wd_test_refused(wd_convert_to_diffusers(folder, path, NULL, NULL, NULL, false, &err), &err,
                    WD_INVALID_ARGUMENT, "older/config.json: is there already");
    wd_test_ok(wd_file_hash(hash[1], file, &err), &err);
    assert_string_equal(hash[0], hash[1]);
}

/* Shapes do not tell the size of heads other than 128; a config.json in the file's folder does. */
static void heads_of_another_width(void **state)
{
    (void)state;
    wd_err err;
    wd_tensor_table table;
    wd_safetensors *set;
    wd_dit_file file;
    char path[WD_PATH_MAX], folder[WD_PATH_MAX];
    const wd_dit_config config = {16, 16, 5, 32, 64, 1, 256, 64, {1, 2, 2}, 1024, false, 1e-6};
    wd_test_ok(wd_dit_table_open(&table, &config, &err), &err);
    wd_test_ok(wd_folder_make(below(folder, "heads"), &err), &err);
    below(path, "heads/x.safetensors");
    wd_test_sparse_file(path, &table, 0, 1, WD_BF16, NULL);
    wd_dit_table_close(&table);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    wd_test_ok(wd_dit_file_read(&file, set, &err), &err);
    assert_true(!file.heads_known && !file.config.cross_attn_norm);
    wd_test_refused(wd_convert_to_diffusers(folder, path, NULL, NULL, NULL, false, &err), &err,
                    WD_UNSUPPORTED, "number of heads");
    char beside[WD_PATH_MAX];
    json_t *json = wd_dit_config_json(&config);
    wd_test_ok(wd_json_save(json, below(beside, "heads/config.json"), &err), &err);
    json_decref(json);
    wd_test_ok(wd_dit_file_read(&file, set, &err), &err);
    assert_true(file.heads_known && wd_dit_config_same(&file.config, &config));
    wd_safetensors_close(set);
}

/* Too many blocks are refused also without a configuration. */
static void too_many_blocks_are_refused(void **state)
{
    (void)state;
    wd_err err;
    wd_dit_file file;
    wd_safetensors *set;
    wd_tensor_table table;
    wd_pipeline tiny;
    char path[WD_PATH_MAX];
    wd_test_ok(wd_pipeline_open(&tiny, wan_tiny, &err), &err);
    for (int more = 0; more < 2; more++) {
        tiny.dit.layers = WD_DIT_LAYERS_MAX + more;
        wd_test_ok(wd_dit_table_open(&table, &tiny.dit, &err), &err);
        below(path, more ? "more-blocks.safetensors" : "most-blocks.safetensors");
        wd_test_sparse_file(path, &table, 0, 1, WD_BF16, NULL);
        wd_dit_table_close(&table);
        wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
        assert_true(wd__dit_file_detect(&file, set));
        const wd_status status = wd_dit_file_read(&file, set, &err);
        if (more)
            wd_test_refused(status, &err, WD_UNSUPPORTED,
                            "\"blocks.126.scale_shift_table\": expected at most 126 blocks");
        else
            wd_test_ok(status, &err);
        wd_safetensors_close(set);
    }
}

/* A stop leaves neither the file nor a part of it. */
static void stops_on_request(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline pipeline;
    char folder[WD_PATH_MAX], out[WD_PATH_MAX];
    wd_test_ok(wd_pipeline_open(&pipeline, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    wd_test_ok(wd_folder_make(below(folder, "stopped"), &err), &err);
    below(out, "stopped/out.safetensors");
    wd_request_stop();
    const wd_status status =
        wd_convert_to_original(out, &pipeline, WD_COMPONENT_TRANSFORMER, NULL, &err);
    wd__stop_forget();
    wd_test_refused(status, &err, WD_INTERRUPTED, "stopped on request");
    assert_int_equal(rmdir(folder), 0); /* it is empty */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),        cmocka_unit_test(to_other_dtypes),
        cmocka_unit_test(reads_files_of_others), cmocka_unit_test(refuses_what_float16_cannot_hold),
        cmocka_unit_test(nothing_is_replaced),   cmocka_unit_test(heads_of_another_width),
        cmocka_unit_test(stops_on_request),      cmocka_unit_test(too_many_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
