/* `plan` for many ranks, of which none is here: what it says follows from the formulas of
 * docs/ranks.md; and rates that are measured once are those of the next plan, too. */
#include "program.h"

#include "io/json/json.h"

static wd_program program;
static char student[256];

static int prepare(void **state)
{
    (void)state;
    wd_err err;
    static const char config[] = "{\"hidden_size\": 1024, \"depth\": 16}";
    snprintf(student, sizeof student, "%s", wd_test_path("student.json"));
    setenv("XDG_CACHE_HOME", wd_test_path("cache"), 1);
    return wd_file_write(student, config, sizeof config - 1, &err);
}

/* Batch 4 on devices of 80 GiB, eight for each host. */
#define PLAN_ON(devices, ranks, hosts)                                                             \
    "plan", "--teacher_preset", "wan2.2-a14b", "--teacher_dtype", "bfloat16", "--student_config",  \
        student, "--height", "512", "--width", "512", "--batch_size", "4", "--host_memory",        \
        "512GiB", "--ranks", ranks, "--hosts", hosts, "--devices",                                 \
        "sim:8x80GiB@compute=500TFLOP/s,cpu=4TFLOP/s," devices
#define PLAN(ranks, hosts) PLAN_ON("link=50GB/s,memory=80GB/s", ranks, hosts)

static json_t *planned(void)
{
    json_t *plan;
    wd_err err;
    wd_program_succeeded(&program);
    wd_test_ok(wd_json_parse(&plan, program.out, strlen(program.out), "plan", &err), &err);
    return plan;
}

static const json_t *strategy_of(const json_t *plan, const char *name)
{
    size_t i;
    json_t *strategy;
    json_array_foreach(json_object_get(plan, "strategies"), i, strategy)
    {
        if (!strcmp(json_string_value(json_object_get(strategy, "strategy")), name))
            return strategy;
    }
    fail_msg("no %s", name);
    return NULL;
}

static double number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_number(value)) fail_msg("no number %s", name);
    return json_number_value(value);
}

static double sum_of_weights(const json_t *strategy)
{
    size_t i;
    json_t *device;
    double sum = 0;
    json_array_foreach(json_object_get(strategy, "devices"), i, device)
    {
        sum += number(device, "weights");
    }
    return sum;
}

/* Elements of the student's weights, padding included, to which a plan adds up gradients. */
static double weights_of(const json_t *plan)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(plan, "beside"), i, item)
    {
        if (!strcmp(json_string_value(json_object_get(item, "name")), "student gradients"))
            return number(item, "bytes") / sizeof(float);
    }
    fail_msg("no gradients");
    return 0;
}

/* As far as nine digits go, with which plans print numbers: `got` is a product of `factors`. */
static void assert_product(int factors, double got, double expected)
{
    if (fabs(got - expected) > factors * 5e-9 * expected)
        fail_msg("%.17g, expected %.17g", got, expected);
}

static void assert_near(double got, double expected)
{
    assert_product(1, got, expected);
}

/* Of a strategy's links from one name to another, all alike. */
static double link_number(const json_t *strategy, const char *from, const char *to,
                          const char *name)
{
    size_t i;
    json_t *link;
    json_array_foreach(json_object_get(strategy, "links"), i, link)
    {
        if (!strcmp(json_string_value(json_object_get(link, "from")), from) &&
            !strcmp(json_string_value(json_object_get(link, "to")), to))
            return number(link, name);
    }
    fail_msg("no link from %s to %s", from, to);
    return 0;
}

static void bytes_follow_from_the_formulas(void **state)
{
    (void)state;
    const double ranks = 64, targets = 64 * 4 / 2.0, latent = 16 * 64 * 64 * 4;
    wd_program_run(&program, PLAN("64", "8"), "--json");
    json_t *plan = planned();
    const double gradients = 2 * (ranks - 1) / ranks * sizeof(float) * weights_of(plan);
    assert_near(number(plan, "samples_per_step"), 64 * 4);
    assert_near(number(plan, "memory_bytes_per_s"), 80e9); /* as --devices says */
    assert_near(number(strategy_of(plan, "gpu"), "bytes_sent_per_step"),
                gradients + targets / ranks * latent * (ranks - 1));
    assert_near(number(strategy_of(plan, "gpu0"), "bytes_sent_per_step"),
                gradients + targets * latent * (ranks - 1));
    /* one sum of each host goes to others, by all its ranks together */
    const json_t *each = strategy_of(plan, "gpu"), *shared = strategy_of(plan, "gpu0");
    const double far = 2 * 7.0 / 8 / 8 * sizeof(float) * weights_of(plan);
    static const char gradients_are[] = "of_these_gradients", bytes_are[] = "bytes_per_step";
    assert_near(link_number(each, "each rank", "other hosts", "links"), ranks);
    assert_near(link_number(each, "each rank", "other hosts", gradients_are), far);
    assert_near(link_number(each, "each rank", "others of its host", gradients_are),
                gradients - far);
    assert_near(link_number(shared, "rank 5", "other hosts", bytes_are), far);
    assert_near(link_number(shared, "rank 0", "other hosts", bytes_are),
                far + targets * latent * (ranks - 8));
    assert_near(link_number(shared, "sim:0 of rank 5", "host memory", gradients_are),
                sizeof(float) * weights_of(plan));
    /* one host copy on each host; each rank has a teacher, or all of them one */
    const double bytes = sum_of_weights(strategy_of(plan, "gpu"));
    assert_true(bytes > 2 * 28.57e9 && bytes < 2 * 28.8e9);
    assert_near(sum_of_weights(strategy_of(plan, "balanced")), bytes);
    assert_near(number(strategy_of(plan, "offload"), "bytes_copied_per_step") -
                    number(strategy_of(plan, "gpu"), "bytes_copied_per_step"),
                ranks * targets / 64 * bytes);
    const double files = 2 * sizeof(float) * number(plan, "teacher_parameters"); /* in float32 */
    assert_near(number(strategy_of(plan, "disk"), "bytes_read_per_step"), 8 * targets / 64 * files);
    const json_t *best = strategy_of(plan, json_string_value(json_object_get(plan, "recommended")));
    assert_product(2, number(best, "samples_per_s") * number(best, "seconds_per_step"), 64 * 4);
    json_decref(plan);
}

static double samples_per_s(const char *const *arguments)
{
    wd_program_run_(&program, arguments);
    json_t *plan = planned();
    const double rate = number(strategy_of(plan, "gpu"), "samples_per_s");
    json_decref(plan);
    return rate;
}

/* Where nothing but computing takes time, each rank adds a rank's throughput; a slow network limits
 * what many hosts do. */
static void ranks_add_throughput(void **state)
{
    (void)state;
#define FAST "link=50TB/s,memory=80TB/s"
    const double one = samples_per_s((const char *[]){PLAN_ON(FAST, "1", "1"), "--json", NULL});
    const double eight = samples_per_s(
        (const char *[]){PLAN_ON(FAST, "8", "8"), "--network_bandwidth", "80TB/s", "--json", NULL});
    const double slow = samples_per_s(
        (const char *[]){PLAN("8", "8"), "--network_bandwidth", "100MB/s", "--json", NULL});
    assert_true(eight > 7.9 * one && eight < 8.1 * one);
    assert_true(slow < one);
    assert_non_null(strstr(program.out, "\"limited_by\": \"the network\""));
}

static double seconds_per_step(const char *const *arguments, double *gradients_bytes)
{
    wd_program_run_(&program, arguments);
    json_t *plan = planned();
    const double seconds = number(strategy_of(plan, "gpu"), "seconds_per_step");
    *gradients_bytes = sizeof(float) * weights_of(plan);
    json_decref(plan);
    return seconds;
}

/* Where the network is all that takes time: one sum of gradients leaves each host, and what comes
 * back comes to each once. Added in the order of micro-batches they leave it from each of its eight
 * ranks. Targets are a hundredth of it. */
static void hosts_send_one_sum(void **state)
{
    (void)state;
    double bytes;
    const double seconds = seconds_per_step(
        (const char *[]){PLAN("64", "8"), "--network_bandwidth", "100MB/s", "--json", NULL},
        &bytes);
    const double once = 7.0 / 8 * bytes / 100e6;
    assert_true(seconds > 2 * once && seconds < 1.5 * 2 * once);
    const double flat =
        seconds_per_step((const char *[]){PLAN("64", "8"), "--network_bandwidth", "100MB/s",
                                          "--deterministic_reduce", "--json", NULL},
                         &bytes);
    assert_true(flat > (8 + 1) * once && flat < 1.2 * (8 + 1) * once);
}

static void ranks_are_drawn_and_named(void **state)
{
    (void)state;
    char *svg;
    size_t bytes;
    wd_err err;
    const char *file = wd_test_path("plan.svg");
    wd_program_run(&program, PLAN("8", "2"), "--teacher_device_strategy", "balanced", "--svg", file,
                   "--verbose");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "8 on 2 hosts: a global batch of 32"));
    assert_non_null(strstr(program.out, "samples/s"));
    assert_non_null(strstr(program.out, "\n  a rank to others of its host "));
    wd_program_run(&program, PLAN("8", "2"), "--teacher_device_strategy", "offload", "--verbose");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "\n  each rank to other hosts "));
    wd_test_ok(wd_file_read(&svg, &bytes, file, 1 << 24, &err), &err);
    assert_non_null(strstr(svg, "sim:1 of rank 3 computes"));
    assert_non_null(strstr(svg, "sim:1 of rank 3 sends"));
    wd_free(svg);
}

/* A map names the devices of all ranks in order. */
static void a_map_goes_over_all_ranks(void **state)
{
    (void)state;
    wd_err err;
    static const char map[] = "{\"text_encoder\": \"cpu\", \"vae\": 0, \"transformer\": 5, "
                              "\"transformer_2\": \"sim:2\"}";
    const char *file = wd_test_path("map.json");
    wd_test_ok(wd_file_write(file, map, sizeof map - 1, &err), &err);
    wd_program_run(&program, PLAN("4", "1"), "--teacher_device_map", file, "--json");
    json_t *plan = planned();
    const json_t *runs = json_object_get(strategy_of(plan, "custom"), "placement");
    assert_int_equal(json_array_size(runs), 2);
    static const char *const where[] = {"sim:1 of rank 2", "sim:0 of rank 1"};
    for (size_t e = 0; e < 2; e++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(runs, e), "device")),
                            where[e]);
    json_decref(plan);
    wd_program_run(&program, PLAN("2", "1"), "--teacher_device_map", file);
    wd_program_succeeded(&program);
    wd_program_run(&program, PLAN("8", "2"), "--devices", "sim:4xh100", "--teacher_device_map",
                   file); /* one device each: there is a sim:5 */
    wd_program_succeeded(&program);
}

/* What ranks share of the student is on one of them. */
static void a_shared_student_takes_less(void **state)
{
    (void)state;
    double first[2], sent[2], weights = 0;
    for (int shared = 0; shared < 2; shared++) {
        size_t i;
        json_t *item;
        wd_program_run(&program, PLAN("8", "1"), "--json", "--mixed_precision", "bf16",
                       shared ? "--shard_optimizer" : "--json");
        json_t *plan = planned();
        first[shared] = 0;
        json_array_foreach(json_object_get(plan, "beside"), i, item)
        {
            if (!strcmp(json_string_value(json_object_get(item, "name")), "student first moments"))
                first[shared] = number(item, "bytes");
        }
        sent[shared] = number(strategy_of(plan, "gpu"), "bytes_sent_per_step");
        if (!shared) weights = weights_of(plan);
        json_decref(plan);
    }
    assert_true(first[1] > first[0] / 8 * 0.99 && first[1] < first[0] / 8 * 1.05);
    /* weights in bf16 come back, a half of gradients */
    const double less = 2 * weights * 7 / 8;
    assert_true(sent[0] - sent[1] < less && sent[0] - sent[1] > 0.95 * less);
}

/* The options with which `train` starts ranks are understood, too. */
static void ranks_are_those_that_train_starts(void **state)
{
    (void)state;
    static const char *const asked[][2] = {{"--nproc_per_node", "4"}, {"--multi_gpu", "--json"}};
    for (int i = 0; i < 2; i++) {
        wd_program_run(&program, PLAN("0", "2"), "--json", asked[i][0], asked[i][1]);
        json_t *plan = planned();
        assert_near(number(plan, "ranks"), i ? 16 : 8);
        json_decref(plan);
    }
}

static void unequal_ranks_are_refused(void **state)
{
    (void)state;
    wd_program_run(&program, PLAN("9", "2"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "as many ranks on each host");
    wd_program_run(&program, PLAN("3", "1"));
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "3 ranks of a host can share equally");
    wd_program_run(&program, PLAN("8", "1"), "--network_bandwidth", "fast");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "--network_bandwidth: expected a speed");
    wd_program_run(&program, PLAN("8", "1"), "--teacher_rank", "8");
    wd_program_refused(&program, WD_INVALID_ARGUMENT, "teacher_rank: 8 is no rank");
}

/* What a machine can do is measured once, unless it is asked for again. */
static void rates_are_kept(void **state)
{
    (void)state;
    static char first[sizeof program.out];
    const char *const plan[] = {"plan",          "--teacher_path", WD_SOURCE_DIR "/models/wan-tiny",
                                "--host_memory", "1GiB",           NULL};
    wd_program_run_(&program, plan);
    wd_program_succeeded(&program);
    assert_true(wd_path_exists(wd_test_path("cache/wandistiller/rates.json")));
    strcpy(first, program.out);
    wd_program_run_(&program, plan);
    wd_program_succeeded(&program);
    const char *rates = strstr(first, "\ndevices  ");
    assert_non_null(rates);
    assert_memory_equal(strstr(program.out, "\ndevices  "), rates, strcspn(rates + 1, "\n") + 1);

    /* a faster one that is known stays: this machine was busy when it was measured again */
    wd_err err;
    json_t *cache, *rate;
    const char *key, *file = wd_test_path("cache/wandistiller/rates.json");
    wd_test_ok(wd_json_load(&cache, file, &err), &err);
    json_object_foreach(json_object_get(cache, "rates"), key, rate)
    {
        json_object_set_new(rate, "per_s", json_real(1e15));
    }
    wd_test_ok(wd_json_save(cache, file, &err), &err);
    json_decref(cache);
    wd_program_run(&program, "plan", "--teacher_path", WD_SOURCE_DIR "/models/wan-tiny",
                   "--measure_rates");
    wd_program_succeeded(&program);
    assert_non_null(strstr(program.out, "cpu (1e+03 TFLOP/s in "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_follow_from_the_formulas),
        cmocka_unit_test(ranks_add_throughput),
        cmocka_unit_test(hosts_send_one_sum),
        cmocka_unit_test(ranks_are_drawn_and_named),
        cmocka_unit_test(unequal_ranks_are_refused),
        cmocka_unit_test(ranks_are_those_that_train_starts),
        cmocka_unit_test(a_map_goes_over_all_ranks),
        cmocka_unit_test(a_shared_student_takes_less),
        cmocka_unit_test(rates_are_kept),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
