/* Runs that store their targets, and runs from these: the same student to the bit, for velocities
 * and for chords, in every epoch the same targets, and resumed like others. On wan-tiny. */
#include "harness/ranks.h"

#include "tiny_teacher.h"
#include "train/loop/stepper_impl.h"
#include "train/output/checkpoint_list.h"
#include "train/targets/target_store_impl.h"

enum { COUNT = 16 * LATENT * LATENT, STEPS = 8, STOP = 4, PROMPTS = 5 };

static const char *const prompts[PROMPTS] = {"a fox", "a \"cat\"", "two\nlines", "p\xc3\xa4r", "x"};

static const wd_store_shape shape = {16, LATENT, LATENT};

static const char *path_to(const char *name)
{
    static char path[64][WD_PATH_MAX]; /* more than a test has at a time */
    static int next;
    char *out = path[next++ % 64];
    snprintf(out, WD_PATH_MAX, "%s/%s", wd_test_folder(), name);
    return out;
}

/* ---- runs ---- */

/* The student's P, then its EMA; to wd_free. */
typedef struct trained {
    float *weights;
    int64_t count;
} trained;

static trained keep(wd_stepper *m)
{
    wd_params *p = wd__stepper_params(m);
    const size_t bytes = (size_t)p->count * sizeof(float);
    void *kept;
    HARNESS_OK(wd_alloc(&kept, 2, bytes, "weights", err));
    wd_params_collect(p, WD_PARAMS_P, m->queue);
    wd_queue_copy_and_wait(m->queue, kept, wd_params_whole(p, WD_PARAMS_P), bytes);
    wd_queue_copy_and_wait(m->queue, (char *)kept + bytes, p->buffer[WD_PARAMS_EMA], bytes);
    return (trained){kept, 2 * p->count};
}

static void check_same(trained *a, trained *b, bool same)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(!memcmp(a->weights, b->weights, (size_t)a->count * sizeof(float)), same);
}

/* The steps [first, last) on those devices, and a checkpoint in the folder `saves`, where there is
 * one; with `first` > 0 it goes on from the one there. */
typedef struct course {
    const char *devices;
    int64_t first, last;
    const char *saves;
} course;

static void load(wd_stepper *m, const char *folder)
{
    wd_checkpoint checkpoint;
    HARNESS_OK(wd_checkpoint_open_latest(&checkpoint, folder, err));
    HARNESS_OK(wd__stepper_load(m, &checkpoint, err));
    wd_checkpoint_close(&checkpoint);
}

static void save(wd_stepper *m, int64_t step, const char *folder)
{
    wd_checkpoint_tensors tensors;
    json_t *state;
    HARNESS_OK(wd__stepper_save(m, &state, &tensors, err));
    HARNESS_OK(wd_checkpoint_write(folder, step, &tensors, state, m->queue, err));
    json_decref(state);
}

static void open_on(rank_stepper *r, const wd_stepper_options *o, const char *devices,
                    const wd_placement *all)
{
    const wd_samples_options none = {0};
    const wd_devices *d = &r->devices;
    *r = (rank_stepper){0};
    HARNESS_OK(wd_devices_open(&r->devices, devices, 1, err));
    if (!o->stored) {
        open_stepper(r, o, all);
        return;
    }
    r->plan = (wd_memory_plan){0};
    HARNESS_OK(wd_memory_plan_stepper(&r->plan, o, &none, d, NULL, err));
    const wd_stepper_teacher where = {NULL, NULL, d->teacher, d->home};
    HARNESS_OK(wd_stepper_open(&r->stepper, o, &where, d->student, err));
    HARNESS_OK(wd_stepper_begin(r->stepper, err));
}

static trained run(const wd_stepper_options *o, const course *c)
{
    const wd_placement all = whole_on_first(&teacher);
    rank_stepper r;
    open_on(&r, o, c->devices, &all);
    if (c->first) load(r.stepper, c->saves);
    for (int64_t step = c->first; step < c->last; step++) {
        const wd_step next = {.number = step,
                              .lr = 1e-3,
                              .progress = (double)step / STEPS,
                              .pauses = c->saves && step + 1 == c->last};
        HARNESS_OK(wd_stepper_step(r.stepper, &next, err));
        wd_stepper_take_result(r.stepper);
    }
    if (c->saves) save(r.stepper, c->last, c->saves);
    check_peaks(&r);
    const trained out = keep(r.stepper);
    close_stepper(&r);
    return out;
}

static wd_target_store *open_store(const char *folder)
{
    wd_target_store *out;
    HARNESS_OK(wd_target_store_open(&out, folder, err));
    return out;
}

/* A run that stores its targets in that folder. */
static trained run_storing(wd_stepper_options o, const course *c, const char *folder)
{
    const wd_store_options to = {.folder = folder, .shape = shape, .prompt = prompts};
    o.store_to = &to;
    return run(&o, c);
}

static trained run_stored(wd_stepper_options o, const course *c, const char *folder)
{
    o.stored = open_store(folder);
    HARNESS_OK(wd_stepper_check_stored(&o, err));
    const trained out = run(&o, c);
    wd_target_store_close(o.stored);
    return out;
}

/* ---- what students learn ---- */

enum { VELOCITY, CHORD, ON_POLICY, PAIRS, INSIDE, RECIPES };

static wd_stepper_options options_of(int recipe)
{
    wd_stepper_options o = small_stepper(&teacher);
    if (recipe == VELOCITY) return o;
    learn_chords(&o, 2);
    o.trajectory.on_policy_end = 1;
    o.trajectory.on_policy_every = 3;
    if (recipe == ON_POLICY) o.trajectory.on_policy_share = 0.5;
    if (recipe == PAIRS) pair_trajectories(&o);
    if (recipe == INSIDE) {
        o.trajectory.chords = 2;
        o.trajectory.student_steps = 4;
    }
    return o;
}

/* Its students have the bits of those of the run that made the targets, whose targets are rounded
 * and so other ones than in a run that does not store them. */
static void check_recipe(int recipe, const char *devices, bool bf16)
{
    char folder[64];
    wd_stepper_options o = options_of(recipe);
    snprintf(folder, sizeof folder, "store-%d-%d-%c", recipe, bf16, devices[0]);
    if (bf16) o.student_dtype = WD_BF16;
    if (recipe == CHORD) o.window = 4;
    const course whole = {.devices = devices, .last = STEPS, .saves = path_to("steps")};
    const course alone = {.devices = devices, .last = STEPS};
    trained plain = run(&o, &alone), made = run_storing(o, &whole, path_to(folder));
    trained read = run_stored(o, &alone, path_to(folder));
    check_same(&made, &read, true);
    /* wan-tiny's velocities are in bf16 here anyway, and so are the states that such a student sees
     */
    check_same(&made, &plain, bf16 && recipe == CHORD);
    wd_free(plain.weights);
    wd_free(made.weights);
    wd_free(read.weights);
}

static void students_are_the_same(void **state)
{
    (void)state;
    for (int recipe = 0; recipe < RECIPES; recipe++) check_recipe(recipe, CPU, false);
    check_recipe(ON_POLICY, CPU, true);
}

/* Rounding, copies and batches are on queues that wait for one another. */
static void so_they_are_on_slow_devices(void **state)
{
    (void)state;
    check_recipe(VELOCITY, SLOW_SIM, false);
    check_recipe(CHORD, SLOW_SIM, true);
    check_recipe(ON_POLICY, SLOW_SIM, false);
}

/* ---- resumed runs ---- */

static void a_stopped_run_goes_on_storing(void **state)
{
    (void)state;
    const int recipes[] = {VELOCITY, ON_POLICY};
    for (int i = 0; i < 2; i++) {
        char whole[64], parts[64];
        const wd_stepper_options o = options_of(recipes[i]);
        snprintf(whole, sizeof whole, "whole-%d", i);
        snprintf(parts, sizeof parts, "parts-%d", i);
        const char *steps = path_to(i ? "steps-1" : "steps-0");
        const course all = {CPU, 0, STEPS, path_to("steps")};
        const course half = {CPU, 0, STOP, steps}, rest = {CPU, STOP, STEPS, steps},
                     alone = {CPU, 0, STEPS, NULL};
        trained made = run_storing(o, &all, path_to(whole));
        trained first = run_storing(o, &half, path_to(parts));
        trained second = run_storing(o, &rest, path_to(parts));
        check_same(&made, &second, true);
        check_same(&made, &first, false);
        trained read = run_stored(o, &alone, path_to(parts));
        check_same(&made, &read, true);
        trained *all_of[] = {&made, &first, &second, &read};
        for (int k = 0; k < 4; k++) wd_free(all_of[k]->weights);
    }
}

static void a_run_from_a_store_is_resumed(void **state)
{
    (void)state;
    const wd_stepper_options o = options_of(ON_POLICY);
    const char *steps = path_to("steps-2");
    const course all = {CPU, 0, STEPS, NULL}, half = {CPU, 0, STOP, steps},
                 rest = {CPU, STOP, STEPS, steps};
    trained whole = run_stored(o, &all, path_to("whole-1"));
    trained first = run_stored(o, &half, path_to("whole-1"));
    trained second = run_stored(o, &rest, path_to("whole-1"));
    check_same(&whole, &second, true);
    check_same(&whole, &first, false);
    wd_free(whole.weights);
    wd_free(first.weights);
    wd_free(second.weights);
}

static void other_runs_are_not_resumed(void **state)
{
    (void)state;
    wd_err err;
    json_t *made, *stored;
    int64_t count;
    const wd_checkpoint_tensor *tensors;
    const wd_placement all = whole_on_first(&teacher);
    rank_stepper r;
    wd_stepper_options o = options_of(VELOCITY), from = o, storing = o;
    const wd_store_options to = {.folder = path_to("never"), .shape = shape, .prompt = prompts};
    storing.store_to = &to;
    from.stored = open_store(path_to("whole-0"));
    open_on(&r, &o, CPU, &all);
    wd_test_ok(wd_source_save(r.stepper->source, &made, &tensors, &count, &err), &err);
    close_stepper(&r);
    open_on(&r, &from, CPU, &all);
    wd_test_ok(wd_source_save(r.stepper->source, &stored, &tensors, &count, &err), &err);
    assert_int_equal(count, 0);
    close_stepper(&r);
    wd_test_refused(wd__stepper_check_stream(&storing, made, &err), &err, WD_MISMATCH,
                    "begun without --save_targets");
    wd_test_refused(wd__stepper_check_stream(&from, made, &err), &err, WD_MISMATCH,
                    "without --targets");
    wd_test_refused(wd__stepper_check_stream(&o, stored, &err), &err, WD_MISMATCH,
                    "its run had --targets");
    wd_test_ok(wd__stepper_check_stream(&from, stored, &err), &err);
    from.replay++;
    wd_test_refused(wd__stepper_check_stream(&from, stored, &err), &err, WD_MISMATCH,
                    "target_replay 10");
    wd_target_store_close(from.stored);
    json_decref(made);
    json_decref(stored);
}

/* ---- other students ---- */

/* Any batch, any seed, more chords; and more samples than there are targets. */
static void other_students_learn_from_the_store(void **state)
{
    (void)state;
    wd_stepper_options o = options_of(ON_POLICY);
    const course c = {CPU, 0, STEPS, NULL};
    o.trajectory.seed = 77;
    o.batch = 3;
    o.student.layers = 1;
    trained other = run_stored(o, &c, path_to("store-2-0-c"));
    o.trajectory.student_steps = o.trajectory.chords = 4;
    trained finer = run_stored(o, &c, path_to("store-2-0-c"));
    o = options_of(VELOCITY);
    o.reuse = 1;
    o.batch = 16;
    trained longer = run_stored(o, &c, path_to("store-0-0-c"));
    trained *all[] = {&other, &finer, &longer};
    for (int i = 0; i < 3; i++) {
        for (int64_t k = 0; k < all[i]->count; k++) assert_true(isfinite(all[i]->weights[k]));
        wd_free(all[i]->weights);
    }
}

/* In each epoch every target comes once, in an order of its own. */
static void every_epoch_has_all_targets(void **state)
{
    (void)state;
    enum { EPOCHS = 3 };
    const wd_placement all = whole_on_first(&teacher);
    rank_stepper r;
    wd_stepper_options o = options_of(VELOCITY);
    o.reuse = 1;
    o.stored = open_store(path_to("whole-0"));
    const int64_t count = wd_target_store_count(o.stored);
    assert_true(count > 8 && wd_stepper_stored_count(&o) == count);
    int *seen = calloc((size_t)count, sizeof *seen), moved = 0;
    assert_non_null(seen);
    open_on(&r, &o, CPU, &all);
    for (int64_t i = 0; i < EPOCHS * count; i++) {
        wd_batch batch;
        float latents[COUNT];
        int64_t at = 0;
        HARNESS_OK(wd_source_prepare(r.stepper->source, i + 1, err));
        wd_source_fill(r.stepper->source, &batch, i, 1);
        wd_queue_copy_and_wait(r.stepper->queue, latents, batch.latents, sizeof latents);
        for (bool same = false; !same; at += !same) {
            assert_true(at < count);
            const uint16_t *stored = wd__target_store_state(o.stored, at);
            same = true;
            for (int k = 0; k < COUNT; k++) same &= latents[k] == wd_bf16_to_f32(stored[k]);
        }
        if (i < count) assert_int_equal(at, i);
        moved += i >= count && at != i % count;
        seen[at]++;
        if ((i + 1) % count == 0)
            for (int64_t k = 0; k < count; k++) assert_int_equal(seen[k], (i + 1) / count);
    }
    assert_true(moved > count);
    free(seen);
    close_stepper(&r);
    wd_target_store_close(o.stored);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    wd_err err;
    wd_stepper_options o = options_of(ON_POLICY), good = o;
    good.stored = open_store(path_to("whole-1"));
    wd_test_ok(wd_stepper_check_stored(&good, &err), &err);
    o = good;
    o.trajectory.steps = 8;
    wd_test_refused(wd_stepper_check_stored(&o, &err), &err, WD_INVALID_ARGUMENT,
                    "--trajectory_steps 4, found 8");
    o = good;
    o.trajectory.flow_shift = 5;
    wd_test_refused(wd_stepper_check_stored(&o, &err), &err, WD_INVALID_ARGUMENT, "--flow_shift 3");
    o = good;
    o.trajectory.slots = 12;
    wd_test_refused(wd_stepper_check_stored(&o, &err), &err, WD_INVALID_ARGUMENT,
                    "--trajectories 6");
    o = good;
    o.trajectory.sigma[0] = 1;
    wd_test_refused(wd_stepper_check_stored(&o, &err), &err, WD_INVALID_ARGUMENT,
                    "--trajectory_sigmas");
    o = good;
    o.trajectory.integer_timesteps = false;
    wd_test_refused(wd_stepper_check_stored(&o, &err), &err, WD_INVALID_ARGUMENT, "timesteps");
    o = good;
    o.trajectory.prompts = 4;
    wd_test_refused(wd_stepper_check_stored(&o, &err), &err, WD_INVALID_ARGUMENT, "--data_path");
    o = good;
    o.trajectory.student_steps = o.trajectory.chords = 0;
    wd_test_refused(wd_stepper_check_stored(&o, &err), &err, WD_INVALID_ARGUMENT,
                    "give --student_steps");
    o = good;
    o.trajectory.student_steps = o.trajectory.chords = 1;
    wd_test_refused(wd_stepper_check_stored(&o, &err), &err, WD_INVALID_ARGUMENT,
                    "a multiple of 2 chords");
    o = good;
    o.trajectory.diversity_gain = 0.5;
    wd_test_refused(wd_stepper_check_stored(&o, &err), &err, WD_INVALID_ARGUMENT,
                    "--diversity_gain 0");
    wd_target_store_close(good.stored);
}

/* ---- damage ---- */

/* Changes a byte of the target's state in the store's first file. */
static void damage(const char *folder, int64_t target)
{
    char name[WD_STORE_NAME_MAX];
    wd_target_store *store = open_store(folder);
    const uint16_t *state = wd__target_store_state(store, target);
    uint16_t value[COUNT];
    memcpy(value, state, sizeof value);
    wd_target_store_close(store);
    wd__store_file_name(name, 0);
    char path[WD_PATH_MAX], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    HARNESS_OK(wd_file_read(&text, &bytes, path, 1 << 24, err));
    char *found = memmem(text, bytes, value, sizeof value);
    assert_non_null(found);
    found[5] ^= 1;
    HARNESS_OK(wd_file_write(path, text, bytes, err));
    wd_free(text);
}

static void a_damaged_target_ends_the_run(void **state)
{
    (void)state;
    wd_err err;
    const wd_placement all = whole_on_first(&teacher);
    rank_stepper r;
    wd_stepper_options o = options_of(VELOCITY);
    o.reuse = 1;
    damage(path_to("whole-0"), 6);
    o.stored = open_store(path_to("whole-0"));
    open_on(&r, &o, CPU, &all);
    wd_test_ok(wd_source_prepare(r.stepper->source, 6, &err), &err);
    wd_test_refused(wd_source_prepare(r.stepper->source, 7, &err), &err, WD_BAD_FORMAT,
                    "targets-000000000000.safetensors: target 6: its checksum differs");
    close_stepper(&r);
    wd_target_store_close(o.stored);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(students_are_the_same),
        cmocka_unit_test(so_they_are_on_slow_devices),
        cmocka_unit_test(a_stopped_run_goes_on_storing),
        cmocka_unit_test(a_run_from_a_store_is_resumed),
        cmocka_unit_test(other_runs_are_not_resumed),
        cmocka_unit_test(other_students_learn_from_the_store),
        cmocka_unit_test(every_epoch_has_all_targets),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_damaged_target_ends_the_run),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
