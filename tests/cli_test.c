/* The command line itself: help, versions, exit codes, options from everywhere. */
#include "program.h"

#include "wandistiller.h"

static wd_program program;

static void assert_prints(const char *text)
{
    wd_program_succeeded(&program);
    if (!strstr(program.out, text)) fail_msg("\"%s\" lacks \"%s\"", program.out, text);
}

static void help_is_there(void **state)
{
    (void)state;
    wd_program_run(&program, "--version");
    assert_prints("wandistiller 0.");
    assert_prints("\nGPU kernels: ");
    assert_prints("\nMPI: ");
    assert_prints("\nfonts of the system: ");
    wd_program_run(&program, "--help");
    assert_prints("distil a student from a teacher");
    wd_program_run(&program, "train", "--help", "all");
    assert_prints("--teacher_path PATH");
    assert_prints("--mixed_precision [no|bf16|fp16]");
    assert_prints("(default: 64)");
    wd_program_run(&program, "help", "inspect");
    assert_prints("usage: wandistiller inspect PATH");
}

/* Whether the text has `begin`, the name and one of the characters `ends`, one behind another. */
static bool has_name(const char *text, const char *begin, const char *name, const char *ends)
{
    char whole[128];
    snprintf(whole, sizeof whole, "%s%s", begin, name);
    for (const char *at = text; (at = strstr(at, whole)); at++)
        if (at[strlen(whole)] && strchr(ends, at[strlen(whole)])) return true;
    return false;
}

static void every_option_is_in_manual_and_completions(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *begin, *ends; /* of the name of an option */
    } texts[] = {{"--man", "\\fB\\-\\-", "\\"}, {"--bash", "--", " \""}, {"--zsh", "'--", "["}};
    for (int k = 0; k < 3; k++) {
        wd_program_run(&program, "help", texts[k].kind);
        wd_program_succeeded(&program);
        for (int job = 0; job <= WD_JOB_COMMON; job++) {
            int64_t count;
            const wd_option *table = wd_options_of((wd_job)job, &count);
            for (int64_t i = 0; i < count; i++)
                if (!(table[i].flags & WD_OPTION_LEGACY) &&
                    !has_name(program.out, texts[k].begin, table[i].name, texts[k].ends))
                    fail_msg("help %s lacks --%s", texts[k].kind, table[i].name);
        }
    }
}

/* As libgomp says when it is loaded; the last time, if the program begins anew. */
static int threads_of_openmp(void)
{
    wd_program_run(&program, "--version");
    const char *name = "OMP_NUM_THREADS = '", *at = program.err, *last = NULL;
    for (; (at = strstr(at, name)); at += strlen(name)) last = at + strlen(name);
    return last ? atoi(last) : 0;
}

static void bound_threads_are_as_many(void **state)
{
    (void)state;
    char *spin = getenv("GOMP_SPINCOUNT") ? strdup(getenv("GOMP_SPINCOUNT")) : NULL;
    setenv("OMP_DISPLAY_ENV", "true", 1);
    int threads = threads_of_openmp();
    assert_true(threads > 0); /* it has said so */
    unsetenv("GOMP_SPINCOUNT");
    setenv("OMP_PROC_BIND", "true", 1);
    int bound = threads_of_openmp();
    unsetenv("OMP_PROC_BIND");
    unsetenv("OMP_DISPLAY_ENV");
    if (spin) setenv("GOMP_SPINCOUNT", spin, 1);
    free(spin);
    assert_int_equal(bound, threads);
}

static void wrong_words_are_refused(void **state)
{
    (void)state;
    wd_program_run(&program, "tarin");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "no command \"tarin\"; is train meant?");
    wd_program_run(&program, "traim");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "no command \"traim\"; is train meant?");
    wd_program_run(&program, "help", "samples");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "is sample meant?");
    wd_program_run(&program, "draw-me-a-picture");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "`wandistiller --help` lists");
    wd_program_run(&program, "train", "--teacher_pth", "x");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "is --teacher_path meant?");
    wd_program_run(&program, "bench", "--only", "speed");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "no case has \"speed\" in its name");
    wd_program_run(&program, "train", "--teacher", "x");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "is --teacher_path meant?");
    wd_program_run(&program, "train", "--data", "x");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "is --data_path meant?");
    wd_program_run(&program, "train", "stray");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "unexpected argument \"stray\"");
    wd_program_run(&program, "train", "--lr");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--lr: expected X behind it, found nothing");
    wd_program_run(&program, "train", "--data_path", "x");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "train needs --teacher_path");
    wd_program_run(&program, "inspect");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "inspect needs --path");
    wd_program_run(&program, "inspect", "no/such/thing");
    wd_program_refused(&program, WD_NOT_FOUND, "no/such/thing");
}

/* An option whose value may be left out takes the next word unless that is a name; a list takes all
 * words up to the next name. What was read is seen by the first value that is refused. */
static void values_go_to_their_options(void **state)
{
    (void)state;
    wd_program_run(&program, "train", "--mixed_precision", "--lr", "2");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--lr: expected a number from 0 to 1");
    wd_program_run(&program, "train", "--mixed_precision", "fp8");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "expected no, bf16 or fp16, found \"fp8\"");
    wd_program_run(&program, "train", "--save_samples", "--sample_prompts", "a", "b", "--lr=2");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--lr: expected a number from 0 to 1");
    wd_program_run(&program, "train", "--negative_prompt", "--lr", "--lr", "2");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--lr: expected a number from 0 to 1");
    wd_program_run(&program, "train", "--save_samples=maybe");
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "--save_samples: expected auto, true or false");
    wd_program_run(&program, "train", "--sample_prompts", "--lr", "1");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--sample_prompts: expected TEXT ...");
    wd_program_run(&program, "inspect", "--", "--no-such-file");
    wd_program_refused(&program, WD_NOT_FOUND, "--no-such-file");
}

static void the_command_line_wins_over_a_file(void **state)
{
    (void)state;
    const char *path = wd_test_path("config.json");
    static const char json[] = "{\"steps\": 0, \"component\": \"text_encoder\"}";
    wd_err err;
    wd_test_ok(wd_file_write(path, json, sizeof json - 1, &err), &err);
    wd_program_run(&program, "forward", "--config", path, "--component", "unet");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "config.json: forward has no option --steps");
    wd_test_ok(wd_file_write(path, json + 0, 0, &err), &err);
    wd_program_run(&program, "forward", "--config", path);
    wd_program_refused(&program, WD_BAD_FORMAT, "config.json");
    wd_test_ok(wd_file_write(path, "{\"out\":\"a\",\"component\":\"vae_decoder\"}", 37, &err),
               &err);
    wd_program_run(&program, "forward", "--component", "unet", "--config", path);
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "found \"unet\"");
    wd_program_run(&program, "forward", "--config", path);
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "forward needs --model");
}

/* Of one source; the command line may still say other than a file. */
static void contradictions_are_refused(void **state)
{
    (void)state;
    static const char json[] = "{\"teacher_device_strategy\": \"gpu0\", \"teacher_rank\": 1}";
    const char *path = wd_test_path("gpu0.json");
    wd_err err;
    wd_test_ok(wd_file_write(path, json, sizeof json - 1, &err), &err);
    wd_program_run(&program, "train", "--teacher-on-cpu", "--balance_teacher");
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "--teacher_on_cpu (cpu) and --balance_teacher (balanced)");
    wd_program_run(&program, "plan", "--teacher_rank", "0", "--teacher_device_strategy=gpu");
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "--teacher_device_strategy (gpu) and --teacher_rank");
    wd_program_run(&program, "plan", "--teacher_device_map", "m.json", "--teacher_on_cpu");
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "--teacher_on_cpu (cpu) and --teacher_device_map");
    wd_program_run(&program, "plan", "--config", path, "--teacher_rank=2", "--teacher_preset",
                   "wan2.1-1.3b", "--devices", "sim:2x80GiB@link=50GB/s,compute=500TFLOP/s");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "teacher_rank: 2 is no device");
    wd_program_run(&program, "plan", "--config", path, "--teacher_on_cpu", "--teacher_preset",
                   "wan2.1-1.3b", "--devices", "sim:2x80GiB@link=50GB/s,compute=500TFLOP/s");
    assert_prints("\ncpu, by what it is");
}

/* --help is short where there are many options, and --help all names every one. */
static void help_is_short_or_whole(void **state)
{
    (void)state;
    static const char *const jobs[] = {"train", "plan"};
    for (int i = 0; i < 2; i++) {
        int64_t count;
        int lines = 0;
        const wd_option *table = wd_options_of(i ? WD_JOB_PLAN : WD_JOB_TRAIN, &count);
        wd_program_run(&program, jobs[i], "--help");
        wd_program_succeeded(&program);
        for (const char *c = program.out; *c; c++) lines += *c == '\n';
        assert_in_range(lines, 30, 46);
        assert_prints("--teacher_path");
        assert_prints("--help all");
        assert_null(strstr(program.out, "--adam_beta1"));
        wd_program_run(&program, jobs[i], "--help", "all");
        wd_program_succeeded(&program);
        for (int64_t k = 0; k < count; k++)
            if (!has_name(program.out, "--", table[k].name, " \n"))
                fail_msg("%s --help all lacks --%s", jobs[i], table[k].name);
        assert_prints("Short for --teacher_device_strategy offload");
        wd_program_run(&program, "help", jobs[i], "all");
        wd_program_succeeded(&program);
        assert_prints("--adam_beta1");
    }
}

/* A reader that is gone, as `head -1` is, is no failure. */
static void a_reader_may_leave(void **state)
{
    (void)state;
    int ends[2], how;
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    const pid_t child = fork();
    if (!child) {
        signal(SIGPIPE, SIG_IGN);
        dup2(ends[1], STDOUT_FILENO);
        execl(WD_PROGRAM, WD_PROGRAM, "help", "--man", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_is_there),
        cmocka_unit_test(help_is_short_or_whole),
        cmocka_unit_test(a_reader_may_leave),
        cmocka_unit_test(every_option_is_in_manual_and_completions),
        cmocka_unit_test(bound_threads_are_as_many),
        cmocka_unit_test(wrong_words_are_refused),
        cmocka_unit_test(values_go_to_their_options),
        cmocka_unit_test(the_command_line_wins_over_a_file),
        cmocka_unit_test(contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
