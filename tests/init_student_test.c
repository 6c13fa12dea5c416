/* --init_student: a student starts from a small model that is there, and what of it must agree with
 * the teacher. A sibling of the teacher, of another width and depth, is trained first. */
#include <glob.h>

#include "runs.h"
#include "teacher_copy.h"

#include "io/json/json.h"

static wd_program program;

/* A run that starts from a model at --init_student. */
#define START(out, ...)                                                                            \
    "train", "--teacher_path", teacher, "--data_path", wd_test_path("prompts.txt"),                \
        "--output_dir", wd_test_path(out), "--height", "32", "--width", "32", "--batch_size", "2", \
        "--trajectories", "4", "--trajectory_steps", "4", "--seed", "3", "--num_steps", "2",       \
        "--save_samples", "false", "--init_student", __VA_ARGS__

/* Trains the sibling with velocities of the teacher, and writes its transformer as one file. */
static int make_sibling(void **state)
{
    static const char narrow[] = "{\"depth\": 4, \"hidden_size\": 96, \"ffn_dim\": 320}";
    wd_err err;
    if (prepare(state)) return -1;
    wd_test_ok(wd_file_write(wd_test_path("narrow.json"), narrow, sizeof narrow - 1, &err), &err);
    wd_program_run(&program, "train", "--teacher_path", teacher, "--data_path",
                   wd_test_path("prompts.txt"), "--student_config", wd_test_path("narrow.json"),
                   "--output_dir", wd_test_path("sibling"), "--height", "32", "--width", "32",
                   "--trajectories", "4", "--trajectory_steps", "4", "--num_steps", "4",
                   "--save_samples", "false");
    wd_program_succeeded(&program);
    wd_program_run(&program, "convert", "--model", wd_test_path("sibling"), "--to", "comfyui",
                   "--out", wd_test_path("sibling.safetensors"));
    wd_program_succeeded(&program);
    return 0;
}

static void assert_says(const char *text)
{
    if (!strstr(program.err, text)) fail_msg("expected \"%s\" in %s", text, program.err);
}

/* The student is the sibling's equal in size, whatever form the sibling has. */
static void a_folder_a_file_and_a_hub_id_are_one_start(void **state)
{
    (void)state;
    const char *snapshots = wd_test_path("hub/models--small--wan/snapshots");
    wd_err err;
    wd_program_run(&program, START("by-folder", wd_test_path("sibling")));
    wd_program_succeeded(&program);
    assert_says("student: 0.671 million weights");
    assert_says("4 blocks of width 96");
    assert_says("and so are the numbers of its VAE");
    wd_program_run(&program, START("by-file", wd_test_path("sibling.safetensors")));
    wd_program_succeeded(&program);
    assert_says("it has no VAE to compare with the teacher's");
    assert_null(strstr(program.err, "--teacher_preset"));
    assert_same_weights(wd_test_path("by-folder"), wd_test_path("by-file"));
    wd_program_run(&program, START("by-part", wd_test_path("sibling/transformer")));
    wd_program_succeeded(&program);
    assert_same_weights(wd_test_path("by-folder"), wd_test_path("by-part"));

    wd_test_ok(wd_folder_make(snapshots, &err), &err);
    assert_int_equal(symlink(wd_test_path("sibling"), wd_test_in(snapshots, "main")), 0);
    setenv("HF_HUB_CACHE", wd_test_path("hub"), 1);
    wd_program_run(&program, START("by-id", "small/wan"));
    wd_program_succeeded(&program);
    assert_same_weights(wd_test_path("by-folder"), wd_test_path("by-id"));
    wd_program_run(&program, START("never", "small/other"));
    wd_program_refused(&program, WD_NOT_FOUND, "hf download small/other");
}

/* The cosines that the log has: of the run's start, and of a copy of the teacher's blocks. */
static void read_cosines(double out[2])
{
    const char *own = strstr(program.err, "before the first step the student agrees with");
    const char *copied = own ? strstr(own, "; of a copy of the teacher's blocks: cosine ") : NULL;
    if (!copied) fail_msg("no agreement in %s", program.err);
    assert_int_equal(sscanf(strstr(own, "cosine "), "cosine %lf", &out[0]), 1);
    assert_int_equal(sscanf(strstr(copied, "cosine "), "cosine %lf", &out[1]), 1);
}

/* A start that is the teacher agrees as its copy does, the sibling in another way; and the run goes
 * on as one that has measured nothing. */
static void the_agreement_is_measured_and_leaves_no_trace(void **state)
{
    (void)state;
    static const char whole[] = "{\"depth\": 6}";
    double cosine[2];
    wd_err err;
    wd_test_ok(wd_file_write(wd_test_path("whole.json"), whole, sizeof whole - 1, &err), &err);
    for (int chords = 0; chords < 2; chords++) {
        const char *steps = chords ? "2" : "0";
        wd_program_run(&program, START("measured", teacher, "--student_steps", steps));
        wd_program_succeeded(&program);
        read_cosines(cosine);
        assert_true(cosine[0] == cosine[1] && cosine[0] > 0.5 && cosine[0] < 1);
        wd_program_run(&program, "train", "--teacher_path", teacher, "--data_path",
                       wd_test_path("prompts.txt"), "--student_config", wd_test_path("whole.json"),
                       "--output_dir", wd_test_path("unmeasured"), "--height", "32", "--width",
                       "32", "--batch_size", "2", "--trajectories", "4", "--trajectory_steps", "4",
                       "--seed", "3", "--num_steps", "2", "--save_samples", "false",
                       "--student_steps", steps);
        wd_program_succeeded(&program);
        assert_null(strstr(program.err, "before the first step the student agrees"));
        assert_same_weights(wd_test_path("measured"), wd_test_path("unmeasured"));
    }
    wd_program_run(&program, START("other", wd_test_path("sibling")));
    wd_program_succeeded(&program);
    read_cosines(cosine);
    assert_true(cosine[0] != cosine[1]);
    wd_program_run(&program,
                   START("other", wd_test_path("sibling"), "--num_steps", "4", "--resume", "auto"));
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "before the first step the student agrees"));
}

/* The start may be larger than the teacher, of which then no copy is measured. */
static void a_start_may_be_larger(void **state)
{
    (void)state;
    wd_program_run(&program, START("larger", teacher, "--teacher_path", wd_test_path("sibling"),
                                   "--guidance_scale", "1"));
    wd_program_succeeded(&program);
    assert_says("6 blocks of width 160");
    assert_says("; a copy of the teacher's blocks cannot have these sizes");
}

/* Where targets are stored no teacher is there whose blocks could be copied. */
static void stored_targets_need_no_copy(void **state)
{
    (void)state;
    const char *sibling = wd_test_path("sibling"), *targets = wd_test_path("targets");
    wd_program_run(&program, START("storing", sibling, "--save_targets", targets));
    wd_program_succeeded(&program);
    assert_says("; of a copy of the teacher's blocks: cosine ");
    wd_program_run(&program, START("stored", sibling, "--targets", targets));
    wd_program_succeeded(&program);
    assert_says("before the first step the student agrees with");
    assert_null(strstr(program.err, "a copy of the teacher's blocks"));
}

/* The only file of choices in a cache folder. */
static void find_choice(char out[WD_PATH_MAX], const char *cache)
{
    char pattern[WD_PATH_MAX];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/start-blocks-*.json", cache);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(out, WD_PATH_MAX, "%s", found.gl_pathv[0]);
    globfree(&found);
}

static const char chosen[] = "the student starts from blocks 0, 2, 4, 5 of ";

/* Starts a student of four blocks from the six of wan-tiny, or goes on; ends after step `stop`. */
static void start_shallower(const char *out, const char *stop)
{
    wd_program_run(&program,
                   START("shallower", teacher, "--student_config", wd_test_path("four.json"),
                         "--cache_dir", wd_test_path("cache"), "--height", "64", "--width", "64",
                         "--output_dir", wd_test_path(out), "--num_steps", "4", "--stop_at_step",
                         stop, "--resume", "auto"));
    wd_program_succeeded(&program);
}

/* They are chosen by what they do to the start's own velocities, agree better with the teacher than
 * those that are spread evenly, and are chosen once. */
static void blocks_of_the_start_are_chosen_once(void **state)
{
    (void)state;
    static const char four[] = "{\"depth\": 4}", damage[] = "{\"blocks\": [0, 4, 2, 5]}",
                      other[] = "{\"blocks\": [0, 1, 2, 5]}";
    char file[WD_PATH_MAX];
    double cosine[2];
    wd_err err;
    wd_test_ok(wd_file_write(wd_test_path("four.json"), four, sizeof four - 1, &err), &err);
    start_shallower("shallower-1", "2");
    assert_says(chosen);
    assert_says("model, to choose its blocks");
    assert_says("4 of 6 blocks of --init_student were chosen by what they do");
    read_cosines(cosine);
    assert_true(cosine[0] > cosine[1] + 0.02);
    start_shallower("shallower-1", "0");
    assert_null(strstr(program.err, "were chosen by"));
    assert_null(strstr(program.err, "to choose its blocks"));
    start_shallower("shallower-2", "0");
    assert_says(chosen);
    assert_null(strstr(program.err, "were chosen by"));
    assert_same_weights(wd_test_path("shallower-1"), wd_test_path("shallower-2"));
    find_choice(file, wd_test_path("cache"));
    wd_test_ok(wd_file_write(file, other, sizeof other - 1, &err), &err);
    start_shallower("shallower-3", "2");
    assert_says("the student starts from blocks 0, 1, 2, 5 of ");
    wd_test_ok(wd_file_write(file, damage, sizeof damage - 1, &err), &err);
    start_shallower("shallower-4", "2");
    assert_says("is damaged, so blocks are chosen anew");
    assert_says(chosen);
}

/* Of a start with two experts the one for low noise is taken. */
static void of_two_experts_one_is_taken(void **state)
{
    (void)state;
    wd_program_run(&program, START("two", teacher));
    wd_program_succeeded(&program);
    assert_says("of its two experts the student starts from the low-noise one");
    assert_says("/transformer_2");
    wd_program_run(&program, START("one", WD_SOURCE_DIR "/models/wan-tiny/transformer_2"));
    wd_program_succeeded(&program);
    assert_same_weights(wd_test_path("two"), wd_test_path("one"));
}

/* Files of ComfyUI that are quantised are starts, too. */
static void a_quantised_file_is_a_start(void **state)
{
    (void)state;
    const char *file = wd_test_path("sibling.gguf");
    wd_program_run(&program, "convert", "--model", wd_test_path("sibling"), "--to", "gguf",
                   "--dtype", "q8_0", "--out", file);
    wd_program_succeeded(&program);
    assert_says("not for stable-diffusion.cpp, which ends at any Wan model but those of a "
                "published size: 30 blocks of width 1536 (feed-forward 8960), 40 of 5120 (13824); "
                "this one has 4 of 96 (320)");
    wd_program_run(&program, START("by-gguf", file));
    wd_program_succeeded(&program);
    assert_says("4 blocks of width 96");
}

#define PLAN(preset, ...)                                                                          \
    "plan", "--teacher_preset", preset, "--devices", "sim:rtx4090", "--host_memory", "64GiB",      \
        "--teacher_dtype", "float8_e4m3fn", "--gradient_checkpointing", "--init_student",          \
        __VA_ARGS__

static void a_plan_takes_a_preset(void **state)
{
    (void)state;
    static const char twenty[] = "{\"depth\": 20}";
    wd_err err;
    wd_test_ok(wd_file_write(wd_test_path("twenty.json"), twenty, sizeof twenty - 1, &err), &err);
    wd_program_run(&program, PLAN("wan2.2-a14b", "wan2.1-1.3b"));
    wd_program_succeeded(&program);
    if (!strstr(program.out, "1.42 billion weights") ||
        !strstr(program.out, "--init_student Wan-AI/Wan2.1-T2V-1.3B-Diffusers --gradient"))
        fail_msg("no such student, or no command for its training: %s", program.out);
    wd_program_run(&program, PLAN("wan2.2-a14b", "wan2.1-1.3b", "--student_config",
                                  wd_test_path("twenty.json"), "--verbose"));
    wd_program_succeeded(&program);
    if (!strstr(program.out, "0.955 billion weights") ||
        !strstr(program.out, "model, to choose its blocks, while choosing"))
        fail_msg("no memory is planned for the choice of blocks: %s", program.out);
    wd_program_run(&program, START("never", "wan2.1-1.3b"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "a preset has no weights, so it is for `plan` alone; its weights are "
                       "Wan-AI/Wan2.1-T2V-1.3B-Diffusers on the Hub");
}

static void what_does_not_agree_is_named(void **state)
{
    (void)state;
    wd_program_run(&program, PLAN("wan2.2-a14b", "wan2.2-5b"));
    wd_program_refused(&program, WD_MISMATCH,
                       "--init_student wan2.2-5b: does not agree with the teacher: latent channels "
                       "(in_channels): expected 16, found 48; channels of velocities "
                       "(out_channels): expected 16, found 48; the VAE's channels (z_dim): "
                       "expected 16, found 48; pixels to a latent (scale_factor_spatial): expected "
                       "8, found 16");
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--init_student", "wan2.1-1.3b");
    wd_program_refused(&program, WD_MISMATCH,
                       "text width (text_dim): expected 96, found 4096; the VAE's latents_mean of "
                       "channel 0: expected 0.813, found -0.7571");
    assert_says("the VAE's latents_std of channel 0: expected 1.3796, found 2.8184");
}

/* The sibling with another VAE, of which one number differs. */
static void the_numbers_of_the_vae_are_compared(void **state)
{
    (void)state;
    char folder[WD_PATH_MAX], path[WD_PATH_MAX];
    wd_err err;
    wd_test_copy_teacher(folder, "other-vae");
    wd_test_ok(wd_path_join(path, folder, "vae/config.json", &err), &err);
    json_t *vae = json_load_file(path, 0, NULL);
    assert_non_null(vae);
    json_array_set_new(json_object_get(vae, "latents_std"), 3, json_real(1.25));
    assert_int_equal(unlink(path), 0);
    wd_test_ok(wd_json_save(vae, path, &err), &err);
    json_decref(vae);
    wd_program_run(&program, START("never", folder));
    wd_program_refused(&program, WD_MISMATCH,
                       "the VAE's latents_std of channel 3: expected 1.1562, found 1.25. A student "
                       "has the teacher's latents and text");
}

static void what_is_no_transformer_is_refused(void **state)
{
    (void)state;
    static const char vae[] = "/models/wan-tiny/vae/diffusion_pytorch_model.safetensors";
    char path[WD_PATH_MAX];
    snprintf(path, sizeof path, "%s%s", WD_SOURCE_DIR, vae);
    wd_program_run(&program, START("never", path));
    wd_program_refused(&program, WD_UNSUPPORTED,
                       "--init_student, which takes a folder, a Hub id or a file: ");
    wd_program_run(&program, START("never", wd_test_path("prompts.txt")));
    if (!program.code) fail_msg("a file of prompts was taken for a model");
    assert_says("--init_student, which takes a folder, a Hub id or a file: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_a_file_and_a_hub_id_are_one_start),
        cmocka_unit_test(the_agreement_is_measured_and_leaves_no_trace),
        cmocka_unit_test(a_start_may_be_larger),
        cmocka_unit_test(stored_targets_need_no_copy),
        cmocka_unit_test(blocks_of_the_start_are_chosen_once),
        cmocka_unit_test(of_two_experts_one_is_taken),
        cmocka_unit_test(a_quantised_file_is_a_start),
        cmocka_unit_test(a_plan_takes_a_preset),
        cmocka_unit_test(what_does_not_agree_is_named),
        cmocka_unit_test(the_numbers_of_the_vae_are_compared),
        cmocka_unit_test(what_is_no_transformer_is_refused),
    };
    return cmocka_run_group_tests(tests, make_sibling, NULL);
}
