/* `wandistiller sample`: the files that come of it, and what is refused. tests/fixtures_test.c
 * compares its steps with diffusers' pipeline. */
#include "program.h"

#include "io/picture/png.h"

static char model[WD_PATH_MAX], noise[WD_PATH_MAX]; /* wan-tiny; latents of the fixture */
static const char *const prompts[] = {
    "red apple, blue background",
    "  Cr\u00e8me   br\u00fbl\u00e9e &amp; a \t\u201cfox\u201d, green background ",
    "penguin, white background",
};

static wd_program program;

static void pictures_and_their_sheet_are_written(void **state)
{
    (void)state;
    static const char *const files[] = {"0000.png", "0001.png", "0002.png", "contact-sheet.png"};
    const char *out = wd_test_path("pictures");
    wd_program_run(&program, "sample", "--model", model, "--prompt", prompts[0], prompts[1],
                   prompts[2], "--negative_prompt", "", "--steps", "2", "--guidance-scale", "4",
                   "--guidance_scale_2", "3", "--height", "64", "--width", "64",
                   "--max_sequence_length", "24", "--device", wd_test_device(), "--latents", noise,
                   "--out", out);
    wd_program_succeeded(&program);
    for (int i = 0; i < 4; i++) {
        char path[WD_PATH_MAX];
        wd_err err;
        wd_image image;
        wd_test_ok(wd_path_join(path, out, files[i], &err), &err);
        wd_test_ok(wd_png_read(&image, path, &err), &err);
        if (i < 3) assert_true(image.height == 64 && image.width == 64);
        wd_image_close(&image);
    }
}

static const char *device; /* that computes; NULL: wd_test_device */

static void paint(const char *out, const char *batch, const char *seed)
{
    wd_program_run(&program, "sample", "--model", model, "--prompt", prompts[0], prompts[2],
                   "--steps", "3", "--guidance_scale", "2", "--batch_size", batch, "--seed", seed,
                   "--out", out, "--device", device ? device : wd_test_device());
    wd_program_succeeded(&program);
}

static void assert_same_picture(const char *a, const char *b, const char *name, bool same)
{
    char path[2][WD_PATH_MAX];
    wd_err err;
    wd_test_ok(wd_path_join(path[0], a, name, &err), &err);
    wd_test_ok(wd_path_join(path[1], b, name, &err), &err);
    assert_int_equal(wd_test_pixels_equal(path[0], path[1]), same);
}

static void pictures_depend_on_the_seed_only(void **state)
{
    (void)state;
    const char *a = wd_test_path("a"), *b = wd_test_path("b"), *c = wd_test_path("c");
    paint(a, "2", "7");
    paint(b, "1", "7");
    paint(c, "2", "8");
    assert_same_picture(a, b, "0001.png", true);
    assert_same_picture(a, c, "0001.png", false);
    if (strcmp(wd_test_device(), "cpu")) return;
    device = "sim:2GiB"; /* works later than it is asked to, as a GPU does */
    paint(c, "2", "7");
    device = NULL;
    assert_same_picture(a, c, "0001.png", true);
}

/* Transformer and VAE do not fit on this device together, so all is painted before it is decoded.
 */
static void a_small_device_decodes_in_turn(void **state)
{
    (void)state;
    if (strcmp(wd_test_device(), "cpu")) wd_test_skip("a simulated device has the numbers of cpu");
    const char *const devices[] = {"cpu", "sim:28MiB"};
    const char *out[2] = {wd_test_path("on-cpu"), wd_test_path("in-turn")};
    for (int i = 0; i < 2; i++) {
        wd_program_run(&program, "sample", "--model", model, "--prompt", prompts[0], prompts[1],
                       prompts[2], "--steps", "1", "--batch_size", "1", "--height", "256",
                       "--width", "256", "--out", out[i], "--device", devices[i]);
        wd_program_succeeded(&program);
    }
    for (int i = 0; i < 3; i++) {
        const char *const names[] = {"0000.png", "0001.png", "0002.png"};
        assert_same_picture(out[0], out[1], names[i], true);
    }
}

static void one_prompt_may_be_one_file(void **state)
{
    (void)state;
    const char *out = wd_test_path("fox.png");
    wd_err err;
    wd_image image;
    wd_program_run(&program, "sample", "--model", model, "--prompt", "a fox", "--steps", "2",
                   "--guidance_scale", "1", "--scheduler", "euler", "--out", out);
    wd_program_succeeded(&program);
    wd_test_ok(wd_png_read(&image, out, &err), &err);
    assert_int_equal(image.width, 64); /* the model card's size */
    wd_image_close(&image);
}

/* Other programs find there what to draw again. */
static void pictures_say_how_they_were_made(void **state)
{
    (void)state;
    static const char plain[] =
        "tEXtparameters\0a fox\nNegative prompt: blurred\nSteps: 2, Sampler: "
        "Euler, CFG scale: 3, Size: 64x64, Model: ";
    static const char unicode[] = "iTXtparameters\0\0\0\0\0caf\xc3\xa9\nSteps: 2, Sampler: Euler, "
                                  "CFG scale: 1, Size: 64x64,";
    const char *out = wd_test_path("made.png");
    char *bytes;
    size_t count;
    wd_err err;
    for (int i = 0; i < 2; i++) {
        const char *chunk = i ? unicode : plain;
        const size_t length = (i ? sizeof unicode : sizeof plain) - 1;
        wd_program_run(&program, "sample", "--model", model, "--prompt",
                       i ? "caf\xc3\xa9" : "a fox", "--negative_prompt", "blurred", "--steps", "2",
                       "--guidance_scale", i ? "1" : "3", "--seed", "9", "--scheduler", "euler",
                       "--out", out);
        wd_program_succeeded(&program);
        wd_test_ok(wd_file_read(&bytes, &count, out, 1 << 20, &err), &err);
        assert_non_null(memmem(bytes, count, chunk, length));
        assert_non_null(memmem(bytes, count, ", Seed: 9, Noise number: 0", 26));
        wd_free(bytes);
    }
}

/* Picture r of a prompt is the one that --seed SEED + r draws, whatever is drawn at a time. */
static void several_images_of_a_prompt_are_those_of_more_seeds(void **state)
{
    (void)state;
    wd_err err;
    char name[32], drawn[WD_PATH_MAX];
    wd_image both, one;
    static const char *const seeds[] = {"18446744073709551615", "0"}; /* the next one */
    wd_program_run(&program, "sample", "--model", model, "--prompt", "a fox", "a red apple",
                   "--steps", "2", "--seed", seeds[0], "--images_per_prompt", "2", "--batch_size",
                   "3", "--out", wd_test_path("several"));
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "4 pictures of 64x64"));
    for (int r = 0; r < 2; r++) {
        wd_program_run(&program, "sample", "--model", model, "--prompt", "a fox", "a red apple",
                       "--steps", "2", "--seed", seeds[r], "--out", wd_test_path("of-a-seed"));
        wd_program_succeeded(&program);
        for (int p = 0; p < 2; p++) {
            snprintf(name, sizeof name, "%04d.png", 2 * p + r);
            wd_test_ok(wd_path_join(drawn, wd_test_path("several"), name, &err), &err);
            wd_test_ok(wd_png_read(&both, drawn, &err), &err);
            snprintf(name, sizeof name, "of-a-seed/%04d.png", p);
            wd_test_ok(wd_png_read(&one, wd_test_path(name), &err), &err);
            assert_memory_equal(both.rgb, one.rgb, 3 * (size_t)(one.height * one.width));
            wd_image_close(&both);
            wd_image_close(&one);
        }
    }
    wd_test_ok(wd_png_read(&both, wd_test_path("several/contact-sheet.png"), &err), &err);
    const int64_t width = both.width, height = both.height;
    wd_image_close(&both);
    wd_program_run(&program, "sample", "--model", model, "--prompt", "a", "b", "c", "--steps", "1",
                   "--images_per_prompt", "2", "--out", wd_test_path("rows"));
    wd_program_succeeded(&program);
    wd_test_ok(wd_png_read(&both, wd_test_path("rows/contact-sheet.png"), &err), &err);
    assert_int_equal(both.width, width); /* a row for each prompt, not a square of six */
    assert_true(both.height > height);
    wd_image_close(&both);
}

static void refuse(wd_status status, const char *text, const char *option, const char *value)
{
    wd_program_run(&program, "sample", "--model", model, "--prompt", "a", "--steps", "2", "--out",
                   wd_test_path("never"), option, value);
    wd_program_refused(&program, status, text);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    refuse(WD_INVALID_ARGUMENT, "--height, --width: expected multiples of 16", "--height", "72");
    refuse(WD_INVALID_ARGUMENT, "--steps: expected a whole number from 0 to 1000", "--steps",
           "1001");
    refuse(WD_INVALID_ARGUMENT, "found both", "--prompts", "x.txt");
    refuse(WD_INVALID_ARGUMENT, "expected one device, found 2", "--device", "sim:2x2GiB");
    refuse(WD_DOES_NOT_FIT, "drawing with it does not fit", "--device", "sim:64KiB");
    refuse(WD_NOT_FOUND, "x.safetensors", "--latents", "x.safetensors");
    refuse(WD_MISMATCH, "latents: expected [1, 16, 1, 8, 8], found [3, 16, 1, 8, 8]", "--latents",
           noise);
    wd_program_run(&program, "sample", "--model", model, "--prompt", "a", "b", "--out", "x.png");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "expected a folder for 2 pictures");
    refuse(WD_INVALID_ARGUMENT, "pictures are written as PNG", "--out", "x.jpg");
    refuse(WD_INVALID_ARGUMENT, "pictures are written as PNG", "--out", "x.TIF");
    refuse(WD_INVALID_ARGUMENT, "--trace x.pt: expected a .safetensors file", "--trace", "x.pt");
    refuse(WD_NOT_FOUND, "no-folder/x.png: cannot be written", "--out", "no-folder/x.png");
    wd_program_run(&program, "sample", "--model", model, "--out", "x.png");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--prompts FILE or --prompt TEXT");
    char path[WD_PATH_MAX];
    wd_path_join(path, wd_test_source(), "tests/fixtures/umt5", NULL);
    wd_program_run(&program, "sample", "--model", path, "--prompt", "a", "--out", "x.png");
    wd_program_refused(&program, WD_NOT_FOUND, "transformer");
}

/* A picture is written when it is drawn, so that a signal takes none of the earlier ones away. */
static void a_stopped_job_keeps_its_pictures(void **state)
{
    (void)state;
    char first[WD_PATH_MAX];
    wd_err err;
    wd_image image;
    const char *out = wd_test_path("stopped");
    const char *arguments[] = {"sample",
                               "--model",
                               model,
                               "--prompts",
                               WD_SOURCE_DIR "/models/wan-tiny/prompts.txt",
                               "--steps",
                               "100",
                               "--batch_size",
                               "1",
                               "--out",
                               out,
                               "--device",
                               wd_test_device(),
                               NULL};
    wd_test_ok(wd_path_join(first, out, "0000.png", &err), &err);
    const pid_t pid = wd_program_start(arguments);
    while (!wd_path_exists(first) && kill(pid, 0) == 0) usleep(1000);
    assert_int_equal(kill(pid, SIGTERM), 0);
    wd_program_wait(&program, pid);
    assert_int_equal(program.code, 128 + SIGTERM);
    wd_test_ok(wd_png_read(&image, first, &err), &err);
    wd_image_close(&image);
}

int main(void)
{
    wd_path_join(model, wd_test_source(), "models/wan-tiny", NULL);
    wd_path_join(noise, wd_test_source(), "tests/fixtures/pipeline/in.safetensors", NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_and_their_sheet_are_written),
        cmocka_unit_test(pictures_depend_on_the_seed_only),
        cmocka_unit_test(a_small_device_decodes_in_turn),
        cmocka_unit_test(one_prompt_may_be_one_file),
        cmocka_unit_test(pictures_say_how_they_were_made),
        cmocka_unit_test(several_images_of_a_prompt_are_those_of_more_seeds),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
        cmocka_unit_test(a_stopped_job_keeps_its_pictures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
