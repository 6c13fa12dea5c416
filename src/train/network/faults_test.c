/* Checkpoints and the student's folder when calls of the system fail: what was there, or what was
 * to come, is there as a whole; the next attempt goes well; files are flushed before they are
 * renamed. */
#include "faults.h"

#include "io/json/json.h"
#include "student_fixture.h"
#include "tiny_teacher.h"
#include "train/output/checkpoint_folder.h"
#include "train/output/checkpoint_list.h"
#include "train/output/export.h"

enum { VERSIONS = 2, STEP = 40, EARLIER = 20 };

static bench cpu;
static wd_params version[VERSIONS], found;

/* ---- checkpoints ---- */

typedef struct checkpoints {
    char folder[128];
    int there;      /* the version that the checkpoint has; -1: there is none */
    int to_come;    /* that an attempt writes */
    bool vanishes;  /* an attempt begins without the checkpoint */
    int64_t failed; /* attempts */
} checkpoints;

static wd_status write_version(const checkpoints *c, int64_t step, int number, wd_err *err)
{
    json_t *run = json_pack("{s:i}", "version", number);
    const wd_status status =
        wd_checkpoint_write(c->folder, step, ONLY(&version[number]), run, cpu.queue, err);
    json_decref(run);
    return status;
}

/* The version that a checkpoint has, of weights and of run; -1: there is none. */
static int version_of(const checkpoints *c, int64_t step)
{
    char path[WD_PATH_MAX];
    wd_err err;
    wd_checkpoint checkpoint;
    wd_test_ok(wd__checkpoint_folder_tidy(c->folder, &err), &err);
    wd_test_ok(wd_checkpoint_folder_path(path, c->folder, "", step, &err), &err);
    if (!wd_path_exists(path)) return -1;
    wd_test_ok(wd_checkpoint_open(&checkpoint, path, &err), &err);
    wd_test_ok(wd_checkpoint_load(&checkpoint, ONLY(&found), cpu.queue, &err), &err);
    const int number = (int)json_integer_value(json_object_get(checkpoint.run, "version"));
    wd_checkpoint_close(&checkpoint);
    assert_true(same_buffer(&cpu, &found, &version[number], WD_PARAMS_P));
    assert_true(same_buffer(&cpu, &found, &version[number], WD_PARAMS_EMA));
    return number;
}

static wd_status attempt_checkpoint(void *context, wd_err *err)
{
    const checkpoints *c = context;
    return write_version(c, STEP, c->to_come, err);
}

static void check_checkpoint(void *context, wd_status status)
{
    checkpoints *c = context;
    wd_err err;
    const int now = version_of(c, STEP);
    assert_int_equal(version_of(c, EARLIER), 0);
    if (status == WD_OK ? now != c->to_come : now != c->to_come && now != c->there)
        fail_msg("version %d was there, %d was to come, and %d is there", c->there, c->to_come,
                 now);
    c->failed += status != WD_OK;
    if (c->vanishes) {
        char path[WD_PATH_MAX];
        wd_test_ok(wd_checkpoint_folder_path(path, c->folder, "", STEP, &err), &err);
        wd_test_ok(wd_folder_remove(path, &err), &err);
        c->there = -1;
        return;
    }
    c->there = now;
    c->to_come = !now;
    if (status == WD_OK) return;
    wd_test_ok(write_version(c, STEP, c->to_come, &err), &err); /* nothing is in its way */
    assert_int_equal(version_of(c, STEP), c->to_come);
    c->there = c->to_come;
    c->to_come = !c->there;
}

static checkpoints begin(const char *name, bool vanishes)
{
    wd_err err;
    checkpoints c = {.there = -1, .to_come = 1, .vanishes = vanishes};
    snprintf(c.folder, sizeof c.folder, "%s/%s", wd_test_folder(), name);
    wd_test_ok(write_version(&c, EARLIER, 0, &err), &err);
    return c;
}

/* The calls that writing one makes: without them nothing would be shown. */
static void fail_each(wd_fault_attempt *attempt, wd_fault_check *check, void *context)
{
    static const wd_fault_call calls[] = {WD_FAULT_open,  WD_FAULT_read,   WD_FAULT_write,
                                          WD_FAULT_fsync, WD_FAULT_rename, WD_FAULT_close};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const int64_t n = wd_fault_each(calls[i], attempt, check, context);
        if (n < 2) fail_msg("only %lld calls of %s", (long long)n, wd_fault_names[calls[i]]);
    }
    assert_true(wd_fault_each(WD_FAULT_fallocate, attempt, check, context) > 0);
    assert_true(wd_fault_each(WD_FAULT_renameat2, attempt, check, context) > 0);
}

static void a_checkpoint_is_there_whole_or_not_at_all(void **state)
{
    (void)state;
    checkpoints c = begin("new", true);
    fail_each(attempt_checkpoint, check_checkpoint, &c);
    assert_true(c.failed > 20);
}

static void a_checkpoint_that_is_replaced_is_the_old_or_the_new_one(void **state)
{
    (void)state;
    checkpoints c = begin("replaced", false);
    fail_each(attempt_checkpoint, check_checkpoint, &c);
    assert_true(c.failed > 20);
}

static void a_checkpoint_is_flushed_before_it_has_its_name(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    wd_err err;
    checkpoints c = begin("ordered", false);
    wd_test_ok(wd_checkpoint_folder_path(path, c.folder, "", STEP, &err), &err);
    for (int replaces = 0; replaces < 2; replaces++) {
        wd_faults.count = 0;
        wd_faults.keeps = true;
        wd_test_ok(attempt_checkpoint(&c, &err), &err);
        wd_faults.keeps = false;
        wd_fault_assert_flushed_before_renames();
        wd_fault_assert_flushed_after_rename(path);
        if (replaces) wd_fault_assert_flushed_before_removal(path);
    }
}

/* ---- the newest checkpoint ---- */

static wd_status attempt_latest(void *context, wd_err *err)
{
    checkpoints *c = context;
    wd_checkpoint checkpoint;
    WD_TRY(wd_checkpoint_open_latest(&checkpoint, c->folder, err));
    assert_int_equal(checkpoint.step, STEP);
    wd_checkpoint_close(&checkpoint);
    return WD_OK;
}

/* An error of the disk, or a lack of file descriptors. */
static void check_latest(void *context, wd_status status)
{
    checkpoints *c = context;
    assert_true(status == WD_OK || status == WD_IO);
    c->failed += status != WD_OK;
}

static void the_newest_is_not_passed_over_because_it_cannot_be_read(void **state)
{
    (void)state;
    wd_err err;
    bool has_one;
    checkpoints c = begin("latest", false);
    wd_test_ok(write_version(&c, STEP, 1, &err), &err);
    assert_true(wd_fault_each(WD_FAULT_open, attempt_latest, check_latest, &c) >= 5);
    assert_true(wd_fault_each(WD_FAULT_read, attempt_latest, check_latest, &c) >= 5);
    assert_true(c.failed >= 20);
    wd_fault_arm(WD_FAULT_read, WD_FAULT_ONCE, 1, "state.json");
    wd_test_refused(attempt_latest(&c, &err), &err, WD_IO, "or go on from an earlier one");
    wd_fault_arm(WD_FAULT_open, WD_FAULT_FROM_THEN_ON, 1, NULL);
    wd_test_refused(wd__checkpoint_list_has_one(&has_one, c.folder, &err), &err, WD_IO,
                    "state.json");
    wd_fault_disarm();
}

/* ---- the student's folder ---- */

typedef struct student {
    char folder[128];
    int there, to_come;
    int64_t failed;
    char hash[VERSIONS][33]; /* of its weights */
} student;

static const char weights[] = "/transformer/diffusion_pytorch_model.safetensors";

static void hash_weights(char out[33], const student *s)
{
    char path[256];
    wd_err err;
    snprintf(path, sizeof path, "%s%s", s->folder, weights);
    wd_test_ok(wd_file_hash(out, path, &err), &err);
}

static wd_status attempt_export(void *context, wd_err *err)
{
    const student *s = context;
    const wd_export_options options = wd_export_defaults();
    return wd_export_student(s->folder, &version[s->to_come], &teacher, &options, cpu.queue, err);
}

static void check_export(void *context, wd_status status)
{
    student *s = context;
    wd_pipeline pipeline;
    wd_err err;
    char now[33];
    bool is_student = false;
    wd_test_ok(wd_pipeline_open(&pipeline, s->folder, &err), &err);
    wd_test_ok(wd_export_is_student(&is_student, s->folder, &err), &err);
    assert_true(is_student);
    hash_weights(now, s);
    const bool is_new = !strcmp(now, s->hash[s->to_come]), is_old = !strcmp(now, s->hash[s->there]);
    if (!is_new && (status == WD_OK || !is_old)) fail_msg("weights of no student are there");
    s->failed += status != WD_OK;
    if (is_new) s->there = s->to_come;
    s->to_come = !s->there;
}

static void begin_export(student *s, const char *name)
{
    wd_err err;
    *s = (student){0};
    snprintf(s->folder, sizeof s->folder, "%s/%s", wd_test_folder(), name);
    for (s->to_come = VERSIONS - 1; s->to_come >= 0; s->to_come--) {
        wd_test_ok(attempt_export(s, &err), &err);
        hash_weights(s->hash[s->to_come], s);
    }
    s->there = 0;
    s->to_come = 1;
}

static void a_student_is_the_old_or_the_new_one(void **state)
{
    (void)state;
    student s;
    begin_export(&s, "student");
    fail_each(attempt_export, check_export, &s);
    assert_true(s.failed > 20);
}

static void a_student_is_flushed_before_it_has_its_name(void **state)
{
    (void)state;
    char path[256];
    wd_err err;
    student s;
    begin_export(&s, "flushed");
    wd_faults.count = 0;
    wd_faults.keeps = true;
    wd_test_ok(attempt_export(&s, &err), &err);
    wd_faults.keeps = false;
    wd_fault_assert_flushed_before_renames();
    snprintf(path, sizeof path, "%s/transformer", s.folder);
    wd_fault_assert_flushed_after_rename(path);
    wd_fault_assert_flushed_before_removal(path);
    const int weights_at = wd_fault_last_rename_to_(path);
    snprintf(path, sizeof path, "%s/model_index.json", s.folder);
    wd_fault_assert_flushed_after_rename(path);
    assert_true(wd_fault_last_rename_to_(path) > weights_at); /* it says that all is there */
}

static int open_all(void **state)
{
    wd_err err;
    open_teacher(state);
    cpu = bench_on(wd_device_open_cpu, 1);
    wd_dit_config config = small_config();
    config.in_channels = config.out_channels = teacher.dit.in_channels;
    config.text_dim = teacher.dit.text_dim;
    for (int i = 0; i < VERSIONS; i++) {
        wd_test_ok(
            wd_params_open(&version[i], &config, WD_F32, WD_PARAMS_WITH_EMA, cpu.device, &err),
            &err);
        fill_buffer(&cpu, &version[i], WD_PARAMS_P, (uint64_t)(10 * i), 1, 0);
        fill_buffer(&cpu, &version[i], WD_PARAMS_EMA, (uint64_t)(10 * i + 1), 1, 0);
    }
    wd_test_ok(wd_params_open(&found, &config, WD_F32, WD_PARAMS_WITH_EMA, cpu.device, &err), &err);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (int i = 0; i < VERSIONS; i++) wd_params_close(&version[i]);
    wd_params_close(&found);
    bench_close(&cpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_is_there_whole_or_not_at_all),
        cmocka_unit_test(a_checkpoint_that_is_replaced_is_the_old_or_the_new_one),
        cmocka_unit_test(a_checkpoint_is_flushed_before_it_has_its_name),
        cmocka_unit_test(the_newest_is_not_passed_over_because_it_cannot_be_read),
        cmocka_unit_test(a_student_is_the_old_or_the_new_one),
        cmocka_unit_test(a_student_is_flushed_before_it_has_its_name),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
