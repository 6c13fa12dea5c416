/* A pool's planned peak is what has to be there at once, and hardly more: random runs of true
 * sizes, every strategy, on dry devices. The largest live set of a pool is that of each of its
 * arenas (an arena is of one queue, and queues run at the same time), tensor by tensor from the
 * first launch that writes it to the last that reads it, with the blocks that are no arena:
 * weights, gradients, moments, slots that weights stream through, targets, batches, and the
 * workspaces that launches asked for, of which a queue has one.
 *
 * The arenas by themselves are only printed. The student's remainder, where the feed-forward part
 * is narrow, is the third of rotated queries and keys in which attention's strides leave room for
 * values: up to 8.6 % of the arena in 450 such runs. */
#include "sparse.h"

#include "distill/live_harness.h"
#include "distill/plan.h"
#include "distill/random_harness.h"
#include "wan/preset.h"

enum { SCENES = 20, STEPS = 8, SLOTS_MAX = 64, PERCENT = 2 };

/* ---- pools ---- */

static void no_text(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    (void)context, (void)out, (void)prompt, (void)dtype;
}

/* Dry devices make up addresses alike: those of device d come to be in a space of their own. */
static void separate(wd_devices *dry)
{
    wd_err err;
    for (int d = 0; d < dry->count; d++) {
        void *space;
        const size_t bytes = (size_t)(d + 1) << LIVE_SPACE_BITS;
        wd_test_ok(wd_device_alloc(&space, dry->device[d], bytes, "apart", &err), &err);
        wd_device_free(dry->device[d], space);
        wd_device_restart_peak(dry->device[d]);
    }
}

/* How many were compared, and of the worst by how much more is planned than is alive. */
typedef struct result {
    int compared;
    double over_percent;
} result;

typedef struct results {
    result student, teacher, pool; /* arenas, and whole pools */
} results;

static void compare(result *out, size_t planned, size_t live)
{
    assert_true(live <= planned);
    out->compared++;
    out->over_percent = fmax(out->over_percent, 100 * ((double)planned / (double)live - 1));
}

/* A window that is all of one expert, of each: few that come by themselves are, and there is room
 * for them. Often enough that micro-batches come to every place of a pipeline. */
static void sweep_whole_windows(wd_machine *m, const wd_devices *dry)
{
    wd_err err;
    float timestep[SLOTS_MAX], *nowhere = (float *)((uintptr_t)(dry->count + 1) << LIVE_SPACE_BITS);
    int64_t prompt[SLOTS_MAX] = {0};
    const int experts = wd_teacher_experts(m->options.teacher);
    for (int n = 0; n < WD_PIPELINE_STREAMS * experts; n++) {
        for (int64_t i = 0; i < m->options.window; i++) timestep[i] = n % experts ? 0 : 1000;
        const wd_window window = {.count = m->options.window,
                                  .queue = dry->home,
                                  .latents = nowhere,
                                  .velocity = nowhere,
                                  .timestep = timestep,
                                  .prompt = prompt};
        wd_test_ok(wd_sweep_run(m->sweep, &window, &err), &err);
    }
}

/* Puts what was alive in arenas in the place of their blocks. */
static void see_arenas(results *out, size_t live[ACCELERATORS], const wd_queue *student)
{
    for (int i = 0; i < seen.arenas; i++) {
        live_arena *a = &seen.arena[i];
        const int d = live_device(a);
        if (d >= ACCELERATORS) continue;
        const size_t most = live_most(a);
        compare(a->queue == student ? &out->student : &out->teacher, a->capacity, most);
        live[d] += most - a->capacity;
    }
}

/* The largest live set of each pool in a run. */
static void run_dry(results *out, size_t live[ACCELERATORS], const wd_machine_options *o,
                    const wd_devices *devices, const wd_placement *p)
{
    wd_err err;
    wd_devices dry;
    wd_residency *residency;
    wd_machine machine;
    size_t opening[ACCELERATORS];
    wd_test_ok(wd_devices_open_dry(&dry, devices, &err), &err);
    separate(&dry);
    wd_test_ok(wd_residency_open_placed(&residency, o->teacher, p, o->teacher_dtype, dry.teacher,
                                        dry.host, NULL, &err),
               &err);
    for (int d = 0; d < ACCELERATORS; d++) opening[d] = wd_device_bytes_peak(dry.device[d]);
    const wd_machine_teacher teacher = {residency, p, dry.teacher, dry.home};
    wd_test_ok(wd_machine_open(&machine, o, &teacher, dry.student, &err), &err);
    sweep_whole_windows(&machine, &dry);
    for (int64_t step = 0; step < STEPS; step++) {
        wd_test_ok(wd_machine_step(&machine, step, 1e-3, &err), &err);
        while (wd_machine_results_pending(&machine)) wd_machine_take_result(&machine);
    }
    for (int d = 0; d < ACCELERATORS; d++)
        live[d] = wd_device_bytes(dry.device[d]) + wd_queue_workspace_bytes(dry.teacher[d]) +
                  (d ? 0 : wd_queue_workspace_bytes(dry.student));
    see_arenas(out, live, dry.student);
    for (int d = 0; d < ACCELERATORS; d++)
        if (opening[d] > live[d]) live[d] = opening[d];
    wd_machine_close(&machine);
    wd_residency_close(residency);
    wd_devices_close(&dry);
}

/* ---- runs ---- */

static void write_expert(const wd_pipeline *p, const char *folder, wd_dtype dtype)
{
    wd_err err;
    char path[WD_PATH_MAX];
    wd_tensor_table table;
    wd_test_ok(wd_path_join(path, p->path, folder, &err), &err);
    wd_test_ok(wd_dit_table_open(&table, &p->dit, &err), &err);
    wd_test_sparse_set(path, "diffusion_pytorch_model", &table, 1, dtype, NULL);
    wd_dit_table_close(&table);
}

/* As large as published ones, of a random width and depth; its files are holes. */
static wd_pipeline random_teacher(int number)
{
    static const wd_dtype dtypes[] = {WD_F32, WD_BF16, WD_F16};
    wd_err err;
    wd_pipeline p;
    const bool two = between(0, 1);
    wd_test_ok(wd_preset_pipeline(&p, two ? "wan2.2-a14b" : "wan2.1-1.3b", &err), &err);
    snprintf(p.path, sizeof p.path, "%s/%d", wd_test_folder(), number);
    p.dit.heads = between(4, 40);
    p.dit.head_dim = 32 * between(1, 4);
    p.dit.ffn_dim = 64 * between(8, 216);
    p.dit.layers = between(2, 40);
    write_expert(&p, "transformer", dtypes[between(0, 2)]);
    if (two) write_expert(&p, "transformer_2", dtypes[between(0, 2)]);
    return p;
}

static void large_run(wd_machine_options *o, const wd_pipeline *teacher)
{
    random_run(o, teacher);
    o->text = no_text;
    o->latent_height = 2 * between(8, 45);
    o->latent_width = 2 * between(8, 45);
    o->text_tokens = between(16, 512);
    o->trajectory.slots = between(2, SLOTS_MAX);
}

static void measure(results *out, const wd_machine_options *o, const wd_placement *p)
{
    wd_err err;
    wd_devices devices;
    wd_memory_plan plan = {0};
    size_t live[ACCELERATORS];
    wd_test_ok(wd_devices_open(&devices, "sim:3x1TiB", 1, &err), &err);
    wd_test_ok(wd_plan_machine(&plan, o, &(wd_samples_options){0}, &devices, p, &err), &err);
    live_begin();
    run_dry(out, live, o, &devices, p);
    for (int d = 0; d < ACCELERATORS; d++) {
        const size_t planned = wd_plan_peak(&plan, d);
        if (!planned) continue;
        compare(&out->pool, planned, live[d]);
        if (planned > live[d] / 100 * (100 + PERCENT))
            fail_msg("sim:%d: %zu bytes planned, %zu alive at the most", d, planned, live[d]);
    }
    wd_devices_close(&devices);
}

/* The processor has all but the last block and the head, which fetch a micro-batch at a time. */
static wd_placement last_block_apart(const wd_machine_options *o)
{
    wd_placement p = place(WD_STRATEGY_cpu, o);
    for (int e = 0; e < p.experts; e++)
        p.place[e][p.stages - 2].device = p.place[e][p.stages - 1].device = 1;
    return p;
}

static void most(result *all, const result *some)
{
    all->compared += some->compared;
    all->over_percent = fmax(all->over_percent, some->over_percent);
}

static void compare_run(results *all, int run, const char *name, const wd_machine_options *o,
                        const wd_placement *p)
{
    results r = {0};
    measure(&r, o, p);
    print_message("run %d, %s: planned over the largest live set: student %.2f %%, "
                  "teacher %.2f %%, pools %.2f %%\n",
                  run, name, r.student.over_percent, r.teacher.over_percent, r.pool.over_percent);
    most(&all->student, &r.student);
    most(&all->teacher, &r.teacher);
    most(&all->pool, &r.pool);
}

static void peaks_are_largest_live_sets(void **state)
{
    (void)state;
    results all = {0};
    for (int i = 0; i < asked_for("WD_TEST_SCENES", SCENES); i++) {
        wd_machine_options o;
        const wd_pipeline teacher = random_teacher(i);
        large_run(&o, &teacher);
        for (int k = 0; k < WD_STRATEGY_auto; k++) {
            random_window(&o);
            const wd_placement p = place((wd_strategy)k, &o);
            compare_run(&all, i, wd_strategy_name((wd_strategy)k), &o, &p);
        }
        random_window(&o);
        const wd_placement apart = last_block_apart(&o);
        compare_run(&all, i, "last block apart", &o, &apart);
    }
    print_message("at most: %d student arenas %.2f %%, %d teacher arenas %.2f %%, %d pools "
                  "%.2f %%\n",
                  all.student.compared, all.student.over_percent, all.teacher.compared,
                  all.teacher.over_percent, all.pool.compared, all.pool.over_percent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_are_largest_live_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
