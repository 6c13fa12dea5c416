/* A model's file that is cut short while a job uses it: the job names the file and ends as after
 * any other failed read, not by a signal without a word. */
#include "runs.h"

static wd_program program;

/* Copies one folder of wan-tiny's. */
static void copy_folder(const char *root, const char *folder, const char *const *names)
{
    char to[WD_PATH_MAX], from[WD_PATH_MAX];
    wd_err err;
    for (; *names; names++) {
        snprintf(to, sizeof to, "%s/%s", root, folder);
        wd_test_ok(wd_folder_make(to, &err), &err);
        snprintf(to, sizeof to, "%s/%s/%s", root, folder, *names);
        snprintf(from, sizeof from, "%s/%s/%s", teacher, folder, *names);
        wd_test_ok(wd_file_copy(to, from, &err), &err);
    }
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define WEIGHTS "diffusion_pytorch_model.safetensors"

static const char *copy_teacher(void)
{
    static const char *const transformers[] = {"transformer", "transformer_2"};
    const char *root = wd_test_path("teacher");
    for (int i = 0; i < 2; i++) copy_folder(root, transformers[i], NAMES("config.json", WEIGHTS));
    copy_folder(root, "vae", NAMES("config.json", WEIGHTS));
    copy_folder(root, "text_encoder", NAMES("config.json", "model.safetensors"));
    copy_folder(root, "tokenizer", NAMES("spiece.model", "tokenizer_config.json"));
    copy_folder(root, "scheduler", NAMES("scheduler_config.json"));
    copy_folder(root, ".", NAMES("model_index.json"));
    return root;
}

static void a_file_cut_short_is_named(void **state)
{
    (void)state;
    const char *root = copy_teacher(), *out = wd_test_path("out");
    const char *cut = wd_test_path("teacher/transformer_2/" WEIGHTS);
    /* weights in the files' own type are used where they are mapped; many threads read them at once
     * and fail at once */
    const char *arguments[] = {"train",
                               "--teacher_path",
                               root,
                               "--data_path",
                               wd_test_path("prompts.txt"),
                               "--student_config",
                               wd_test_path("student.json"),
                               "--output_dir",
                               out,
                               "--num_steps",
                               "1000000",
                               "--teacher_dtype",
                               "bfloat16",
                               "--devices",
                               "cpu",
                               "--height",
                               "32",
                               "--width",
                               "32",
                               "--num_threads",
                               "16",
                               NULL};
    const pid_t pid = wd_program_start(arguments);
    wait_for_steps(wd_test_path("out/metrics.jsonl"));
    assert_int_equal(truncate(cut, 4096), 0);
    wd_program_wait(&program, pid);
    wd_program_refused(&program, WD_IO, cut);
    assert_non_null(strstr(program.err, "became shorter while it was in use"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_cut_short_is_named),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
