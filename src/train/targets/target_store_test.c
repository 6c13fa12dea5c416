/* Stores of targets: what is written is read, file by file; folders of others stay as they are; and
 * what is damaged, missing or strange is refused by name. */
#include "train/targets/target_store_impl.h"

#include <sys/stat.h>
#include <unistd.h>

#include "testing.h"

enum { COUNT = 2 * 2 * 3, PROMPTS = 3 };

static const wd_store_shape shape = {2, 2, 3};
static const char *const prompts[PROMPTS] = {"a \"fox\"", "two\nlines", "p\xc3\xa4r"};

static const wd_trajectory_options trajectory = {.seed = 5,
                                                 .slots = 4,
                                                 .steps = 4,
                                                 .student_steps = 2,
                                                 .on_policy_share = 0.5,
                                                 .on_policy_end = 1,
                                                 .prompts = PROMPTS,
                                                 .flow_shift = 3,
                                                 .num_train_timesteps = 1000,
                                                 .integer_timesteps = true};

static const char *path_to(const char *folder, const char *name)
{
    static char path[16][WD_PATH_MAX];
    static int next;
    char *out = path[next++ % 16];
    snprintf(out, WD_PATH_MAX, "%s/%s%s%s", wd_test_folder(), folder, *name ? "/" : "", name);
    return out;
}

/* Value k of target number `target`. */
static uint16_t value_of(int64_t target, int64_t k)
{
    return wd_f32_to_bf16((float)(target * 31 + k) / 64);
}

static wd_target_writer *open_writer(const char *folder)
{
    wd_err err;
    wd_target_writer *w;
    const wd_store_options options = {.folder = folder, .shape = shape, .prompt = prompts};
    wd_test_ok(wd__target_writer_open(&w, &options, &trajectory, &err), &err);
    return w;
}

static wd_status put(wd_target_writer *w, int64_t target, wd_err *err)
{
    uint16_t values[2 * COUNT];
    for (int64_t k = 0; k < 2 * COUNT; k++) values[k] = value_of(target, k);
    return wd__target_writer_put(w, values, err);
}

/* The targets [first, end), flushed after each `each`. */
static void write_targets(const char *folder, int64_t first, int64_t end, int64_t each)
{
    wd_err err;
    wd_target_writer *w = open_writer(folder);
    if (first) wd__target_writer_go_on(w, first);
    for (int64_t i = first; i < end; i++) {
        wd_test_ok(put(w, i, &err), &err);
        if ((i + 1 - first) % each == 0) wd_test_ok(wd__target_writer_flush(w, &err), &err);
    }
    wd_test_ok(wd__target_writer_flush(w, &err), &err);
    wd__target_writer_close(w);
}

static void check_targets(const char *folder, int64_t count)
{
    wd_err err;
    wd_target_store *s;
    wd_test_ok(wd_target_store_open(&s, folder, &err), &err);
    assert_int_equal(wd_target_store_count(s), count);
    for (int64_t i = 0; i < count; i++) {
        wd__target_store_will_need(s, i);
        wd_test_ok(wd__target_store_check(s, i, &err), &err);
        for (int64_t k = 0; k < COUNT; k++) {
            assert_int_equal(wd__target_store_state(s, i)[k], value_of(i, k));
            assert_int_equal(wd__target_store_velocity(s, i)[k], value_of(i, COUNT + k));
        }
    }
    wd_target_store_close(s);
}

static void check_refused(const char *folder, wd_status expected, const char *text)
{
    wd_err err;
    wd_target_store *s;
    wd_test_refused(wd_target_store_open(&s, folder, &err), &err, expected, text);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    const char *folder = path_to("written", "");
    write_targets(folder, 0, 25, 10);
    assert_true(wd_path_exists(path_to("written", "targets-000000000000.safetensors")));
    assert_true(wd_path_exists(path_to("written", "targets-000000000010.safetensors")));
    assert_true(wd_path_exists(path_to("written", "targets-000000000020.safetensors")));
    check_targets(folder, 25);
}

static void the_store_says_what_it_is_of(void **state)
{
    (void)state;
    wd_err err;
    wd_target_store *s, *other;
    wd_test_ok(wd_target_store_open(&s, path_to("written", ""), &err), &err);
    const wd_trajectory_options *t = wd_target_store_trajectory(s);
    assert_true(t->seed == 5 && t->slots == 4 && t->steps == 4 && t->student_steps == 2);
    assert_true(t->chords == 2 && t->on_policy_share == 0.5 && t->prompts == PROMPTS);
    assert_true(t->flow_shift == 3 && t->num_train_timesteps == 1000 && t->integer_timesteps);
    assert_memory_equal(wd_target_store_shape(s), &shape, sizeof shape);
    assert_true((double)wd_target_store_bytes(s) > wd_target_store_size(&shape, 25));
    write_targets(path_to("same", ""), 0, 3, 3);
    wd_test_ok(wd_target_store_open(&other, path_to("same", ""), &err), &err);
    assert_string_equal(wd_target_store_key(s), wd_target_store_key(other));
    wd_target_store_close(other);
    wd_target_store_close(s);
}

static void prompts_can_be_read_again(void **state)
{
    (void)state;
    wd_err err;
    char *text;
    size_t bytes;
    wd_test_ok(wd_file_read(&text, &bytes, path_to("written", "prompts.jsonl"), 1 << 16, &err),
               &err);
    assert_string_equal(text, "{\"prompt\":\"a \\\"fox\\\"\"}\n{\"prompt\":\"two\\nlines\"}\n"
                              "{\"prompt\":\"p\xc3\xa4r\"}\n");
    wd_free(text);
}

static void a_full_file_is_written(void **state)
{
    (void)state;
    const char *folder = path_to("large", "");
    enum { ALL = WD_STORE_FILE_TARGETS + 5 };
    write_targets(folder, 0, ALL, ALL);
    assert_true(wd_path_exists(path_to("large", "targets-000000004096.safetensors")));
    check_targets(folder, ALL);
}

/* What a killed run has written behind its checkpoint is made again. */
static void a_resumed_run_goes_on_in_its_folder(void **state)
{
    (void)state;
    const char *folder = path_to("resumed", "");
    write_targets(folder, 0, 20, 10);
    write_targets(folder, 10, 13, 10);
    check_targets(folder, 13);
    write_targets(folder, 13, 17, 2);
    check_targets(folder, 17);
}

/* It cannot: a gap would be left. */
static void a_store_that_is_too_short_is_left_as_it_is(void **state)
{
    (void)state;
    const char *folder = path_to("resumed", "");
    write_targets(folder, 40, 45, 5);
    check_targets(folder, 17);
}

static void folders_of_others_are_refused(void **state)
{
    (void)state;
    wd_err err;
    wd_test_ok(wd_target_store_check_folder(path_to("missing", ""), false, &err), &err);
    wd_test_refused(wd_target_store_check_folder(path_to("missing", ""), true, &err), &err,
                    WD_INVALID_ARGUMENT, "give the folder with which the run was begun");
    wd_test_refused(wd_target_store_check_folder(path_to("written", ""), false, &err), &err,
                    WD_INVALID_ARGUMENT, "the targets of another run");
    wd_test_ok(wd_target_store_check_folder(path_to("written", ""), true, &err), &err);
    wd_test_ok(wd_folder_make(path_to("foreign", "text"), &err), &err);
    wd_test_ok(wd_target_store_check_folder(path_to("foreign", ""), false, &err), &err);
    wd_test_ok(wd_file_write(path_to("foreign", "letter.txt"), "x", 1, &err), &err);
    wd_test_refused(wd_target_store_check_folder(path_to("foreign", ""), false, &err), &err,
                    WD_INVALID_ARGUMENT, "expected a new or an empty folder, found 1 other files");
}

/* A folder that has become another run's meanwhile stays as it is. */
static void another_runs_targets_stay(void **state)
{
    (void)state;
    wd_err err;
    wd_target_writer *w;
    wd_trajectory_options other = trajectory;
    const wd_store_options options = {
        .folder = path_to("written", ""), .shape = shape, .prompt = prompts};
    other.seed = 6;
    wd_test_ok(wd__target_writer_open(&w, &options, &other, &err), &err);
    wd_test_ok(put(w, 0, &err), &err);
    wd_test_refused(wd__target_writer_flush(w, &err), &err, WD_MISMATCH, "those of another one");
    wd__target_writer_close(w);
    check_targets(path_to("written", ""), 25);
}

static void what_came_meanwhile_stays(void **state)
{
    (void)state;
    wd_err err;
    wd_target_writer *w = open_writer(path_to("late", ""));
    wd_test_ok(put(w, 0, &err), &err);
    wd_test_ok(wd_folder_make(path_to("late", ""), &err), &err);
    wd_test_ok(wd_file_write(path_to("late", "prompts.jsonl"), "x", 1, &err), &err);
    wd_test_refused(wd__target_writer_flush(w, &err), &err, WD_INVALID_ARGUMENT,
                    "another run has begun to write targets there");
    wd__target_writer_close(w);
    assert_false(wd_path_exists(path_to("late", "targets.json")));
}

static void targets_that_are_not_finite_are_not_stored(void **state)
{
    (void)state;
    wd_err err;
    uint16_t values[2 * COUNT] = {0};
    wd_target_writer *w = open_writer(path_to("infinite", ""));
    wd_test_ok(wd__target_writer_put(w, values, &err), &err);
    values[2 * COUNT - 1] = 0x7f80;
    wd_test_refused(wd__target_writer_put(w, values, &err), &err, WD_NOT_FINITE, "target 1");
    wd__target_writer_close(w);
    assert_false(wd_path_exists(path_to("infinite", "")));
}

static void a_folder_that_cannot_be_written_is_an_error(void **state)
{
    (void)state;
    wd_err err;
    wd_test_ok(wd_file_write(path_to("file", ""), "x", 1, &err), &err);
    wd_target_writer *w = open_writer(path_to("file", "below"));
    wd_test_ok(put(w, 0, &err), &err);
    wd_test_refused(wd__target_writer_flush(w, &err), &err, WD_IO, "file");
    wd__target_writer_close(w);
}

static void missing_files_are_named(void **state)
{
    (void)state;
    const char *folder = path_to("gap", "");
    check_refused(path_to("nowhere", ""), WD_NOT_FOUND, "found no such folder");
    check_refused(wd_test_folder(), WD_NOT_FOUND, "found none in it");
    write_targets(folder, 0, 9, 3);
    assert_int_equal(unlink(path_to("gap", "targets-000000000003.safetensors")), 0);
    check_refused(folder, WD_BAD_FORMAT,
                  "begins with target 3, found targets-000000000006.safetensors");
    assert_int_equal(unlink(path_to("gap", "targets-000000000000.safetensors")), 0);
    assert_int_equal(unlink(path_to("gap", "targets-000000000006.safetensors")), 0);
    check_refused(folder, WD_BAD_FORMAT, "found none");
}

static void a_file_that_was_cut_is_refused(void **state)
{
    (void)state;
    const char *folder = path_to("cut", "");
    struct stat is;
    write_targets(folder, 0, 6, 3);
    const char *path = path_to("cut", "targets-000000000003.safetensors");
    assert_int_equal(stat(path, &is), 0);
    assert_int_equal(truncate(path, is.st_size - 4), 0);
    check_refused(folder, WD_BAD_FORMAT, "targets-000000000003.safetensors");
}

/* A file of one target with other tensors than a store's. */
static void write_strange(const char *path, const wd_safetensors_item *targets, float sigma,
                          int64_t prompt, bool checked)
{
    wd_err err;
    wd_safetensors_writer *w;
    uint16_t values[2 * COUNT] = {0};
    uint8_t checksum[8] = {0};
    const float timestep = 999;
    const wd_safetensors_item item[] = {{"prompt", WD_I64, 1, {1}},
                                        {"sigma", WD_F32, 1, {1}},
                                        {"timestep", WD_F32, 1, {1}},
                                        *targets,
                                        {"checksum", WD_U8, 2, {1, 8}}};
    if (checked) wd__store_checksum(checksum, values, COUNT, sigma, timestep, prompt);
    wd_test_ok(wd_safetensors_create(&w, path, item, 5, NULL, &err), &err);
    wd_test_ok(wd_safetensors_put(w, &prompt, sizeof prompt, &err), &err);
    wd_test_ok(wd_safetensors_put(w, &sigma, sizeof sigma, &err), &err);
    wd_test_ok(wd_safetensors_put(w, &timestep, sizeof timestep, &err), &err);
    wd_test_ok(wd_safetensors_put(w, values, sizeof values, &err), &err);
    wd_test_ok(wd_safetensors_put(w, checksum, sizeof checksum, &err), &err);
    wd_test_ok(wd_safetensors_finish(w, &err), &err);
}

static void strange_tensors_are_refused(void **state)
{
    (void)state;
    const char *folder = path_to("strange", "");
    const char *path = path_to("strange", "targets-000000000000.safetensors");
    const wd_safetensors_item others[] = {{"targets", WD_BF16, 5, {1, 2, 2, 3, 2}},
                                          {"targets", WD_F16, 5, {1, 2, 2, 2, 3}},
                                          {"targets", WD_BF16, 4, {1, 2, 2, 6}},
                                          {"target", WD_BF16, 5, {1, 2, 2, 2, 3}}};
    write_targets(folder, 0, 1, 1);
    for (int i = 0; i < 4; i++) {
        write_strange(path, &others[i], 1, 0, true);
        check_refused(folder, WD_BAD_FORMAT, "expected targets BF16 [n, 2, 2, 2, 3]");
    }
}

static void strange_values_are_refused(void **state)
{
    (void)state;
    const char *folder = path_to("strange", "");
    const char *path = path_to("strange", "targets-000000000000.safetensors");
    const wd_safetensors_item targets = {"targets", WD_BF16, 5, {1, 2, 2, 2, 3}};
    const int64_t prompt = wd__trajectory_target(&trajectory, 0).prompt;
    const struct {
        float sigma;
        int64_t prompt;
        bool checked;
        const char *text;
    } cases[] = {{1, prompt, false, "its checksum differs"},
                 {0, prompt, true, "its sigma is not in (0, 1]"},
                 {NAN, prompt, true, "its sigma is not in (0, 1]"},
                 {1.5f, prompt, true, "its sigma is not in (0, 1]"},
                 {0.5f, prompt, true, "not those of the trajectories"},
                 {1, PROMPTS, true, "there is no such prompt"},
                 {1, -1, true, "there is no such prompt"},
                 {1, (prompt + 1) % PROMPTS, true, "not those of the trajectories"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_err err;
        wd_target_store *s;
        write_strange(path, &targets, cases[i].sigma, cases[i].prompt, cases[i].checked);
        wd_test_ok(wd_target_store_open(&s, folder, &err), &err);
        wd_test_refused(wd__target_store_check(s, 0, &err), &err, WD_BAD_FORMAT, cases[i].text);
        wd_test_refused(wd__target_store_check(s, 0, &err), &err, WD_BAD_FORMAT, cases[i].text);
        wd_target_store_close(s);
    }
}

/* targets.json with one value changed: of `part`, or with "" of the whole. */
static void check_manifest(const char *part, const char *key, json_t *value, wd_status expected,
                           const char *text)
{
    wd_err err;
    json_t *json;
    const char *path = path_to("same", "targets.json");
    wd_test_ok(wd_json_load(&json, path, &err), &err);
    json_t *whole = json_deep_copy(json), *at = *part ? json_object_get(json, part) : json;
    json_object_set_new(at, key, value);
    wd_test_ok(wd_json_save(json, path, &err), &err);
    check_refused(path_to("same", ""), expected, text);
    wd_test_ok(wd_json_save(whole, path, &err), &err);
    json_decref(json);
    json_decref(whole);
}

static void strange_manifests_are_refused(void **state)
{
    (void)state;
    const char *t = "trajectory";
    check_manifest("", "format", json_string("wandistiller targets 9"), WD_MISMATCH,
                   "another version");
    check_manifest("", "latents", json_pack("[i, i]", 2, 2), WD_BAD_FORMAT, "latents");
    check_manifest("", "latents", json_pack("[i, i, i]", 2, 0, 3), WD_BAD_FORMAT, "latents");
    check_manifest("", "latents", json_pack("[i, i, i]", 2, 3, 2), WD_BAD_FORMAT,
                   "expected targets BF16 [n, 2, 2, 3, 2]");
    check_manifest("", t, json_integer(3), WD_BAD_FORMAT, "expected an object");
    check_manifest(t, "trajectories", json_integer(0), WD_BAD_FORMAT, "trajectories");
    check_manifest(t, "prompts", json_integer(0), WD_BAD_FORMAT, "prompts");
    check_manifest(t, "chords", json_integer(3), WD_BAD_FORMAT, "no run has such ones");
    check_manifest(t, "student_steps", json_integer(0), WD_BAD_FORMAT, "no run has such ones");
    check_manifest(t, "diversity_gain", json_real(0.5), WD_BAD_FORMAT, "no run has such ones");
    check_manifest(t, "diversity_gain", json_real(-1), WD_BAD_FORMAT, "diversity_gain");
    check_manifest(t, "flow_shift", json_real(0), WD_BAD_FORMAT, "flow_shift");
    check_manifest(t, "trajectory_sigmas", json_pack("[f, f]", 1.0, 0.5), WD_BAD_FORMAT,
                   "4 numbers that fall");
    check_manifest(t, "trajectory_sigmas", json_pack("[f, f, f, f]", 1.0, 0.5, 0.6, 0.1),
                   WD_BAD_FORMAT, "4 numbers that fall");
    check_targets(path_to("same", ""), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(the_store_says_what_it_is_of),
        cmocka_unit_test(prompts_can_be_read_again),
        cmocka_unit_test(a_full_file_is_written),
        cmocka_unit_test(a_resumed_run_goes_on_in_its_folder),
        cmocka_unit_test(a_store_that_is_too_short_is_left_as_it_is),
        cmocka_unit_test(folders_of_others_are_refused),
        cmocka_unit_test(another_runs_targets_stay),
        cmocka_unit_test(what_came_meanwhile_stays),
        cmocka_unit_test(targets_that_are_not_finite_are_not_stored),
        cmocka_unit_test(a_folder_that_cannot_be_written_is_an_error),
        cmocka_unit_test(missing_files_are_named),
        cmocka_unit_test(a_file_that_was_cut_is_refused),
        cmocka_unit_test(strange_tensors_are_refused),
        cmocka_unit_test(strange_values_are_refused),
        cmocka_unit_test(strange_manifests_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
