/* Targets that one run of `wandistiller train` stores and others train from: the same student to
 * the bit, also of runs that were stopped; other students; and what is refused. */
#include "runs.h"
#include "teacher_copy.h"

#include "io/json/json.h"

#include <sys/stat.h>
#include <unistd.h>

static wd_program program;

static const char first_file[] = "targets-000000000000.safetensors";

/* A run of small_run without a cache of its own, and so with the prompts' embeddings beside the
 * targets. */
#define RUN(out) "train", OPTIONS(out)
#define OPTIONS(out)                                                                               \
    "--teacher_path", teacher, "--student_config", wd_test_path("student.json"), "--output_dir",   \
        wd_test_path(out), "--height", "32", "--width", "32", "--batch_size", "2",                 \
        "--trajectories", "4", "--trajectory_steps", "4", "--guidance_scale", "2", "--lr", "1e-3", \
        "--num_steps", "8", "--seed", "3", IN_FP32
#define PROMPTS "--data_path", wd_test_path("prompts.txt")
#define CHORDS "--student_steps", "2", "--on_policy_every", "2"

static void succeeds(const char *text)
{
    wd_program_succeeded(&program);
    if (text && !strstr(program.err, text)) fail_msg("expected \"%s\": %s", text, program.err);
}

static void the_student_is_the_same(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("made"), PROMPTS, "--save_targets", wd_test_path("store"));
    succeeds("targets: 1.");
    wd_program_run(&program, RUN("read"), "--targets", wd_test_path("store"));
    succeeds("no teacher in memory; the student learns 8 targets");
    assert_null(strstr(program.err, "teacher weights"));
    assert_null(strstr(program.err, "text encoder:")); /* embeddings are there */
    assert_null(strstr(program.err, "made by another teacher"));
    assert_same_weights(wd_test_path("made"), wd_test_path("read"));
    json_t *x = metrics(wd_test_path("made")), *y = metrics(wd_test_path("read"));
    assert_int_equal(json_array_size(x), 8);
    assert_true(json_equal(x, y));
    json_decref(x);
    json_decref(y);
}

static void options_of_the_targets_need_not_be_given(void **state)
{
    (void)state;
    wd_program_run(&program, "train", "--teacher_path", teacher, "--student_config",
                   wd_test_path("student.json"), "--output_dir", wd_test_path("short"),
                   "--batch_size", "2", "--lr", "1e-3", "--num_steps", "8", "--seed", "3",
                   "--mixed_precision", "no", "--targets", wd_test_path("store"));
    succeeds(NULL);
    assert_same_weights(wd_test_path("made"), wd_test_path("short"));
}

static void a_student_of_few_steps_is_the_same(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("made-2"), PROMPTS, CHORDS, "--save_targets",
                   wd_test_path("store-2"));
    succeeds(NULL);
    wd_program_run(&program, RUN("read-2"), CHORDS, "--targets", wd_test_path("store-2"));
    succeeds("went on from the steps of the student that was trained");
    assert_same_weights(wd_test_path("made-2"), wd_test_path("read-2"));
}

static void a_stopped_run_goes_on_storing(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("parts"), PROMPTS, CHORDS, "--save_targets",
                   wd_test_path("store-3"), "--stop_at_step", "3");
    succeeds("stopped after 3 steps");
    wd_program_run(&program, "train", "--resume", wd_test_path("parts"), "--stop_at_step", "0");
    succeeds("done after 8 steps");
    assert_same_weights(wd_test_path("made-2"), wd_test_path("parts"));
    wd_program_run(&program, RUN("half"), CHORDS, "--targets", wd_test_path("store-3"),
                   "--stop_at_step", "3");
    succeeds("stopped after 3 steps");
    wd_program_run(&program, "train", "--resume", wd_test_path("half"), "--stop_at_step", "0");
    succeeds("done after 8 steps");
    assert_same_weights(wd_test_path("made-2"), wd_test_path("half"));
}

/* Another depth, other batches, another seed, and more steps than there are targets for. */
static void other_students_train_from_the_same_targets(void **state)
{
    (void)state;
    static const char deeper[] = "{\"depth\": 2, \"hidden_size\": 96}";
    wd_err err;
    wd_test_ok(wd_file_write(wd_test_path("deeper.json"), deeper, sizeof deeper - 1, &err), &err);
    wd_program_run(&program, RUN("other"), CHORDS, "--targets", wd_test_path("store-2"),
                   "--student_config", wd_test_path("deeper.json"), "--batch_size", "8",
                   "--num_steps", "20", "--seed", "4", "--target_reuse", "1", "--save_samples",
                   "true", "--sample_steps", "2");
    succeeds("goes round again");
    assert_non_null(strstr(program.err, "made with another --seed"));
    assert_true(wd_path_exists(wd_test_path("other/samples/step-00000020.png")));
}

/* A teacher's folder without the weights of its transformers is enough for a student that starts
 * from another one. */
static void no_weights_of_a_teacher_are_needed(void **state)
{
    (void)state;
    char small[WD_PATH_MAX];
    static const char *const folders[] = {"transformer", "transformer_2"};
    wd_test_copy_teacher(small, "without");
    for (int i = 0; i < 2; i++)
        assert_int_equal(unlink(wd_test_in(wd_test_in(small, folders[i]),
                                           "diffusion_pytorch_model.safetensors")),
                         0);
    wd_program_run(&program, RUN("from"), "--targets", wd_test_path("store"), "--init_student",
                   wd_test_path("made"));
    succeeds(NULL);
    wd_program_run(&program, RUN("from-small"), "--teacher_path", small, "--targets",
                   wd_test_path("store"), "--init_student", wd_test_path("made"));
    succeeds(NULL);
    assert_same_weights(wd_test_path("from"), wd_test_path("from-small"));
    wd_program_run(&program, RUN("never"), "--teacher_path", small, "--targets",
                   wd_test_path("store"));
    assert_int_not_equal(program.code, 0);
    assert_non_null(strstr(program.err, "--init_student"));
}

static void ranks_read_their_shares(void **state)
{
    (void)state;
    const char *const one[] = {"--batch_size", "1", "--gradient_accumulation_steps", "2",
                               "--deterministic_reduce"};
    wd_program_run(&program, RUN("alone"), CHORDS, "--targets", wd_test_path("store-2"), one[0],
                   one[1], one[2], one[3], one[4]);
    succeeds(NULL);
    wd_program_run(&program, RUN("two"), CHORDS, "--targets", wd_test_path("store-2"), one[0],
                   one[1], one[4], "--distributed", "--nproc_per_node", "2");
    if (strstr(program.err, "built without MPI")) wd_test_skip("this build has no ranks");
    succeeds(NULL);
    assert_same_weights(wd_test_path("alone"), wd_test_path("two"));
    wd_program_run(&program, RUN("start"), "--targets", wd_test_path("store"), "--init_student",
                   wd_test_path("made"), "--batch_size", "3", "--target_reuse", "1",
                   "--distributed", "--nproc_per_node", "2"); /* each has samples of its own */
    succeeds("the targets of the first 3 samples");
    wd_program_run(&program, RUN("never"), PROMPTS, "--save_targets", wd_test_path("store-9"),
                   "--distributed", "--nproc_per_node", "2");
    wd_program_refused(&program, WD_UNSUPPORTED, "--save_targets: expected one rank, found 2");
}

/* ---- what is refused ---- */

static void what_contradicts_the_targets_is_refused(void **state)
{
    (void)state;
    const struct {
        const char *option, *value, *text;
    } cases[] = {{"--height", "64", "--height 64: the targets in"},
                 {"--guidance_scale", "3", "--guidance_scale 3: the targets in"},
                 {"--flow_shift", "7", "--flow_shift 7: the targets in"},
                 {"--trajectories", "8", "--trajectories 8: the targets in"},
                 {"--trajectory_steps", "8", "--trajectory_steps 8: the targets in"},
                 {"--negative_prompt", "blurry", "--negative_prompt blurry: the targets in"},
                 {"--max_sequence_length", "12", "--max_sequence_length 12: the targets in"},
                 {"--student_steps", "2", "leave --student_steps out"},
                 {"--recipe", "velocity,chord", "--student_steps"},
                 {"--save_targets", "elsewhere", "leave one of them out"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_program_run(&program, RUN("never"), "--targets", wd_test_path("store"), cases[i].option,
                       cases[i].value);
        wd_program_refused(&program, WD_INVALID_ARGUMENT, cases[i].text);
    }
    wd_program_run(&program, RUN("never"), "--targets", wd_test_path("store-2"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "give --student_steps");
    wd_program_run(&program, RUN("never"), PROMPTS, CHORDS, "--recipe", "velocity,chord",
                   "--save_targets", wd_test_path("store-9"));
    wd_program_refused(&program, WD_UNSUPPORTED, "expected a --recipe of one phase");
    assert_false(wd_path_exists(wd_test_path("never")));
}

static void other_prompts_are_refused(void **state)
{
    (void)state;
    static const char others[] = "a cat\na dog\na cow\n";
    wd_err err;
    wd_test_ok(wd_file_write(wd_test_path("others.txt"), others, sizeof others - 1, &err), &err);
    wd_program_run(&program, RUN("never"), "--targets", wd_test_path("store"), "--data_path",
                   wd_test_path("others.txt"));
    wd_program_refused(&program, WD_MISMATCH, "its prompts are not those of the targets");
    wd_program_run(&program, RUN("same"), "--targets", wd_test_path("store"), PROMPTS);
    succeeds(NULL);
    assert_same_weights(wd_test_path("made"), wd_test_path("same"));
}

static void folders_of_others_are_refused(void **state)
{
    (void)state;
    wd_err err;
    wd_program_run(&program, RUN("never"), PROMPTS, "--save_targets", wd_test_path("store"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "the targets of another run");
    wd_test_ok(wd_folder_make(wd_test_path("letters"), &err), &err);
    wd_test_ok(wd_file_write(wd_test_path("letters/a.txt"), "x", 1, &err), &err);
    wd_program_run(&program, RUN("never"), PROMPTS, "--save_targets", wd_test_path("letters"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "expected a new or an empty folder");
    wd_program_run(&program, RUN("never"), "--targets", wd_test_path("letters"));
    wd_program_refused(&program, WD_NOT_FOUND, "expected a folder of targets");
    wd_program_run(&program, RUN("never"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "train needs --data_path");
}

static void other_runs_are_not_resumed(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("made"), PROMPTS, "--num_steps", "9", "--resume", "auto");
    wd_program_refused(&program, WD_MISMATCH, "begun with --save_targets");
    wd_program_run(&program, RUN("read"), PROMPTS, "--num_steps", "9", "--resume", "auto");
    wd_program_refused(&program, WD_MISMATCH, "its run had --targets");
}

static void damaged_targets_end_the_run(void **state)
{
    (void)state;
    struct stat is;
    wd_err err;
    char *text;
    size_t bytes;
    const char *const copy[] = {"-r", wd_test_path("store"), wd_test_path("damaged"), NULL};
    wd_program_wait(&program, wd_program_start_as("cp", copy));
    const char *path = wd_test_in(wd_test_path("damaged"), first_file);
    wd_test_ok(wd_file_read(&text, &bytes, path, 1 << 24, &err), &err);
    text[bytes / 2] ^= 1;
    wd_test_ok(wd_file_write(path, text, bytes, &err), &err);
    wd_program_run(&program, RUN("ended"), "--targets", wd_test_path("damaged"));
    wd_program_refused(&program, WD_BAD_FORMAT, "its checksum differs");
    assert_int_equal(stat(path, &is), 0);
    assert_int_equal(truncate(path, is.st_size / 2), 0);
    wd_program_run(&program, RUN("never"), "--targets", wd_test_path("damaged"));
    wd_program_refused(&program, WD_BAD_FORMAT, first_file);
    wd_free(text);
}

/* What targets.json says of its run is not trusted either. */
static void strange_facts_are_refused(void **state)
{
    (void)state;
    wd_err err;
    const char *folder = wd_test_path("strange");
    const char *const copy[] = {"-r", wd_test_path("store"), folder, NULL};
    const char *path = wd_test_in(folder, "targets.json");
    wd_program_wait(&program, wd_program_start_as("cp", copy));
    const struct {
        const char *key;
        json_t *value;
        const char *text;
    } cases[] = {
        {"guidance_scale", json_real(101), "guidance_scale: expected 0 to 100"},
        {"height", json_integer(0), "height"},
        {"max_sequence_length", json_integer(1 << 20), "max_sequence_length"},
        {"teacher_key", json_string("0123456789012345678901234567890123456789"), "teacher_key"},
        {"negative_prompt", json_null(), "negative_prompt"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *json, *whole;
        wd_test_ok(wd_json_load(&json, path, &err), &err);
        whole = json_deep_copy(json);
        json_object_set_new(json_object_get(json, "run"), cases[i].key, cases[i].value);
        wd_test_ok(wd_json_save(json, path, &err), &err);
        wd_program_run(&program, RUN("never"), "--targets", folder);
        wd_program_refused(&program, WD_BAD_FORMAT, cases[i].text);
        wd_test_ok(wd_json_save(whole, path, &err), &err);
        json_decref(json);
        json_decref(whole);
    }
}

/* ---- plans ---- */

static json_t *planned(void)
{
    wd_program_succeeded(&program);
    json_t *json = json_loads(program.out, 0, NULL);
    assert_non_null(json);
    return json;
}

/* Of a slow teacher, which a run from its targets does without. */
static void plans_count_targets(void **state)
{
    (void)state;
    const char *device = "sim:1x1GiB@link=1GB/s,compute=10GFLOP/s,cpu=1GFLOP/s";
    wd_program_run(&program, "plan", OPTIONS("never"), PROMPTS, "--devices", device,
                   "--save_targets", wd_test_path("never"), "--json");
    json_t *made = planned();
    wd_program_run(&program, "plan", OPTIONS("never"), "--devices", device, "--targets",
                   wd_test_path("store"), "--json");
    json_t *read = planned();
    const json_t *saved = json_object_get(made, "targets");
    /* 2 x 16 x 4 x 4 values of two bytes, the prompt, two levels, and a checksum */
    assert_true(json_number_value(json_object_get(saved, "bytes_each")) == 1024 + 24);
    assert_true(json_number_value(json_object_get(saved, "count")) == 8 + 4);
    const double then =
        json_number_value(json_object_get(json_object_get(made, "verdict"), "seconds"));
    const double now =
        json_number_value(json_object_get(json_object_get(read, "verdict"), "seconds"));
    const double alone =
        8 * json_number_value(json_object_get(saved, "seconds_per_step_from_them"));
    assert_true(now < 0.7 * then);
    assert_true(fabs(now - alone) < 0.1 * now);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(read, "targets"), "count")),
                     10);
    json_decref(made);
    json_decref(read);
    wd_program_run(&program, "plan", OPTIONS("never"), "--devices", device, "--targets",
                   wd_test_path("store"));
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "no teacher, stored targets: "));
    assert_non_null(strstr(program.out, "--targets "));
    assert_null(strstr(program.out, "teacher weights"));
    assert_null(strstr(program.out, "--data_path"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_student_is_the_same),
        cmocka_unit_test(options_of_the_targets_need_not_be_given),
        cmocka_unit_test(a_student_of_few_steps_is_the_same),
        cmocka_unit_test(a_stopped_run_goes_on_storing),
        cmocka_unit_test(other_students_train_from_the_same_targets),
        cmocka_unit_test(no_weights_of_a_teacher_are_needed),
        cmocka_unit_test(ranks_read_their_shares),
        cmocka_unit_test(what_contradicts_the_targets_is_refused),
        cmocka_unit_test(other_prompts_are_refused),
        cmocka_unit_test(folders_of_others_are_refused),
        cmocka_unit_test(other_runs_are_not_resumed),
        cmocka_unit_test(damaged_targets_end_the_run),
        cmocka_unit_test(strange_facts_are_refused),
        cmocka_unit_test(plans_count_targets),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
