/* Validation during training, as a user runs it: its figures are those of `eval`, they are the same
 * wherever the teacher is and however often the run is stopped, and the student is the one that it
 * would be without. */
#include "runs.h"
#include "teacher_copy.h"

#include <sys/stat.h>
#include <unistd.h>

#include "io/json/json.h"

static wd_program program;

/* A student that is best in the middle of its run. */
#define RISES                                                                                      \
    "--validation_prompts", "1", "--validation_interval", "2", "--keep_best", "--warmup_steps",    \
        "0", "--lr_schedule", "constant", "--ema_decay", "0"
#define EVERY_3 "--validation_interval", "3"

/* The last of two values of an option counts. */
#define RUN(out) SMALL_RUN(out), "--num_steps", "9", "--save_samples", "false"

static void succeeds(const char *text)
{
    wd_program_succeeded(&program);
    if (text && !strstr(program.err, text)) fail_msg("expected \"%s\": %s", text, program.err);
}

/* Prompts of which one is longer than all others. */
static const char *write_prompts(const char *name, const char *text)
{
    wd_err err;
    wd_test_ok(wd_file_write(wd_test_path(name), text, strlen(text), &err), &err);
    return wd_test_path(name);
}

/* ---- figures ---- */

static const json_t *levels_of(const json_t *rows, size_t step)
{
    return json_object_get(json_array_get(rows, step - 1), "validation_error_by_level");
}

static double error_of(const json_t *rows, size_t step)
{
    const json_t *error = json_object_get(json_array_get(rows, step - 1), "validation_error");
    if (!json_is_number(error)) fail_msg("step %zu has no validation_error", step);
    return json_number_value(error);
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("no number \"%s\"", key);
    return json_number_value(value);
}

/* Both compute in float32, in batches and with rows of text of other sizes. */
static void near(double figure, double of_eval)
{
    if (!(fabs(figure - of_eval) <= 1e-5 * of_eval))
        fail_msg("validation %.9g, eval %.9g", figure, of_eval);
}

static void figures_are_those_of_eval(void **state)
{
    (void)state;
    size_t k;
    json_t *level;
    const char *out = wd_test_path("figures");
    const char *held = write_prompts("held.txt", "owl, white background\nblue fox\nbus, black "
                                                 "background\nrocket, yellow background\n");
    wd_program_run(&program, RUN(out), "--data_path", WD_SOURCE_DIR "/models/wan-tiny/prompts.txt",
                   "--validation_prompts", held, EVERY_3, "--log_level", "info");
    succeeds("step 9: validation error ");
    json_t *rows = metrics(out);
    assert_int_equal(json_array_size(rows), 9);
    for (size_t step = 1; step <= 9; step++)
        assert_true(!!levels_of(rows, step) == (step % 3 == 0));
    wd_program_run(&program, "eval", "--teacher", teacher, "--student", out, "--prompts",
                   wd_test_in(out, "validation-prompts.jsonl"), "--count", "0", "--steps", "8",
                   "--seed", "3", "--dtype", "float32", "--json", "--log_level", "warning");
    wd_program_succeeded(&program);
    json_t *report = json_loads(program.out, 0, NULL);
    assert_non_null(report);
    near(error_of(rows, 9), number(report, "velocity_error"));
    const json_t *of_eval = json_object_get(report, "levels");
    assert_int_equal(json_array_size(of_eval), 8);
    json_array_foreach(levels_of(rows, 9), k, level)
    {
        const json_t *same = json_array_get(of_eval, k);
        near(number(level, "error"), number(same, "velocity_error"));
        near(number(level, "sigma"), number(same, "sigma"));
    }
    json_decref(report);
    json_decref(rows);
}

/* ---- the student ---- */

/* A prompt that is held out is not trained on, and changes no bit however long it is: the run is
 * that of the other prompts. */
static void the_student_is_the_same(void **state)
{
    (void)state;
    const char *with = wd_test_path("with"), *without = wd_test_path("without");
    const char *file = write_prompts(
        "held-out.txt", "penguin,  white background\n"
                        "an owl that sits in the snow beside an old red telephone box, at night\n");
    const char *rest = write_prompts("rest.txt", "red apple, blue background\nfox\n");
    wd_program_run(&program, RUN(with), "--validation_prompts", file, EVERY_3, "--keep_best",
                   "--log_level", "info");
    succeeds(" has 1 of the data's prompts, too, which training leaves out");
    assert_non_null(strstr(program.err, "validation: 1 of its prompts have more tokens than any"));
    wd_program_run(&program, RUN(without), "--data_path", rest);
    succeeds(NULL);
    assert_same_weights(with, without);
}

/* Which prompts are held out follows from the seed, and a repeated one is left out everywhere. */
static void a_number_of_prompts_is_held_out(void **state)
{
    (void)state;
    size_t bytes;
    wd_err err;
    char *text, *other;
    const char *out = wd_test_path("number"), *again = wd_test_path("number-5");
    const char *data = write_prompts("five.txt", "one\ntwo\nthree\nfour\nfive\n");
    const char *twice = write_prompts("twice.txt", "fox\nfox\nfox \nfox\nowl\n");
    wd_program_run(&program, RUN(out), "--data_path", data, "--validation_prompts", "2",
                   "--log_level", "info");
    succeeds("validation: 2 of 5 prompts are held out\n");
    wd_program_run(&program, RUN(again), "--data_path", data, "--validation_prompts", "2", "--seed",
                   "5");
    succeeds(NULL);
    const char *name = "validation-prompts.jsonl";
    wd_test_ok(wd_file_read(&text, &bytes, wd_test_in(out, name), 1 << 16, &err), &err);
    wd_test_ok(wd_file_read(&other, &bytes, wd_test_in(again, name), 1 << 16, &err), &err);
    assert_non_null(strstr(text, "{\"prompt\":\""));
    if (!strcmp(text, other)) fail_msg("another seed holds out the same: %s", text);
    wd_free(text);
    wd_free(other);
    wd_program_run(&program, RUN(out), "--data_path", twice, "--validation_prompts", "1",
                   "--log_level", "info");
    succeeds("those that are repeated included");
}

static void assert_same_metrics(const char *a, const char *b)
{
    json_t *x = metrics(a), *y = metrics(b);
    if (!json_equal(x, y)) {
        for (size_t i = 0; i < json_array_size(x); i++)
            print_message("%s\n%s\n", json_dumps(json_array_get(x, i), 0),
                          json_dumps(json_array_get(y, i), 0));
        fail_msg("%s and %s have other metrics", a, b);
    }
    json_decref(x);
    json_decref(y);
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
    char hash[2][33];
    wd_err err;
    wd_test_ok(wd_file_hash(hash[0], wd_test_in(a, name), &err), &err);
    wd_test_ok(wd_file_hash(hash[1], wd_test_in(b, name), &err), &err);
    assert_string_equal(hash[0], hash[1]);
}

#define ONE "--validation_prompts", "1", EVERY_3

static void run_whole(void)
{
    wd_program_run(&program, RUN(wd_test_path("whole")), ONE, "--keep_best");
    succeeds(NULL);
}

/* Its states are made once; without their file they are made again, the same. */
static void a_stopped_run_has_the_same_figures(void **state)
{
    (void)state;
    const char *whole = wd_test_path("whole"), *parts = wd_test_path("parts");
    run_whole();
    wd_program_run(&program, RUN(parts), ONE, "--keep_best", "--stop_at_step", "4");
    succeeds(NULL);
    wd_program_run(&program, "train", "--resume", parts, "--stop_at_step", "8", "--cache_dir",
                   wd_test_path("other-cache"));
    succeeds(NULL);
    wd_program_run(&program, "train", "--resume", parts, "--stop_at_step", "0");
    succeeds(NULL);
    assert_same_weights(whole, parts);
    assert_same_metrics(whole, parts);
    assert_same_file(whole, parts, "best/validation.json");
    assert_same_file(whole, parts, "best/transformer/diffusion_pytorch_model.safetensors");
}

/* Placements, and places of the optimiser's state. */
static void the_place_of_the_teacher_changes_nothing(void **state)
{
    (void)state;
    static const char devices[] = "sim:2x256MiB@link=1GB/s,compute=20GFLOP/s";
    static const char *const more[][4] = {
        {"--teacher_device_strategy", "disk", NULL},
        {"--teacher_device_strategy", "balanced", "--optimizer_device", "host"},
        {"--teacher_device_strategy", "offload", "--ema_device", "host"}};
    const char *out = wd_test_path("place");
    for (int i = 0; i < 3; i++) {
        wd_program_run(&program, RUN(out), ONE, "--cache_dir", wd_test_path("fresh"),
                       "--gradient_checkpointing", "--teacher_window", "1", "--devices",
                       i ? devices : "cpu", more[i][0], more[i][1], more[i][2], more[i][3]);
        succeeds(NULL);
        assert_same_metrics(wd_test_path("whole"), out);
        wd_err err;
        wd_test_ok(wd_folder_remove(wd_test_path("fresh"), &err), &err);
    }
}

/* ---- the file of states ---- */

static int is_of_states(const struct dirent *entry)
{
    return !strncmp(entry->d_name, "validation-", strlen("validation-"));
}

static void a_damaged_file_is_made_anew(void **state)
{
    (void)state;
    wd_err err;
    char path[WD_PATH_MAX];
    wd_folder_list list;
    const char *out = wd_test_path("damaged"), *cache = wd_test_path("states");
    for (int i = 0; i < 2; i++) {
        wd_program_run(&program, RUN(out), ONE, "--cache_dir", cache);
        succeeds(i ? "the states of validation are made anew" : NULL);
        assert_same_metrics(wd_test_path("whole"), out);
        wd_test_ok(wd_folder_list_open(&list, cache, is_of_states, NULL, &err), &err);
        assert_int_equal(list.count, 1);
        wd_test_ok(wd_path_join(path, cache, list.entry[0]->d_name, &err), &err);
        wd_folder_list_close(&list);
        assert_int_equal(truncate(path, 1000), 0);
    }
}

/* ---- the best student ---- */

static void the_best_is_the_least(void **state)
{
    (void)state;
    const char *out = wd_test_path("best");
    wd_program_run(&program, RUN(out), RISES);
    succeeds(NULL);
    json_t *rows = metrics(out);
    size_t least = 9; /* the last step is validated, too */
    for (size_t step = 2; step <= 8; step += 2)
        if (error_of(rows, step) < error_of(rows, least)) least = step;
    json_t *best = json_load_file(wd_test_path("best/best/validation.json"), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(best, "step")), least);
    assert_true(number(best, "validation_error") == error_of(rows, least));
    const json_t *levels = json_object_get(best, "validation_error_by_level");
    assert_int_equal(json_array_size(levels), 8);
    for (size_t k = 0; k < 8; k++)
        assert_true(number(json_array_get(levels, k), "error") ==
                    number(json_array_get(levels_of(rows, least), k), "error"));
    json_decref(best);
    json_decref(rows);
    if (least == 9) fail_msg("the last student is the best one: the test shows nothing");
    char *card, said[64];
    size_t bytes;
    wd_err err;
    snprintf(said, sizeof said, "is that of step %zu", least);
    wd_test_ok(wd_file_read(&card, &bytes, wd_test_path("best/README.md"), 1 << 16, &err), &err);
    for (char *c = card; *c; c++)
        if (*c == '\n') *c = ' ';
    assert_non_null(strstr(card, said));
    wd_free(card);
    wd_program_run(&program, "sample", "--model", wd_test_path("best/best"), "--prompt", "fox",
                   "--steps", "1", "--out", wd_test_path("fox.png"), "--log_level", "warning");
    succeeds(NULL);
}

static int64_t best_step(const char *out, const char *name)
{
    json_t *best = json_load_file(wd_test_in(out, name), 0, NULL);
    if (!best) fail_msg("%s/%s is not there", out, name);
    const int64_t step = json_integer_value(json_object_get(best, "step"));
    json_decref(best);
    return step;
}

/* What cannot be kept does not end the run: here a user has put a file in the place of best/. */
static void the_run_goes_on_without_the_best(void **state)
{
    (void)state;
    wd_err err;
    const char *out = wd_test_path("unkept");
    const pid_t pid = wd_program_start(
        (const char *const[]){RUN(out), "--num_steps", "1000", "--validation_prompts", "1",
                              "--validation_interval", "1000", "--keep_best", NULL});
    wait_for_steps(wd_test_path("unkept/metrics.jsonl"));
    wd_test_ok(wd_file_write(wd_test_path("unkept/best"), "mine", 4, &err), &err);
    wd_program_wait(&program, pid);
    succeeds("/best: is not the best student of an earlier run");
    assert_non_null(strstr(program.err, "training goes on, and best/ stays as it was"));
    assert_true(wd_path_exists(wd_test_path("unkept/model_index.json")));
    assert_true(wd_path_exists(wd_test_path("unkept/checkpoints/step-00001000")));
}

/* A run that goes back has only the best of what is before. */
static void a_later_best_is_moved(void **state)
{
    (void)state;
    const char *out = wd_test_path("back");
    char from[WD_PATH_MAX], name[64], stop[16];
#define KEPT RISES, "--checkpoint_interval", "1", "--keep_checkpoints", "9"
    wd_program_run(&program, RUN(out), KEPT);
    succeeds(NULL);
    const int64_t best = best_step(out, "best/validation.json");
    assert_in_range(best, 6, 8);
    snprintf(name, sizeof name, "checkpoints/step-%08lld", (long long)best - 4);
    snprintf(from, sizeof from, "%s", wd_test_in(out, name));
    snprintf(stop, sizeof stop, "%lld", (long long)best - 2);
    wd_program_run(&program, RUN(out), KEPT, "--resume", from, "--stop_at_step", stop);
    succeeds(NULL);
    assert_int_equal(best_step(out, "earlier-1/best/validation.json"), best);
    assert_int_equal(best_step(out, "best/validation.json"), best - 2);
}

/* Lets the best student have an error that no other one has. */
static void make_unbeatable(const char *out)
{
    json_t *best = json_load_file(wd_test_in(out, "best/validation.json"), 0, NULL);
    json_object_set_new(best, "validation_error", json_real(1e-9));
    assert_int_equal(json_dump_file(best, wd_test_in(out, "best/validation.json"), 0), 0);
    json_decref(best);
}

/* Errors of other states are not compared, nor is that of a run that was in the folder before. */
static void a_best_of_other_states_does_not_count(void **state)
{
    (void)state;
    const char *out = wd_test_path("states-of"), *other = wd_test_path("other-run");
    const char *owl = write_prompts("one-owl.txt", "owl\n"),
               *bus = write_prompts("bus.txt", "bus\n");
    char from[WD_PATH_MAX];
    wd_program_run(&program, RUN(out), "--validation_prompts", owl, "--keep_best", EVERY_3,
                   "--checkpoint_interval", "3", "--keep_checkpoints", "9", "--stop_at_step", "3");
    succeeds(NULL);
    make_unbeatable(out);
    wd_program_run(&program, "train", "--resume", out, "--stop_at_step", "6");
    succeeds(NULL);
    assert_int_equal(best_step(out, "best/validation.json"), 3);
    wd_program_run(&program, "train", "--resume", out, "--stop_at_step", "0",
                   "--validation_prompts", bus);
    succeeds("best/ is of step 3, and its error is of other states");
    assert_int_equal(best_step(out, "best/validation.json"), 9);
    wd_program_run(&program, RUN(other), "--validation_prompts", owl, "--keep_best", EVERY_3,
                   "--stop_at_step", "3");
    succeeds(NULL);
    make_unbeatable(other);
    snprintf(from, sizeof from, "%s", wd_test_in(out, "checkpoints/step-00000006"));
    wd_program_run(&program, RUN(other), "--validation_prompts", owl, "--keep_best", EVERY_3,
                   "--resume", from);
    succeeds(NULL);
    assert_int_equal(best_step(other, "best/validation.json"), 9);
    assert_int_equal(best_step(other, "earlier-1/best/validation.json"), 3);
}

/* ---- stored targets ---- */

/* Without a cache folder, so that states lie beside the targets. */
#define STORED(out)                                                                                \
    "train", "--teacher_path", teacher, "--student_config", wd_test_path("student.json"),          \
        "--output_dir", out, "--height", "32", "--width", "32", "--batch_size", "2",               \
        "--trajectories", "4", "--trajectory_steps", "4", "--guidance_scale", "2", "--lr", "1e-3", \
        "--num_steps", "6", "--seed", "3", "--save_samples", "false", EVERY_3, IN_FP32

static void states_are_stored_with_targets(void **state)
{
    (void)state;
    const char *made = wd_test_path("made"), *read = wd_test_path("read");
    const char *store = wd_test_path("store");
    wd_program_run(&program, STORED(made), "--data_path", wd_test_path("prompts.txt"),
                   "--validation_prompts", "1", "--save_targets", store);
    succeeds(NULL);
    wd_program_run(&program, STORED(read), "--targets", store, "--validation_prompts",
                   wd_test_in(made, "validation-prompts.jsonl"));
    succeeds(NULL);
    assert_same_metrics(made, read);
    assert_same_weights(made, read);
    wd_program_run(&program, STORED(read), "--targets", store, "--seed", "4",
                   "--validation_prompts", wd_test_in(made, "validation-prompts.jsonl"));
    succeeds(NULL);
    wd_program_run(&program, STORED(read), "--targets", store, "--validation_prompts", "1");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "which is validation-prompts.jsonl in its");
    wd_program_run(&program, STORED(read), "--targets", store, "--validation_prompts",
                   write_prompts("owl.txt", "owl\n"));
    wd_program_refused(&program, WD_NOT_FOUND, "--validation_prompts with --targets: no teacher");
    wd_program_run(&program, STORED(read), "--targets", store, "--validation_prompts",
                   wd_test_path("prompts.txt"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "targets cannot be left out");
}

/* ---- what is refused ---- */

static void what_means_nothing_is_refused(void **state)
{
    (void)state;
    const char *out = wd_test_path("refused");
    wd_err err;
    wd_program_run(&program, RUN(out), "--keep_best");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--keep_best needs --validation_prompts");
    wd_program_run(&program, RUN(out), EVERY_3);
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--validation_interval needs");
    wd_program_run(&program, RUN(out), "--validation_prompts", "3");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "expected fewer than the different prompts");
    wd_program_run(&program, RUN(out), "--data_path", write_prompts("two.txt", "fox\nfox\nowl\n"),
                   "--validation_prompts", "2");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "found 2 of these");
    wd_program_run(&program, RUN(out), "--validation_prompts", "4000000000");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "expected at most 100000 prompts");
    wd_program_run(&program, RUN(out), "--validation_prompts", wd_test_path("prompts.txt"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "none would be left to train on");
    wd_program_run(&program, RUN(out), "--validation_prompts", "no-such-file.txt");
    wd_program_refused(&program, WD_NOT_FOUND, "no-such-file.txt");
    wd_test_ok(wd_folder_make(wd_test_path("refused/best"), &err), &err);
    wd_test_ok(wd_file_write(wd_test_path("refused/best/mine"), "x", 1, &err), &err);
    wd_program_run(&program, RUN(out), ONE, "--keep_best");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "/best");
    assert_true(wd_path_exists(wd_test_path("refused/best/mine")));
}

/* ---- plans ---- */

static double bytes_of(const char *name, const char *prompts)
{
    size_t i;
    double bytes = -1;
    const json_t *item;
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--student_config",
                   wd_test_path("student.json"), "--height", "32", "--width", "32",
                   "--trajectories", "4", "--num_steps", "9", "--save_samples", "false",
                   "--devices", "sim:1x256MiB@link=1GB/s,compute=20GFLOP/s", IN_FP32,
                   "--validation_prompts", prompts, "--json", "--log_level", "warning");
    wd_program_succeeded(&program);
    json_t *plan = json_loads(program.out, 0, NULL);
    json_array_foreach(json_object_get(plan, "beside"), i,
                       item) if (!strcmp(json_string_value(json_object_get(item, "name")), name))
        bytes = number(item, "bytes");
    json_decref(plan);
    if (bytes < 0) fail_msg("the plan has no \"%s\"", name);
    return bytes;
}

/* However many prompts there are, no more are computed together than trajectories of training. */
static void memory_on_devices_does_not_grow_with_prompts(void **state)
{
    (void)state;
    assert_true(bytes_of("validation batch", "40") == bytes_of("validation batch", "4"));
    assert_true(bytes_of("validation states", "40") > bytes_of("validation states", "4"));
}

/* The interval is chosen so that it takes little of the student's time, and a resumed run has the
 * same. */
static void an_open_interval_takes_little_time(void **state)
{
    (void)state;
    json_t *plan;
    const char *out = wd_test_path("open");
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--data_path",
                   wd_test_path("prompts.txt"), "--student_config", wd_test_path("student.json"),
                   "--height", "32", "--width", "32", "--batch_size", "2", "--num_steps", "5000",
                   "--validation_prompts", "1", "--json", IN_FP32, "--log_level", "warning");
    wd_program_succeeded(&program);
    plan = json_loads(program.out, 0, NULL);
    const json_t *v = json_object_get(plan, "validation");
    assert_true(number(v, "share_of_time") > 0 && number(v, "share_of_time") < 0.02);
    assert_true(number(v, "noise_levels") == 8 && number(v, "prompts") == 1);
    assert_true(number(v, "seconds_to_make_states") > 0);
    const double interval = number(v, "interval");
    json_decref(plan);
    wd_program_run(&program, RUN(out), "--validation_prompts", "1", "--stop_at_step", "2");
    succeeds(NULL);
    wd_program_run(&program, "train", "--resume", out, "--batch_size", "1",
                   "--gradient_accumulation_steps", "2", "--stop_at_step", "3");
    succeeds(NULL);
    json_t *run = json_load_file(wd_test_in(out, "run.json"), 0, NULL);
    assert_true(number(json_object_get(run, "resolved"), "validation_interval") == interval);
    json_decref(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_those_of_eval),
        cmocka_unit_test(the_student_is_the_same),
        cmocka_unit_test(a_number_of_prompts_is_held_out),
        cmocka_unit_test(a_stopped_run_has_the_same_figures),
        cmocka_unit_test(the_place_of_the_teacher_changes_nothing),
        cmocka_unit_test(a_damaged_file_is_made_anew),
        cmocka_unit_test(the_best_is_the_least),
        cmocka_unit_test(the_run_goes_on_without_the_best),
        cmocka_unit_test(a_later_best_is_moved),
        cmocka_unit_test(a_best_of_other_states_does_not_count),
        cmocka_unit_test(states_are_stored_with_targets),
        cmocka_unit_test(what_means_nothing_is_refused),
        cmocka_unit_test(memory_on_devices_does_not_grow_with_prompts),
        cmocka_unit_test(an_open_interval_takes_little_time),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
