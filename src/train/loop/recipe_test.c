/* A recipe that trains two networks: the student is what it is alone, bit for bit; the memory of
 * both is planned, to the byte, by their names; a checkpoint has both, each under its prefix; and
 * ranks that share both change nothing. On wan-tiny; ranks are threads. */
#include "harness/ranks.h"

#include "tiny_teacher.h"
#include "train/loop/stepper_impl.h"
#include "train/network/loss.h"
#include "train/output/checkpoint_list.h"
#include "train/targets/source.h"

enum { STEPS = 4, HALF = STEPS / 2, NETWORKS = 2 };

/* ---- the recipe ---- */

static const wd_params_names critic_names = WD_PARAMS_NAMES("critic", "critic.");
static const wd_dit_config *critic_config; /* another one than the student's */

static void pair_settle(wd_stepper_options *o)
{
    wd_recipe_velocity.adjust(o);
}

static wd_status pair_open(wd_stepper *m, wd_err *err)
{
    WD_TRY(wd__stepper_add_network(m, &wd_params_student, &m->options.student, err));
    return wd__stepper_add_network(m, &critic_names, critic_config, err);
}

static wd_status pair_begin(wd_stepper *m, wd_err *err)
{
    for (int k = 0; k < m->networks; k++) {
        WD_TRY(wd_student_init(m->params[k], m->options.teacher,
                               wd_student_expert(m->options.teacher), m->queue, err));
        wd_optimizer_start_ema(wd_network_optimizer(m->network[k]), m->queue);
    }
    return WD_OK;
}

/* Both learn the same; the student is the last, whose losses stay. */
static void pair_train(wd_stepper *m, const wd_batch *batch)
{
    const wd_pass_inputs inputs = {batch->latents, batch->timestep, batch->text};
    for (int k = m->networks - 1; k >= 0; k--) {
        const wd_pass_outputs outputs = wd_pass_forward(wd_network_pass(m->network[k]), &inputs);
        wd_loss_velocity(m->loss, &outputs, batch->target, batch->weight,
                         wd__stepper_loss_factor(m), m->queue);
        wd_network_backward(m->network[k]);
    }
}

static const wd_recipe pair = {.name = "pair",
                               .source = &wd_source_trajectory,
                               .adjust = pair_settle,
                               .open = pair_open,
                               .begin = pair_begin,
                               .train = pair_train};

/* ---- runs ---- */

static const char *checkpoints;

/* A rank's run, and what it ends with. */
typedef struct part {
    rank_thread at;
    const wd_stepper_options *options;
    int64_t first, last; /* steps; first > 0: it goes on from a checkpoint of that step */
    bool saves;          /* a checkpoint at its end */
    double loss;         /* of the last step */
    int64_t count[NETWORKS];
    float *kept[NETWORKS]; /* P and EMA of each network; to free */
} part;

static void keep(part *p, wd_stepper *m)
{
    static const wd_params_buffer buffers[] = {WD_PARAMS_P, WD_PARAMS_EMA};
    for (int k = 0; k < m->networks; k++) {
        wd_params *params = m->params[k];
        void *to;
        HARNESS_OK(wd_alloc(&to, 2 * (size_t)params->count, sizeof(float), "kept", err));
        p->kept[k] = to;
        p->count[k] = params->count;
        for (int i = 0; i < 2; i++) {
            wd_params_collect(params, buffers[i], m->queue);
            wd_queue_copy_and_wait(m->queue, p->kept[k] + i * params->count,
                                   wd_params_whole(params, buffers[i]),
                                   (size_t)params->count * sizeof(float));
        }
    }
}

static void save(part *p, wd_stepper *m)
{
    wd_checkpoint_tensors tensors;
    json_t *run;
    HARNESS_OK(wd__stepper_save(m, &run, &tensors, err));
    HARNESS_OK(wd__stepper_check_finite(m, err));
    HARNESS_OK(wd_checkpoint_write(checkpoints, p->last, &tensors, run, m->queue, err));
    json_decref(run);
}

static void load(wd_stepper *m)
{
    wd_checkpoint checkpoint;
    HARNESS_OK(wd_checkpoint_open_latest(&checkpoint, checkpoints, err));
    HARNESS_OK(wd__stepper_load(m, &checkpoint, err));
    wd_checkpoint_close(&checkpoint);
}

static void check_planned(const rank_stepper *r, int64_t host_before)
{
    size_t planned = 0;
    for (int i = 0; i < r->plan.items; i++)
        if (r->plan.item[i].phase == WD_MEMORY_TRAINING) planned += r->plan.item[i].bytes;
    for (int i = 0; i < r->devices.count; i++) planned -= wd_device_bytes(r->devices.device[i]);
    HARNESS_CHECK(planned == (size_t)(wd_memory_held() - host_before));
    for (int k = 0; k < r->stepper->networks; k++) {
        const wd_params *params = r->stepper->params[k];
        const wd_memory_item *item =
            wd_memory_plan_find(&r->plan, params->names->buffer[WD_PARAMS_M], WD_MEMORY_HOST);
        HARNESS_CHECK(item && item->bytes == wd_params_buffer_bytes(params, WD_PARAMS_M));
        HARNESS_CHECK(wd_memory_plan_find(&r->plan, params->names->activations, WD_MEMORY_HOST));
    }
}

static void *run_part(void *context)
{
    part *p = context;
    rank_stepper r;
    wd_stepper_options o = *p->options;
    const wd_placement all = whole_on_first(o.teacher);
    o.comm = p->at.comm;
    HARNESS_OK(wd_devices_open(&r.devices, CPU, 1, err));
    const int64_t host_before = wd_memory_held();
    open_stepper(&r, &o, &all);
    wd_stepper *m = r.stepper;
    if (p->first) load(m);
    for (int64_t step = p->first; step < p->last; step++) {
        const bool pauses = step + 1 == p->last;
        HARNESS_OK(
            wd_stepper_step(m, &(wd_step){.number = step, .lr = 1e-3, .pauses = pauses}, err));
        while (wd_stepper_results_pending(m) > (step + 1 < p->last))
            p->loss = wd_stepper_take_result(m).loss;
    }
    check_planned(&r, host_before);
    if (p->saves) save(p, m);
    keep(p, m);
    close_stepper(&r);
    return NULL;
}

static wd_stepper_options options_of(const wd_recipe *recipe)
{
    wd_stepper_options o = small_stepper(&teacher);
    static wd_dit_config smaller;
    smaller = o.student;
    smaller.layers = 1;
    critic_config = &smaller;
    o.recipe = recipe;
    o.deterministic_reduce = true;
    o.accumulation = MICRO_BATCHES;
    return o;
}

static part run(const wd_stepper_options *o, int64_t first, int64_t last, bool saves)
{
    part p = {.options = o, .first = first, .last = last, .saves = saves};
    run_ranks(&p, sizeof p, 1, run_part);
    return p;
}

static void assert_same(const part *a, const part *b, int networks)
{
    assert_true(a->loss == b->loss && a->loss > 0);
    for (int k = 0; k < networks; k++) {
        assert_int_equal(a->count[k], b->count[k]);
        assert_memory_equal(a->kept[k], b->kept[k], 2 * (size_t)a->count[k] * sizeof(float));
    }
}

static void close_part(part *p)
{
    for (int k = 0; k < NETWORKS; k++) wd_free(p->kept[k]);
}

/* ---- tests ---- */

static void the_student_is_what_it_is_alone(void **state)
{
    (void)state;
    const wd_stepper_options one = options_of(&wd_recipe_velocity), two = options_of(&pair);
    part alone = run(&one, 0, STEPS, false), both = run(&two, 0, STEPS, false);
    assert_same(&alone, &both, 1);
    assert_null(alone.kept[1]);
    assert_true(both.count[1] < both.count[0]);
    close_part(&alone);
    close_part(&both);
}

static void a_checkpoint_has_both(void **state)
{
    (void)state;
    const wd_stepper_options one = options_of(&wd_recipe_velocity), two = options_of(&pair);
    char folder[WD_PATH_MAX];
    wd_err err;
    wd_checkpoint c;
    snprintf(folder, sizeof folder, "%s/both", wd_test_folder());
    checkpoints = folder;
    part whole = run(&two, 0, STEPS, false), half = run(&two, 0, HALF, true);
    part rest = run(&two, HALF, STEPS, false);
    assert_same(&whole, &rest, NETWORKS);

    wd_test_ok(wd_checkpoint_open_latest(&c, folder, &err), &err);
    assert_non_null(wd_safetensors_find(c.set, "p.proj_out.weight"));
    assert_non_null(wd_safetensors_find(c.set, "critic.p.proj_out.weight"));
    assert_non_null(wd_safetensors_find(c.set, "critic.ema.proj_out.weight"));
    assert_int_equal(json_integer_value(json_object_get(c.run, "critic.optimizer_steps")), HALF);
    wd_checkpoint_close(&c);

    part student = run(&one, HALF, STEPS, false); /* the critic's tensors are passed over */
    assert_same(&whole, &student, 1);
    part *all[] = {&whole, &half, &rest, &student};
    for (int i = 0; i < 4; i++) close_part(all[i]);
}

static void ranks_share_both(void **state)
{
    (void)state;
    wd_stepper_options o = options_of(&pair);
    part one = run(&o, 0, STEPS, false), ranks[2] = {0};
    o.shard_optimizer = true;
    o.accumulation = MICRO_BATCHES / 2;
    for (int r = 0; r < 2; r++) ranks[r] = (part){.options = &o, .last = STEPS};
    run_ranks(ranks, sizeof *ranks, 2, run_part);
    for (int r = 0; r < 2; r++) {
        assert_same(&one, &ranks[r], NETWORKS);
        close_part(&ranks[r]);
    }
    close_part(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_student_is_what_it_is_alone),
        cmocka_unit_test(a_checkpoint_has_both),
        cmocka_unit_test(ranks_share_both),
    };
    return cmocka_run_group_tests(tests, open_teacher, NULL);
}
