/* The VAE's table names exactly the tensors of real checkpoints, in both layouts. */
#include "test_preset.h"

#include "model/vae/vae_layers.h"

static wd_vae_config wan21(void)
{
    return wd_test_preset("wan2.1-1.3b").vae;
}

static wd_vae_config wan22(void)
{
    return wd_test_preset("wan2.2-5b").vae;
}

static void check_size(wd_vae_config config, int64_t tensors, int64_t parameters)
{
    wd_tensor_table table;
    wd_err err;
    wd_test_ok(wd_vae_table_open(&table, &config, &err), &err);
    int64_t sum = 0;
    for (int64_t i = 0; i < table.count; i++) {
        wd_tensor t = {.ndim = table.spec[i].ndim};
        memcpy(t.dim, table.spec[i].dim, sizeof t.dim);
        sum += wd_tensor_count(&t);
    }
    assert_int_equal(table.count, tensors);
    assert_int_equal(sum, parameters);
    wd_vae_table_close(&table);
}

/* As published: 507,570,124 and 2,818,754,672 bytes of fp32. */
static void real_sizes(void **state)
{
    (void)state;
    check_size(wan21(), 194, 126892531);
    check_size(wan22(), 196, 704688668);
}

static void check_names(wd_vae_config config, const char *file)
{
    char path[WD_PATH_MAX];
    wd_tensor_table table;
    wd_safetensors *set;
    wd_tensor tensor;
    wd_err err;
    wd_test_ok(wd_path_join(path, WD_SOURCE_DIR, file, &err), &err);
    wd_test_ok(wd_safetensors_open(&set, path, &err), &err);
    wd_test_ok(wd_vae_table_open(&table, &config, &err), &err);
    for (int64_t i = 0; i < table.count; i++)
        wd_test_ok(wd_safetensors_expect(&tensor, set, &table.spec[i], &err), &err);
    assert_int_equal(table.count, wd_safetensors_count(set));
    wd_vae_table_close(&table);
    wd_safetensors_close(set);
}

static void names_of_the_fixtures(void **state)
{
    (void)state;
    wd_vae_config tiny = wan21(), residual = wan22();
    tiny.base_dim = tiny.decoder_base_dim = 4;
    check_names(tiny, "tests/fixtures/vae-2.1/vae/diffusion_pytorch_model.safetensors");
    tiny.num_res_blocks = 1;
    check_names(tiny, "tests/fixtures/vae-2.1-video/vae/diffusion_pytorch_model.safetensors");
    tiny.base_dim = tiny.decoder_base_dim = 16;
    check_names(tiny, "models/wan-tiny/vae/diffusion_pytorch_model.safetensors");
    residual.base_dim = 4;
    residual.decoder_base_dim = 6;
    residual.z_dim = 12;
    residual.num_res_blocks = 1;
    check_names(residual, "tests/fixtures/vae-2.2/vae/diffusion_pytorch_model.safetensors");
}

static void too_many_layers(void **state)
{
    (void)state;
    wd_vae_config deep = wan21();
    wd_tensor_table table;
    wd_err err;
    deep.num_res_blocks = 1000;
    wd_test_refused(wd_vae_table_open(&table, &deep, &err), &err, WD_UNSUPPORTED,
                    "num_res_blocks 1000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(real_sizes),
                                       cmocka_unit_test(names_of_the_fixtures),
                                       cmocka_unit_test(too_many_layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
