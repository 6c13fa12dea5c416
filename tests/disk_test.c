/* The disk space of a run: what is planned is what a run then writes, and a run that has too little
 * ends before it writes anything.
 *
 * Linked with --wrap=statvfs: the free space of all file systems can be made up for a job of this
 * process. */
#include "runs.h"

#include <dirent.h>
#include <ftw.h>
#include <sys/statvfs.h>

#include "train/output/export.h"
#include "wandistiller.h"

static wd_program program;

/* ---- a disk that is made up ---- */

static uint64_t made_up = UINT64_MAX; /* bytes that are free; UINT64_MAX: the real ones */

int __real_statvfs(const char *path, struct statvfs *out);
int __wrap_statvfs(const char *path, struct statvfs *out);

int __wrap_statvfs(const char *path, struct statvfs *out)
{
    const int failed = __real_statvfs(path, out);
    if (failed || made_up == UINT64_MAX) return failed;
    out->f_frsize = 1;
    out->f_blocks = UINT64_MAX;
    out->f_bavail = out->f_bfree = made_up;
    return 0;
}

static char said[1 << 16]; /* warnings and errors of the log */

static void note(void *context, wd_log_level level, const char *message)
{
    (void)context, (void)level;
    const size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s\n", message);
}

/* ---- what a run writes ---- */

static uint64_t walked;

static int add_size(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)path, (void)where;
    if (kind == FTW_F && info->st_nlink == 1) walked += (uint64_t)info->st_size; /* no hard link */
    return 0;
}

static uint64_t bytes_below(const char *folder)
{
    walked = 0;
    assert_int_equal(nftw(folder, add_size, 16, FTW_PHYS), 0);
    return walked;
}

static uint64_t bytes_of(const char *folder, const char *file)
{
    char path[WD_PATH_MAX];
    struct stat info;
    wd_err err;
    wd_test_ok(wd_path_join(path, folder, file, &err), &err);
    assert_int_equal(stat(path, &info), 0);
    return (uint64_t)info.st_size;
}

static uint64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) fail_msg("the plan has no number %s", key);
    return (uint64_t)json_integer_value(value);
}

/* The plan of the file system on which everything of a test lies. */
static json_t *only_disk(const json_t *plan)
{
    const json_t *all = json_object_get(json_object_get(plan, "disk"), "file_systems");
    assert_int_equal(json_array_size(all), 1);
    return json_array_get(all, 0);
}

/* The item whose name begins so; NULL: there is none. */
static const json_t *find_item(const json_t *plan, const char *name)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(only_disk(plan), "items"), i,
                       item) if (!strncmp(json_string_value(json_object_get(item, "name")), name,
                                          strlen(name))) return item;
    return NULL;
}

/* Its bytes; 0: there is none. */
static uint64_t item_of(const json_t *plan, const char *name)
{
    const json_t *item = find_item(plan, name);
    return item ? number(item, "bytes") : 0;
}

/* ---- planned and written ---- */

#define SMALL "--height", "32", "--width", "32", "--batch_size", "2", "--guidance_scale", "2"

/* Options that change what is in a checkpoint or in the student. */
typedef struct written {
    const char *name, *more[16];
} written;

static const written runs[] = {
    {"plain", {"--trajectory_steps", "4", "--trajectories", "4"}},
    {"bf16",
     {"--trajectory_steps", "4", "--trajectories", "4", "--mixed_precision", "bf16", "--optimizer",
      "ademamix", "--export", "comfyui,gguf", "--ema_decay", "0"}},
    {"chords",
     {"--trajectory_steps", "8", "--trajectories", "8", "--student_steps", "4", "--on_policy_share",
      "0.5", "--teacher_dtype", "int8"}},
};

/* Runs `command` with the options of a run. */
static void start(const char *command, const written *run, const char *extra)
{
    const char *const all[] = {"--teacher_path",
                               teacher,
                               "--data_path",
                               wd_test_path("prompts.txt"),
                               "--student_config",
                               wd_test_path("student.json"),
                               "--output_dir",
                               wd_test_path(run->name),
                               "--num_steps",
                               "8",
                               "--checkpoint_interval",
                               "2",
                               "--save_samples",
                               "true",
                               "--sample_interval",
                               "4",
                               "--sample_steps",
                               "2",
                               SMALL};
    const char *args[64] = {command, extra};
    int n = extra ? 2 : 1;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) args[n++] = all[i];
    for (int i = 0; run->more[i]; i++) args[n++] = run->more[i];
    wd_program_wait(&program, wd_program_start(args));
}

static json_t *planned(const written *run)
{
    start("plan", run, "--json");
    wd_program_succeeded(&program);
    json_t *plan = json_loads(program.out, 0, NULL);
    assert_non_null(plan);
    return plan;
}

/* To the byte where sizes are known, and within bounds elsewhere. */
static void what_is_planned_is_written(void **state)
{
    (void)state;
    enum { HEADER_BYTES = 64 << 10, SLACK_BYTES = 8 << 10 }; /* of weights; of headers of text */
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char path[WD_PATH_MAX];
        const char *out = wd_test_path(runs[i].name);
        json_t *plan = planned(&runs[i]);
        assert_false(wd_path_exists(out)); /* a plan makes nothing */
        start("train", &runs[i], NULL);
        wd_program_succeeded(&program);
        const json_t *each = json_object_get(json_object_get(plan, "disk"), "checkpoint");
        for (int step = 6; step <= 8; step += 2) {
            snprintf(path, sizeof path, "checkpoints/step-%08d/state.safetensors", step);
            assert_int_equal(bytes_of(out, path), number(each, "state_bytes"));
        }
        snprintf(path, sizeof path, "%s/checkpoints", out);
        assert_in_range(bytes_below(path), 2 * number(each, "state_bytes"),
                        item_of(plan, "checkpoints: 2 kept"));
        assert_int_equal(bytes_of(out, "transformer/diffusion_pytorch_model.safetensors"),
                         item_of(plan, "student's weights"));
        snprintf(path, sizeof path, "%s/cache", out);
        const uint64_t cache = item_of(plan, "quantised weights") + item_of(plan, "prompt embed");
        const uint64_t header = item_of(plan, "quantised weights") ? HEADER_BYTES : 0;
        assert_in_range(bytes_below(path), cache - SLACK_BYTES, cache + header);
        snprintf(path, sizeof path, "%s/samples", out);
        assert_in_range(bytes_below(path), 1, item_of(plan, "sample sheets"));
        assert_true(bytes_below(out) <= number(only_disk(plan), "bytes_needed"));
        assert_true(number(only_disk(plan), "bytes_known") <=
                    number(only_disk(plan), "bytes_needed"));
        json_decref(plan);
    }
}

/* What the same run has written already is not counted again. */
static void what_is_there_is_not_counted(void **state)
{
    (void)state;
    written more = runs[0];
    more.more[4] = "--resume";
    more.more[5] = "auto";
    more.more[6] = "--num_steps";
    more.more[7] = "16";
    json_t *after = planned(&more);
    assert_int_equal(item_of(after, "checkpoints"), 0);
    assert_int_equal(item_of(after, "prompt embeddings"), 0);
    const json_t *each = json_object_get(json_object_get(after, "disk"), "checkpoint");
    assert_int_equal(item_of(after, "one more"), number(each, "bytes"));
    json_decref(after);
}

/* ---- too little space ---- */

static wd_train_options small_options(const char *out)
{
    wd_train_options o = wd_train_defaults();
    o.teacher_path = teacher;
    o.data_path = wd_test_path("prompts.txt");
    o.student_config = wd_test_path("student.json");
    o.output_dir = out;
    o.height = o.width = 32;
    o.batch_size = 2;
    o.trajectories = 4;
    o.trajectory_steps = 4;
    o.guidance_scale = 2;
    o.num_steps = 8;
    o.checkpoint_interval = 2;
    return o;
}

static wd_status train_with(uint64_t bytes_free, const wd_train_options *o, wd_err *err)
{
    made_up = bytes_free;
    *said = 0;
    wd_log_to(note, NULL, WD_LOG_WARNING);
    const wd_status status = wd_train(NULL, o, err);
    wd_log_to(NULL, NULL, WD_LOG_ERROR);
    made_up = UINT64_MAX;
    return status;
}

static json_t *plan_of(const wd_train_options *o)
{
    char *text = NULL;
    wd_err err = {0};
    wd_plan_options p = wd_plan_defaults();
    p.train = *o;
    p.json = true;
    wd_test_ok(wd_plan(&text, &p, &err), &err);
    json_t *plan = json_loads(text, 0, NULL);
    assert_non_null(plan);
    wd_text_free(text);
    return plan;
}

static void a_run_without_space_is_refused(void **state)
{
    (void)state;
    wd_err err = {0};
    const char *out = wd_test_path("no-space");
    wd_train_options o = small_options(out);
    json_t *plan = plan_of(&o);
    const uint64_t known = number(only_disk(plan), "bytes_known");
    const uint64_t need = number(only_disk(plan), "bytes_needed");
    json_decref(plan);
    wd_test_refused(train_with(known - 1, &o, &err), &err, WD_DOES_NOT_FIT, "free");
    assert_non_null(strstr(err.message, wd_test_folder()));
    assert_non_null(strstr(said, "--keep_checkpoints 1: "));
    assert_non_null(strstr(said, "less, which then fits"));
    assert_non_null(strstr(said, "--output_dir DIR on another disk"));
    assert_false(wd_path_exists(out)); /* before anything is written */
    o.keep_checkpoints = 1;            /* what it says is so */
    wd_test_ok(train_with(known - 1, &o, &err), &err);
    o.keep_checkpoints = 2;
    o.output_dir = wd_test_path("tight");
    wd_test_ok(train_with(need + need / 20, &o, &err), &err);
    assert_non_null(strstr(said, "disk: the run writes up to"));
    o.output_dir = wd_test_path("roomy");
    wd_test_ok(train_with(need + need / 8, &o, &err), &err);
    assert_null(strstr(said, "disk: the run writes up to"));
}

/* Trains a run, whose checkpoints go by time, and returns the options that continue it. Its targets
 * are more than its weights. */
static wd_train_options continued(const char *out)
{
    wd_err err = {0};
    wd_train_options o = small_options(out);
    o.height = o.width = 128;
    o.save_targets = wd_test_path("continued-targets");
    o.checkpoint_interval = 0;
    o.num_steps = 4;
    wd_test_refused(train_with(1 << 20, &o, &err), &err, WD_DOES_NOT_FIT, "free");
    assert_non_null(strstr(said, "fewer --trajectories"));
    assert_non_null(strstr(said, "  --save_targets DIR on another disk: "));
    wd_test_ok(train_with(UINT64_MAX, &o, &err), &err);
    o.resume = "auto";
    o.num_steps = 8;
    return o;
}

/* What a resumed run is told is what it may do, and leads to a run that goes on. */
static void a_resumed_run_without_space(void **state)
{
    (void)state;
    char way[512];
    wd_err err = {0};
    const char *out = wd_test_path("continued");
    wd_train_options o = continued(out);
    json_t *two = plan_of(&o);
    const uint64_t known = number(only_disk(two), "bytes_known");
    assert_null(find_item(two, "one more"));
    json_decref(two);
    wd_test_refused(train_with(known - 1, &o, &err), &err, WD_DOES_NOT_FIT, "free");
    snprintf(way, sizeof way, "  --resume %s --output_dir DIR on another disk\n", out);
    assert_non_null(strstr(said, way));
    assert_non_null(strstr(said, "  --keep_checkpoints 1: "));
    assert_non_null(
        strstr(said, "  --save_targets DIR on another disk, where a copy of the folder"));
    assert_null(strstr(said, "--trajectories"));
    o.keep_checkpoints = 1; /* the new one is there before the old one is removed */
    json_t *one = plan_of(&o);
    const uint64_t bytes = item_of(one, "one more");
    assert_true(bytes &&
                json_is_false(json_object_get(find_item(one, "one more"), "is_upper_bound")));
    json_decref(one);
    wd_test_refused(train_with(bytes - 1, &o, &err), &err, WD_DOES_NOT_FIT, "free");
    assert_null(strstr(said, "--keep_checkpoints"));
    o.resume = out;
    o.output_dir = wd_test_path("continued-elsewhere");
    wd_test_ok(train_with(UINT64_MAX, &o, &err), &err);
    json_t *rows = metrics(o.output_dir);
    assert_int_equal(number(json_array_get(rows, 0), "step"), 5);
    json_decref(rows);
    o.resume = "auto";
    o.output_dir = out;
    wd_test_ok(train_with(known, &o, &err), &err);
}

/* A plan for this machine's folder ends with 9, too; one without --output_dir may be for another.
 */
static void a_plan_without_space(void **state)
{
    (void)state;
    char *text = NULL;
    wd_err err = {0};
    wd_plan_options p = wd_plan_defaults();
    p.train = small_options(wd_test_path("planned"));
    made_up = 1 << 20;
    wd_test_refused(wd_plan(&text, &p, &err), &err, WD_DOES_NOT_FIT, "its file system has 1 MiB");
    assert_non_null(strstr(text, "1 MiB free: it does not fit"));
    assert_non_null(strstr(text, "a checkpoint: "));
    wd_text_free(text);
    p.train.output_dir = wd_train_defaults().output_dir;
    wd_test_ok(wd_plan(&text, &p, &err), &err);
    wd_text_free(text);
    made_up = UINT64_MAX;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_planned_is_written),
        cmocka_unit_test(what_is_there_is_not_counted),
        cmocka_unit_test(a_run_without_space_is_refused),
        cmocka_unit_test(a_resumed_run_without_space),
        cmocka_unit_test(a_plan_without_space),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
