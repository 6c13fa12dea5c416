/* The whole program on GPUs that the stand-in driver shows: `plan` and `train` of wan-tiny. One
 * seed gives one student wherever the teacher is, on one GPU, on two, and in parts; what
 * was planned is what is measured; a GPU that is too small is refused with all that it has. */
#include "standin_runs.h"

#include "io/json/json.h"

/* What run.json has of the GPU: no more than was planned. */
static void assert_measured(const char *run)
{
    char path[WD_PATH_MAX];
    json_t *file;
    wd_err err;
    wd_test_ok(wd_path_join(path, run, "run.json", &err), &err);
    wd_test_ok(wd_json_load(&file, path, &err), &err);
    const json_t *memory = json_object_get(file, "memory");
    const json_t *planned = json_object_get(memory, "devices");
    const json_t *measured = json_object_get(memory, "devices_measured");
    const json_int_t most = json_integer_value(json_object_get(measured, "cuda:0"));
    assert_in_range(most, 1, json_integer_value(json_object_get(planned, "cuda:0")));
    json_decref(file);
}

static void a_student_of_one_gpu(void **state)
{
    (void)state;
    wd_program_run(&program, GPU_RUN(wd_test_path("one")), "--devices", ONE,
                   "--teacher_device_strategy", "gpu", "--profile_memory", "--log_level", "info");
    wd_program_succeeded(&program);
    assert_as_planned("cuda:0");
    assert_measured(wd_test_path("one"));
    json_t *rows = metrics(wd_test_path("one"));
    assert_int_equal(json_array_size(rows), 4);
    for (size_t i = 0; i < 4; i++)
        assert_true(json_number_value(json_object_get(json_array_get(rows, i), "loss")) > 0);
    json_decref(rows);
}

static void two_gpus_change_nothing(void **state)
{
    (void)state;
    wd_program_run(&program, GPU_RUN(wd_test_path("two")), "--devices", TWO,
                   "--teacher_device_strategy", "balanced", "--teacher_window", "3",
                   "--profile_memory", "--log_level", "info");
    wd_program_succeeded(&program);
    assert_as_planned("cuda:0");
    assert_as_planned("cuda:1");
    assert_same_weights(wd_test_path("one"), wd_test_path("two"));
}

/* Its first steps are updated by the processor, in host memory, the others by the GPU. */
static void a_stopped_run_goes_on(void **state)
{
    (void)state;
    const char *out = wd_test_path("parts");
    wd_program_run(&program, GPU_RUN(out), "--devices", ONE, "--teacher_device_strategy", "offload",
                   "--stop_at_step", "2", "--optimizer_device", "host", "--profile_memory",
                   "--log_level", "info");
    wd_program_succeeded(&program);
    assert_as_planned("cuda:0");
    assert_non_null(strstr(program.err, "moments, EMA and master weights: in host memory"));
    wd_program_run(&program, GPU_RUN(out), "--devices", ONE, "--teacher_device_strategy", "disk",
                   "--resume", "auto");
    wd_program_succeeded(&program);
    assert_null(strstr(program.err, "computed with"));
    assert_same_weights(wd_test_path("one"), out);
}

/* A run goes on on a GPU of another model, and says that the bits will be others. */
static void another_gpu_is_named_when_a_run_goes_on(void **state)
{
    (void)state;
    const char *out = wd_test_path("moved");
    wd_program_run(&program, GPU_RUN(out), "--devices", ONE, "--stop_at_step", "1");
    wd_program_succeeded(&program);
    setenv("WD_STANDIN_NAME", "NVIDIA Another", 1);
    wd_program_run(&program, GPU_RUN(out), "--devices", ONE, "--resume", "auto", "--stop_at_step",
                   "2");
    unsetenv("WD_STANDIN_NAME");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "computed with NVIDIA Stand-in, sm_90, cuBLASLt"));
    assert_non_null(strstr(program.err, "this one computes with NVIDIA Another, sm_90, cuBLASLt"));
}

/* The number of texts that the last run has encoded, and what it says encoded them. */
static int encoded_on(const char *device)
{
    char on[64] = "";
    int count = 0;
    const char *line = strstr(program.err, "text encoder: ");
    if (!line) return 0;
    assert_int_equal(
        sscanf(line, "text encoder: %d of 4 texts to encode in float32 on %63s", &count, on), 2);
    assert_memory_equal(on, device, strlen(device));
    return count;
}

/* Checks a line of --profile_memory about an item. */
static void assert_item_as_planned(const char *item)
{
    char planned[32], measured[32];
    const char *line = strstr(program.err, item);
    if (!line) fail_msg("nothing is said of %s: %s", item, program.err);
    assert_int_equal(
        sscanf(line + strlen(item), " planned %31[^m] measured %31[^\n]", planned, measured), 2);
    assert_memory_equal(planned, measured, strlen(measured));
}

#define ENCODED(out, cache)                                                                        \
    GPU_RUN(out), "--cache_dir", cache, "--log_level", "info", "--stop_at_step", "1"

/* The prompts are encoded on the GPU, in the memory that was planned. GPU and processor do not take
 * each other's embeddings. */
static void the_gpu_encodes_the_prompts(void **state)
{
    (void)state;
    const char *out = wd_test_path("text"), *cache = wd_test_path("text-cache");
    static const char *const devices[] = {ONE, "cpu", ONE};
    for (int i = 0; i < 3; i++) {
        wd_program_run(&program, ENCODED(out, cache), "--devices", devices[i], "--profile_memory");
        wd_program_succeeded(&program);
        assert_int_equal(encoded_on(i ? "cpu" : "cuda:0"), i < 2 ? 4 : 0);
        assert_null(strstr(program.err, "the processor encodes"));
        if (!i) assert_item_as_planned("encoding   text encoder activations");
    }
}

/* Sheets are decoded on the GPU, in the memory that was planned. */
static void the_gpu_decodes_sheets(void **state)
{
    (void)state;
    const char *out = wd_test_path("sheets");
    wd_program_run(&program, GPU_RUN(out), "--devices", ONE, "--teacher_device_strategy", "gpu",
                   "--save_samples", "true", "--sample_steps", "2", "--sample_prompts", "a fox",
                   "--num_steps", "1", "--profile_memory", "--log_level", "info");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, ", decoded on cuda:0\n"));
    assert_as_planned("cuda:0");
    assert_item_as_planned("sampling   VAE activations");
    assert_true(wd_path_exists(wd_test_path("sheets/samples/step-00000001.png")));
}

/* A run that goes on keeps its embeddings: those of a processor where it was begun on one, and a
 * GPU's no longer where a map says so. */
static void a_run_that_goes_on_keeps_its_embeddings(void **state)
{
    (void)state;
    wd_err err;
    static const char map[] = "{\"text_encoder\": \"cpu\", \"vae\": \"cpu\", \"transformer\": 0, "
                              "\"transformer_2\": 0}";
    const char *file = wd_test_path("map.json");
    wd_test_ok(wd_file_write(file, map, sizeof map - 1, &err), &err);
    const char *out = wd_test_path("kept"), *cache = wd_test_path("kept-cache");
    wd_program_run(&program, ENCODED(out, cache), "--devices", "cpu");
    wd_program_succeeded(&program);
    wd_test_ok(wd_folder_remove(cache, &err), &err);
    wd_program_run(&program, ENCODED(out, cache), "--devices", ONE, "--resume", "auto",
                   "--stop_at_step", "2");
    wd_program_succeeded(&program);
    assert_int_equal(encoded_on("cpu"), 4);
    assert_non_null(strstr(program.err, "the processor encodes the prompts: the run was begun so"));
    assert_null(strstr(program.err, "prompts were encoded with"));
    wd_program_run(&program, ENCODED(out, cache), "--devices", ONE);
    wd_program_succeeded(&program);
    assert_int_equal(encoded_on("cuda:0"), 4);
    wd_program_run(&program, ENCODED(out, cache), "--devices", ONE, "--resume", "auto",
                   "--stop_at_step", "2", "--teacher_device_map", file);
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "a run whose prompts were encoded with NVIDIA Stand-in"));
    assert_non_null(strstr(program.err, "this one encodes them with the processor"));
    assert_int_equal(encoded_on("cpu"), 0);
}

static double last_loss(const char *run)
{
    json_t *rows = metrics(run);
    const double loss =
        json_number_value(json_object_get(json_array_get(rows, json_array_size(rows) - 1), "loss"));
    json_decref(rows);
    return loss;
}

/* Both compute in bf16, as on the processor, which gives other bits and nearly the same loss; fp16
 * says so. */
static void mixed_precision_is_bf16(void **state)
{
    (void)state;
    wd_program_run(&program, GPU_RUN(wd_test_path("bf16")), "--devices", ONE, "--mixed_precision",
                   "bf16");
    wd_program_succeeded(&program);
    wd_program_run(&program, GPU_RUN(wd_test_path("fp16")), "--devices", ONE, "--mixed_precision",
                   "fp16", "--log_level", "info");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.err, "--mixed_precision fp16: the student computes in bf16"));
    assert_same_weights(wd_test_path("bf16"), wd_test_path("fp16"));
    wd_program_run(&program, GPU_RUN(wd_test_path("cpu")), "--devices", "cpu", "--mixed_precision",
                   "bf16");
    wd_program_succeeded(&program);
    const double fp32 = last_loss(wd_test_path("one")), bf16 = last_loss(wd_test_path("bf16"));
    const double cpu = last_loss(wd_test_path("cpu"));
    assert_true(bf16 != fp32);
    assert_true(fabs(bf16 - cpu) < 0.02 * cpu); /* four steps of products rounded to 8 bits */
}

/* ---- plans ---- */

static json_t *plan_as_json(void)
{
    wd_program_run(&program, "plan", "--teacher_path", teacher, "--data_path",
                   wd_test_path("prompts.txt"), "--student_config", wd_test_path("student.json"),
                   "--cache_dir", wd_test_path("cache"), "--height", "32", "--width", "32",
                   "--num_threads", "1", "--devices", TWO, "--json");
    wd_program_succeeded(&program);
    json_t *json = json_loads(program.out, 0, NULL);
    assert_non_null(json);
    return json;
}

static json_int_t integer(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) fail_msg("there is no integer \"%s\"", key);
    return json_integer_value(value);
}

/* All that a GPU has is somebody's: the pool's, the libraries', others'. */
static void a_plan_says_what_a_gpu_has(void **state)
{
    (void)state;
    setenv("WD_STANDIN_OTHERS_MIB", "100", 1);
    json_t *plan = plan_as_json();
    for (size_t i = 0; i < 2; i++) {
        const json_t *gpu = json_array_get(json_object_get(plan, "devices"), i);
        assert_int_equal(integer(gpu, "bytes_of_others"), 101 << 20); /* 1 MiB is its context */
        const json_int_t beside = integer(gpu, "bytes_beside");
        assert_true(beside > 0);
        const json_int_t left = (1 << 30) - (101 << 20) - beside - integer(gpu, "bytes");
        assert_in_range(left, 0, (2 << 20) - 1); /* what is no whole piece of 2 MiB */
    }
    const json_t *strategies = json_object_get(plan, "strategies");
    for (size_t k = 0; k < json_array_size(strategies); k++) {
        const json_t *devices = json_object_get(json_array_get(strategies, k), "devices");
        for (size_t i = 0; i < 2 && json_array_size(devices); i++)
            assert_int_equal(integer(json_array_get(devices, i), "peak") % (2 << 20), 0);
    }
    json_decref(plan);
    unsetenv("WD_STANDIN_OTHERS_MIB");
}

static void a_small_gpu_is_refused_with_what_it_has(void **state)
{
    (void)state;
    setenv("WD_STANDIN_MIB", "256", 1);
    setenv("WD_STANDIN_OTHERS_MIB", "160", 1);
    wd_program_run(&program, GPU_RUN(wd_test_path("small")), "--devices", ONE,
                   "--teacher_device_strategy", "gpu");
    wd_program_refused(&program, WD_DOES_NOT_FIT, "does not fit");
    assert_non_null(strstr(program.err, "MiB libraries take 4 MiB, the driver and other processes "
                                        "161 MiB (nvidia-smi lists them)"));
    setenv("WD_STANDIN_MIB", "180", 1);
    wd_program_run(&program, GPU_RUN(wd_test_path("small")), "--devices", ONE);
    wd_program_refused(&program, WD_OUT_OF_MEMORY, "19 of 180 MiB are free, too little");
    unsetenv("WD_STANDIN_MIB");
    unsetenv("WD_STANDIN_OTHERS_MIB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_student_of_one_gpu),
        cmocka_unit_test(two_gpus_change_nothing),
        cmocka_unit_test(a_stopped_run_goes_on),
        cmocka_unit_test(another_gpu_is_named_when_a_run_goes_on),
        cmocka_unit_test(the_gpu_encodes_the_prompts),
        cmocka_unit_test(the_gpu_decodes_sheets),
        cmocka_unit_test(a_run_that_goes_on_keeps_its_embeddings),
        cmocka_unit_test(mixed_precision_is_bf16),
        cmocka_unit_test(a_plan_says_what_a_gpu_has),
        cmocka_unit_test(a_small_gpu_is_refused_with_what_it_has),
    };
    setenv("WD_TEST_PROGRAM", WD_STANDIN_PROGRAM, 1);
    return cmocka_run_group_tests(tests, prepare, NULL);
}
