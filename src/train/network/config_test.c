/* The student's configuration file: both vocabularies, defaults, and every way to be refused. */
#include "train/network/config.h"

#include "testing.h"

#include "io/json/json.h"
#include "model/files/preset.h"
#include "tiny_teacher.h"

static wd_status read_text(wd_student_config *out, const char *text, wd_err *err)
{
    json_t *json;
    wd_test_ok(wd_json_parse(&json, text, strlen(text), "s.json", err), err);
    wd_status status = wd__student_config_read(out, json, "s.json", &teacher, err);
    json_decref(json);
    return status;
}

static void test_default(void **state)
{
    (void)state;
    wd_err err;
    wd_student_config c;
    wd_test_ok(wd_student_config_load(&c, NULL, &teacher, &err), &err);
    wd_dit_config expected = teacher.dit;
    expected.layers = 3;
    assert_memory_equal(&c.dit, &expected, sizeof expected);
    assert_int_equal(c.image_height, teacher.default_height);
    assert_int_equal(c.text_tokens, 0);
    wd_test_ok(read_text(&c, "{}", &err), &err);
    assert_memory_equal(&c.dit, &expected, sizeof expected);
}

static void test_both_vocabularies(void **state)
{
    (void)state;
    wd_err err;
    wd_student_config a, b;
    wd_test_ok(read_text(&a,
                         "{\"model_type\": \"WanLiteStudent\", \"hidden_size\": 96, \"depth\": 4, "
                         "\"num_heads\": 3, \"num_channels\": 16, \"image_size\": 128, "
                         "\"patch_size\": 2, \"text_max_length\": 20, "
                         "\"text_encoder_output_dim\": 96, \"projection_factor\": 4.0}",
                         &err),
               &err);
    wd_test_ok(read_text(&b,
                         "{\"_class_name\": \"WanTransformer3DModel\", "
                         "\"num_attention_heads\": 3, \"attention_head_dim\": 32, "
                         "\"num_layers\": 4, \"ffn_dim\": 384, \"in_channels\": 16, "
                         "\"out_channels\": 16, \"text_dim\": 96, \"patch_size\": [1, 2, 2], "
                         "\"image_dim\": null, \"added_kv_proj_dim\": null, \"eps\": 1e-6, "
                         "\"cross_attn_norm\": true, \"freq_dim\": 256}",
                         &err),
               &err);
    assert_memory_equal(&a.dit, &b.dit, sizeof a.dit);
    assert_int_equal(a.dit.layers, 4);
    assert_int_equal(wd_dit_width(&a.dit), 96);
    assert_int_equal(a.dit.ffn_dim, 384);
    assert_int_equal(a.image_height, 128);
    assert_int_equal(a.image_width, 128);
    assert_int_equal(a.text_tokens, 20);

    /* Narrower and nothing else said: the feed-forward width follows. */
    wd_test_ok(read_text(&a, "{\"hidden_size\": 64, \"image_size\": [64, 128]}", &err), &err);
    assert_int_equal(a.dit.ffn_dim, 256);
    assert_int_equal(a.image_height, 64);
    assert_int_equal(a.image_width, 128);
    /* Said twice, and in agreement. */
    wd_test_ok(read_text(&a, "{\"depth\": 2, \"num_layers\": 2}", &err), &err);
    assert_int_equal(a.dit.layers, 2);
}

static void a_default_student_is_not_wide(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline large;
    wd_student_config c;
    wd_test_ok(wd_preset_pipeline(&large, "wan2.2-a14b", &err), &err);
    wd_test_ok(wd_student_config_load(&c, NULL, &large, &err), &err);
    assert_int_equal(wd_dit_width(&c.dit), 1536);
    assert_int_equal(c.dit.ffn_dim, 13824 * 12 / 40);
    assert_int_equal(c.dit.layers, 20);
    assert_int_equal(c.image_height, 512);
    wd_test_ok(wd_preset_pipeline(&large, "wan2.1-1.3b", &err), &err);
    wd_test_ok(wd_student_config_load(&c, NULL, &large, &err), &err);
    assert_int_equal(wd_dit_width(&c.dit), 1536);
    assert_int_equal(c.dit.ffn_dim, 8960);
}

static void test_diffusers_file(void **state)
{
    (void)state;
    wd_err err;
    wd_student_config c;
    wd_test_ok(wd_student_config_load(&c, WD_SOURCE_DIR "/models/wan-tiny/transformer/config.json",
                                      &teacher, &err),
               &err);
    assert_memory_equal(&c.dit, &teacher.dit, sizeof c.dit);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        wd_status status;
        const char *names[3];
    } cases[] = {
        {"[]", WD_BAD_FORMAT, {"JSON object"}},
        {"{\"hidden_sise\": 96}", WD_INVALID_ARGUMENT, {"\"hidden_sise\"", "\"hidden_size\""}},
        {"{\"colour\": 1}", WD_INVALID_ARGUMENT, {"\"colour\"", "known are"}},
        {"{\"depth\": 2, \"num_layers\": 3}", WD_MISMATCH, {"depth is 2", "num_layers is 3"}},
        {"{\"depth\": \"2\"}", WD_BAD_FORMAT, {"depth"}},
        {"{\"depth\": 0}", WD_BAD_FORMAT, {"depth"}},
        {"{\"depth\": 7}", WD_UNSUPPORTED, {"depth", "7", "6"}},
        {"{\"hidden_size\": 100}", WD_INVALID_ARGUMENT, {"100", "96 and 128"}},
        {"{\"hidden_size\": 192}", WD_UNSUPPORTED, {"192", "160"}},
        {"{\"hidden_size\": 96, \"num_heads\": 2}", WD_MISMATCH, {"96", "64"}},
        {"{\"num_channels\": 4}", WD_MISMATCH, {"num_channels is 4", "16", "VAE"}},
        {"{\"out_channels\": 8}", WD_MISMATCH, {"8", "16"}},
        {"{\"text_encoder_output_dim\": 4096}", WD_MISMATCH, {"4096", "96"}},
        {"{\"attention_head_dim\": 64}", WD_MISMATCH, {"64", "32"}},
        {"{\"patch_size\": 16}", WD_MISMATCH, {"16", "[1, 2, 2]"}},
        {"{\"patch_size\": [2, 2, 2]}", WD_MISMATCH, {"[2", "[1, 2, 2]"}},
        {"{\"ffn_dim\": 641}", WD_UNSUPPORTED, {"ffn_dim", "641", "640"}},
        {"{\"ffn_dim\": 320, \"projection_factor\": 3}", WD_MISMATCH, {"320", "480"}},
        {"{\"projection_factor\": -1}", WD_INVALID_ARGUMENT, {"-1", "4"}},
        {"{\"projection_factor\": 1e300}", WD_INVALID_ARGUMENT, {"1e+300", "4"}},
        {"{\"projection_factor\": 1e-9}", WD_INVALID_ARGUMENT, {"1e-09", "4"}},
        {"{\"image_size\": 100}", WD_INVALID_ARGUMENT, {"100x100", "16"}},
        {"{\"image_size\": [4611686018427387904, 4611686018427387904]}",
         WD_INVALID_ARGUMENT,
         {"image_size", "at most 16384"}},
        {"{\"model_type\": \"unet\"}", WD_UNSUPPORTED, {"unet", "\"wan\""}},
        {"{\"_class_name\": \"WanVACETransformer3DModel\"}", WD_UNSUPPORTED, {"VACE"}},
        {"{\"image_dim\": 1280}", WD_UNSUPPORTED, {"image_dim"}},
        {"{\"text_max_length\": 5000}", WD_BAD_FORMAT, {"text_max_length", "4096", "5000"}},
        {"{\"qk_norm\": \"layer_norm\"}", WD_UNSUPPORTED, {"layer_norm", "rms_norm_across_heads"}},
        {"{\"cross_attn_norm\": false}", WD_MISMATCH, {"cross_attn_norm"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_err err = {0};
        wd_student_config c;
        wd_status status = read_text(&c, cases[i].text, &err);
        wd_test_refused(status, &err, cases[i].status, "s.json");
        for (int n = 0; n < 3 && cases[i].names[n]; n++) {
            wd_test_refused(status, &err, cases[i].status, cases[i].names[n]);
        }
    }
}

/* A file of the Python version has several values that contradict the teacher: one message names
 * them all. */
static void all_faults_are_named(void **state)
{
    (void)state;
    wd_err err;
    wd_student_config c;
    static const char text[] =
        "{\"model_type\": \"unet\", \"hidden_size\": 100, \"num_channels\": 4, \"patch_size\": 16, "
        "\"text_encoder_output_dim\": 768, \"colour\": 1}";
    static const char *const says[] = {"s.json has 6 faults: (1) ",      "\"colour\"",
                                       "model_type is \"unet\"",         "num_channels is 4",
                                       "text_encoder_output_dim is 768", "patch_size is 16",
                                       "(6) hidden_size is 100"};
    const wd_status status = read_text(&c, text, &err);
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        wd_test_refused(status, &err, WD_INVALID_ARGUMENT, says[i]);
    static const char numbers[] = "{\"num_layers\": \"a\", \"hidden_size\": \"b\", "
                                  "\"freq_dim\": \"c\"}";
    const wd_status of_numbers = read_text(&c, numbers, &err);
    wd_test_refused(of_numbers, &err, WD_BAD_FORMAT, "s.json has 3 faults: (1) ");
    wd_test_refused(of_numbers, &err, WD_BAD_FORMAT, "num_layers");
    char many[4096] = "{";
    for (int i = 0; i < 60; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "\"unknown_number_%d\": 1%s", i,
                 i < 59 ? ", " : "}");
    const wd_status of_many = read_text(&c, many, &err);
    wd_test_refused(of_many, &err, WD_INVALID_ARGUMENT, "s.json has 60 faults: (1) ");
    assert_string_equal(err.message + strlen(err.message) - 5, "; ...");
}

/* Of a teacher whose feed-forward width is below its number of heads. */
static void test_nothing_is_left_of_a_width(void **state)
{
    (void)state;
    wd_err err;
    wd_student_config c;
    const int64_t before = teacher.dit.ffn_dim;
    teacher.dit.ffn_dim = 4;
    const wd_status one_head = read_text(&c, "{\"num_heads\": 1}", &err);
    teacher.dit.ffn_dim = before;
    wd_test_refused(one_head, &err, WD_INVALID_ARGUMENT, "give \"ffn_dim\"");
}

/* What is written of a student's sizes is read as that student, and says no more than it must. */
static void sizes_are_written_as_they_are_read(void **state)
{
    (void)state;
    wd_err err;
    wd_student_config c;
    const int64_t heads = wd_student_config_default_heads(&teacher.dit);
    for (int own_ffn = 0; own_ffn < 2; own_ffn++) {
        wd_dit_config student = wd_student_config_sized(&teacher.dit, heads - 1, 2);
        if (own_ffn) student.ffn_dim++;
        json_t *json = wd_student_config_json(&student, &teacher.dit);
        wd_test_ok(wd__student_config_read(&c, json, "s.json", &teacher, &err), &err);
        assert_true(wd_dit_config_same(&c.dit, &student));
        assert_int_equal(json_object_size(json), own_ffn ? 3 : 2);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_both_vocabularies),
        cmocka_unit_test(a_default_student_is_not_wide),
        cmocka_unit_test(test_diffusers_file),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(all_faults_are_named),
        cmocka_unit_test(test_nothing_is_left_of_a_width),
        cmocka_unit_test(sizes_are_written_as_they_are_read),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
