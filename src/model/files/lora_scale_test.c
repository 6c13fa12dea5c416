/* Tests of where a LoRA's factor is said: in tensors, in the file's metadata, in a file beside it.
 */
#include "testing.h"

#include <math.h>
#include <unistd.h>

#include "model/files/lora.h"
#include "model/tables/dit_table.h"

enum { D = 8, RANK = 4, TENSORS = 6 };

static wd_tensor_table table;

static int open_table(void **state)
{
    (void)state;
    static const wd_dit_config config = {.layers = 2,
                                         .heads = 2,
                                         .head_dim = 4,
                                         .ffn_dim = 16,
                                         .freq_dim = 4,
                                         .text_dim = 4,
                                         .in_channels = 1,
                                         .out_channels = 1,
                                         .patch = {1, 2, 2},
                                         .cross_attn_norm = true};
    wd_err err;
    wd_test_ok(wd_dit_table_open(&table, &config, &err), &err);
    return 0;
}

static int close_table(void **state)
{
    (void)state;
    wd_dit_table_close(&table);
    return 0;
}

static const char *at(const char *name)
{
    static char path[4][WD_PATH_MAX];
    static int next;
    wd_err err;
    char *out = path[next++ % 4];
    wd_test_ok(wd_path_join(out, wd_test_folder(), name, &err), &err);
    return out;
}

/* Writes products of RANK for two modules, in F32; `alpha` NAN: no tensors of it. */
static void write_lora(const char *path, const char *prefix, const char *down, const char *up,
                       double alpha, const char *const *metadata)
{
    static const char *const modules[] = {"blocks.0.attn1.to_q", "blocks.1.attn1.to_q"};
    static char names[TENSORS][192];
    static const float zeros[RANK * D];
    wd_safetensors_item items[TENSORS];
    wd_safetensors_writer *writer;
    wd_err err;
    int n = 0;
    for (int m = 0; m < 2; m++) {
        snprintf(names[n], sizeof names[n], "%s%s%s", prefix, modules[m], down);
        items[n] = (wd_safetensors_item){names[n], WD_F32, 2, {RANK, D}};
        n++;
        snprintf(names[n], sizeof names[n], "%s%s%s", prefix, modules[m], up);
        items[n] = (wd_safetensors_item){names[n], WD_F32, 2, {D, RANK}};
        n++;
        if (isnan(alpha)) continue;
        snprintf(names[n], sizeof names[n], "%s%s.alpha", prefix, modules[m]);
        items[n] = (wd_safetensors_item){names[n], WD_F32, 0, {0}};
        n++;
    }
    wd_test_ok(wd_safetensors_create(&writer, path, items, n, metadata, &err), &err);
    for (int i = 0; i < n; i++) {
        const float value = (float)alpha;
        const size_t bytes = items[i].ndim ? sizeof zeros : sizeof value;
        wd_test_ok(wd_safetensors_put(writer, items[i].ndim ? zeros : &value, bytes, &err), &err);
    }
    wd_test_ok(wd_safetensors_finish(writer, &err), &err);
}

typedef struct test_case {
    const char *key, *value; /* of the metadata; NULL: none */
    double alpha;            /* of tensors; NAN: none */
    double first, second;    /* expected factors of the two modules */
} test_case;

#define SETTINGS(rest) "{\"transformer.r\":4,\"transformer.lora_alpha\":8" rest "}"
#define HEADER "lora_adapter_metadata"

static void check_factors(const char *path, double first, double second)
{
    wd_err err;
    wd_loras loras;
    wd_test_ok(wd__loras_open(&loras, path, &table, &err), &err);
    assert_int_equal(loras.changes, 2);
    const double found[] = {(double)loras.change[0].scale, (double)loras.change[1].scale};
    if (found[0] != first || found[1] != second)
        fail_msg("factors %g and %g, expected %g and %g", found[0], found[1], first, second);
    wd__loras_close(&loras);
}

/* Factors are exact here: quotients of small powers of two. */
static void factors_of_the_metadata(void **state)
{
    (void)state;
    static const test_case cases[] = {
        {NULL, NULL, NAN, 1, 1},
        {NULL, NULL, 2, 0.5, 0.5},
        {HEADER, SETTINGS(""), NAN, 2, 2},
        {HEADER, SETTINGS(""), 8, 2, 2},
        {HEADER, "{\"r\":4,\"lora_alpha\":16}", NAN, 4, 4},
        {HEADER, SETTINGS(",\"transformer.use_rslora\":true"), NAN, 4, 4},
        {HEADER,
         SETTINGS(",\"transformer.alpha_pattern\":{\"blocks.0.attn1.to_q\":4}"
                  ",\"transformer.rank_pattern\":{\"to_q\":4}"),
         NAN, 1, 2},
        {HEADER, SETTINGS(",\"transformer.alpha_pattern\":{\"attn1.to_q\":2,\"to_q\":4}"), NAN, 0.5,
         0.5},
        {HEADER, SETTINGS(",\"transformer.alpha_pattern\":{\"^blocks\\\\.1\\\\.attn1.to_q$\":16}"),
         NAN, 2, 4},
        {HEADER,
         SETTINGS(",\"transformer.peft_type\":\"LORA\",\"transformer.bias\":\"none\""
                  ",\"transformer.use_dora\":false,\"transformer.lora_bias\":false"
                  ",\"transformer.modules_to_save\":null,\"transformer.init_lora_weights\":true"
                  ",\"transformer.target_modules\":[\"to_q\"],\"transformer.lora_dropout\":0.1"
                  ",\"transformer.new_setting\":{},\"text_encoder.r\":null"),
         NAN, 2, 2},
        {HEADER, "{\"transformer.target_modules\":[\"to_q\"]}", NAN, 1, 1},
        {"lora_alpha", "2", NAN, 0.5, 0.5},
        {"transformer.lora_alpha", "8", NAN, 2, 2},
        {"network_alpha", "8.0", NAN, 2, 2},
        {"ss_network_alpha", "2.0", 2, 0.5, 0.5},
        {"ss_network_alpha", "Dynamic", 2, 0.5, 0.5},
        {"ss_network_alpha", "16", 2, 0.5, 0.5}, /* of most modules; a tensor comes first */
        {"alpha", "None", NAN, 1, 1},
        {"alpha", "blending", NAN, 1, 1},
        {"ss_network_module", "None", 2, 0.5, 0.5},
        {"ss_network_alpha", "2.0", NAN, 1, 1}, /* a converter has multiplied by it */
        {"ss_network_module", "networks.lora_wan", 2, 0.5, 0.5},
    };
    const char *path = at("factors.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const metadata[] = {cases[i].key, cases[i].value, NULL};
        write_lora(path, "transformer.", ".lora_A.weight", ".lora_B.weight", cases[i].alpha,
                   cases[i].key ? metadata : NULL);
        check_factors(path, cases[i].first, cases[i].second);
    }
}

static void refuse(const char *path, wd_status status, const char *named)
{
    wd_err err;
    wd_loras loras;
    wd_test_refused(wd__loras_open(&loras, path, &table, &err), &err, status, named);
}

static void settings_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
        double alpha;
        wd_status status;
        const char *named;
    } cases[] = {
        {HEADER, SETTINGS(""), 4, WD_MISMATCH, "contradict each other"},
        {HEADER, SETTINGS(",\"transformer.use_rslora\":true"), 8, WD_MISMATCH, "contradict"},
        {"ss_network_module", "networks.oft", 2, WD_UNSUPPORTED, "networks.oft"},
        {"lora_alpha", "eight", NAN, WD_BAD_FORMAT, "expected a number, found \"eight\""},
        {HEADER, "{\"r\":8,\"lora_alpha\":8}", NAN, WD_MISMATCH,
         "has rank 8, but its tensors have rank 4"},
        {HEADER, SETTINGS(",\"transformer.rank_pattern\":{\"blocks.1.attn1.to_q\":2}"), NAN,
         WD_MISMATCH, "\"blocks.1.attn1.to_q\" has rank 2"},
        {HEADER, "{\"r\":4}", NAN, WD_BAD_FORMAT, "\"lora_alpha\" is missing"},
        {HEADER, "{\"r\":4,\"lora_alpha\":\"8\"}", NAN, WD_BAD_FORMAT, "found \"8\""},
        {HEADER, "[]", NAN, WD_BAD_FORMAT, "expected a JSON object"},
        {HEADER, "{", NAN, WD_BAD_FORMAT, HEADER},
        {HEADER, SETTINGS(",\"transformer.use_dora\":true"), NAN, WD_UNSUPPORTED, "\"use_dora\""},
        {HEADER, SETTINGS(",\"transformer.lora_bias\":true"), NAN, WD_UNSUPPORTED, "\"lora_bias\""},
        {HEADER, SETTINGS(",\"transformer.fan_in_fan_out\":true"), NAN, WD_UNSUPPORTED,
         "\"fan_in_fan_out\""},
        {HEADER, SETTINGS(",\"transformer.bias\":\"all\""), NAN, WD_UNSUPPORTED, "\"bias\""},
        {HEADER, SETTINGS(",\"transformer.modules_to_save\":[\"proj_out\"]"), NAN, WD_UNSUPPORTED,
         "\"modules_to_save\""},
        {HEADER, SETTINGS(",\"transformer.peft_type\":\"LOHA\""), NAN, WD_UNSUPPORTED, "\"LOHA\""},
        {HEADER, SETTINGS(",\"transformer.init_lora_weights\":\"pissa\""), NAN, WD_UNSUPPORTED,
         "\"pissa\""},
        {HEADER, SETTINGS(",\"transformer.of_the_future\":7"), NAN, WD_UNSUPPORTED,
         "\"of_the_future\" is 7"},
        {HEADER, SETTINGS(",\"text_encoder.r\":7"), NAN, WD_UNSUPPORTED, "\"text_encoder.r\""},
        {HEADER, SETTINGS(",\"transformer.use_rslora\":1"), NAN, WD_BAD_FORMAT, "true or false"},
        {HEADER, SETTINGS(",\"transformer.alpha_pattern\":{\"blocks.[01].attn1.to_q\":4}"), NAN,
         WD_UNSUPPORTED, "\"blocks.[01].attn1.to_q\": of regular expressions"},
        {HEADER, SETTINGS(",\"transformer.alpha_pattern\":{\"to_q\":\"4\"}"), NAN, WD_BAD_FORMAT,
         "expected a number"},
        {HEADER, SETTINGS(",\"transformer.alpha_pattern\":7"), NAN, WD_BAD_FORMAT,
         "expected an object"},
        {HEADER, SETTINGS(",\"transformer.alpha_pattern\":{\"o_q\":4}"), NAN, WD_MISMATCH,
         "\"o_q\", which is no module"},
    };
    const char *path = at("refused.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const metadata[] = {cases[i].key, cases[i].value, NULL};
        write_lora(path, "transformer.", ".lora_A.weight", ".lora_B.weight", cases[i].alpha,
                   metadata);
        refuse(path, cases[i].status, cases[i].named);
    }
}

/* kohya's names without alpha tensors, and an alpha in the metadata that is not the rank. */
static void kohya_without_tensors_of_alpha(void **state)
{
    (void)state;
    static const char *const metadata[] = {"ss_network_alpha", "2", "ss_network_dim", "4", NULL};
    const char *path = at("kohya.safetensors");
    write_lora(path, "diffusion_model.", ".lora_down.weight", ".lora_up.weight", NAN, metadata);
    check_factors(path, 0.5, 0.5);
    static const char *const others[] = {"ss_network_alpha", "1", "ss_network_dim", "32", NULL};
    write_lora(path, "diffusion_model.", ".lora_down.weight", ".lora_up.weight", 8, others);
    check_factors(path, 2, 2);
}

static void write_text(const char *path, const char *text)
{
    wd_err err;
    wd_test_ok(wd_file_write(path, text, strlen(text), &err), &err);
}

/* adapter_config.json counts for PEFT's files, and for no other file beside it. */
static void adapters_of_peft(void **state)
{
    (void)state;
    const char *path = at("adapter_model.safetensors"), *config = at("adapter_config.json");
    write_lora(path, "base_model.model.", ".lora_A.weight", ".lora_B.weight", NAN, NULL);
    unlink(config);
    refuse(path, WD_NOT_FOUND, "adapter_config.json");
    write_lora(path, "base_model.model.", ".lora_A.weight", ".lora_B.weight", 8, NULL);
    check_factors(path, 2, 2); /* its tensors say it */
    write_lora(path, "diffusion_model.", ".lora_A.weight", ".lora_B.weight", NAN, NULL);
    check_factors(path, 1, 1); /* of a trainer that only uses PEFT's name of a file */
    write_lora(path, "base_model.model.", ".lora_A.weight", ".lora_B.weight", NAN, NULL);
    write_text(config, "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8}");
    check_factors(path, 2, 2);
    write_text(config, "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"use_rslora\":true}");
    check_factors(path, 4, 4);
    write_text(config, "{\"peft_type\":\"LORA\"}");
    refuse(path, WD_BAD_FORMAT, "\"lora_alpha\" is missing");
    write_text(config, "{\"r\":4,\"lora_alpha\":8,\"use_dora\":true}");
    refuse(path, WD_UNSUPPORTED, "adapter_config.json: \"use_dora\" is true");
    write_text(config, "{\"r\":4,\"lora_alpha\":8,\"forged\\nline\":true}");
    refuse(path, WD_UNSUPPORTED, "\"forged\" is true");
    write_text(config, "{\"r\":4,\"lora_alpha\":8}");
    static const char *const metadata[] = {HEADER, "{\"r\":4,\"lora_alpha\":4}", NULL};
    write_lora(path, "base_model.model.", ".lora_A.weight", ".lora_B.weight", NAN, metadata);
    refuse(path, WD_MISMATCH, "contradict each other");
    write_lora(at("other.safetensors"), "transformer.", ".lora_A.weight", ".lora_B.weight", NAN,
               NULL);
    check_factors(at("other.safetensors"), 1, 1);
}

/* A factor that is beside the tensors is part of what identifies merged weights. */
static void keys_have_the_factors(void **state)
{
    (void)state;
    static const char *const alphas[] = {"4", "8"};
    char key[3][WD_LORA_KEY_MAX];
    const char *path = at("key.safetensors");
    wd_err err;
    for (int i = 0; i < 3; i++) {
        const char *const metadata[] = {"lora_alpha", alphas[i == 2], NULL};
        write_lora(path, "transformer.", ".lora_A.weight", ".lora_B.weight", NAN,
                   i ? metadata : NULL);
        wd_test_ok(wd__lora_key(key[i], path, &table, "", &err), &err);
    }
    assert_string_not_equal(key[1], key[2]);
    assert_string_not_equal(key[0], key[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_of_the_metadata),
        cmocka_unit_test(settings_that_are_refused),
        cmocka_unit_test(kohya_without_tensors_of_alpha),
        cmocka_unit_test(adapters_of_peft),
        cmocka_unit_test(keys_have_the_factors),
    };
    return cmocka_run_group_tests(tests, open_table, close_table);
}
