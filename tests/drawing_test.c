/* Where `sample` and `eval` keep a model's weights: the same pictures and figures from everywhere,
 * in the memory that was planned, and a refusal before anything is loaded. */
#include "program.h"

#include <inttypes.h>

#include "io/json/json.h"
#include "published.h"

static const char tiny[] = WD_SOURCE_DIR "/models/wan-tiny";
static const char held_out[] = WD_SOURCE_DIR "/models/wan-tiny/prompts-held-out.txt";

static wd_program program;

/* ---- sample ---- */

/* Draws three pictures in two batches. `strategy`: "auto" is the default. */
static void draw(const char *out, const char *device, const char *strategy)
{
    wd_program_run(&program, "sample", "--model", tiny, "--prompt", "red apple, blue background",
                   "a fox", "penguin, white background", "--steps", "3", "--guidance_scale", "2",
                   "--batch_size", "2", "--out", out, "--device", device,
                   "--teacher_device_strategy", strategy, "--log_level", "info");
}

static void hash_of(char hash[33], const char *folder)
{
    char path[WD_PATH_MAX];
    wd_err err;
    wd_test_ok(wd_path_join(path, folder, "contact-sheet.png", &err), &err);
    wd_test_ok(wd_file_hash(hash, path, &err), &err);
}

static void placements_draw_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *device, *strategy, *taken;
    } cases[] = {
        {"cpu", "auto", "weights under cpu"},
        {"cpu", "disk", "weights under disk"},
        {"sim:1GiB", "auto", "weights under gpu"},
        {"sim:1GiB", "offload", "weights under offload"},
        {"sim:1GiB", "disk", "weights under disk"},
        {"sim:1GiB", "cpu", "weights under cpu"},
        {"sim:4MiB", "auto", "weights under offload"},
    };
    char first[33], other[33];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        draw(wd_test_path("pictures"), cases[i].device, cases[i].strategy);
        wd_program_succeeded(&program);
        if (!strstr(program.err, cases[i].taken))
            fail_msg("case %zu: expected %s, found %s", i, cases[i].taken, program.err);
        if (*cases[i].device == 's' && strcmp(cases[i].strategy, "cpu"))
            assert_non_null(strstr(program.err, "iB of sim:0, "));
        hash_of(i ? other : first, wd_test_path("pictures"));
        if (i) assert_string_equal(other, first);
    }
}

/* A simulated device that has the bytes that a strategy needs, and one byte less. */
static void a_plan_is_exact_to_the_byte(void **state)
{
    (void)state;
    static const char *const strategies[] = {"gpu", "offload", "disk"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        char device[64];
        draw(wd_test_path("small"), "sim:64KiB", strategies[i]);
        wd_program_refused(&program, WD_DOES_NOT_FIT, "nothing was loaded");
        const char *missing = strstr(program.err, " are missing (");
        assert_non_null(missing);
        const int64_t needed = (64 << 10) + strtoll(missing + strlen(" are missing ("), NULL, 10);
        snprintf(device, sizeof device, "sim:%" PRId64 "B", needed - 1);
        draw(wd_test_path("small"), device, strategies[i]);
        wd_program_refused(&program, WD_DOES_NOT_FIT, "1 B are missing (1 bytes)");
        snprintf(device, sizeof device, "sim:%" PRId64 "B", needed);
        draw(wd_test_path("small"), device, strategies[i]);
        wd_program_succeeded(&program);
    }
}

static void a_refusal_names_what_fits(void **state)
{
    (void)state;
    draw(wd_test_path("never"), "sim:4MiB", "gpu");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "the commands above do");
    assert_non_null(strstr(program.err, "--device sim:4MiB --teacher_device_strategy offload"));
    assert_false(wd_path_exists(wd_test_path("never")));
    draw(wd_test_path("never"), "cpu", "gpu");
    wd_program_refused(&program, WD_UNSUPPORTED, "needs a GPU, real or simulated");
    draw(wd_test_path("on-cpu"), "cpu", "offload");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "so cpu is meant"));
    wd_program_run(&program, "sample", "--model", tiny, "--prompt", "a", "--out",
                   wd_test_path("never"), "--device", "cpu", "--host_memory", "1MiB");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "take smaller pictures");
}

/* ---- the published Wan2.2-A14B, as sparse files ---- */

static void sample_a14b(const char *root, const char *device, const char *memory,
                        const char *strategy)
{
    wd_program_run(&program, "sample", "--model", root, "--tokenizer",
                   WD_SOURCE_DIR "/models/wan-tiny/tokenizer", "--prompt", "a fox", "--height",
                   "480", "--width", "832", "--out", wd_test_path("a14b"), "--device", device,
                   "--host_memory", memory, "--teacher_device_strategy", strategy);
}

/* 57 GB of weights: a card of 24 GiB has them in host memory or on disk; a machine of 256 MiB is
 * refused before it reads them. */
static void a14b_is_planned_from_its_headers(void **state)
{
    (void)state;
    char root[WD_PATH_MAX];
    wd_test_tree(root, &wd_test_models[1]);
    sample_a14b(root, "cpu", "256MiB", "auto");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "nothing was loaded");
    assert_non_null(strstr(program.err, "disk: "));
    sample_a14b(root, "sim:24GiB", "128GiB", "gpu");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "the commands above do");
    assert_non_null(strstr(program.err, "--teacher_device_strategy offload"));
    assert_non_null(strstr(program.err, "--teacher_device_strategy disk"));
    sample_a14b(root, "sim:24GiB", "32GiB", "offload");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "of host memory needed, 32 GiB there");
    assert_null(strstr(program.err, "--teacher_device_strategy gpu"));
    assert_non_null(strstr(program.err, "--teacher_device_strategy disk"));
}

/* ---- eval ---- */

typedef struct figures {
    double velocity, psnr, correlation;
    char dtype[2][16];
} figures;

static void evaluate(figures *out, const char *device, const char *strategy,
                     const char *transformer)
{
    const char *arguments[32] = {"eval",
                                 "--teacher",
                                 tiny,
                                 "--student",
                                 tiny,
                                 "--prompts",
                                 held_out,
                                 "--count",
                                 "2",
                                 "--steps",
                                 "2",
                                 "--reference_steps",
                                 "3",
                                 "--guidance_scale",
                                 "3",
                                 "--json",
                                 "--device",
                                 device,
                                 "--teacher_device_strategy",
                                 strategy};
    int n = 20;
    if (transformer) arguments[n++] = "--transformer", arguments[n++] = transformer;
    const char *dtype[2];
    wd_program_run_(&program, arguments);
    wd_program_succeeded(&program);
    json_t *json = json_loads(program.out, 0, NULL);
    assert_non_null(json);
    assert_int_equal(json_unpack(json, "{s:f, s:f, s:f, s:{s:s}, s:{s:s}}", "velocity_error",
                                 &out->velocity, "reference_psnr_db", &out->psnr,
                                 "reference_correlation", &out->correlation, "teacher", "dtype",
                                 &dtype[0], "student", "dtype", &dtype[1]),
                     0);
    for (int i = 0; i < 2; i++) snprintf(out->dtype[i], sizeof out->dtype[i], "%s", dtype[i]);
    json_decref(json);
}

/* A teacher's quantised copy is kept where the teacher is: it would not fit a device that is too
 * small for the teacher. */
static void a_quantised_copy_is_not_kept_whole(void **state)
{
    (void)state;
    wd_program_run(&program, "eval", "--teacher", tiny, "--quantisation", "int8", "--prompts",
                   held_out, "--count", "2", "--steps", "2", "--reference_steps", "3",
                   "--guidance_scale", "3", "--device", "sim:5MiB", "--teacher_device_strategy",
                   "offload");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "weights under offload"));
}

static void eval_has_the_same_figures(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"cpu", "auto"},      {"cpu", "disk"},         {"sim:1GiB", "auto"},
        {"sim:1GiB", "disk"}, {"sim:1GiB", "offload"},
    };
    figures first = {0}, other = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        evaluate(i ? &other : &first, cases[i][0], cases[i][1], NULL);
        if (i) assert_memory_equal(&other, &first, sizeof first);
    }
    assert_true(first.velocity > 0.05 && first.psnr > 5 && first.correlation < 1);
}

/* A file of bfloat16 computes in bfloat16; one of float32 in float32 on a processor, and in
 * bfloat16 on any other device. */
static void the_default_dtype_is_that_of_the_file(void **state)
{
    (void)state;
    figures found = {0};
    const char *file = wd_test_path("float32.safetensors");
    evaluate(&found, "cpu", "auto", NULL);
    assert_string_equal(found.dtype[0], "bfloat16");
    wd_program_run(&program, "convert", "--model", tiny, "--to", "comfyui", "--dtype", "float32",
                   "--out", file);
    wd_program_succeeded(&program);
    evaluate(&found, "cpu", "auto", file);
    assert_string_equal(found.dtype[0], "float32");
    assert_string_equal(found.dtype[1], "bfloat16");
    evaluate(&found, "sim:1GiB", "auto", file);
    assert_string_equal(found.dtype[0], "bfloat16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placements_draw_the_same),
        cmocka_unit_test(a_plan_is_exact_to_the_byte),
        cmocka_unit_test(a_refusal_names_what_fits),
        cmocka_unit_test(a14b_is_planned_from_its_headers),
        cmocka_unit_test(eval_has_the_same_figures),
        cmocka_unit_test(a_quantised_copy_is_not_kept_whole),
        cmocka_unit_test(the_default_dtype_is_that_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
