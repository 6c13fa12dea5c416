/* What several ranks train is what one rank trains, and they send one another what docs/ranks.md
 * says. */
#include "loras.h"
#include "ranks.h"

#include "io/json/json.h"

static double mean_loss(const json_t *rows, size_t first, size_t end)
{
    double sum = 0;
    for (size_t i = first; i < end; i++)
        sum += json_real_value(json_object_get(json_array_get(rows, i), "loss"));
    return sum / (double)(end - first);
}

static void two_ranks_train_one_student(void **state)
{
    (void)state;
    const char *out = wd_test_path("two");
    run_ranks(MPIRUN("2", RUN(out), "--distributed"));
    wd_program_succeeded(&program);
    json_t *rows = metrics(out);
    assert_int_equal(json_array_size(rows), 40);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 39), "samples")),
                     40 * 2 * 2);
    const double before = mean_loss(rows, 0, 10), after = mean_loss(rows, 30, 40);
    if (!(after < 0.9 * before)) fail_msg("loss was %g and is %g", before, after);
    json_decref(rows);
}

static void one_of_them_writes_and_speaks(void **state)
{
    (void)state;
    const char *out = wd_test_path("two");
    assert_int_equal(count_files(out, "events."), 1);
    assert_int_equal(count_files(wd_test_path("two/checkpoints"), "step-"), 1);
    assert_false(wd_path_exists(wd_test_path("two/checkpoints.1")));
    assert_int_equal(count(program.err, "done after 40 steps"), 1);
    assert_int_equal(count(program.err, "memory:"), 1);
    assert_int_equal(count(program.err, "[Rank"), 0);
}

/* The same samples in each step: as many of one rank as of two together. */
static void one_rank_sees_the_same_samples(void **state)
{
    (void)state;
    const char *out = wd_test_path("one");
    wd_program_run(&program, RUN(out), "--gradient_accumulation_steps", "2");
    wd_program_succeeded(&program);
    json_t *one = metrics(out), *two = metrics(wd_test_path("two"));
    assert_int_equal(json_array_size(one), json_array_size(two));
    for (size_t i = 0; i < json_array_size(one); i++) {
        const double a = mean_loss(one, i, i + 1), b = mean_loss(two, i, i + 1);
        if (!(a - b < 1e-3 * a && b - a < 1e-3 * a))
            fail_msg("step %zu: loss %.9g of one rank, %.9g of two", i + 1, a, b);
    }
    json_decref(one);
    json_decref(two);
}

static void ranks_are_started(void **state)
{
    (void)state;
    const char *out = wd_test_path("started");
    wd_program_run(&program, RUN(out), "--nproc_per_node", "2");
    wd_program_succeeded(&program);
    assert_same_weights(out, wd_test_path("two"));
    out = wd_test_path("devices");
    wd_program_run(&program, RUN(out), "--multi_gpu", "--devices", "sim:2x64MiB", "--local_rank",
                   "0");
    wd_program_succeeded(&program);
    assert_same_weights(out, wd_test_path("two"));
}

/* mpirun hands no environment on to other hosts by itself. */
static void threads_may_be_said_to_some(void **state)
{
    (void)state;
    const char *out = wd_test_path("threads");
    run_ranks((const char *const[]){"--oversubscribe",
                                    "--bind-to",
                                    "none",
                                    "-n",
                                    "1",
                                    "env",
                                    "OMP_NUM_THREADS=1",
                                    WD_PROGRAM,
                                    RUN(out),
                                    "--distributed",
                                    ":",
                                    "-n",
                                    "1",
                                    "env",
                                    "-u",
                                    "OMP_NUM_THREADS",
                                    WD_PROGRAM,
                                    RUN(out),
                                    "--distributed",
                                    NULL});
    wd_program_succeeded(&program);
    assert_same_weights(out, wd_test_path("two"));
}

static json_t *run_json(const char *run)
{
    char path[WD_PATH_MAX];
    json_t *json;
    wd_err err;
    wd_test_ok(wd_path_join(path, run, "run.json", &err), &err);
    wd_test_ok(wd_json_load(&json, path, &err), &err);
    return json;
}

/* One host's processor has fewer instructions than the other's: both use what both have. */
static void ranks_agree_on_their_kernels(void **state)
{
    (void)state;
    const char *out = wd_test_path("unlike"), *lowest = wd_test_path("lowest");
    run_ranks((const char *const[]){
        "-n", "1", "--oversubscribe", "--bind-to", "none", WD_PROGRAM, RUN(out), "--distributed",
        ":", "-n", "1", "env", "WD_CPU_ISA=generic", WD_PROGRAM, RUN(out), "--distributed", NULL});
    wd_program_succeeded(&program);
    json_t *run = run_json(out);
    const char *kernels = json_string_value(json_object_get(run, "kernels"));
    assert_non_null(kernels);
    assert_memory_equal(kernels, "generic, oneDNN ", strlen("generic, oneDNN "));
    json_decref(run);
    setenv("WD_CPU_ISA", "generic", 1);
    run_ranks(MPIRUN("2", RUN(lowest), "--distributed"));
    unsetenv("WD_CPU_ISA");
    wd_program_succeeded(&program);
    assert_same_weights(out, lowest);
}

static void stopped_ranks_go_on_bit_for_bit(void **state)
{
    (void)state;
    const char *out = wd_test_path("parts");
    wd_program_run(&program, RUN(out), "--nproc_per_node", "2", "--stop_at_step", "7", "--resume");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN(out), "--nproc_per_node", "2", "--resume");
    wd_program_succeeded(&program);
    assert_same_weights(out, wd_test_path("two"));
}

/* 12 steps of 8 samples, in the order of the micro-batches. */
static void run_in_order(const char *out, const char *ranks, const char *accumulation,
                         const char *stop_at_step, const char *more)
{
    wd_program_run(&program, RUN(wd_test_path(out)), "--nproc_per_node", ranks,
                   "--gradient_accumulation_steps", accumulation, "--deterministic_reduce",
                   "--num_steps", "12", "--resume", "--stop_at_step", stop_at_step, more);
    wd_program_succeeded(&program);
}

/* In bits the same by the same order of additions, however many ranks there are. */
static void ranks_change_nothing(void **state)
{
    (void)state;
    run_in_order("ordered-1", "1", "4", "0", NULL);
    run_in_order("ordered-2", "2", "2", "0", NULL);
    run_in_order("ordered-4", "4", "1", "0", NULL);
    assert_same_weights(wd_test_path("ordered-1"), wd_test_path("ordered-2"));
    assert_same_weights(wd_test_path("ordered-1"), wd_test_path("ordered-4"));
}

/* Wherever the teacher lives: each rank's own, one rank's, or all ranks' together. */
static void strategies_change_nothing(void **state)
{
    (void)state;
    static const char *const places[][2] = {
        {"gpu", "-1"}, {"gpu0", "1"}, {"balanced", "-1"}, {"offload", "-1"}, {"disk", "-1"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *out = wd_test_path(places[i][0]), *ranks = i % 2 ? "2" : "4";
        wd_program_run(&program, RUN(out), "--nproc_per_node", ranks,
                       "--gradient_accumulation_steps", i % 2 ? "2" : "1", "--deterministic_reduce",
                       "--num_steps", "12", "--teacher_device_strategy", places[i][0],
                       "--teacher_rank", places[i][1], "--devices", "sim:4x64MiB");
        wd_program_succeeded(&program);
        assert_same_weights(out, wd_test_path("ordered-1"));
    }
}

/* Where the student starts from another model, its blocks and its agreement with the teacher are
 * the same, also of ranks that share its weights. */
static void ranks_have_the_same_start(void **state)
{
    (void)state;
    static const char three[] = "{\"depth\": 3}";
    static const char says[] = "before the first step the student agrees";
    const char *file = wd_test_path("three.json");
    char of_one[256];
    wd_err err;
    wd_test_ok(wd_file_write(file, three, sizeof three - 1, &err), &err);
    wd_program_run(&program, RUN(wd_test_path("start-1")), "--student_config", file,
                   "--init_student", teacher, "--gradient_accumulation_steps", "2",
                   "--deterministic_reduce", "--num_steps", "2");
    wd_program_succeeded(&program);
    const char *line = strstr(program.err, says);
    assert_non_null(line);
    snprintf(of_one, sizeof of_one, "%.*s", (int)strcspn(line, "\n"), line);
    wd_program_run(&program, RUN(wd_test_path("start-2")), "--student_config", file,
                   "--init_student", teacher, "--nproc_per_node", "2", "--shard_optimizer",
                   "--deterministic_reduce", "--num_steps", "2");
    wd_program_succeeded(&program);
    assert_int_equal(count(program.err, of_one), 1);
    assert_same_weights(wd_test_path("start-1"), wd_test_path("start-2"));
}

static void a_run_goes_on_with_other_ranks(void **state)
{
    (void)state;
    run_in_order("others", "2", "2", "4", NULL);
    run_in_order("others", "1", "4", "7", NULL);
    run_in_order("others", "4", "1", "0", NULL);
    assert_same_weights(wd_test_path("ordered-1"), wd_test_path("others"));
}

/* Each keeps its share of the optimizer's state; one alone goes on with all of it. */
static void a_student_in_shares_is_the_same(void **state)
{
    (void)state;
    const char *out = wd_test_path("shares");
    wd_program_run(&program, RUN(out), "--nproc_per_node", "2", "--shard_optimizer");
    wd_program_succeeded(&program);
    assert_same_weights(out, wd_test_path("two"));
    run_in_order("shares-others", "2", "2", "5", "--shard_optimizer");
    run_in_order("shares-others", "1", "4", "9", "--shard_optimizer=false");
    run_in_order("shares-others", "4", "1", "0", "--shard_optimizer");
    assert_same_weights(wd_test_path("ordered-1"), wd_test_path("shares-others"));
}

/* 3 prompts, 4 samples a step. */
static void an_epoch_is_of_all_ranks(void **state)
{
    (void)state;
    const char *out = wd_test_path("epochs");
    wd_program_run(&program, RUN(out), "--nproc_per_node", "2", "--num_steps", "0", "--num_epochs",
                   "5");
    wd_program_succeeded(&program);
    json_t *rows = metrics(out);
    assert_int_equal(json_array_size(rows), 5);
    json_decref(rows);
}

/* As on two machines that have no file system in common: the second writes prompt embeddings, and
 * nothing else, and has no checkpoint. */
static void machines_may_have_folders_of_their_own(void **state)
{
    (void)state;
    const char *first = wd_test_path("first"), *second = wd_test_path("second");
    const char *const *all =
        MPIRUN("1", RUN(first), "--distributed", "--num_steps", "12", "--resume", ":", "-n", "1",
               WD_PROGRAM, RUN(second), "--distributed", "--num_steps", "12", "--resume",
               "--cache_dir", wd_test_path("first/cache"));
    run_ranks(all);
    wd_program_succeeded(&program);
    assert_true(wd_path_exists(wd_test_path("first/model_index.json")));
    assert_false(wd_path_exists(second));
    run_ranks(all);
    refused(WD_MISMATCH, "differ in the checkpoint that they find: step-00000012 and none");
}

/* What --profile_memory says that all ranks have sent on a lane. */
static int64_t sent(const char *lane)
{
    char what[64];
    snprintf(what, sizeof what, "sent to other ranks: %-11s ", lane);
    const char *found = strstr(program.err, what);
    if (!found) fail_msg("no \"%s\" in %s", what, program.err);
    return strtoll(found + strlen(what), NULL, 10);
}

/* Targets that were made, of "done after 4 steps, 12 targets". */
static int64_t targets_made(void)
{
    long long targets = -1;
    const char *found = strstr(program.err, "done after ");
    if (!found || sscanf(found, "done after %*d steps, %lld targets", &targets) != 1)
        fail_msg("not done: %s", program.err);
    return targets;
}

static int64_t gradient_bytes(const json_t *run)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(json_object_get(run, "memory"), "items"), i, item)
    {
        if (!strcmp(json_string_value(json_object_get(item, "name")), "student gradients"))
            return json_integer_value(json_object_get(item, "bytes"));
    }
    fail_msg("no gradients");
    return 0;
}

/* Of all ranks together: those of docs/ranks.md. */
static void bytes_sent_are_those_of_the_formula(void **state)
{
    (void)state;
    enum { STEPS = 4, ROUNDS = 2, LATENT_BYTES = 16 * 4 * 4 * 4 };
    for (int i = 0; i < 3; i++) {
        const int ranks = i ? 3 : 2;
        const bool ordered = i == 2;
        const char *out = wd_test_path(i == 0 ? "sent-2" : ordered ? "sent-3-ordered" : "sent-3");
        wd_program_run(&program, RUN(out), "--nproc_per_node", ranks == 3 ? "3" : "2",
                       "--num_steps", "4", "--gradient_accumulation_steps", "2", "--profile_memory",
                       ordered ? "--deterministic_reduce" : "--profile_memory");
        wd_program_succeeded(&program);
        json_t *run = run_json(out);
        const int64_t bytes = gradient_bytes(run);
        assert_int_equal(sent("gradients"),
                         STEPS * (ordered ? ROUNDS + 1 : 2) * (ranks - 1) * bytes);
        assert_int_equal(sent("targets"), targets_made() * LATENT_BYTES * (ranks - 1));
        assert_int_equal(sent("activations"), 0);
        json_decref(run);
    }
}

/* From the first half of a teacher to the second: rows of image tokens, time and text. */
static void activations_sent_are_those_of_the_formula(void **state)
{
    (void)state;
    enum { TOKENS = 4, TIME = 7, ROW_BYTES = 160 * 4 };
    for (int guided = 0; guided < 2; guided++) {
        const char *out = wd_test_path(guided ? "sent-guided" : "sent-unguided");
        wd_program_run(&program, RUN(out), "--nproc_per_node", "2", "--num_steps", "4",
                       "--profile_memory", "--devices", "sim:2x64MiB", "--teacher_device_strategy",
                       "balanced", "--guidance_scale", guided ? "2" : "1", "--teacher_micro_batch",
                       guided ? "1" : "3");
        wd_program_succeeded(&program);
        json_t *run = run_json(out);
        const int64_t text = json_integer_value(json_object_get(run, "text_tokens"));
        const int64_t rows = (guided ? 2 : 1) * (TOKENS + TIME + text);
        assert_int_equal(sent("activations"), targets_made() * rows * ROW_BYTES);
        json_decref(run);
        /* each rank says of each device what it has there of the teacher, of which each has half */
        const char *second = strstr(program.err, "rank 1: sim:0: planned ");
        assert_non_null(strstr(program.err, "rank 1: host memory: planned "));
        assert_non_null(second);
        assert_non_null(memmem(second, strcspn(second, "\n"), ", teacher weights ", 18));
    }
}

/* The chords' first window comes in the place of a window of velocities, and a rank that had no
 * share in that one, and passed over its stages, has one in this. */
static void ranks_read_from_disk_in_both_phases(void **state)
{
    (void)state;
    wd_program_run(&program, RUN(wd_test_path("phases")), "--nproc_per_node", "4", "--num_threads",
                   "1", "--teacher_device_strategy", "disk", "--trajectories", "17",
                   "--trajectory_steps", "16", "--teacher_window", "16", "--recipe",
                   "velocity:39,chord:1", "--student_steps", "2", "--save_samples", "false",
                   "--step_timeout", "30");
    wd_program_succeeded(&program);
}

/* One rank of the host merges the teacher's LoRAs for all, and the student is that of one rank. */
static void loras_are_merged_once(void **state)
{
    (void)state;
    static const wd_test_lora lora[] = {
        {"lora_unet_blocks_0_self_attn_q.lora_down.weight", 2, {2, 160}, 0},
        {"lora_unet_blocks_0_self_attn_q.lora_up.weight", 2, {160, 2}, 0},
        {"lora_unet_blocks_0_self_attn_q.alpha", 0, {0}, 0.1f}};
    const char *file = wd_test_path("lora.safetensors"), *two = wd_test_path("lora-two");
    const char *one = wd_test_path("lora-one");
    wd_test_write_lora(file, lora, 3, WD_BF16, 3);
    run_ranks(MPIRUN("2", SMALL_RUN(two), "--num_steps", "2", "--deterministic_reduce",
                     "--teacher_lora", file, "--distributed", "--log_level", "info"));
    wd_program_succeeded(&program);
    assert_int_equal(count(program.err, "transformer: merged with "), 1);
    wd_program_run(&program, SMALL_RUN(one), "--num_steps", "2", "--deterministic_reduce",
                   "--gradient_accumulation_steps", "2", "--teacher_lora", file, "--log_level",
                   "info");
    wd_program_succeeded(&program);
    assert_int_equal(count(program.err, "transformer: merged with "), 0); /* it is in the cache */
    assert_same_weights(one, two);
}

/* Where ranks share the teacher, its velocities come to one of them, which need not be the one that
 * draws and validates: sheets, figures and the best student are those of one rank. */
static void a_shared_teacher_draws_and_validates(void **state)
{
    (void)state;
#define SHORT                                                                                      \
    "--num_steps", "4", "--save_samples", "true", "--sample_steps", "2", "--validation_prompts",   \
        "1", "--validation_interval", "2", "--keep_best", "--deterministic_reduce"
    static const char best[] = "best/transformer/diffusion_pytorch_model.safetensors";
    const char *alone = wd_test_path("alone"), *shared = wd_test_path("shared");
    wd_program_run(&program, RUN(alone), SHORT, "--gradient_accumulation_steps", "2");
    wd_program_succeeded(&program);
    run_ranks(MPIRUN("2", RUN(shared), SHORT, "--distributed", "--devices",
                     "sim:2x256MiB@link=1GB/s,compute=20GFLOP/s", "--teacher_device_strategy",
                     "balanced"));
    wd_program_succeeded(&program);
    json_t *x = metrics(alone), *y = metrics(shared);
    assert_true(json_is_number(json_object_get(json_array_get(x, 3), "validation_error")));
    assert_true(json_equal(x, y));
    json_decref(x);
    json_decref(y);
    assert_true(wd_test_pixels_equal(wd_test_path("alone/samples/step-00000004.png"),
                                     wd_test_path("shared/samples/step-00000004.png")));
    char path[2][WD_PATH_MAX], hash[2][33];
    wd_err err;
    wd_test_ok(wd_path_join(path[0], alone, best, &err), &err);
    wd_test_ok(wd_path_join(path[1], shared, best, &err), &err);
    for (int i = 0; i < 2; i++) wd_test_ok(wd_file_hash(hash[i], path[i], &err), &err);
    assert_string_equal(hash[0], hash[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_train_one_student),
        cmocka_unit_test(one_of_them_writes_and_speaks),
        cmocka_unit_test(one_rank_sees_the_same_samples),
        cmocka_unit_test(ranks_are_started),
        cmocka_unit_test(threads_may_be_said_to_some),
        cmocka_unit_test(ranks_agree_on_their_kernels),
        cmocka_unit_test(stopped_ranks_go_on_bit_for_bit),
        cmocka_unit_test(ranks_change_nothing),
        cmocka_unit_test(strategies_change_nothing),
        cmocka_unit_test(ranks_have_the_same_start),
        cmocka_unit_test(a_run_goes_on_with_other_ranks),
        cmocka_unit_test(a_student_in_shares_is_the_same),
        cmocka_unit_test(an_epoch_is_of_all_ranks),
        cmocka_unit_test(machines_may_have_folders_of_their_own),
        cmocka_unit_test(bytes_sent_are_those_of_the_formula),
        cmocka_unit_test(loras_are_merged_once),
        cmocka_unit_test(activations_sent_are_those_of_the_formula),
        cmocka_unit_test(ranks_read_from_disk_in_both_phases),
        cmocka_unit_test(a_shared_teacher_draws_and_validates),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
