/* The exported folder is a pipeline that we read back value for value; it replaces an older student
 * whole, and nothing else. */
#include "train/output/export.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/network/init.h"
#include "student_fixture.h"
#include "failing.h"

static wd_pipeline teacher;
static bench cpu;
static wd_params params; /* 2 blocks of wan-tiny, with an EMA of its own */

static int open_all(void **state)
{
    (void)state;
    wd_err err;
    cpu = bench_on(wd_device_open_guard, 1);
    wd_test_ok(wd_pipeline_open(&teacher, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    wd_dit_config config = teacher.dit;
    config.layers = 2;
    wd_test_ok(wd_params_open(&params, &config, WD_BF16, WD_PARAMS_WITH_EMA, cpu.device, &err),
               &err);
    wd_test_ok(wd_student_init(&params, &teacher, WD_COMPONENT_TRANSFORMER_2, cpu.queue, &err),
               &err);
    fill_buffer(&cpu, &params, WD_PARAMS_EMA, 3, 0.1f, 0);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    wd_params_close(&params);
    bench_close(&cpu);
    return 0;
}

static const char *new_folder(void)
{
    static char path[128];
    static int n;
    snprintf(path, sizeof path, "%s/%d", wd_test_folder(), n++);
    return path;
}

static void export_to(const char *folder, const wd_export_options *options)
{
    wd_err err;
    wd_test_ok(wd_export_student(folder, &params, &teacher, options, cpu.queue, &err), &err);
}

/* The folder's transformer holds `buffer` as `dtype`, islands F32. */
static void check_weights(const char *folder, wd_params_buffer buffer, wd_dtype dtype, int files)
{
    wd_err err;
    wd_pipeline p;
    wd_safetensors *set;
    wd_test_ok(wd_pipeline_open(&p, folder, &err), &err);
    assert_false(p.has[WD_COMPONENT_TRANSFORMER_2]);
    assert_true(p.boundary_ratio == 0);
    assert_int_equal(p.dit.layers, 2);
    wd_test_ok(wd_pipeline_open_weights(&set, &p, WD_COMPONENT_TRANSFORMER, &err), &err);
    assert_int_equal(wd_safetensors_count(set), params.table.count);
    assert_int_equal(wd_safetensors_file_count(set), files);
    assert_string_equal(wd_safetensors_metadata(set, "format"), "pt");
    for (int64_t line = 0; line < params.table.count; line++) {
        const wd_tensor_spec *spec = &params.table.spec[line];
        wd_tensor want = wd_params_tensor(&params, buffer, line), got;
        wd_test_ok(wd_safetensors_expect(&got, set, spec, &err), &err);
        assert_int_equal(got.dtype, spec->keep_f32 ? WD_F32 : dtype);
        int64_t n = wd_tensor_count(&want);
        float *values = read_floats(&cpu, want.data, n);
        for (int64_t i = 0; i < n; i++) {
            const uint16_t *half = (const uint16_t *)got.data + i;
            if (got.dtype == WD_F32)
                assert_true(((const float *)got.data)[i] == values[i]);
            else if (dtype == WD_BF16)
                assert_int_equal(*half, wd_f32_to_bf16(values[i]));
            else
                assert_int_equal(*half, wd_f32_to_f16(values[i]));
        }
        wd_free(values);
    }
    wd_safetensors_close(set);
}

static void test_weights(void **state)
{
    (void)state;
    wd_export_options o = wd_export_defaults();
    const char *folder = new_folder();
    export_to(folder, &o);
    check_weights(folder, WD_PARAMS_EMA, WD_F32, 1);
    /* Over the first one, in shards: no file of it stays. */
    o.dtype = WD_BF16;
    o.buffer = WD_PARAMS_P;
    o.shard_bytes_max = 700000;
    export_to(folder, &o);
    check_weights(folder, WD_PARAMS_P, WD_BF16, 4);
    o.dtype = WD_F16;
    o.shard_bytes_max = 1; /* a shard for each */
    export_to(folder, &o);
    check_weights(folder, WD_PARAMS_P, WD_F16, (int)params.table.count);
}

static char *read_file(const char *folder, const char *name)
{
    char path[256], *text;
    size_t bytes;
    wd_err err;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    wd_test_ok(wd_file_read(&text, &bytes, path, 1 << 20, &err), &err);
    return text;
}

static struct stat stat_of(const char *folder, const char *name)
{
    char path[256];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(lstat(path, &info), 0);
    return info;
}

static void test_components(void **state)
{
    (void)state;
    wd_err err;
    wd_pipeline p;
    wd_export_options o = wd_export_defaults();
    o.flow_shift = 2.5;
    const char *folder = new_folder(), *vae = "vae/diffusion_pytorch_model.safetensors";
    o.components = WD_EXPORT_COPY;
    export_to(folder, &o);
    struct stat mine = stat_of(folder, vae), theirs = stat_of(teacher.path, vae);
    assert_true(S_ISREG(mine.st_mode) && mine.st_ino != theirs.st_ino);
    assert_int_equal(mine.st_size, theirs.st_size);
    wd_test_ok(wd_pipeline_open(&p, folder, &err), &err);
    for (int c = 0; c < WD_COMPONENT_COUNT; c++) {
        assert_int_equal(p.has[c], c != WD_COMPONENT_TRANSFORMER_2);
        if (p.has[c]) assert_string_equal(p.class_name[c], teacher.class_name[c]);
    }
    assert_true(p.scheduler.flow_shift == 2.5);
    assert_int_equal(p.scheduler.solver_order, teacher.scheduler.solver_order);

    /* From a teacher on the same file system: the same file, under two names. */
    wd_pipeline near = p;
    o.components = WD_EXPORT_LINK;
    char linked[128];
    snprintf(linked, sizeof linked, "%s", new_folder());
    wd_test_ok(wd_export_student(linked, &params, &near, &o, cpu.queue, &err), &err);
    mine = stat_of(linked, vae);
    theirs = stat_of(near.path, vae);
    assert_true(mine.st_ino == theirs.st_ino && mine.st_dev == theirs.st_dev);
    mine = stat_of(linked, "scheduler/scheduler_config.json"); /* but never what we change */
    theirs = stat_of(near.path, "scheduler/scheduler_config.json");
    assert_true(mine.st_ino != theirs.st_ino);
    wd_test_ok(wd_pipeline_open(&p, linked, &err), &err);
}

static void test_card(void **state)
{
    (void)state;
    wd_export_options o = wd_export_defaults();
    const char *folder = new_folder();
    o.height = 96;
    o.width = 64;
    o.text_tokens = 24;
    o.sampling_steps = 12;
    o.guidance_scale[0] = 4;
    o.guidance_scale[1] = 3;
    o.teacher_name = "Wan-AI/Wan2.2-T2V-A14B-Diffusers";
    o.prompt = "a \"red\" apple\n\\";
    export_to(folder, &o);
    char *card = read_file(folder, "README.md");
    const char *const expected[] = {"base_model: Wan-AI/Wan2.2-T2V-A14B-Diffusers\n",
                                    "prompt=\"a \\\"red\\\" apple \\\\\",",
                                    "height=96, width=64, num_frames=1",
                                    "num_inference_steps=12, guidance_scale=1.0",
                                    "max_sequence_length=24",
                                    "guidance scale 4 (high noise) and 3 (low noise)",
                                    "torch_dtype=torch.float32",
                                    " million weights (",
                                    "pipe.to(\"cuda\")  # or \"cpu\"\n"};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        if (!strstr(card, expected[i])) fail_msg("the card lacks %s:\n%s", expected[i], card);
    }
    assert_null(strstr(card, "protobuf"));
    wd_free(card);
    wd_err err;
    char tokenizer[WD_PATH_MAX];
    snprintf(tokenizer, sizeof tokenizer, "%s/tokenizer/tokenizer.json", folder);
    assert_int_equal(unlink(tokenizer), 0); /* as of a single file */
    wd_test_ok(wd__student_write_card(folder, &params, &o, &err), &err);
    card = read_file(folder, "README.md");
    assert_non_null(strstr(card, "needs `pip install sentencepiece protobuf`"));
    wd_free(card);
    wd_pipeline p;
    wd_test_ok(wd_pipeline_open(&p, folder, &err), &err);
    assert_true(p.default_height == 96 && p.default_width == 64);
    assert_int_equal(p.default_steps, 12);
    assert_int_equal(p.text_tokens, 24);
}

/* What the card says of its teacher stays what it is, whatever the path has in it: a revision,
 * YAML, Markdown, or numbers that look like those of the student, which are read from elsewhere. */
static void the_teachers_name_is_quoted(void **state)
{
    (void)state;
    static const struct {
        const char *name, *title, *base; /* base: NULL: none */
    } cases[] = {
        {WD_SOURCE_DIR "/models/wan-tiny", " `wan-tiny`\n", NULL},
        {"Wan-AI/Wan2.1@refs/pr/3", " Wan-AI/Wan2.1\n", "base_model: Wan-AI/Wan2.1\n"},
        {"sample/wan-832x480-7 steps", " `wan-832x480-7 steps`\n", NULL},
        {"me/x: [y] #z", " `x: [y] #z`\n", NULL},
        {"/a/<b>*c*`d`//", " `<b>*c*'d'//`\n", NULL},
        {"sample 832x480 7 steps, prompts of up to 9 tokens", "prompts of up to 9 tokens`\n", NULL},
    };
    const char *folder = new_folder();
    wd_err err;
    wd_pipeline p;
    wd_export_options o = wd_export_defaults();
    o.height = 96;
    o.width = 64;
    o.text_tokens = 24;
    o.sampling_steps = 12;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        o.teacher_name = cases[i].name;
        export_to(folder, &o);
        char *card = read_file(folder, "README.md");
        if (!strstr(card, cases[i].title)) fail_msg("no %s in\n%s", cases[i].title, card);
        if (cases[i].base)
            assert_non_null(strstr(card, cases[i].base));
        else
            assert_null(strstr(card, "base_model"));
        wd_free(card);
        wd_test_ok(wd_pipeline_open(&p, folder, &err), &err);
        assert_true(p.default_height == 96 && p.default_width == 64);
        assert_true(p.default_steps == 12 && p.text_tokens == 24);
    }
}

/* A student of chords is sampled by Euler's steps, in as many as it learnt, whatever scheduler its
 * teacher has. */
static void a_chord_student_is_sampled_by_eulers_steps(void **state)
{
    (void)state;
    wd_export_options o = wd_export_defaults();
    const char *folder = new_folder();
    wd_err err;
    wd_pipeline p;
    o.student_steps = o.sampling_steps = 2;
    o.flow_shift = 5;
    o.trained_steps = 70;
    export_to(folder, &o);
    wd_test_ok(wd_pipeline_open(&p, folder, &err), &err);
    assert_int_equal(p.default_steps, 2);
    assert_int_equal(p.trained_steps, 70);
    assert_int_equal(p.scheduler.kind, WD_SCHEDULER_UNIPC);
    assert_int_equal(p.scheduler.solver_order, 1);
    assert_int_equal(p.scheduler.disable_corrector, 3);
    assert_float_equal(p.scheduler.flow_shift, 5, 0);
    char *index = read_file(folder, "model_index.json");
    assert_non_null(strstr(index, "UniPCMultistepScheduler"));
    wd_free(index);
    o.student_steps = o.sampling_steps = 1;
    export_to(folder, &o);
    char *card = read_file(folder, "README.md");
    assert_non_null(strstr(card, "Sample with 1 step, "));
    wd_free(card);
}

/* The card's command is pasted by people who did not write its prompt: a shell makes the prompt of
 * it, whatever is in there, and runs nothing else. */
static void the_cards_command_is_quoted(void **state)
{
    (void)state;
    static const char expected[] = "$(touch gone) `id` 'a' \"b\" \\ ?[201~ ''' ; ${HOME} !!";
    wd_export_options o = wd_export_defaults();
    const char *folder = new_folder();
    char command[512], found[512], text[8192];
    o.prompt = "$(touch gone) `id` 'a' \"b\" \\ \x1b[201~\n```\t; ${HOME} !!";
    export_to(folder, &o);
    char *card = read_file(folder, "README.md");
    snprintf(text, sizeof text, "%s", card);
    wd_free(card);
    char *word = strstr(text, "--prompt "), *end = strstr(text, " --out picture.png\n```\n");
    assert_true(word && end);
    *end = '\0';
    snprintf(command, sizeof command, "cd %s && printf %%s %s", folder, word + strlen("--prompt "));
    FILE *shell = popen(command, "r");
    const size_t n = fread(found, 1, sizeof found - 1, shell);
    found[n] = '\0';
    assert_int_equal(pclose(shell), 0);
    assert_string_equal(found, expected);
}

/* A run's own files stay; a folder that holds something else is left alone. */
static void test_output(void **state)
{
    (void)state;
    wd_err err;
    wd_export_options o = wd_export_defaults();
    char folder[128], path[256];
    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/checkpoints/step-00000001", folder);
    wd_test_ok(wd_folder_make(path, &err), &err);
    export_to(folder, &o);
    export_to(folder, &o);
    assert_true(wd_path_is_folder(path));
    snprintf(path, sizeof path, "%s/.tmp-student", folder);
    assert_false(wd_path_exists(path));

    wd_test_refused(wd_export_student(teacher.path, &params, &teacher, &o, cpu.queue, &err), &err,
                    WD_INVALID_ARGUMENT, "is the teacher's folder");
    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(path, sizeof path, "%s/transformer", folder);
    wd_test_ok(wd_folder_make(path, &err), &err);
    wd_test_refused(wd_export_student(folder, &params, &teacher, &o, cpu.queue, &err), &err,
                    WD_INVALID_ARGUMENT, "not a student of this program");
    assert_true(wd_path_is_folder(path));

    wd_pipeline bare = teacher;
    bare.has[WD_COMPONENT_VAE] = false;
    wd_test_refused(wd_export_student(new_folder(), &params, &bare, &o, cpu.queue, &err), &err,
                    WD_NOT_FOUND, "vae");
}

/* What a user has put beside the student's own files stays there when a longer trained student
 * takes its place; older weights do not. */
static void files_of_others_stay(void **state)
{
    (void)state;
    wd_err err;
    const wd_export_options o = wd_export_defaults();
    static const char *const theirs[] = {"transformer/notes.txt", "vae/mine.safetensors",
                                         "transformer/diffusion_pytorch_model_old/a/config.json"};
    enum { THEIRS = sizeof theirs / sizeof *theirs };
    char folder[128], path[192], stale[192];
    snprintf(folder, sizeof folder, "%s", new_folder());
    export_to(folder, &o);
    snprintf(path, sizeof path, "%s/transformer/diffusion_pytorch_model_old/a", folder);
    wd_test_ok(wd_folder_make(path, &err), &err);
    assert_int_equal(chmod(path, 0700), 0);
    for (int i = 0; i < THEIRS; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, theirs[i]);
        wd_test_ok(wd_file_write(path, theirs[i], strlen(theirs[i]), &err), &err);
    }
    snprintf(path, sizeof path, "%s/tokenizer/link", folder);
    assert_int_equal(symlink("nowhere", path), 0);
    snprintf(stale, sizeof stale,
             "%s/transformer/diffusion_pytorch_model-00009-of-00009.safetensors", folder);
    wd_test_ok(wd_file_write(stale, "old", 3, &err), &err);
    export_to(folder, &o);
    char leads_to[16] = "";
    assert_int_equal(readlink(path, leads_to, sizeof leads_to - 1), strlen("nowhere"));
    assert_false(wd_path_exists(stale));
    for (int i = 0; i < THEIRS; i++) {
        char *text;
        size_t bytes;
        snprintf(path, sizeof path, "%s/%s", folder, theirs[i]);
        wd_test_ok(wd_file_read(&text, &bytes, path, 100, &err), &err);
        assert_string_equal(text, theirs[i]);
        wd_free(text);
    }
    struct stat private;
    char deep[256];
    snprintf(path, sizeof path, "%s/transformer/diffusion_pytorch_model_old/a", folder);
    assert_true(!stat(path, &private) && (private.st_mode & 07777) == 0700);
    int used = snprintf(deep, sizeof deep, "%s/vae", folder);
    for (int i = 0; i <= 64; i++) used += snprintf(deep + used, sizeof deep - (size_t)used, "/d");
    wd_test_ok(wd_folder_make(deep, &err), &err);
    wd_test_refused(wd_export_student(folder, &params, &teacher, &o, cpu.queue, &err), &err,
                    WD_INVALID_ARGUMENT, "at most 64 folders in one another");
    assert_true(wd_path_is_folder(deep));
}

/* The disk fills: the older student stays as it was. */
static void test_full_disk(void **state)
{
    (void)state;
    wd_export_options o = wd_export_defaults();
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    export_to(folder, &o);
    struct rlimit old;
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    o.buffer = WD_PARAMS_P;
    const rlim_t limits[] = {100, 1000, 100000, 3000000};
    for (int i = 0; i < 4; i++) {
        wd_err err;
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){limits[i], old.rlim_max});
        wd_status status = wd_export_student(folder, &params, &teacher, &o, cpu.queue, &err);
        setrlimit(RLIMIT_FSIZE, &old);
        wd_test_refused(status, &err, WD_IO, folder);
        check_weights(folder, WD_PARAMS_EMA, WD_F32, 1);
    }
}

static wd_status initialise(void *context, wd_err *err)
{
    (void)context;
    return wd_student_init(&params, &teacher, WD_COMPONENT_TRANSFORMER_2, cpu.queue, err);
}

static wd_status export_again(void *folder, wd_err *err)
{
    const wd_export_options o = wd_export_defaults();
    return wd_export_student(folder, &params, &teacher, &o, cpu.queue, err);
}

static void check_student(void *folder, wd_status status)
{
    (void)status;
    check_weights(folder, WD_PARAMS_EMA, WD_F32, 1);
}

/* Whichever allocation of init or export fails: the older student stays. */
static void test_allocation_fails(void **state)
{
    (void)state;
    wd_export_options o = wd_export_defaults();
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    export_to(folder, &o);
    wd_test_failing_allocations(initialise, NULL, NULL, 5);
    wd_test_failing_allocations(export_again, check_student, folder, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_components),
        cmocka_unit_test(test_card),
        cmocka_unit_test(the_teachers_name_is_quoted),
        cmocka_unit_test(the_cards_command_is_quoted),
        cmocka_unit_test(a_chord_student_is_sampled_by_eulers_steps),
        cmocka_unit_test(test_output),
        cmocka_unit_test(files_of_others_stay),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_allocation_fails),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
