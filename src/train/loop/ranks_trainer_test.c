/* The training loop of many ranks: they stop together when any of them is told to, one of them
 * writes, and any number of them goes on from there. On wan-tiny; ranks are threads. */
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

#include "core/file_space.h"
#include "harness/ranks.h"
#include "tiny_teacher.h"
#include "train/loop/trainer.h"
#include "train/output/checkpoint.h"
#include "train/output/request.h"

enum { STEPS = 5, STOPPED = 3 };

typedef struct part {
    rank_thread at;
    const wd_trainer_options *options;
    const char *devices;
    int asks_left; /* until this rank is told to stop, which it then is for good; 0: it is not */
    wd_trainer_result result;
} part;

static bool stop(void *context)
{
    part *p = context;
    if (p->asks_left <= 1) return p->asks_left == 1;
    p->asks_left--;
    return false;
}

static void *run_part(void *context)
{
    part *p = context;
    wd_devices d;
    wd_residency *residency;
    wd_trainer_options o = *p->options;
    wd_placement all = whole_on_first(&teacher);
    all.each = true; /* so that a rank's sweep has room for its share of a window, and no more */
    all.ranks = p->at.comm->ranks;
    o.stepper.comm = p->at.comm;
    o.stop = stop;
    o.stop_context = p;
    HARNESS_OK(wd_devices_open(&d, p->devices, 1, err));
    HARNESS_OK(wd_residency_open_placed(&residency, &teacher, &all, o.stepper.teacher_dtype,
                                        d.teacher, d.host, o.stepper.comm, err));
    const wd_stepper_teacher where = {residency, &all, d.teacher, d.home};
    HARNESS_OK(wd_trainer_run(&p->result, &o, &where, d.student, err));
    wd_residency_close(residency);
    close_devices(&d);
    return NULL;
}

static wd_trainer_options trainer_options(void)
{
    static const char *const prompt[] = {"a cat", "a dog", "a house"};
    return (wd_trainer_options){
        .stepper = small_stepper(&teacher),
        .steps = STEPS,
        .teacher_key = "small",
        .text_encoder_key = "short",
        .prompts_key = "three",
        .negative_prompt = "",
        .sample_interval = STOPPED + 1,
        .samples = {.prompt = prompt, .count = 3, .steps = 2, .student_flow_shift = 3, .seed = 4},
        .lr = {.shape = WD_LR_COSINE, .lr = 1e-3, .ratio_min = 0.1},
        .keep_checkpoints = 3,
        .export = wd_export_defaults()};
}

/* Below the test's folder. */
static const char *path_of(char out[WD_PATH_MAX], const char *run, const char *file)
{
    snprintf(out, WD_PATH_MAX, "%s/%s%s", wd_test_folder(), run, file);
    return out;
}

/* `told`: the rank that is told to stop when it asks for the `asks`-th time; -1: none is. */
static wd_trainer_result run(const wd_trainer_options *options, int ranks, const char *devices,
                             int notified_rank, int asks)
{
    part all[RANKS_MAX];
    wd_trainer_options o = *options;
    o.stepper.accumulation = MICRO_BATCHES / ranks;
    for (int r = 0; r < ranks; r++)
        all[r] =
            (part){.options = &o, .devices = devices, .asks_left = r == notified_rank ? asks : 0};
    run_ranks(all, sizeof *all, ranks, run_part);
    for (int r = 1; r < ranks; r++) {
        assert_int_equal(all[r].result.steps, all[0].result.steps);
        assert_true(all[r].result.loss == all[0].result.loss);
        assert_true(all[r].result.interrupted == all[0].result.interrupted);
    }
    return all[0].result;
}

static void assert_same_file(const char *run, const char *other, const char *file)
{
    char path[WD_PATH_MAX], hash[2][33];
    wd_err err = {0};
    wd_test_ok(wd_file_hash(hash[0], path_of(path, run, file), &err), &err);
    wd_test_ok(wd_file_hash(hash[1], path_of(path, other, file), &err), &err);
    assert_string_equal(hash[0], hash[1]);
}

/* The same checkpoint, the same student, and the same pictures by it. */
static void assert_same_run(const char *run, const char *other)
{
    assert_same_file(run, other, "/checkpoints/step-00000005/state.safetensors");
    assert_same_file(run, other, "/transformer/diffusion_pytorch_model.safetensors");
    assert_same_file(run, other, "/samples/step-00000005.png");
}

/* Runs into the folder `name`. */
static wd_trainer_result run_until(const char *name, const wd_trainer_options *options, int ranks,
                                   bool shared, const char *devices, int notified_rank, int asks)
{
    char output[WD_PATH_MAX], sheets[WD_PATH_MAX];
    wd_trainer_options o = *options;
    o.output_dir = path_of(output, name, "");
    o.samples.folder = path_of(sheets, name, "/samples");
    o.stepper.shard_optimizer = shared;
    return run(&o, ranks, devices, notified_rank, asks);
}

/* It asks before the first step, and after each. */
static wd_trainer_result run_into(const char *name, const wd_trainer_options *options, int ranks,
                                  bool shared, const char *devices, int notified_rank)
{
    return run_until(name, options, ranks, shared, devices, notified_rank, STOPPED + 1);
}

/* One rank, without a break. */
static void run_whole(const char *name, const wd_trainer_options *o)
{
    const wd_trainer_result r = run_into(name, o, 1, false, CPU, -1);
    assert_int_equal(r.steps, STEPS);
    assert_false(r.interrupted);
}

/* Ranks that are stopped by the last of them, then others that go on. */
typedef struct broken {
    const char *name;
    int ranks[2];
    bool shared[2];
    const char *devices;
} broken;

static void run_broken(const broken *b, const wd_trainer_options *options)
{
    char checkpoint[WD_PATH_MAX];
    wd_trainer_options o = *options;
    wd_trainer_result r =
        run_into(b->name, &o, b->ranks[0], b->shared[0], b->devices, b->ranks[0] - 1);
    assert_int_equal(r.steps, STOPPED);
    assert_true(r.interrupted);
    o.resume = path_of(checkpoint, b->name, "/checkpoints/step-00000003");
    r = run_into(b->name, &o, b->ranks[1], b->shared[1], b->devices, -1);
    assert_int_equal(r.steps, STEPS);
}

/* Velocities for two of five steps, and then chords: a run is broken in its second phase. */
static const wd_phases chords_follow = {
    .phase = {{&wd_recipe_velocity, 2, 0.4}, {&wd_recipe_chord, 4, 0.6}}, .count = 2};

static void another_number_of_ranks_goes_on(void **state)
{
    (void)state;
    static const wd_dtype dtype[] = {WD_F32, WD_BF16};
    static const broken all[] = {
        {"two-four", {2, 4}, {false, false}, SIM},    {"four-one", {4, 1}, {false, false}, CPU},
        {"shared-whole", {4, 2}, {true, false}, SIM}, {"whole-shared", {1, 4}, {false, true}, CPU},
        {"shared-shared", {2, 4}, {true, true}, SIM},
    };
    for (int i = 0; i < 2; i++) {
        wd_trainer_options o = trainer_options();
        o.stepper.student_dtype = dtype[i];
        if (i) { /* with two steps along each chord */
            o.stepper.phases = chords_follow;
            o.stepper.trajectory.student_steps = 4;
            o.stepper.trajectory.chords = 2;
        }
        o.stepper.deterministic_reduce = true;
        run_whole("whole", &o);
        for (size_t b = 0; b < sizeof all / sizeof *all; b++) {
            run_broken(&all[b], &o);
            assert_same_run("whole", all[b].name);
        }
    }
}

/* Also where somebody is told to while a sheet is drawn, by all or, the student's, by one: it is
 * given up, and nothing else is lost. */
static void samples_do_not_keep_a_run_from_ending(void **state)
{
    (void)state;
    enum { DRAWN = 2, ASKS = 2 }; /* after so many steps; before each of a sampler's 2 steps */
    char path[WD_PATH_MAX];
    wd_trainer_options o = trainer_options();
    o.stepper.deterministic_reduce = true;
    run_whole("undisturbed", &o);
    const int groups = (int)((o.samples.count + o.stepper.window - 1) / o.stepper.window);
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int student = 0; student < 2; student++) {
            char name[32];
            snprintf(name, sizeof name, "given-up-%d-%d", ranks, student);
            const int asks = DRAWN + ASKS + (student ? ASKS * groups + 1 : 0);
            o = trainer_options();
            o.stepper.deterministic_reduce = true;
            o.sample_interval = DRAWN;
            const wd_trainer_result r =
                run_until(name, &o, ranks, false, CPU, student ? 0 : ranks - 1, asks);
            assert_int_equal(r.steps, DRAWN);
            assert_true(r.interrupted);
            assert_false(wd_path_exists(path_of(path, name, "/samples/step-00000002.png")));
            o.sample_interval = STOPPED + 1;
            o.resume = path_of(path, name, "/checkpoints/step-00000002");
            assert_int_equal(run_into(name, &o, ranks, false, CPU, -1).steps, STEPS);
            assert_same_run("undisturbed", name);
        }
}

/* The clock says when, and never what: a checkpoint after every step, in the middle of a job of
 * ranks, and the same run. */
static void checkpoints_by_time_change_nothing(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    wd_trainer_options o = trainer_options();
    o.stepper.deterministic_reduce = true;
    o.keep_checkpoints = STEPS;
    run_whole("by-steps", &o);
    assert_false(wd_path_exists(path_of(path, "by-steps", "/checkpoints/step-00000002")));
    o.checkpoint_s = 1e-9;
    run_into("by-time", &o, 2, false, SIM, -1);
    assert_true(wd_path_exists(path_of(path, "by-time", "/checkpoints/step-00000002")));
    assert_same_run("by-steps", "by-time");
}

/* ---- requests, which only the rank that writes hears ---- */

static int requests_asked; /* how often it has asked */
static unsigned requested; /* what it is told when it asks for the second time, after one step */

static unsigned hear(void *context)
{
    (void)context;
    return ++requests_asked == 2 ? requested : 0;
}

static void all_ranks_obey_a_request(void **state)
{
    (void)state;
    char path[WD_PATH_MAX];
    wd_trainer_options o = trainer_options();
    o.stepper.deterministic_reduce = true;
    o.keep_checkpoints = STEPS;
    run_whole("unasked", &o);
    for (int ranks = 1; ranks <= 2; ranks++) {
        char name[32];
        o.requests = hear;
        o.resume = NULL;
        requests_asked = 0;
        requested = WD_REQUEST_SAMPLE | WD_REQUEST_SAVE;
        snprintf(name, sizeof name, "asked-%d", ranks);
        assert_int_equal(run_into(name, &o, ranks, false, CPU, -1).steps, STEPS);
        assert_true(wd_path_exists(path_of(path, name, "/checkpoints/step-00000002")));
        assert_false(wd_path_exists(path_of(path, name, "/checkpoints/step-00000003")));
        assert_true(wd_path_exists(path_of(path, name, "/samples/step-00000002.png")));
        assert_false(wd_path_exists(path_of(path, name, "/samples/step-00000003.png")));
        assert_same_run("unasked", name);
        requests_asked = 0;
        requested = WD_REQUEST_STOP;
        snprintf(name, sizeof name, "ended-%d", ranks);
        const wd_trainer_result r = run_into(name, &o, ranks, false, CPU, -1);
        assert_true(r.interrupted && r.steps == 1);
        o.requests = NULL;
        o.resume = path_of(path, name, "/checkpoints/step-00000001");
        assert_int_equal(run_into(name, &o, ranks, false, CPU, -1).steps, STEPS);
        assert_same_run("unasked", name);
    }
}

/* ---- how often a checkpoint is written ---- */

static int checkpoints_written;    /* one rank writes, one run at a time */
static int64_t step_without_space; /* files may not be long while its checkpoint is written */
static bool is_full_once; /* and then the disk is said to be full, until it is tried again */

wd_status __real_wd_checkpoint_write(const char *, int64_t, const wd_checkpoint_tensors *,
                                     const json_t *, wd_queue *, wd_err *);
wd_status __wrap_wd_checkpoint_write(const char *, int64_t, const wd_checkpoint_tensors *,
                                     const json_t *, wd_queue *, wd_err *);

wd_status __wrap_wd_checkpoint_write(const char *folder, int64_t step,
                                     const wd_checkpoint_tensors *tensors, const json_t *run,
                                     wd_queue *queue, wd_err *err)
{
    checkpoints_written++;
    if (step != step_without_space)
        return __real_wd_checkpoint_write(folder, step, tensors, run, queue, err);
    struct rlimit all, few;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    few = (struct rlimit){1000, all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    const wd_status status = __real_wd_checkpoint_write(folder, step, tensors, run, queue, err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    if (is_full_once) {
        wd_file_space_note(ENOSPC);
        step_without_space = -1;
    }
    return status;
}

/* Also where the last step is one that a checkpoint follows anyway, and where it is none. */
static void every_checkpoint_is_written_once(void **state)
{
    (void)state;
    static const int64_t interval[] = {1, 2, STEPS};
    static const int written[] = {STEPS, STEPS / 2 + 1, 1};
    for (int i = 0; i < 3; i++) {
        char path[WD_PATH_MAX];
        wd_trainer_options o = trainer_options();
        o.checkpoint_interval = interval[i];
        checkpoints_written = 0;
        run_into("once", &o, 1 + i, false, CPU, -1);
        assert_int_equal(checkpoints_written, written[i]);
        assert_true(wd_path_exists(path_of(path, "once", "/checkpoints/step-00000005")));
    }
}

/* Options of a run with a checkpoint every two steps, with the bits of one rank. */
static wd_trainer_options keeps_all_checkpoints(void)
{
    wd_trainer_options o = trainer_options();
    o.checkpoint_interval = 2;
    o.keep_checkpoints = STEPS;
    o.stepper.deterministic_reduce = true;
    return o;
}

/* All ranks go on without a checkpoint for which rank 0 finds no space, also where each rank has a
 * part of what is in it. */
static void ranks_go_on_without_a_checkpoint(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++)
        for (int last = 0; last < 2; last++) {
            char path[WD_PATH_MAX];
            wd_trainer_options o = keeps_all_checkpoints();
            run_whole("with-space", &o);
            step_without_space = last ? STEPS : 2;
            const wd_trainer_result r = run_into("no-space", &o, 2, shared, SIM, -1);
            step_without_space = -1;
            assert_int_equal(r.steps, STEPS);
            assert_int_equal(r.saved_step, last ? 4 : STEPS);
            assert_int_equal(
                wd_path_exists(path_of(path, "no-space", "/checkpoints/step-00000002")), last);
            if (!last) assert_same_run("with-space", "no-space");
            assert_same_file("with-space", "no-space",
                             "/transformer/diffusion_pytorch_model.safetensors");
            wd_test_ok(wd_folder_remove(path_of(path, "no-space", ""), NULL), NULL);
        }
}

/* At the end all ranks write the checkpoint again, once an older one was removed for it. */
static void ranks_write_the_last_checkpoint_again(void **state)
{
    (void)state;
    is_full_once = true;
    for (int shared = 0; shared < 2; shared++) {
        char path[WD_PATH_MAX];
        wd_trainer_options o = keeps_all_checkpoints();
        run_whole("with-space", &o);
        step_without_space = STEPS;
        const wd_trainer_result r = run_into("once-full", &o, 2, shared, SIM, -1);
        assert_int_equal(step_without_space, -1);
        assert_int_equal(r.saved_step, STEPS);
        assert_false(wd_path_exists(path_of(path, "once-full", "/checkpoints/step-00000002")));
        assert_true(wd_path_exists(path_of(path, "once-full", "/checkpoints/step-00000004")));
        assert_same_run("with-space", "once-full");
        wd_test_ok(wd_folder_remove(path_of(path, "once-full", ""), NULL), NULL);
    }
    is_full_once = false;
}

/* ---- one rank alone is asked to stop while the job starts ---- */

bool __real_wd_stop_requested(void);
bool __wrap_wd_stop_requested(void);

static _Thread_local bool told; /* this rank was asked to */

bool __wrap_wd_stop_requested(void)
{
    return told || __real_wd_stop_requested();
}

typedef struct starting {
    rank_thread at;
    wd_home home;
    bool loads; /* asked while weights are loaded; false: when the student gets its own */
    bool shared;
    wd_status opened;
    wd_trainer_result result;
} starting;

static void *start_part(void *context)
{
    starting *p = context;
    char output[WD_PATH_MAX];
    wd_devices d;
    wd_err why = {0};
    wd_residency *residency;
    wd_trainer_options o = trainer_options();
    wd_placement all = whole_on_first(&teacher);
    const bool is_last = p->at.comm->rank + 1 == p->at.comm->ranks;
    for (int e = 0; e < all.experts; e++)
        for (int s = 0; s < all.stages; s++) all.place[e][s].home = (uint8_t)p->home;
    all.each = true;
    all.buffers = 2;
    all.ranks = p->at.comm->ranks;
    o.stepper.comm = p->at.comm;
    o.stepper.shard_optimizer = p->shared;
    o.stepper.accumulation = MICRO_BATCHES / all.ranks;
    o.output_dir = path_of(output, "not-started", "");
    o.samples.count = 0;
    HARNESS_OK(wd_devices_open(&d, SIM, 1, err));
    told = is_last && p->loads;
    p->opened = wd_residency_open_placed(&residency, &teacher, &all, WD_BF16, d.teacher, d.host,
                                         o.stepper.comm, &why);
    if (p->opened == WD_OK) {
        const wd_stepper_teacher where = {residency, &all, d.teacher, d.home};
        o.stepper.teacher_dtype = WD_BF16;
        told = is_last;
        HARNESS_OK(wd_trainer_run(&p->result, &o, &where, d.student, err));
        wd_residency_close(residency);
    }
    told = false;
    close_devices(&d);
    return NULL;
}

/* All ranks end, none waits for the others, and none takes a step. */
static void a_rank_that_stops_early_stops_all(void **state)
{
    (void)state;
    static const wd_home homes[] = {WD_HOME_DEVICE, WD_HOME_HOST, WD_HOME_DISK};
    for (int h = 0; h < 3; h++)
        for (int loads = 0; loads < 2; loads++)
            for (int shared = 0; shared < 2; shared++) {
                starting all[2];
                for (int r = 0; r < 2; r++)
                    all[r] = (starting){.home = homes[h], .loads = loads, .shared = shared};
                run_ranks(all, sizeof *all, 2, start_part);
                for (int r = 0; r < 2; r++) {
                    assert_int_equal(all[r].opened, loads ? WD_INTERRUPTED : WD_OK);
                    assert_true(loads || (all[r].result.untouched && !all[r].result.steps));
                }
            }
}

/* Of a run that is named so: other prompts, another teacher or text encoder, where its checkpoint
 * says which they were, and where it does not. */
static void resumed_runs_have_the_inputs_that_they_say(void **state)
{
    (void)state;
    char path[WD_PATH_MAX], file[WD_PATH_MAX];
    wd_err err = {0};
    wd_trainer_options o = trainer_options();
    o.stepper.accumulation = MICRO_BATCHES;
    o.resume = path_of(path, "by-steps", "/checkpoints/step-00000005");
    wd_test_ok(wd_trainer_resume_options(&o, &err), &err);
    o.prompts_key = "four";
    assert_int_equal(wd_trainer_resume_options(&o, &err), WD_MISMATCH);
    assert_non_null(strstr(err.message, "\"three\" and is to be resumed with \"four\""));
    o.negative_prompt = "ugly";
    assert_int_equal(wd_trainer_resume_options(&o, &err), WD_MISMATCH);
    assert_non_null(strstr(err.message, "negative_prompt \"\" and is to be resumed with \"ugly\""));
    o.text_encoder_key = "long";
    assert_int_equal(wd_trainer_resume_options(&o, &err), WD_MISMATCH);
    assert_non_null(strstr(err.message, "key \"short\" and is to be resumed with \"long\""));
    wd_pipeline other = *o.stepper.teacher;
    o.stepper.teacher = &other;
    other.boundary_ratio = 0.5;
    assert_int_equal(wd_trainer_resume_options(&o, &err), WD_MISMATCH);
    assert_non_null(strstr(err.message, "a teacher of boundary_ratio 0.875 and is to be resumed"));
    other.scheduler.kind = WD_SCHEDULER_EULER;
    other.boundary_ratio = teacher.boundary_ratio;
    assert_int_equal(wd_trainer_resume_options(&o, &err), WD_MISMATCH);
    assert_non_null(strstr(err.message, "a teacher of scheduler \"UniPCMultistepScheduler\" and"));
    o.teacher_key = "large";
    assert_int_equal(wd_trainer_resume_options(&o, &err), WD_MISMATCH);
    assert_non_null(strstr(err.message, "key \"small\" and is to be resumed with \"large\""));
    o.stepper.student.heads *= 2; /* of tensors of the same shapes */
    o.stepper.student.head_dim /= 2;
    assert_int_equal(wd_trainer_resume_options(&o, &err), WD_MISMATCH);
    assert_non_null(strstr(err.message, "a student of attention_head_dim "));
    o.stepper.student_dtype = WD_BF16;
    assert_int_equal(wd_trainer_resume_options(&o, &err), WD_MISMATCH);
    assert_non_null(strstr(err.message, "mixed_precision \"no\" and is to be resumed with \"bf16"));

    json_t *json =
        json_load_file(path_of(file, "by-steps", "/checkpoints/step-00000005/state.json"), 0, NULL);
    json_t *run = json_object_get(json, "run");
    static const char *const unsaid[] = {"teacher_key",   "prompts_key",     "negative_prompt",
                                         "teacher_dtype", "student",         "mixed_precision",
                                         "teacher",       "text_encoder_key"};
    for (size_t i = 0; i < sizeof unsaid / sizeof *unsaid; i++)
        assert_int_equal(json_object_del(run, unsaid[i]), 0);
    wd_test_ok(wd_json_save(json, file, &err), &err);
    json_decref(json);
    wd_test_ok(wd_trainer_resume_options(&o, &err), &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_number_of_ranks_goes_on),
        cmocka_unit_test(samples_do_not_keep_a_run_from_ending),
        cmocka_unit_test(checkpoints_by_time_change_nothing),
        cmocka_unit_test(all_ranks_obey_a_request),
        cmocka_unit_test(every_checkpoint_is_written_once),
        cmocka_unit_test(ranks_go_on_without_a_checkpoint),
        cmocka_unit_test(ranks_write_the_last_checkpoint_again),
        cmocka_unit_test(a_rank_that_stops_early_stops_all),
        cmocka_unit_test(resumed_runs_have_the_inputs_that_they_say),
    };
    signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
