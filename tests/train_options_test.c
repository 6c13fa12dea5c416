/* What options of `wandistiller train` mean for a whole run: what its run.json keeps of them, and
 * that those which never change the student do not. */
#include "runs.h"
#include "teacher_copy.h"
#include "workflow_check.h"

#include "model/files/pipeline.h"
#include "wandistiller.h"

static wd_program program;

/* A run of 6 steps of one block at 32x32. */
#define RUN(out)                                                                                   \
    "train", "--teacher_path", teacher, "--data_path", wd_test_path("prompts.txt"),                \
        "--student_config", wd_test_path("student.json"), "--output_dir", wd_test_path(out),       \
        "--height", "32", "--width", "32", "--trajectories", "4", "--trajectory_steps", "4",       \
        "--log_level", "warning", "--seed", "3"

static json_t *run_json(const char *run)
{
    char path[WD_PATH_MAX];
    wd_err err;
    wd_test_ok(wd_path_join(path, wd_test_path(run), "run.json", &err), &err);
    json_t *json = json_load_file(path, 0, NULL);
    assert_non_null(json);
    return json;
}

static double number_of(const json_t *run, const char *part, const char *name)
{
    const json_t *value = json_object_get(json_object_get(run, part), name);
    if (!json_is_number(value)) fail_msg("run.json: %s has no number \"%s\"", part, name);
    return json_number_value(value);
}

/* A value that followed from another one follows again when the run is repeated with another. */
static void a_file_keeps_what_was_said(void **state)
{
    (void)state;
    static const char deeper[] = "{\"depth\": 1, \"hidden_size\": 96}";
    wd_err err;
    wd_program_run(&program, RUN("said"), "--num_epochs", "2", "--guidance_scale", "2");
    wd_program_succeeded(&program);
    json_t *first = run_json("said");
    const json_t *said = json_object_get(first, "options");
    assert_int_equal(number_of(first, "options", "num_epochs"), 2);
    assert_null(json_object_get(said, "num_steps"));
    assert_null(json_object_get(said, "guidance_scale_2"));
    assert_null(json_object_get(said, "lr"));
    assert_int_equal(number_of(first, "options", "trajectory_steps"), 4);
    const double steps = number_of(first, "resolved", "num_steps");
    assert_true(steps > 0 && number_of(first, "resolved", "guidance_scale_2") == 2);
    assert_int_equal(number_of(first, "resolved", "target_replay"), 8192);
    wd_test_ok(wd_file_write(wd_test_path("narrow.json"), deeper, sizeof deeper - 1, &err), &err);
    wd_program_run(&program, "train", "--config", wd_test_path("said/run.json"), "--output_dir",
                   wd_test_path("again"), "--num_epochs", "4", "--guidance_scale", "3",
                   "--student_config", wd_test_path("narrow.json"));
    wd_program_succeeded(&program);
    json_t *again = run_json("again");
    assert_true(number_of(again, "resolved", "num_steps") == 2 * steps);
    assert_true(number_of(again, "resolved", "guidance_scale_2") == 3);
    assert_true(number_of(again, "resolved", "lr") > 1.2 * number_of(first, "resolved", "lr"));
    json_decref(first);
    json_decref(again);
}

static double resolved_lr(const char *run)
{
    json_t *json = run_json(run);
    const double lr = number_of(json, "resolved", "lr");
    json_decref(json);
    return lr;
}

/* The learning rate that is not given: of wan-tiny's width of 160, less for few samples, and a
 * fifth for a start that keeps all its blocks. A resumed run goes on with its own, unless one is
 * given. */
static void the_learning_rate_follows(void **state)
{
    (void)state;
    const char *whole = wd_test_path("lr-32"), *cut = wd_test_path("cut.json");
    const char *thin = wd_test_path("thin.json");
    static const char narrow[] = "{\"depth\": 2, \"hidden_size\": 64, \"num_heads\": 2}";
    static const char two[] = "{\"depth\": 2}", one[] = "{\"depth\": 1}";
    wd_err err;
    wd_test_ok(wd_file_write(cut, one, sizeof one - 1, &err), &err);
    wd_test_ok(wd_file_write(thin, narrow, sizeof narrow - 1, &err), &err);
    wd_test_ok(wd_file_write(wd_test_path("two.json"), two, sizeof two - 1, &err), &err);
    wd_program_run(&program, RUN("lr-32"), "--num_steps", "2", "--batch_size", "32",
                   "--student_config", wd_test_path("two.json"));
    wd_program_succeeded(&program);
    assert_float_equal(resolved_lr("lr-32"), 0.24 / 160, 1e-9);
    wd_program_run(&program, RUN("lr-8"), "--num_steps", "2", "--batch_size", "4",
                   "--gradient_accumulation_steps", "2");
    wd_program_succeeded(&program);
    assert_float_equal(resolved_lr("lr-8"), 0.24 / 160 / 2, 1e-9);
    wd_program_run(&program, RUN("lr-64"), "--num_steps", "2", "--batch_size", "64");
    wd_program_succeeded(&program);
    assert_float_equal(resolved_lr("lr-64"), 0.24 / 160, 1e-9);
    wd_program_run(&program, RUN("lr-whole"), "--num_steps", "2", "--batch_size", "32",
                   "--init_student", whole, "--student_config", wd_test_path("two.json"));
    wd_program_succeeded(&program);
    assert_float_equal(resolved_lr("lr-whole"), 0.24 / 160 / 5, 1e-9);
    wd_program_run(&program, RUN("lr-thin"), "--num_steps", "2", "--batch_size", "32",
                   "--init_student", whole, "--student_config", thin);
    wd_program_succeeded(&program);
    assert_float_equal(resolved_lr("lr-thin"), 0.24 / 64, 1e-9);
    wd_program_run(&program, RUN("lr-cut"), "--num_steps", "2", "--batch_size", "32",
                   "--init_student", whole, "--student_config", cut);
    wd_program_succeeded(&program);
    assert_float_equal(resolved_lr("lr-cut"), 0.24 / 160, 1e-9);

    wd_program_run(&program, RUN("lr-8"), "--num_steps", "4", "--batch_size", "4",
                   "--gradient_accumulation_steps", "2", "--lr", "0", "--resume");
    wd_program_succeeded(&program);
    assert_float_equal(resolved_lr("lr-8"), 0, 1e-12);
    wd_program_run(&program, RUN("lr-8"), "--num_steps", "6", "--batch_size", "4",
                   "--gradient_accumulation_steps", "2", "--resume");
    wd_program_succeeded(&program);
    assert_float_equal(resolved_lr("lr-8"), 0, 1e-12);
}

static void one_rank_is_this_process(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("alone"), "--num_steps", "2");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN("one"), "--num_steps", "2", "--distributed", "--nproc_per_node",
                   "1");
    wd_program_succeeded(&program);
    assert_same_weights(wd_test_path("alone"), wd_test_path("one"));
    wd_program_run(&program, RUN("one"), "--num_steps", "2", "--distributed", "--multi_gpu",
                   "--devices", "cpu");
    wd_program_succeeded(&program);
    assert_same_weights(wd_test_path("alone"), wd_test_path("one"));
}

/* ---- what never changes the student ---- */

/* A value other than the default for each option that never changes the student. Options that
 * contradict one another are in other runs. */
enum { RUNS = 3 };
static const struct {
    int run; /* with the others of the same number */
    const char *name, *value;
} same[] = {
    {0, "teacher_device_strategy", "disk"},
    {0, "teacher_prefetch", "2"},
    {0, "teacher_window", "3"},
    {0, "teacher_micro_batch", "2"},
    {0, "gradient_checkpointing", "true"},
    {0, "shard_optimizer", "true"},
    {0, "cache_dir", "other-cache"},
    {0, "output_dir", "same-0"},
    {0, "checkpoint_interval", "2"},
    {0, "keep_checkpoints", "1"},
    {0, "sample_interval", "3"},
    {0, "sample_steps", "1"},
    {0, "sample_dir", "other-samples"},
    {0, "save_report", "false"},
    {0, "network_bandwidth", "1GB/s"},
    {0, "measure_rates", "true"},
    {0, "host_memory", "8GiB"},
    {0, "profile_memory", "true"},
    {0, "num_threads", "1"},
    {0, "step_timeout", "500"},
    {0, "nccl", "off"},
    {0, "export", "comfyui,gguf"},
    {0, "validation_interval", "2"},
    {0, "keep_best", "true"},
    {1, "devices", "sim:2x256MiB@link=1GB/s,compute=20GFLOP/s"},
    {1, "optimizer_device", "host"},
    {1, "teacher_device_strategy", "gpu0"},
    {1, "teacher_rank", "1"},
    {1, "output_dir", "same-1"},
    {2, "devices", "sim:2x256MiB@link=1GB/s,compute=20GFLOP/s"},
    {2, "ema_device", "host"},
    {2, "teacher_device_map", "map.json"},
    {2, "output_dir", "same-2"},
};

enum { SAME = sizeof same / sizeof *same };

static void every_such_option_is_tried(void **state)
{
    (void)state;
    int64_t count;
    const wd_option *table = wd_options_of(WD_JOB_TRAIN, &count);
    for (int64_t i = 0; i < count; i++) {
        bool tried =
            !(table[i].flags & WD_OPTION_SAME_STUDENT) || table[i].flags & WD_OPTION_LEGACY;
        for (int k = 0; k < SAME; k++) tried |= !strcmp(same[k].name, table[i].name);
        if (!tried) fail_msg("--%s: give it a value here, with which a run is made", table[i].name);
    }
    for (int k = 0; k < SAME; k++) {
        const wd_option *o = wd_option_find(WD_JOB_TRAIN, same[k].name, NULL);
        assert_true(o && o->flags & WD_OPTION_SAME_STUDENT &&
                    strcmp(o->default_text, same[k].value));
    }
}

/* Trains from a file of options: those of run `number`. */
static void run_with(int number)
{
    wd_err err;
    char name[32];
    static const char held_out[] = "an owl, and a moon behind it\n"; /* is none of the data */
    wd_test_ok(wd_file_write("held-out.txt", held_out, sizeof held_out - 1, &err), &err);
    json_t *options =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s}",
                  "teacher_path", teacher, "data_path", "prompts.txt", "validation_prompts",
                  number < 0 ? "0" : "held-out.txt", "student_config", "student.json", "height", 32,
                  "width", 32, "trajectories", 4, "trajectory_steps", 4, "num_steps", 6, "seed", 3,
                  "output_dir", "usual", "teacher_dtype", "float32", "mixed_precision", "no");
    for (int k = 0; k < SAME; k++)
        if (same[k].run == number)
            json_object_set_new(options, same[k].name,
                                strcmp(same[k].value, "true") ? json_string(same[k].value)
                                                              : json_true());
    char *text = json_dumps(options, 0);
    snprintf(name, sizeof name, "run-%d.json", number);
    wd_test_ok(wd_file_write(name, text, strlen(text), &err), &err);
    wd_program_run(&program, "train", "--config", name, "--log_level", "warning");
    wd_program_succeeded(&program);
    json_decref(options);
    free(text);
}

/* The workflow in `path` loads `file` by a node of that type and samples as the student does. */
static void check_workflow(const char *path, const char *node, const char *file,
                           const char *sampler, int64_t steps, const wd_pipeline *student)
{
    json_t *json = json_load_file(path, 0, NULL);
    wd_test_check_workflow(json);
    assert_string_equal(json_string_value(wd_test_widget(json, node, 0)), file);
    assert_string_equal(json_string_value(wd_test_widget(json, "KSampler", 4)), sampler);
    assert_int_equal(json_integer_value(wd_test_widget(json, "KSampler", 2)), steps);
    assert_int_equal(json_integer_value(wd_test_widget(json, "EmptyHunyuanLatentVideo", 0)), 32);
    assert_true(json_real_value(wd_test_widget(json, "ModelSamplingSD3", 0)) ==
                student->scheduler.flow_shift);
    json_decref(json);
}

/* The file for ComfyUI has the student's weights, rounded to bf16, and the workflow samples as the
 * student was made to. */
static void check_comfyui(const char *out, const char *sampler, int64_t steps)
{
    char path[WD_PATH_MAX];
    wd_err err;
    wd_pipeline folder, file;
    wd_safetensors *a, *b;
    const wd_component c = WD_COMPONENT_TRANSFORMER;
    wd_test_ok(wd_path_join(path, out, "comfyui/student.safetensors", &err), &err);
    const wd_pipeline_parts parts = {.part = {[WD_COMPONENT_TRANSFORMER] = path}};
    wd_test_ok(wd_pipeline_open(&folder, out, &err), &err);
    wd_test_ok(wd_pipeline_open_parts(&file, NULL, &parts, &err), &err);
    wd_test_ok(wd_pipeline_open_weights(&a, &folder, c, &err), &err);
    wd_test_ok(wd_pipeline_open_weights(&b, &file, c, &err), &err);
    int64_t narrow = 0;
    for (int64_t i = 0; i < wd_safetensors_count(a); i++) {
        const wd_safetensors_entry *x = wd_safetensors_at(a, i);
        const wd_tensor *y = &wd_safetensors_find(b, x->name)->tensor;
        if (y->dtype == WD_F32) {
            assert_memory_equal(x->tensor.data, y->data, wd_tensor_bytes(y));
            continue;
        }
        assert_int_equal(y->dtype, WD_BF16);
        narrow++;
        for (int64_t k = 0; k < wd_tensor_count(y); k++)
            assert_int_equal(((const uint16_t *)y->data)[k],
                             wd_f32_to_bf16(((const float *)x->tensor.data)[k]));
    }
    assert_true(narrow > 0 && wd_safetensors_count(a) == wd_safetensors_count(b));
    wd_safetensors_close(a);
    wd_safetensors_close(b);
    wd_test_ok(wd_path_join(path, out, "comfyui/student.json", &err), &err);
    check_workflow(path, "UNETLoader", "student.safetensors", sampler, steps, &folder);
}

/* The GGUF file has the student's tensors, those of blocks in Q8_0, and its workflow loads it. */
static void check_gguf(const char *out, int64_t steps)
{
    char path[WD_PATH_MAX];
    wd_err err;
    wd_pipeline folder, file;
    wd_safetensors *a, *b;
    int64_t blocks = 0;
    wd_test_ok(wd_path_join(path, out, "gguf/student-Q8_0.gguf", &err), &err);
    const wd_pipeline_parts parts = {.part = {[WD_COMPONENT_TRANSFORMER] = path}};
    wd_test_ok(wd_pipeline_open(&folder, out, &err), &err);
    wd_test_ok(wd_pipeline_open_parts(&file, NULL, &parts, &err), &err);
    assert_true(wd_dit_config_same(&folder.dit, &file.dit));
    wd_test_ok(wd_pipeline_open_weights(&a, &folder, WD_COMPONENT_TRANSFORMER, &err), &err);
    wd_test_ok(wd_pipeline_open_weights(&b, &file, WD_COMPONENT_TRANSFORMER, &err), &err);
    assert_int_equal(wd_safetensors_count(a), wd_safetensors_count(b));
    for (int64_t i = 0; i < wd_safetensors_count(b); i++)
        blocks += wd_safetensors_at(b, i)->tensor.dtype == WD_Q8_0;
    assert_int_equal(blocks, 10 * folder.dit.layers);
    wd_safetensors_close(a);
    wd_safetensors_close(b);
    wd_test_ok(wd_path_join(path, out, "gguf/student.json", &err), &err);
    check_workflow(path, "UnetLoaderGGUF", "student-Q8_0.gguf", "dpmpp_2m", steps, &folder);
}

/* What `convert` makes of a student has a workflow beside it, by its card and its scheduler; an
 * older workflow is not replaced. */
static void check_converted(const char *out, const char *sampler, int64_t steps)
{
    wd_err err;
    wd_pipeline student;
    const char *file = wd_test_path("mine.gguf"), *json = wd_test_path("mine.gguf.json");
    const char *const words[] = {"convert", "--model", out, "--to", "gguf", "--dtype", "q8_0"};
    wd_test_ok(wd_pipeline_open(&student, out, &err), &err);
#define CONVERT words[0], words[1], words[2], words[3], words[4], words[5], words[6]
    wd_program_run(&program, CONVERT, "--out", file);
    wd_program_succeeded(&program);
    check_workflow(json, "UnetLoaderGGUF", "mine.gguf", sampler, steps, &student);
    wd_file_abandon(file);
    wd_program_run(&program, CONVERT, "--out", file);
    assert_int_equal(program.code, 2);
    assert_non_null(strstr(program.err, "mine.gguf.json: is there already"));
    assert_false(wd_path_exists(file));
    wd_file_abandon(json);
    wd_program_run(&program, "convert", "--model", out, "--to", "comfyui", "--dtype", "q4_k",
                   "--out", file);
    assert_int_equal(program.code, 2);
    assert_non_null(strstr(program.err, "--dtype q4_k: expected float32, float16, bfloat16, "
                                        "float8_e4m3fn with --to comfyui"));
#undef CONVERT
}

/* ComfyUI lists files by their endings: a name that it would not list is refused before anything is
 * written, and so is one that looks like a file where a folder is written. */
static void endings_are_those_that_comfyui_lists(void **state)
{
    (void)state;
    static const struct {
        const char *to, *out, *expected;
    } cases[] = {
        {"comfyui", "x.st", "ends in .safetensors with --to comfyui: ComfyUI lists no other"},
        {"comfyui", "x.gguf", "ends in .safetensors"},
        {"comfyui", "noext", "ends in .safetensors"},
        {"gguf", "noext", "ends in .gguf with --to gguf: ComfyUI lists no other"},
        {"gguf", "x.safetensors", "ends in .gguf"},
        {"diffusers", "x.safetensors", "expected a folder, found a name with .safetensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *out = wd_test_path(cases[i].out);
        wd_program_run(&program, "convert", "--model", teacher, "--to", cases[i].to, "--out", out);
        wd_program_refused(&program, WD_INVALID_ARGUMENT, cases[i].expected);
        assert_false(wd_path_exists(out));
    }
    wd_program_run(&program, RUN("x.safetensors"), "--num_steps", "2");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "expected a folder, found a name with");
    const char *good = wd_test_path("x.SFT");
    wd_program_run(&program, "convert", "--model", teacher, "--to", "comfyui", "--out", good);
    wd_program_succeeded(&program);
}

/* A resumed run that writes no other forms leaves none of the older student, but what else is in
 * their folders; and what --export names is known. */
static void older_forms_do_not_stay(void **state)
{
    (void)state;
    wd_err err;
    const char *notes = wd_test_path("forms/comfyui/notes.txt");
    wd_program_run(&program, RUN("forms"), "--num_steps", "2", "--export", "gguf,comfyui");
    wd_program_succeeded(&program);
    assert_true(wd_path_exists(wd_test_path("forms/comfyui/student.safetensors")));
    assert_true(wd_path_exists(wd_test_path("forms/gguf/student-Q8_0.gguf")));
    check_converted(wd_test_path("forms"), "dpmpp_2m", 20);
    wd_test_ok(wd_file_write(notes, "mine", 4, &err), &err);
    wd_program_run(&program, RUN("forms"), "--num_steps", "4", "--stop_at_step", "3", "--resume",
                   "auto", "--export", "gguf");
    wd_program_succeeded(&program);
    assert_false(wd_path_exists(wd_test_path("forms/comfyui/student.safetensors")));
    assert_false(wd_path_exists(wd_test_path("forms/comfyui/student.json")));
    assert_false(wd_path_exists(wd_test_path("forms/gguf")));
    assert_true(wd_path_exists(notes));
    wd_program_run(&program, RUN("forms"), "--num_steps", "4", "--resume", "auto", "--export",
                   "comfyui");
    wd_program_succeeded(&program);
    check_comfyui(wd_test_path("forms"), "dpmpp_2m", 20);
    assert_true(wd_path_exists(notes) && !wd_path_exists(wd_test_path("forms/gguf")));
    static const char *const unknown[] = {"onnx", "comfyui,", "gguf,gguf"};
    for (int i = 0; i < 3; i++) {
        wd_program_run(&program, RUN("unknown"), "--num_steps", "2", "--export", unknown[i]);
        assert_int_equal(program.code, 2);
        assert_non_null(strstr(program.err, "expected comfyui, gguf, or comfyui,gguf"));
    }
}

static bool file_has(const char *name, const char *text)
{
    char *content;
    size_t bytes;
    wd_err err;
    wd_test_ok(wd_file_read(&content, &bytes, wd_test_path(name), 1 << 20, &err), &err);
    const bool has = strstr(content, text) != NULL;
    wd_free(content);
    return has;
}

/* A student's folder is published: card and workflow have none of the training prompts, but an
 * example, or what was given to be shown; the workflow in ComfyUI's syntax. */
static void the_example_is_no_training_prompt(void **state)
{
    (void)state;
    static const char prompts[] = "secret horse\nsecret deer\n";
    wd_err err;
    wd_test_ok(wd_file_write(wd_test_path("secret.txt"), prompts, sizeof prompts - 1, &err), &err);
    wd_program_run(&program, RUN("example"), "--data_path", wd_test_path("secret.txt"),
                   "--num_steps", "2", "--export", "comfyui");
    wd_program_succeeded(&program);
    assert_true(file_has("example/README.md", "prompt=\"red apple, blue background\""));
    assert_false(file_has("example/README.md", "secret"));
    assert_true(file_has("example/comfyui/student.json", "red apple, blue background"));
    assert_false(file_has("example/comfyui/student.json", "secret"));
    wd_program_run(&program, RUN("example"), "--num_steps", "2", "--export", "comfyui",
                   "--sample_prompts", "a (red) fox", "a deer");
    wd_program_succeeded(&program);
    assert_true(file_has("example/README.md", "prompt=\"a (red) fox\""));
    assert_true(file_has("example/comfyui/student.json", "\"a \\\\(red\\\\) fox\""));
}

/* A student is sampled with the length of text with which it was trained, and whoever wants it for
 * programs that know but one length hears at the start, and when it is converted, that it has
 * another. */
static void a_student_keeps_its_length_of_text(void **state)
{
    (void)state;
    static const char other[] = "give every Wan model text of 512 tokens; this one was made for 40";
    const char *out = wd_test_path("length"), *file = wd_test_path("length.safetensors");
    const char *trace = wd_test_path("length-trace.safetensors");
    wd_err err;
    wd_pipeline student;
    wd_safetensors *traced;
    wd_program_run(&program, RUN("length"), "--num_steps", "2", "--max_sequence_length", "40");
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, other)); /* nobody has said that it is for ComfyUI */
    wd_test_ok(wd_pipeline_open(&student, out, &err), &err);
    assert_int_equal(student.text_tokens, 40);
    wd_program_run(&program, "convert", "--model", out, "--to", "comfyui", "--out", file);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "length.safetensors: ComfyUI and stable-diffusion.cpp"));
    assert_non_null(strstr(program.err, other));
    wd_program_run(&program, "sample", "--model", out, "--prompt", "horse, green background",
                   "--steps", "1", "--trace", trace, "--out", wd_test_path("length.png"));
    wd_program_succeeded(&program);
    wd_test_ok(wd_safetensors_open(&traced, trace, &err), &err);
    assert_int_equal(wd_safetensors_find(traced, "prompt_embeds")->tensor.dim[1], 40);
    wd_safetensors_close(traced);
    wd_program_run(&program, RUN("length"), "--num_steps", "2", "--max_sequence_length", "40",
                   "--export", "gguf");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "--export gguf: ComfyUI and stable-diffusion.cpp"));
    assert_non_null(strstr(program.err, "student-Q8_0.gguf: ComfyUI and stable-diffusion.cpp"));
    wd_program_run(&program, RUN("length"), "--num_steps", "2", "--max_sequence_length", "512",
                   "--export", "gguf");
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "give every Wan model text of"));
    assert_non_null(strstr(program.err, "--export gguf: not for ComfyUI, which takes every Wan "
                                        "model to have heads of size 128; this one has 32"));
}

static void they_never_change_the_student(void **state)
{
    (void)state;
    static const char map[] = "{\"text_encoder\": \"cpu\", \"vae\": \"cpu\", "
                              "\"transformer\": 1, \"transformer_2\": \"disk\"}";
    wd_err err;
    if (chdir(wd_test_folder())) fail();
    wd_test_ok(wd_file_write("map.json", map, sizeof map - 1, &err), &err);
    run_with(-1);
    for (int r = 0; r < RUNS; r++) {
        char out[16];
        snprintf(out, sizeof out, "same-%d", r);
        run_with(r);
        assert_same_weights("usual", out);
        if (r) continue;
        check_comfyui(out, "dpmpp_2m", 1); /* of its sheets */
        check_gguf(out, 1);
    }
}

/* A student of two steps starts from an earlier student, is sampled in two steps, and goes on where
 * it was stopped. */
static void few_steps_start_from_an_earlier_student(void **state)
{
    (void)state;
    char starts[WD_PATH_MAX];
    const char *first = wd_test_path("velocity"), *out = wd_test_path("chords");
    wd_program_run(&program, RUN("velocity"), "--num_steps", "2");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN("whole"), "--init_student", first, "--student_steps", "2",
                   "--num_steps", "6", "--log_level", "info");
    wd_program_succeeded(&program);
    snprintf(starts, sizeof starts, "starts from blocks 0 of %s/transformer\n", first);
    assert_non_null(strstr(program.err, starts));
    assert_non_null(strstr(program.err, " chords, each seen 4 times"));
    wd_program_run(&program, RUN("chords"), "--init_student", first, "--student_steps", "2",
                   "--num_steps", "6", "--stop_at_step", "3", "--export", "comfyui");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN("chords"), "--init_student", first, "--student_steps", "2",
                   "--num_steps", "6", "--resume", "auto", "--export", "comfyui");
    wd_program_succeeded(&program);
    assert_same_weights(wd_test_path("whole"), out);
    check_comfyui(out, "euler", 2);
    check_converted(out, "euler", 2);
    wd_program_run(&program, "sample", "--model", out, "--prompt", "a fox", "--out",
                   wd_test_path("fox.png"), "--log_level", "info");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "1 picture of 32x32, 2 steps"));
}

/* On-policy blocks: all of them by default; a stop between two snapshots changes nothing; a student
 * of one step has none. */
static void blocks_begin_where_the_student_leads(void **state)
{
    (void)state;
    const char *const few[] = {"--student_steps", "2", "--on_policy_share", "1"};
    const char *const at[] = {"--on_policy_end", "0.6", "--on_policy_every", "2"};
    wd_program_run(&program, RUN("led"), few[0], few[1], at[0], at[1], at[2], at[3], "--num_steps",
                   "6");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN("led-on"), few[0], few[1], few[2], few[3], at[0], at[1], at[2],
                   at[3], "--num_steps", "6", "--stop_at_step", "3");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN("led-on"), few[0], few[1], few[2], "0.5", at[0], at[1], at[2],
                   at[3], "--num_steps", "6", "--resume", "auto");
    wd_program_refused(&program, WD_MISMATCH, "on_policy_share 1.0 and is to be resumed with 0.5");
    wd_program_run(&program, RUN("led-on"), few[0], few[1], few[2], few[3], at[0], at[1], at[2],
                   at[3], "--num_steps", "6", "--resume", "auto");
    wd_program_succeeded(&program);
    assert_same_weights("led", "led-on");
    /* also while the chords have not begun */
    const char *const later[] = {"--recipe", "velocity:1,chord:1", "--num_steps", "6"};
    wd_program_run(&program, RUN("led-later"), later[0], later[1], later[2], later[3], few[0],
                   few[1], few[2], "0", "--stop_at_step", "2");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN("led-later"), later[0], later[1], later[2], later[3], few[0],
                   few[1], "--resume", "auto");
    wd_program_refused(&program, WD_MISMATCH, "on_policy_share 0.0 and is to be resumed with 1.0");
    wd_program_run(&program, RUN("never"), "--student_steps", "1", few[2], few[3]);
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "--on_policy_share: expected --student_steps of 2 and more, found 1");
    wd_program_run(&program, RUN("never"), few[2], few[3]);
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--student_steps of 2 and more, found 0");
}

/* Pairs of trajectories, whose chords are of two steps, or of one behind velocities: a stop changes
 * nothing, also while the chords have not begun, and what cannot be paired is refused. */
static void trajectories_are_paired(void **state)
{
    (void)state;
    const char *const steps[] = {"2", "1"}, *const recipes[] = {"chord", "velocity:1,chord:1"};
    const char *const whole[] = {"paired", "paired-whole"}, *const stopped[] = {"on", "whole-on"};
    for (int i = 0; i < 2; i++) {
#define PAIRED(out)                                                                                \
    RUN(out), "--diversity_gain", "0.3", "--trajectories", "8", "--num_steps", "6",                \
        "--student_steps", steps[i], "--recipe", recipes[i]
        wd_program_run(&program, PAIRED(whole[i]));
        wd_program_succeeded(&program);
        wd_program_run(&program, PAIRED(stopped[i]), "--stop_at_step", "2");
        wd_program_succeeded(&program);
        wd_program_run(&program, PAIRED(stopped[i]), "--diversity_gain", "0", "--resume", "auto");
        wd_program_refused(&program, WD_MISMATCH, "diversity_gain 0.3 and is to be resumed with 0");
        wd_program_run(&program, PAIRED(stopped[i]), "--resume", "auto", "--stop_at_step", "5");
        wd_program_succeeded(&program);
        wd_program_run(&program, PAIRED(stopped[i]), "--resume", "auto");
        wd_program_succeeded(&program);
        assert_same_weights(whole[i], stopped[i]);
#undef PAIRED
    }
#define REFUSED(...) RUN("never"), "--diversity_gain", "0.3", __VA_ARGS__
    wd_program_run(&program, REFUSED("--trajectories", "8"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "--diversity_gain 0.3 needs --student_steps: give it, or leave "
                       "--diversity_gain out");
    wd_program_run(&program, REFUSED("--trajectories", "20", "--student_steps", "2"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "a multiple of 8, twice the trajectory's 4 steps (--trajectory_steps), "
                       "found 20: use --trajectories 24 or --trajectories 16");
    wd_program_run(&program,
                   REFUSED("--student_steps", "1", "--trajectory_sigmas", "1,0.9,0.7,0.5,0.3"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "a multiple of 10, twice the trajectory's 5 steps (--trajectory_sigmas), "
                       "found 4: use --trajectories 10 or fewer steps");
#undef REFUSED
}

static void options_of_another_optimizer_are_refused(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("never"), "--ademamix_beta3", "0.99");
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "--ademamix_beta3 needs --optimizer ademamix, found adamw: give it, or "
                       "leave --ademamix_beta3 out");
    wd_program_run(&program, RUN("never"), "--ademamix_alpha", "1");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--ademamix_alpha needs --optimizer");
    wd_program_run(&program, RUN("never"), "--ema_device", "host", "--ema_decay", "0");
    wd_program_refused(
        &program, WD_INVALID_ARGUMENT,
        "--ema_device host needs an EMA, found --ema_decay 0: give --ema_device auto");
    wd_program_run(&program, RUN("never"), "--ema_device", "device", "--optimizer_device", "host");
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "--optimizer_device host moves the EMA, too, but found --ema_device device");
    wd_program_run(&program, RUN("slow"), "--optimizer", "ademamix", "--ademamix_alpha", "1",
                   "--ademamix_beta3", "0.99", "--num_steps", "1");
    wd_program_succeeded(&program);
}

/* Moments in 8 bits: a stopped run goes on bit for bit, and one of other moments says that they are
 * converted. */
static void moments_in_8_bits(void **state)
{
    (void)state;
#define IN_8_BITS(out) RUN(out), "--log_level", "info", "--num_steps", "6", "--optimizer"
    static const char said[] = ", which were kept in";
    wd_program_run(&program, IN_8_BITS("whole-8"), "adamw8bit");
    wd_program_succeeded(&program);
    wd_program_run(&program, IN_8_BITS("parts-8"), "adamw8bit", "--stop_at_step", "3");
    wd_program_succeeded(&program);
    wd_program_run(&program, IN_8_BITS("parts-8"), "adamw8bit", "--resume", "auto");
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, said));
    assert_same_weights("whole-8", "parts-8");
    wd_program_run(&program, IN_8_BITS("other-8"), "adamw", "--stop_at_step", "3");
    wd_program_succeeded(&program);
    wd_program_run(&program, IN_8_BITS("other-8"), "adamw8bit", "--resume", "auto",
                   "--stop_at_step", "4");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "kept in float32, are now kept in 8 bits\n"));
    wd_program_run(&program, IN_8_BITS("other-8"), "ademamix", "--resume", "auto");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "kept in 8 bits, are now kept in float32\n"));
#undef IN_8_BITS
}

/* Gradients in bf16, with moments that are brought together where gradients and weights are:
 * checkpoints and best/ on the way change nothing, a stopped run goes on bit for bit, and one of
 * other gradients says so. What they need is said. */
static void gradients_in_bf16(void **state)
{
    (void)state;
#define IN_BF16(out, optimizer)                                                                    \
    RUN(out), "--log_level", "info", "--num_steps", "6", "--mixed_precision", "bf16",              \
        "--optimizer", optimizer, "--gradient_dtype"
    static const char said[] = "kept gradients in float32, and this one keeps them in bfloat16";
    wd_err err;
    wd_program_run(&program, IN_BF16("whole-16", "adamw8bit"), "bfloat16");
    wd_program_succeeded(&program);
    wd_test_ok(wd_file_write(wd_test_path("held.txt"), "a tree\n", 7, &err), &err);
    wd_program_run(&program, IN_BF16("saved-16", "adamw8bit"), "bfloat16", "--checkpoint_interval",
                   "2", "--validation_prompts", wd_test_path("held.txt"), "--validation_interval",
                   "1", "--keep_best", "--devices", "sim:1GiB", "--optimizer_device", "host",
                   "--teacher_dtype", "float32");
    wd_program_succeeded(&program);
    assert_same_weights("whole-16", "saved-16");
    wd_program_run(&program, IN_BF16("parts-16", "adamw8bit"), "bfloat16", "--stop_at_step", "3");
    wd_program_succeeded(&program);
    wd_program_run(&program, IN_BF16("parts-16", "adamw8bit"), "bfloat16", "--resume", "auto",
                   "--devices", "sim:1GiB", "--optimizer_device", "host");
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "kept gradients"));
    assert_same_weights("whole-16", "parts-16");
    wd_program_run(&program, IN_BF16("other-16", "adamw"), "float32", "--stop_at_step", "3");
    wd_program_succeeded(&program);
    wd_program_run(&program, IN_BF16("other-16", "adamw"), "bfloat16", "--resume", "auto");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, said));
    wd_program_run(&program, IN_BF16("never", "adamw"), "bfloat16", "--gradient_accumulation_steps",
                   "2", "--batch_size", "3");
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "give --gradient_accumulation_steps 1 and --batch_size 6");
    wd_program_run(&program, RUN("never"), "--devices", "cpu", "--gradient_dtype", "bfloat16");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "found --mixed_precision no: give");
#undef IN_BF16
}

/* One command trains both phases; a stop where the second begins changes nothing. */
static void both_phases_in_one_command(void **state)
{
    (void)state;
    const char *const both[] = {"--recipe", "velocity:1,chord:1", "--student_steps", "2"};
    wd_program_run(&program, RUN("both"), both[0], both[1], both[2], both[3], "--num_steps", "6",
                   "--log_level", "info");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, " targets, each seen twice, then "));
    assert_non_null(strstr(program.err, "after step 3 the student learns by recipe chord\n"));
    wd_program_run(&program, RUN("parts"), both[0], both[1], both[2], both[3], "--num_steps", "6",
                   "--stop_at_step", "3");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN("parts"), both[0], both[1], both[2], both[3], "--num_steps", "6",
                   "--resume", "auto");
    wd_program_succeeded(&program);
    assert_same_weights("both", "parts");
    wd_program_run(&program, RUN("parts"), "--recipe", "chord", "--student_steps", "2",
                   "--num_steps", "8", "--resume", "auto");
    wd_program_refused(&program, WD_MISMATCH,
                       "begun with recipe \"velocity,chord\" and is to be resumed with \"chord\"");
    wd_program_run(&program, RUN("short"), both[0], both[1], both[2], both[3], "--num_steps", "6",
                   "--stop_at_step", "2");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN("short"), both[0], both[1], both[2], both[3], "--num_steps", "2",
                   "--resume", "auto");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "a phase that has not begun");
    wd_program_run(&program, RUN("short"), both[2], both[3], "--num_steps", "6", "--resume",
                   "auto");
    wd_program_refused(&program, WD_MISMATCH, "is to be resumed with \"chord\"");
    wd_program_run(&program, RUN("never"), "--recipe", "velocity,chord");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--recipe velocity,chord with --student_ste");
    wd_program_run(&program, RUN("never"), "--recipe", "chord,velocity", "--student_steps", "2");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "found chord,velocity");
    wd_program_run(&program, RUN("never"), "--recipe", "velocity,chord", "--student_steps", "2",
                   "--num_steps", "1");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "each of its 2 phases, found a run of 1");
}

/* Epochs of more steps than a run may have. */
static void epochs_may_be_too_many(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("never"), "--batch_size", "1", "--num_epochs", "900000000000000");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--num_epochs 900000000000000: expected");
}

/* The grid of a student of few steps is one of schedulers with 1,000 timesteps. */
static void timesteps_are_a_thousand(void **state)
{
    (void)state;
    static const char few[] = "{\"_class_name\": \"UniPCMultistepScheduler\", \"flow_shift\": 3, "
                              "\"num_train_timesteps\": 500, \"prediction_type\": "
                              "\"flow_prediction\", \"use_flow_sigmas\": true}";
    wd_err err;
    char other[WD_PATH_MAX];
    wd_test_copy_teacher(other, "other");
    const char *file = wd_test_in(other, "scheduler/scheduler_config.json");
    wd_test_ok(wd_file_write(file, few, sizeof few - 1, &err), &err);
    wd_program_run(&program, RUN("never"), "--teacher_path", other, "--student_steps", "2");
    wd_program_refused(&program, WD_UNSUPPORTED, "num_train_timesteps 1000, found 500");
}

/* The teacher is asked at given noise levels, without guidance; the student's flow shift follows.
 */
static void the_teacher_is_asked_at_given_levels(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("levels"), "--student_steps", "2", "--trajectory_sigmas",
                   "1,0.9,0.75,0.5", "--guidance_scale", "1", "--num_steps", "2");
    wd_program_succeeded(&program);
    json_t *run = run_json("levels");
    const json_t *resolved = json_object_get(run, "resolved");
    assert_true(json_number_value(json_object_get(resolved, "flow_shift")) == 3);
    assert_int_equal(json_integer_value(json_object_get(resolved, "trajectory_steps")), 4);
    json_decref(run);
    wd_program_run(&program, RUN("levels"), "--student_steps", "2", "--trajectory_sigmas",
                   "1,0.9,0.75,0.4", "--guidance_scale", "1", "--num_steps", "4", "--resume",
                   "auto");
    wd_program_refused(&program, WD_MISMATCH, "begun with other trajectory_sigmas");
    wd_program_run(&program, RUN("never"), "--trajectory_sigmas", "1,0.75");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "expected --student_steps too");
    wd_program_run(&program, RUN("never"), "--trajectory_sigmas", "1,0.75,0.8", "--student_steps",
                   "1");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "found 1,0.75,0.8");
}

/* A student that makes two steps along each chord is sampled in twice as many steps. */
static void steps_may_be_more_than_chords(void **state)
{
    (void)state;
    const char *const along[] = {"--student_steps", "4", "--chords", "2"};
    wd_program_run(&program, RUN("along"), along[0], along[1], along[2], along[3], "--num_steps",
                   "4", "--log_level", "info");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, " chords, each seen 4 times"));
    wd_program_run(&program, "sample", "--model", "along", "--prompt", "red apple", "--out",
                   "along.png", "--log_level", "info");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, " 4 steps: "));
    wd_program_run(&program, RUN("stopped"), along[0], along[1], along[2], along[3], "--num_steps",
                   "4", "--stop_at_step", "2");
    wd_program_succeeded(&program);
    wd_program_run(&program, RUN("stopped"), along[0], along[1], "--num_steps", "4", "--resume",
                   "auto");
    wd_program_refused(&program, WD_MISMATCH, "chords 2 and is to be resumed with 4");
    wd_program_run(&program, RUN("stopped"), along[0], along[1], along[2], along[3], "--num_steps",
                   "4", "--resume", "auto");
    wd_program_succeeded(&program);
    assert_same_weights("along", "stopped");
}

/* What a student of few steps cannot be. */
static void few_steps_divide_the_trajectorys(void **state)
{
    (void)state;
    wd_program_run(&program, RUN("never"), "--student_steps", "6", "--chords", "4");
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "--chords: expected a divisor of --student_steps, which is 6, found 4");
    wd_program_run(&program, RUN("never"), "--chords", "2");
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "--chords 2 needs --student_steps: give it, or leave --chords out");
    wd_program_run(&program, RUN("never"), "--student_steps", "12", "--chords", "3");
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "--chords: expected a divisor of the trajectory's 4 steps");
    assert_non_null(strstr(program.err, "found 3: use --chords 4"));
    wd_program_run(&program, RUN("never"), "--student_steps", "6", "--chords", "1",
                   "--on_policy_share", "1");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "expected --chords of 2 and more, found 1");
    wd_program_run(&program, RUN("never"), "--on_policy_end", "0.5");
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "--on_policy_end: expected --student_steps of 2 and more, found 0");
    wd_program_run(&program, RUN("never"), "--student_steps", "1", "--on_policy_every", "5");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "found 1: leave --on_policy_every out");
    wd_program_run(&program, RUN("never"), "--student_steps", "6");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "found 6: add --chords 2");
    wd_program_run(&program, RUN("never"), "--student_steps", "3");
    wd_program_refused(&program, WD_INVALID_ARGUMENT,
                       "expected a divisor of the trajectory's 4 steps (--trajectory_steps)");
    wd_program_run(&program, RUN("never"), "--student_steps", "1", "--trajectory_steps", "65");
    wd_program_refused(
        &program, WD_INVALID_ARGUMENT,
        "--student_steps 1: expected at least a 64th part of the trajectory's 65 steps");
    wd_program_run(&program, RUN("never"), "--init_student", wd_test_path("nothing"));
    wd_program_refused(&program, WD_NOT_FOUND, "nothing");
    wd_program_run(&program, RUN("velocity"), "--num_steps", "4", "--student_steps", "2",
                   "--resume", "auto");
    wd_program_refused(&program, WD_MISMATCH, "student_steps 0 and is to be resumed with 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_keeps_what_was_said),
        cmocka_unit_test(the_learning_rate_follows),
        cmocka_unit_test(one_rank_is_this_process),
        cmocka_unit_test(every_such_option_is_tried),
        cmocka_unit_test(endings_are_those_that_comfyui_lists),
        cmocka_unit_test(the_example_is_no_training_prompt),
        cmocka_unit_test(a_student_keeps_its_length_of_text),
        cmocka_unit_test(they_never_change_the_student),
        cmocka_unit_test(few_steps_start_from_an_earlier_student),
        cmocka_unit_test(older_forms_do_not_stay),
        cmocka_unit_test(blocks_begin_where_the_student_leads),
        cmocka_unit_test(trajectories_are_paired),
        cmocka_unit_test(options_of_another_optimizer_are_refused),
        cmocka_unit_test(moments_in_8_bits),
        cmocka_unit_test(gradients_in_bf16),
        cmocka_unit_test(both_phases_in_one_command),
        cmocka_unit_test(epochs_may_be_too_many),
        cmocka_unit_test(timesteps_are_a_thousand),
        cmocka_unit_test(the_teacher_is_asked_at_given_levels),
        cmocka_unit_test(steps_may_be_more_than_chords),
        cmocka_unit_test(few_steps_divide_the_trajectorys),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
