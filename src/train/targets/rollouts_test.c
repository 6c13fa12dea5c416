/* On-policy trajectories: which they are; that their blocks begin where the student's own steps
 * lead; when they end; that a run which is stopped and resumed sees the same states. And the
 * weights of chords, and pairs. On wan-tiny. */
#include "harness/ranks.h"

#include "tiny_teacher.h"
#include "train/loop/stepper_impl.h"
#include "train/output/checkpoint_list.h"
#include "train/targets/chord.h"

enum { COUNT = 16 * LATENT * LATENT, CHORDS = 40, STEPS = 8, STOP = 4, EVERY = 3 };

static wd_stepper_options options_of(double share)
{
    wd_stepper_options o = small_stepper(&teacher);
    learn_chords(&o, 2);
    o.trajectory.on_policy_share = share;
    o.trajectory.on_policy_end = 1;
    o.trajectory.on_policy_every = EVERY;
    o.reuse = 1;
    return o;
}

static void open_alone(rank_stepper *r, const wd_stepper_options *o, const wd_placement *all)
{
    HARNESS_OK(wd_devices_open(&r->devices, CPU, 1, err));
    open_stepper(r, o, all);
}

static void the_share_is_of_trajectories(void **state)
{
    (void)state;
    enum { TRAJECTORIES = 4000 };
    const double shares[] = {0, 0.25, 1};
    for (int i = 0; i < 3; i++) {
        wd_trajectory_options o = options_of(shares[i]).trajectory;
        int64_t count = 0, differing = 0;
        for (int64_t serial = 0; serial < TRAJECTORIES; serial++) {
            o.seed = 9;
            const bool is = wd__trajectory_is_on_policy(&o, serial);
            count += is;
            o.seed = 10;
            differing += is != wd__trajectory_is_on_policy(&o, serial);
        }
        /* 5 standard deviations of a quarter of 4,000 are 137 */
        assert_true(fabs((double)count - shares[i] * TRAJECTORIES) <= (i == 1 ? 137 : 0));
        assert_int_equal(differing > 0, i == 1);
    }
}

/* One chord, and the state at which its block begins. */
typedef struct seen {
    wd_target_info begin;
    float latents[COUNT], chord[COUNT];
    float timestep;
} seen;

/* Reads the first chords of a source whose snapshot is of the student as it begins. */
static void see_chords(seen *out, wd_stepper *m)
{
    HARNESS_OK(wd_source_begin_step(m->source, 0, 0, err));
    for (int64_t i = 0; i < CHORDS; i++) {
        wd_batch batch;
        HARNESS_OK(wd_source_prepare(m->source, i + 1, err));
        wd_source_fill(m->source, &batch, i, 1);
        wd_queue_copy_and_wait(m->queue, out[i].latents, batch.latents, sizeof out[i].latents);
        wd_queue_copy_and_wait(m->queue, out[i].chord, batch.target, sizeof out[i].chord);
        out[i].begin = wd__chord_begin(&m->options.trajectory, i);
        wd_queue_copy_and_wait(m->queue, &out[i].timestep, batch.timestep, sizeof(float));
        float weight;
        wd_queue_copy_and_wait(m->queue, &weight, batch.weight, sizeof weight);
        assert_float_equal(weight, wd__chord_loss_weight(&m->options.trajectory, &out[i].begin), 0);
    }
}

/* velocity [COUNT] of the student at the state. */
static void student_velocity(float *velocity, wd_stepper *m, const seen *at)
{
    float *block, text[PADDED * 96];
    wd_device *device = wd_queue_device(m->queue);
    text_of(NULL, text, at->begin.prompt, WD_F32);
    const size_t state = sizeof at->latents, rows = TEXT * 96 * sizeof(float);
    HARNESS_OK(wd_device_alloc((void **)&block, device, 2 * state + rows + 64, "test", err));
    float *timestep = block + 2 * COUNT, *words = timestep + 16;
    wd_queue_copy_and_wait(m->queue, block, at->latents, state);
    wd_queue_copy_and_wait(m->queue, timestep, &at->begin.timestep, sizeof *timestep);
    wd_queue_copy_and_wait(m->queue, words, text, rows);
    wd_pass_velocity_of(block + COUNT, wd_network_pass(m->network[0]),
                        &(wd_pass_inputs){block, timestep, words}, 1);
    wd_queue_copy_and_wait(m->queue, velocity, block + COUNT, state);
    wd_device_free(device, block);
}

/* Whether the state lies at the end of a step with that velocity. */
static bool leads_to(const seen *from, const float *velocity, const seen *to)
{
    const float dt = to->begin.sigma - from->begin.sigma;
    float most = 0;
    for (int j = 0; j < COUNT; j++)
        most = fmaxf(most, fabsf(to->latents[j] - (from->latents[j] + dt * velocity[j])));
    return most <= 1e-4f; /* of the order of additions: latents are of the order of 1 */
}

/* Of on-policy trajectories blocks begin where the student leads, by its own velocity, and of the
 * others where the teacher's chord does. */
static void blocks_begin_where_the_student_leads(void **state)
{
    (void)state;
    static seen chords[CHORDS];
    const wd_stepper_options o = options_of(0.5);
    const wd_placement all = whole_on_first(&teacher);
    rank_stepper r;
    int own = 0, others = 0;
    open_alone(&r, &o, &all);
    see_chords(chords, r.stepper);
    for (int i = 0; i < CHORDS; i++)
        for (int k = i + 1; k < CHORDS; k++) {
            float velocity[COUNT];
            const bool is = wd__trajectory_is_on_policy(&o.trajectory, chords[i].begin.pair);
            if (chords[k].begin.serial != chords[i].begin.serial) continue;
            student_velocity(velocity, r.stepper, &chords[i]);
            assert_int_equal(leads_to(&chords[i], velocity, &chords[k]), is);
            assert_int_equal(leads_to(&chords[i], chords[i].chord, &chords[k]), !is);
            own += is;
            others += !is;
        }
    assert_true(own > 3 && others > 3);
    close_stepper(&r);
}

/* Reads the chords of a run with these options. */
static void see_run(seen *out, const wd_stepper_options *o)
{
    const wd_placement all = whole_on_first(&teacher);
    rank_stepper r;
    open_alone(&r, o, &all);
    see_chords(out, r.stepper);
    close_stepper(&r);
}

/* A student of more steps than chords sees states along the chords, whose slope is its target. */
static void states_lie_along_chords(void **state)
{
    (void)state;
    static seen begins[CHORDS], inside[CHORDS];
    wd_stepper_options o = options_of(0);
    see_run(begins, &o);
    o.trajectory.chords = o.trajectory.student_steps;
    o.trajectory.student_steps *= 3;
    see_run(inside, &o);
    int moved = 0;
    for (int i = 0; i < CHORDS; i++) {
        const wd_chord_point at = wd__chord_point_of(&o.trajectory, &begins[i].begin, i);
        assert_memory_equal(inside[i].chord, begins[i].chord, sizeof inside[i].chord);
        assert_float_equal(inside[i].timestep, at.timestep, 0);
        assert_int_equal(at.timestep < begins[i].timestep, at.dt < 0);
        for (int j = 0; j < COUNT; j++)
            assert_float_equal(inside[i].latents[j],
                               begins[i].latents[j] + at.dt * begins[i].chord[j], 1e-5);
        moved += at.dt < 0;
    }
    assert_true(moved > CHORDS / 3 && moved < CHORDS);
}

/* Reads the chords of pairs with that gain. The trajectories are the teacher's alone, and so the
 * same for any gain. */
static void see_pairs(seen *out, wd_stepper_options *o, double gain)
{
    o->trajectory.diversity_gain = gain;
    see_run(out, o);
}

/* The chord of the other trajectory of the pair; NULL: it is not among the first ones. */
static const seen *find_twin(const seen *chords, const seen *of)
{
    for (int i = 0; i < CHORDS; i++)
        if (chords[i].begin.pair == of->begin.pair && chords[i].begin.step == of->begin.step &&
            chords[i].begin.serial != of->begin.serial)
            return &chords[i];
    return NULL;
}

/* Both trajectories of a pair begin with opposite noise, and their chords lead away from each
 * other: by what is proportional to the gain, and nothing else. */
static void chords_of_a_pair_lead_apart(void **state)
{
    (void)state;
    static seen once[CHORDS], twice[CHORDS];
    wd_stepper_options o = options_of(0);
    pair_trajectories(&o);
    const double gain = o.trajectory.diversity_gain;
    see_pairs(once, &o, gain);
    see_pairs(twice, &o, 2 * gain);
    int first = 0, last = 0;
    for (int i = 0; i < CHORDS; i++) {
        const seen *a = &once[i], *b = find_twin(once, a);
        if (!b) continue;
        const bool ends = a->begin.step > 0; /* the second block of two */
        const double middle = 0.75 * 0.75;   /* at shift 3 */
        const double factor = gain * (ends ? middle : 1 + middle) / 2;
        const seen *a2 = &twice[i], *b2 = &twice[b - once];
        assert_int_equal(a->begin.prompt, b->begin.prompt);
        assert_memory_equal(a->latents, a2->latents, sizeof a->latents);
        for (int j = 0; j < COUNT; j++) {
            const double u = 2 * (double)a->chord[j] - (double)a2->chord[j]; /* without a gain */
            const double v = 2 * (double)b->chord[j] - (double)b2->chord[j];
            const double apart =
                u - v - ((double)a->latents[j] - (double)b->latents[j]) / (double)a->begin.sigma;
            assert_float_equal(a->chord[j], u + factor * apart, 1e-4);
            if (!ends) assert_float_equal(a->latents[j], -b->latents[j], 0);
        }
        first += !ends;
        last += ends;
    }
    assert_true(first > 5 && last > 5);
}

/* The student's P, then its EMA; to wd_free. */
typedef struct trained {
    float *weights; /* [count] */
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

static void save(wd_stepper *m, int64_t step)
{
    wd_checkpoint_tensors tensors;
    json_t *state;
    HARNESS_OK(wd__stepper_save(m, &state, &tensors, err));
    HARNESS_OK(wd_checkpoint_write(wd_test_folder(), step, &tensors, state, m->queue, err));
    json_decref(state);
}

static void load(wd_stepper *m)
{
    wd_checkpoint checkpoint;
    HARNESS_OK(wd_checkpoint_open_latest(&checkpoint, wd_test_folder(), err));
    HARNESS_OK(wd__stepper_load(m, &checkpoint, err));
    wd_checkpoint_close(&checkpoint);
}

/* After the steps [first, last). `first` > 0: it goes on from the checkpoint there. */
static trained run(const wd_stepper_options *o, int64_t first, int64_t last, bool saves)
{
    const wd_placement all = whole_on_first(&teacher);
    rank_stepper r;
    open_alone(&r, o, &all);
    if (first) load(r.stepper);
    for (int64_t step = first; step < last; step++) {
        const wd_step next = {.number = step,
                              .lr = 1e-3,
                              .progress = (double)step / STEPS,
                              .pauses = saves && step + 1 == last};
        HARNESS_OK(wd_stepper_step(r.stepper, &next, err));
        wd_stepper_take_result(r.stepper);
    }
    if (saves) save(r.stepper, last);
    const trained out = keep(r.stepper);
    close_stepper(&r);
    return out;
}

static bool is_same(const trained *a, const trained *b)
{
    return a->count == b->count &&
           !memcmp(a->weights, b->weights, (size_t)a->count * sizeof(float));
}

/* It is stopped between two snapshots, so that the checkpoint has the first of them; or behind the
 * end of on-policy trajectories, and it has none. */
static void a_stopped_run_goes_on_alike(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        trained whole[2];
        for (int early = 0; early < 2; early++) {
            wd_stepper_options o = options_of(1);
            if (bf16) o.student_dtype = WD_BF16;
            o.trajectory.on_policy_end = early ? (double)EVERY / STEPS : 1;
            whole[early] = run(&o, 0, STEPS, false);
            const trained half = run(&o, 0, STOP, true), rest = run(&o, STOP, STEPS, false);
            assert_true(is_same(&whole[early], &rest));
            assert_false(is_same(&whole[early], &half));
            wd_free(half.weights);
            wd_free(rest.weights);
        }
        assert_false(is_same(&whole[0], &whole[1]));
        for (int early = 0; early < 2; early++) wd_free(whole[early].weights);
    }
}

/* On-policy trajectories end when it is time, also between two copies of the weights. */
static void the_end_waits_for_no_copy(void **state)
{
    (void)state;
    wd_stepper_options o = options_of(1);
    o.trajectory.on_policy_every = 1000;
    const trained to_the_end = run(&o, 0, STEPS, false);
    o.trajectory.on_policy_end = (double)EVERY / STEPS;
    const trained ended = run(&o, 0, STEPS, false);
    assert_false(is_same(&ended, &to_the_end));
    wd_free(ended.weights);
    wd_free(to_the_end.weights);
}

static void train_unweighted(wd_stepper *m, const wd_batch *batch)
{
    wd_batch alike = *batch;
    alike.weight = NULL;
    wd_recipe_chord.train(m, &alike);
}

/* The weights of chords reach the gradients: without them a student of two steps is another one. A
 * student of one step, whose weights are 1, is the same to the bit. */
static void chords_have_weights(void **state)
{
    (void)state;
    wd_recipe unweighted = wd_recipe_chord;
    unweighted.train = train_unweighted;
    for (int steps = 1; steps <= 2; steps++) {
        wd_stepper_options o = options_of(0);
        learn_chords(&o, steps);
        const trained weighted = run(&o, 0, 2, false);
        o.recipe = &unweighted;
        const trained plain = run(&o, 0, 2, false);
        assert_int_equal(is_same(&weighted, &plain), steps == 1);
        wd_free(weighted.weights);
        wd_free(plain.weights);
    }
}

/* A run goes on with the options of chords that it was begun with. */
static void other_options_are_refused(void **state)
{
    (void)state;
    wd_err err;
    json_t *saved, *old;
    const wd_stepper_options o = options_of(0.5), none = options_of(0);
    const wd_placement all = whole_on_first(&teacher);
    rank_stepper r;
    int64_t count;
    const wd_checkpoint_tensor *tensors;
    open_alone(&r, &o, &all);
    wd_test_ok(wd_source_save(r.stepper->source, &saved, &tensors, &count, &err), &err);
    wd_test_ok(wd__stepper_check_stream(&o, saved, &err), &err);
    wd_stepper_options other = o;
    other.trajectory.on_policy_share = 0.25;
    wd_test_refused(wd__stepper_check_stream(&other, saved, &err), &err, WD_MISMATCH,
                    "begun with on_policy_share 0.5 and is to be resumed with 0.25");
    other = o;
    other.trajectory.on_policy_every++;
    wd_test_refused(wd__stepper_check_stream(&other, saved, &err), &err, WD_MISMATCH,
                    "on_policy_every 3 and is to be resumed with 4");
    other = o;
    other.trajectory.on_policy_end = 0.25;
    wd_test_refused(wd__stepper_check_stream(&other, saved, &err), &err, WD_MISMATCH,
                    "on_policy_end 1 and is to be resumed with 0.25");
    wd_test_refused(wd__stepper_check_stream(&none, saved, &err), &err, WD_MISMATCH,
                    "on_policy_share 0.5 and is to be resumed with 0");
    other = o;
    other.trajectory.diversity_gain = 0.3;
    wd_test_refused(wd__stepper_check_stream(&other, saved, &err), &err, WD_MISMATCH,
                    "diversity_gain 0 and is to be resumed with 0.3");
    other = o;
    other.trajectory.chords = 1;
    wd_test_refused(wd__stepper_check_stream(&other, saved, &err), &err, WD_MISMATCH,
                    "chords 2 and is to be resumed with 1");
    /* of a version that knew no end, no gain and no other number of chords, then no share */
    old = json_deep_copy(saved);
    json_object_del(old, "on_policy_end");
    json_object_del(old, "chords");
    json_object_del(old, "diversity_gain");
    wd_test_ok(wd__stepper_check_stream(&o, old, &err), &err);
    json_object_del(old, "on_policy_share");
    wd_test_ok(wd__stepper_check_stream(&none, old, &err), &err);
    wd_test_refused(wd__stepper_check_stream(&o, old, &err), &err, WD_MISMATCH,
                    "on_policy_share 0 and is to be resumed with 0.5");
    json_decref(old);
    json_decref(saved);
    close_stepper(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_share_is_of_trajectories),
        cmocka_unit_test(blocks_begin_where_the_student_leads),
        cmocka_unit_test(states_lie_along_chords),
        cmocka_unit_test(chords_of_a_pair_lead_apart),
        cmocka_unit_test(a_stopped_run_goes_on_alike),
        cmocka_unit_test(the_end_waits_for_no_copy),
        cmocka_unit_test(chords_have_weights),
        cmocka_unit_test(other_options_are_refused),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
