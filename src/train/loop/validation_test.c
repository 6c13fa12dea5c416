/* The states that a student is validated on, and its figures there: chords are those of the
 * trajectories that it trains on, files give the same states again, and what is measured is what
 * the student computes. */
#include "harness/stepper.h"

#include <math.h>
#include <unistd.h>

#include "core/difference.h"
#include "train/loop/validation.h"
#include "train/loop/stepper_impl.h"

#include "tiny_teacher.h"

enum { PROMPTS = 3, FIRST = 2, STATE = 16 * LATENT * LATENT };

static const wd_validation_options three = {.prompts = PROMPTS, .text_first = FIRST};

/* A stepper on a processor that has all of the teacher, and its validation. */
typedef struct bench {
    wd_device *device;
    wd_queue *queue;
    wd_residency *residency;
    wd_stepper *stepper;
    wd_validation *validation;
    const wd_validation_states *states;
} bench;

static bench open_bench(wd_stepper_options o)
{
    static wd_placement all;
    bench b;
    wd_err err;
    all = (wd_placement){.experts = wd_teacher_experts(&teacher),
                         .stages = wd_dit_stages(&teacher.dit),
                         .buffers = 2};
    o.validation = &three;
    o.recipe->adjust(&o);
    wd_test_ok(wd_device_open_cpu(&b.device, 2, &err), &err);
    wd_test_ok(wd_queue_open(&b.queue, b.device, &err), &err);
    wd_test_ok(wd_residency_open_placed(&b.residency, &teacher, &all, o.teacher_dtype, &b.queue,
                                        b.queue, NULL, &err),
               &err);
    const wd_stepper_teacher where = {b.residency, &all, &b.queue, b.queue};
    wd_test_ok(wd_stepper_open(&b.stepper, &o, &where, b.queue, &err), &err);
    wd_test_ok(wd_stepper_begin(b.stepper, &err), &err);
    wd_test_ok(wd__validation_open(&b.validation, &three, b.stepper, &err), &err);
    wd_test_ok(wd__validation_prepare(b.validation, NULL, "", &err), &err);
    b.states = wd__validation_states_of(b.validation);
    return b;
}

static void close_bench(bench *b)
{
    wd__validation_close(b->validation);
    wd_stepper_close(b->stepper);
    wd_residency_close(b->residency);
    wd_queue_close(b->queue);
    wd_device_close(b->device);
}

static wd_stepper_options in_fp32(void)
{
    wd_stepper_options o = small_stepper(&teacher);
    o.teacher_dtype = WD_F32;
    return o;
}

static const float *at(const bench *b, const float *all, int64_t level, int64_t trajectory)
{
    assert_int_equal(b->states->options.state_count, STATE);
    return all + (level * b->states->trajectories + trajectory) * STATE;
}

/* Sums of a few products of values of this size differ by less in float32. */
static void near(float a, float b)
{
    if (!(fabsf(a - b) <= 1e-4f)) fail_msg("%g, expected %g", (double)a, (double)b);
}

/* Whether the whole trajectory is there: a chord leads from one state to the next. */
static void chords_lead_to_the_next_state(void **state)
{
    (void)state;
    wd_stepper_options o = in_fp32();
    learn_chords(&o, 2);
    bench b = open_bench(o);
    const wd_validation_states *s = b.states;
    assert_int_equal(s->levels, 2);
    assert_int_equal(s->trajectories, PROMPTS);
    assert_true(s->sigma[0] == 1 && s->sigma[1] < 1);
    const wd_target_info half =
        wd__trajectory_target(&s->options.trajectory, wd__trajectory_number(&o.trajectory, 2, 0));
    assert_true(s->sigma[1] == half.sigma && s->timestep[1] == half.timestep);
    for (int64_t t = 0; t < PROMPTS; t++)
        for (int64_t i = 0; i < STATE; i++)
            near(at(&b, s->latents, 0, t)[i] +
                     (s->sigma[1] - s->sigma[0]) * at(&b, s->target, 0, t)[i],
                 at(&b, s->latents, 1, t)[i]);
    assert_int_equal(wd_validation_prompt(s, 2), FIRST + 2);
    close_bench(&b);
}

/* The student's second step along a chord begins on the chord, and has the same target. */
static void steps_along_a_chord_have_its_target(void **state)
{
    (void)state;
    wd_stepper_options o = in_fp32();
    learn_chords(&o, 4);
    o.trajectory.chords = 2;
    bench b = open_bench(o);
    const wd_validation_states *s = b.states;
    assert_int_equal(s->levels, 4);
    for (int64_t level = 1; level < 4; level += 2) {
        assert_true(s->sigma[level] < s->sigma[level - 1]);
        for (int64_t i = 0; i < STATE; i++) {
            const float target = at(&b, s->target, level, 1)[i];
            assert_true(target == at(&b, s->target, level - 1, 1)[i]);
            near(at(&b, s->latents, level - 1, 1)[i] +
                     (s->sigma[level] - s->sigma[level - 1]) * target,
                 at(&b, s->latents, level, 1)[i]);
        }
    }
    close_bench(&b);
}

/* As train/targets/chord.h has it: u + h ((u - u') - (X - X') / sigma), and the opposite of it. */
static void pairs_lead_away_from_each_other(void **state)
{
    (void)state;
    const double gain = 0.3;
    wd_stepper_options o = in_fp32();
    learn_chords(&o, 2);
    bench plain = open_bench(o);
    pair_trajectories(&o);
    bench pairs = open_bench(o);
    const wd_validation_states *s = pairs.states;
    assert_int_equal(s->trajectories, 2 * PROMPTS);
    assert_int_equal(wd_validation_prompt(s, PROMPTS), FIRST);
    const double end = (double)s->sigma[1];
    const float h = (float)(gain * (1 + end * end) / 2);
    for (int64_t i = 0; i < STATE; i++) {
        const float x = at(&pairs, s->latents, 0, 1)[i];
        assert_true(at(&pairs, s->latents, 0, PROMPTS + 1)[i] == -x);
        const float u = at(&plain, plain.states->target, 0, 1)[i];
        const float both =
            at(&pairs, s->target, 0, 1)[i] + at(&pairs, s->target, 0, PROMPTS + 1)[i];
        near(at(&pairs, s->target, 0, 1)[i], u + h * (u - (both - u) - 2 * x));
    }
    close_bench(&plain);
    close_bench(&pairs);
}

static const char *file_path(void)
{
    static char path[WD_PATH_MAX];
    snprintf(path, sizeof path, "%s/states.safetensors", wd_test_folder());
    return path;
}

static void change_byte(long offset)
{
    FILE *file = fopen(file_path(), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, offset, SEEK_END), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, offset, SEEK_END), 0);
    fputc(byte ^ 1, file);
    fclose(file);
}

/* The same states come from the file; one that is damaged, or of others, is refused. */
static void files_give_the_same_states(void **state)
{
    (void)state;
    wd_err err;
    wd_validation_states again;
    bench b = open_bench(in_fp32());
    const wd_validation_states *s = b.states;
    const size_t bytes = wd_validation_states_bytes(s) / 2;
    assert_int_equal(s->levels, WD_VALIDATION_LEVELS);
    wd_test_ok(wd_validation_states_open(&again, &s->options, true, &err), &err);
    wd_test_refused(wd_validation_states_load(&again, file_path(), "key", &err), &err, WD_NOT_FOUND,
                    "is not there");
    wd_test_ok(wd_validation_states_save(s, file_path(), "key", &err), &err);
    wd_test_ok(wd_validation_states_load(&again, file_path(), "key", &err), &err);
    assert_memory_equal(again.latents, s->latents, bytes);
    assert_memory_equal(again.target, s->target, bytes);
    wd_test_refused(wd_validation_states_load(&again, file_path(), "lock", &err), &err,
                    WD_BAD_FORMAT, "of other states");
    change_byte(-200); /* of a target */
    wd_test_refused(wd_validation_states_load(&again, file_path(), "key", &err), &err,
                    WD_BAD_FORMAT, "its checksum is wrong");
    wd_validation_states_close(&again);
    wd_validation_states_options fewer = s->options;
    fewer.prompts--;
    wd_test_ok(wd_validation_states_open(&again, &fewer, true, &err), &err);
    wd_test_refused(wd_validation_states_load(&again, file_path(), "key", &err), &err,
                    WD_BAD_FORMAT, "has not the tensors");
    assert_int_equal(truncate(file_path(), 300), 0);
    assert_int_equal(wd_validation_states_load(&again, file_path(), "key", &err), WD_BAD_FORMAT);
    wd_validation_states_close(&again);
    close_bench(&b);
}

/* A student whose head is zero answers zero everywhere: its error is 1 at each level, whatever the
 * states are, and training goes on with the weights that it had. */
static void a_student_that_says_nothing_has_an_error_of_one(void **state)
{
    (void)state;
    wd_err err;
    bool measured;
    wd_validation_result r;
    bench b = open_bench(in_fp32());
    wd_params *p = wd__stepper_params(b.stepper);
    const size_t bytes = (size_t)p->count * sizeof(float);
    float *before = malloc(bytes);
    assert_non_null(before);
    memcpy(before, p->buffer[WD_PARAMS_P], bytes);
    wd_test_ok(wd__validation_measure(&r, &measured, b.validation, &err), &err);
    assert_true(measured && r.error > 0 && r.error != 1 && isfinite(r.error));
    assert_int_equal(r.levels, WD_VALIDATION_LEVELS);
    assert_memory_equal(p->buffer[WD_PARAMS_P], before, bytes);
    memset(p->buffer[WD_PARAMS_EMA], 0, bytes);
    wd_test_ok(wd__validation_measure(&r, &measured, b.validation, &err), &err);
    for (int64_t k = 0; k < r.levels; k++) assert_true(r.by_level[k] == 1);
    assert_true(fabs(r.error - 1) < 1e-12);
    assert_true(p->shown == WD_PARAMS_P);
    assert_memory_equal(p->buffer[WD_PARAMS_P], before, bytes);
    free(before);
    close_bench(&b);
}

static bool always(void *context, bool together)
{
    *(bool *)context = together;
    return true;
}

/* What is given up says so, and leaves the weights of training shown. */
static void a_stop_gives_it_up(void **state)
{
    (void)state;
    wd_err err;
    bool measured = true, together = true;
    wd_validation_result r;
    wd_validation *v;
    bench b = open_bench(in_fp32());
    wd_validation_options o = three;
    o.stop = always;
    o.stop_context = &together;
    wd_test_ok(wd__validation_open(&v, &o, b.stepper, &err), &err);
    assert_int_equal(wd__validation_prepare(v, NULL, "", &err), WD_INTERRUPTED);
    assert_true(together);
    wd_test_ok(wd__validation_measure(&r, &measured, v, &err), &err);
    assert_false(measured || together);
    assert_true(wd__stepper_params(b.stepper)->shown == WD_PARAMS_P);
    wd__validation_close(v);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chords_lead_to_the_next_state),
        cmocka_unit_test(steps_along_a_chord_have_its_target),
        cmocka_unit_test(pairs_lead_away_from_each_other),
        cmocka_unit_test(files_give_the_same_states),
        cmocka_unit_test(a_student_that_says_nothing_has_an_error_of_one),
        cmocka_unit_test(a_stop_gives_it_up),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
