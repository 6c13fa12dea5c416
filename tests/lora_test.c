/* Teachers with LoRAs, as a user gives them: training keeps the same bits wherever weights are kept
 * and whatever merged them, and every command takes the options. */
#include "loras.h"
#include "program.h"
#include "tiny_teacher.h"

#include <dirent.h>

#include "io/file/file.h"

static const char tiny[] = WD_SOURCE_DIR "/models/wan-tiny";

static wd_program program;
static char high[WD_PATH_MAX], low[WD_PATH_MAX]; /* LoRAs of the experts */
static char twin[WD_PATH_MAX];                   /* the high-noise expert, merged by convert */

static const char *student_of(const char *output)
{
    static char path[2][WD_PATH_MAX];
    static int next;
    snprintf(path[++next % 2], WD_PATH_MAX, "%s/transformer/diffusion_pytorch_model.safetensors",
             output);
    return path[next % 2];
}

static bool same_file(const char *a, const char *b)
{
    wd_err err;
    char x[33], y[33];
    wd_test_ok(wd_file_hash(x, a, &err), &err);
    wd_test_ok(wd_file_hash(y, b, &err), &err);
    return !strcmp(x, y);
}

static int make_files(void **state)
{
    enum { D = 160, E = 640, RANK = 2 };
    static const wd_test_lora of_high[] = {
        {"lora_unet_blocks_0_self_attn_q.lora_down.weight", 2, {RANK, D}, 0},
        {"lora_unet_blocks_0_self_attn_q.lora_up.weight", 2, {D, RANK}, 0},
        {"lora_unet_blocks_0_self_attn_q.alpha", 0, {0}, 0.1f},
        {"lora_unet_blocks_2_ffn_0.lora_down.weight", 2, {RANK, D}, 0},
        {"lora_unet_blocks_2_ffn_0.lora_up.weight", 2, {E, RANK}, 0},
        {"lora_unet_blocks_2_ffn_0.alpha", 0, {0}, 0.1f},
    };
    static const wd_test_lora of_low[] = {
        {"transformer.blocks.1.attn2.to_out.0.lora_A.weight", 2, {RANK, D}, 0},
        {"transformer.blocks.1.attn2.to_out.0.lora_B.weight", 2, {D, RANK}, 0},
    };
    if (open_teacher(state)) return -1;
    snprintf(high, sizeof high, "%s/high.safetensors", wd_test_folder());
    snprintf(low, sizeof low, "%s/low.safetensors", wd_test_folder());
    snprintf(twin, sizeof twin, "%s/twin.safetensors", wd_test_folder());
    wd_test_write_lora(high, of_high, 6, WD_BF16, 3);
    wd_test_write_lora(low, of_low, 2, WD_F32, 4);
    return 0;
}

#define WITH_LORAS "--teacher_lora", high, "--teacher_lora_2", low_weak
#define TRAIN                                                                                      \
    "--data_path", WD_SOURCE_DIR "/models/wan-tiny/prompts-held-out.txt", "--num_steps", "2",      \
        "--trajectories", "4", "--trajectory_steps", "4", "--target_replay", "16",                 \
        "--save_samples", "false", "--num_threads", "1", "--max_sequence_length", "24",            \
        "--height", "32", "--width", "32", "--teacher_path", tiny, IN_FP32

/* In memory, from disk and over a link, and of the experts that convert has merged; another
 * strength is another student, and does not resume this run. */
static void the_students_bits(void **state)
{
    (void)state;
    static const char *const where[][5] = {
        {"cpu", "cpu"}, {"disk", "cpu"}, {"offload", "sim:1x1GiB@link=20GB/s"}, {NULL}};
    char first[512], other[512], low_weak[WD_PATH_MAX + 8], low_twin[WD_PATH_MAX];
    snprintf(first, sizeof first, "%s", wd_test_path("cpu"));
    snprintf(other, sizeof other, "%s", wd_test_path("other"));
    snprintf(low_weak, sizeof low_weak, "%s:0.05", low);
    snprintf(low_twin, sizeof low_twin, "%s/low-twin.safetensors", wd_test_folder());
    for (int i = 0; where[i][0]; i++) {
        const char *folder = wd_test_path(where[i][0]);
        wd_program_run(&program, "train", TRAIN, WITH_LORAS, "--teacher_device_strategy",
                       where[i][0], "--devices", where[i][1], "--output_dir", folder);
        wd_program_succeeded(&program);
        if (i) assert_true(same_file(student_of(first), student_of(folder)));
    }
    wd_program_run(&program, "convert", "--model", tiny, "--teacher_lora", high, "--to", "comfyui",
                   "--dtype", "float32", "--out", twin);
    wd_program_succeeded(&program);
    wd_program_run(&program, "convert", "--model", tiny, "--component", "transformer_2",
                   "--teacher_lora_2", low_weak, "--to", "comfyui", "--dtype", "float32", "--out",
                   low_twin);
    wd_program_succeeded(&program);
    wd_program_run(&program, "train", TRAIN, "--transformer", twin, "--transformer_2", low_twin,
                   "--devices", "cpu", "--output_dir", wd_test_path("of-twin"));
    wd_program_succeeded(&program);
    assert_true(same_file(student_of(first), student_of(wd_test_path("of-twin"))));
    wd_program_run(&program, "train", TRAIN, "--teacher_lora", high, "--devices", "cpu",
                   "--output_dir", other);
    wd_program_succeeded(&program);
    assert_false(same_file(student_of(first), student_of(other)));
    wd_program_run(&program, "train", TRAIN, WITH_LORAS, "--devices", "cpu", "--output_dir", other,
                   "--resume", "auto", "--num_steps", "3");
    wd_program_refused(&program, WD_MISMATCH, "a teacher whose weights have the key");
}

/* convert writes the same merged weights in both directions. */
static void converted_back(void **state)
{
    (void)state;
    char folder[512], again[512], plain[512];
    snprintf(folder, sizeof folder, "%s", wd_test_path("diffusers/transformer"));
    snprintf(again, sizeof again, "%s", wd_test_path("again.safetensors"));
    snprintf(plain, sizeof plain, "%s", wd_test_path("plain.safetensors"));
    wd_program_run(&program, "convert", "--model", tiny, "--to", "comfyui", "--dtype", "float32",
                   "--out", plain);
    wd_program_succeeded(&program);
    assert_false(same_file(plain, twin));
    wd_program_run(&program, "convert", "--model", plain, "--teacher_lora", high, "--to",
                   "diffusers", "--out", folder);
    wd_program_succeeded(&program);
    wd_program_run(&program, "convert", "--model", wd_test_path("diffusers"), "--to", "comfyui",
                   "--out", again);
    wd_program_succeeded(&program);
    assert_true(same_file(again, twin));
}

/* What a file's name says of the expert that it is for; and LoRAs of one expert alone, unless that
 * is all that is used. */
static void names_of_the_other_expert_are_warned_of(void **state)
{
    (void)state;
    char for_high[512], for_low[512], both[1100];
    snprintf(for_high, sizeof for_high, "%s", wd_test_path("high_noise_model.safetensors"));
    snprintf(for_low, sizeof for_low, "%s", wd_test_path("x_LowNoise.safetensors"));
    snprintf(both, sizeof both, "%s:0.5,%s", high, for_low);
    assert_int_equal(symlink(high, for_high), 0);
    assert_int_equal(symlink(low, for_low), 0);
    wd_program_run(&program, "inspect", tiny, "--teacher_lora", for_high, "--teacher_lora_2",
                   for_low);
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "noise expert"));
    wd_program_run(&program, "inspect", tiny, "--teacher_lora", both, "--teacher_lora_2", for_high);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "x_LowNoise.safetensors: by its name this LoRA is for the "
                                        "low-noise expert"));
    assert_non_null(strstr(program.err, "high_noise_model.safetensors: by its name this LoRA is "
                                        "for the high-noise expert"));
    assert_null(strstr(program.err, "expert alone"));
    wd_program_run(&program, "inspect", tiny, "--teacher_lora", for_high);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "--teacher_lora changes the high-noise expert alone"));
    wd_program_run(&program, "inspect", tiny, "--teacher_lora_2", for_low);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "--teacher_lora_2 changes the low-noise expert alone"));
    wd_program_run(&program, "inspect", "--transformer", twin, "--teacher_lora", for_high);
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "noise expert"));
    wd_program_run(&program, "convert", "--model", tiny, "--component", "transformer_2",
                   "--teacher_lora_2", for_low, "--to", "comfyui", "--out",
                   wd_test_path("one.safetensors"));
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "noise expert"));
}

static bool has_temporary_folder(const char *folder)
{
    struct dirent *item;
    bool found = false;
    DIR *dir = opendir(folder);
    while (dir && (item = readdir(dir)))
        found = found || !strncmp(item->d_name, "wandistiller-", 13);
    if (dir) closedir(dir);
    return found;
}

/* The other commands: the merged weights are what they compute with, and leave no file behind. */
static void every_command_takes_them(void **state)
{
    (void)state;
    char a[512], b[512], c[512], plain[512], temporary[512];
    wd_err err;
    snprintf(a, sizeof a, "%s", wd_test_path("a.png"));
    snprintf(b, sizeof b, "%s", wd_test_path("b.png"));
    snprintf(c, sizeof c, "%s", wd_test_path("c.png"));
    snprintf(plain, sizeof plain, "%s", wd_test_path("eval"));
    snprintf(temporary, sizeof temporary, "%s", wd_test_path("tmp"));
    wd_test_ok(wd_folder_make(temporary, &err), &err);
    setenv("TMPDIR", temporary, 1);
#define SAMPLE                                                                                     \
    "--model", tiny, "--prompt", "red apple", "--steps", "2", "--height", "32", "--width", "32",   \
        "--dtype", "float32", "--device", "cpu" /* the twin is of float32 */
    wd_program_run(&program, "sample", SAMPLE, "--teacher_lora", high, "--out", a);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "of merged weights will be written to "));
    assert_non_null(strstr(program.err, temporary));
    wd_program_run(&program, "sample", SAMPLE, "--transformer", twin, "--out", b);
    wd_program_succeeded(&program);
    wd_program_run(&program, "sample", SAMPLE, "--out", c);
    wd_program_succeeded(&program);
    assert_true(same_file(a, b));
    assert_false(same_file(a, c));
    wd_program_run(&program, "eval", "--teacher", tiny, "--teacher_lora", high, "--student", tiny,
                   "--prompts", WD_SOURCE_DIR "/models/wan-tiny/prompts-held-out.txt", "--count",
                   "1", "--steps", "1", "--reference_steps", "1", "--height", "32", "--width", "32",
                   "--guidance_scale", "1", "--json", "--out", plain, "--device", "cpu");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "\"velocity_error\": "));
    assert_null(strstr(program.out, "\"velocity_error\": 0.0,")); /* as without LoRAs */
    wd_program_run(&program, "inspect", tiny, "--teacher_lora", high, "--json");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "high.safetensors"));
    wd_program_run(&program, "inspect", twin, "--teacher_lora", high);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "transformer with LoRAs: "));
    wd_program_run(&program, "plan", TRAIN, "--teacher_lora", high, "--devices", "cpu");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "merged"));
    wd_program_run(&program, "plan", "--teacher_preset", "wan2.1-1.3b", "--teacher_lora", high);
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "could be merged");
    wd_program_run(&program, "sample", SAMPLE, "--teacher_lora", low, "--teacher_lora_2",
                   wd_test_path("none.safetensors"), "--out", wd_test_path("d.png"));
    wd_program_refused(&program, WD_NOT_FOUND, "none.safetensors");
    assert_false(has_temporary_folder(temporary));
    unsetenv("TMPDIR");
}

/* Ends a job by the signal after its first picture. */
static void end_by(int number, const char *out)
{
    char first[WD_PATH_MAX];
    wd_err err;
    const char *arguments[] = {"sample",
                               "--model",
                               tiny,
                               "--prompts",
                               WD_SOURCE_DIR "/models/wan-tiny/prompts.txt",
                               "--steps",
                               "100",
                               "--teacher_lora",
                               high,
                               "--batch_size",
                               "1",
                               "--height",
                               "32",
                               "--width",
                               "32",
                               "--device",
                               "cpu",
                               "--out",
                               out,
                               NULL};
    wd_test_ok(wd_path_join(first, out, "0000.png", &err), &err);
    const pid_t pid = wd_program_start(arguments);
    while (!wd_path_exists(first) && kill(pid, 0) == 0) usleep(1000);
    assert_int_equal(kill(pid, number), 0);
    wd_program_wait(&program, pid);
}

/* A job that is asked to end removes the merged weights, and the job after one that was killed
 * removes those of that one. */
static void no_signal_leaves_merged_weights(void **state)
{
    (void)state;
    char temporary[512];
    wd_err err;
    snprintf(temporary, sizeof temporary, "%s", wd_test_path("tmp-signals"));
    wd_test_ok(wd_folder_make(temporary, &err), &err);
    setenv("TMPDIR", temporary, 1);
    end_by(SIGTERM, wd_test_path("by-term"));
    assert_int_equal(program.code, WD_INTERRUPTED);
    assert_non_null(strstr(program.err, "pictures were drawn, and are in "));
    assert_false(has_temporary_folder(temporary));
    end_by(SIGKILL, wd_test_path("by-kill"));
    assert_true(has_temporary_folder(temporary));
    const char *mine = wd_test_path("tmp-signals/wandistiller-loras-sixsix");
    wd_test_ok(wd_folder_make(mine, &err), &err);
    wd_program_run(&program, "sample", SAMPLE, "--teacher_lora", high, "--out",
                   wd_test_path("e.png"));
    wd_program_succeeded(&program);
    assert_true(wd_path_is_folder(mine)); /* this program has not made it */
    wd_test_ok(wd_folder_remove(mine, &err), &err);
    assert_false(has_temporary_folder(temporary));
    unsetenv("TMPDIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_students_bits),
        cmocka_unit_test(converted_back),
        cmocka_unit_test(names_of_the_other_expert_are_warned_of),
        cmocka_unit_test(every_command_takes_them),
        cmocka_unit_test(no_signal_leaves_merged_weights),
    };
    return cmocka_run_group_tests(tests, make_files, NULL);
}
