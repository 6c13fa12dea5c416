/* A pool's planned peak is what has to be there at once, and hardly more: random runs of true
 * sizes, every strategy, on dry devices. The largest live set of a pool is that of each of its
 * arenas (an arena is of one queue, and queues run at the same time), tensor by tensor from the
 * first launch that writes it to the last that reads it, with the blocks that are no arena:
 * weights, gradients, moments, slots that weights stream through, targets, batches, and the
 * workspaces that launches asked for, of which a queue has one.
 *
 * The student's arena by itself is as near. Its remainder, where the feed-forward part is narrow,
 * is the third of rotated queries and keys in which attention's strides leave room for values: up
 * to 3.4 % in 30 such runs. The teacher's, mostly a small part of a pool, is only printed: where
 * texts are long and pictures small the embedding needs the most, and while it makes the one stream
 * the other has its place already. So 2 of 333 pools were over by more than 2 %, by 2.1 and 3.5 %:
 * of teachers that stream through a device that has little else. */
#include "sparse.h"

#include "distill/live_harness.h"
#include "distill/plan.h"
#include "distill/random_harness.h"
#include "wan/preset.h"

enum { SCENES = 8, STEPS = 8, PERCENT = 2 };

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

/* Of the run: the states of one expert in one sweep at most. */
static struct {
    double boundary; /* timestep */
    int64_t most;
} swept;

/* How many were compared, and of the worst by how much more is planned than is alive. */
typedef struct result {
    int compared;
    double over_percent;
} result;

typedef struct results {
    result student, teacher, pool; /* arenas of both, whole pools */
} results;

static void compare(result *out, size_t planned, size_t live)
{
    assert_true(live <= planned);
    out->compared++;
    out->over_percent = fmax(out->over_percent, 100 * ((double)planned / (double)live - 1));
}

wd_status __real_wd_sweep_run(wd_sweep *sweep, const wd_window *window, wd_err *err);
wd_status __wrap_wd_sweep_run(wd_sweep *sweep, const wd_window *window, wd_err *err);

/* Sees how many states of one expert a sweep had. */
wd_status __wrap_wd_sweep_run(wd_sweep *sweep, const wd_window *window, wd_err *err)
{
    int64_t high = 0;
    for (int64_t i = 0; i < window->count; i++) high += window->timestep[i] >= swept.boundary;
    if (high > swept.most) swept.most = high;
    if (window->count - high > swept.most) swept.most = window->count - high;
    return __real_wd_sweep_run(sweep, window, err);
}

/* Whether the run used what the arenas of a device are planned for. Those of one that takes windows
 * have room for one that is all of one expert, and few are. */
static bool is_whole(int device, const wd_machine_options *o, const wd_placement *p)
{
    const wd_sweep_options sweep = wd_machine_sweep_options(o);
    const wd_site site = {.devices = ACCELERATORS + 1, .batches = wd_sweep_batches(&sweep)};
    const int streams = wd_placement_sweep(p, &site, device).streams;
    return streams <= WD_PIPELINE_STREAMS || swept.most == o->window;
}

/* Puts what was alive in arenas in the place of their blocks. `whole` gets false where an arena was
 * not used as it is planned. */
static void see_arenas(results *out, size_t live[ACCELERATORS], bool whole[ACCELERATORS],
                       const wd_queue *student)
{
    for (int i = 0; i < seen.arenas; i++) {
        live_arena *a = &seen.arena[i];
        const int d = live_device(a);
        if (d >= ACCELERATORS) continue;
        const bool all = live_is_whole(a) && (a->queue == student || whole[d]);
        const size_t most = live_most(a);
        if (all) compare(a->queue == student ? &out->student : &out->teacher, a->capacity, most);
        live[d] += most - a->capacity;
        whole[d] &= all;
    }
}

/* The largest live set of each pool in a run. */
static void run_dry(results *out, size_t live[ACCELERATORS], bool whole[ACCELERATORS],
                    const wd_machine_options *o, const wd_devices *devices, const wd_placement *p)
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
    for (int64_t step = 0; step < STEPS; step++) {
        wd_test_ok(wd_machine_step(&machine, step, 1e-3, &err), &err);
        while (wd_machine_results_pending(&machine)) wd_machine_take_result(&machine);
    }
    for (int d = 0; d < ACCELERATORS; d++) {
        whole[d] = is_whole(d, o, p);
        live[d] = wd_device_bytes(dry.device[d]) + wd_queue_workspace_bytes(dry.teacher[d]) +
                  (d ? 0 : wd_queue_workspace_bytes(dry.student));
    }
    see_arenas(out, live, whole, dry.student);
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
    o->trajectory.slots = between(2, 64);
}

/* Returns how many pools there were. */
static int measure(results *out, const wd_machine_options *o, const wd_placement *p)
{
    wd_err err;
    wd_devices devices;
    wd_memory_plan plan = {0};
    size_t live[ACCELERATORS];
    bool whole[ACCELERATORS];
    int pools = 0;
    wd_test_ok(wd_devices_open(&devices, "sim:3x1TiB", 1, &err), &err);
    wd_test_ok(wd_plan_machine(&plan, o, &(wd_samples_options){0}, &devices, p, &err), &err);
    live_begin();
    swept.boundary = wd_machine_sweep_options(o).boundary_timestep;
    swept.most = 0;
    run_dry(out, live, whole, o, &devices, p);
    for (int d = 0; d < ACCELERATORS; d++) {
        const size_t planned = wd_plan_peak(&plan, d);
        pools += planned > 0;
        if (planned && whole[d]) compare(&out->pool, planned, live[d]);
    }
    wd_devices_close(&devices);
    return pools;
}

static void most(result *all, const result *some)
{
    all->compared += some->compared;
    all->over_percent = fmax(all->over_percent, some->over_percent);
}

static void peaks_are_largest_live_sets(void **state)
{
    (void)state;
    results all = {0};
    int pools = 0;
    for (int i = 0; i < SCENES; i++) {
        wd_machine_options o;
        const wd_pipeline teacher = random_teacher(i);
        large_run(&o, &teacher);
        for (int k = 0; k < WD_STRATEGY_auto; k++) {
            results r = {0};
            random_window(&o);
            const wd_placement p = place((wd_strategy)k, &o);
            pools += measure(&r, &o, &p);
            print_message("run %d, %s: planned over the largest live set: student %.2f %%, "
                          "teacher %.2f %%, pools %.2f %%\n",
                          i, wd_strategy_name((wd_strategy)k), r.student.over_percent,
                          r.teacher.over_percent, r.pool.over_percent);
            most(&all.student, &r.student);
            most(&all.teacher, &r.teacher);
            most(&all.pool, &r.pool);
        }
    }
    print_message("at most: %d student arenas %.2f %%, %d teacher arenas %.2f %%, %d of %d pools "
                  "%.2f %%\n",
                  all.student.compared, all.student.over_percent, all.teacher.compared,
                  all.teacher.over_percent, all.pool.compared, pools, all.pool.over_percent);
    assert_true(all.student.over_percent <= PERCENT && all.pool.over_percent <= PERCENT);
    assert_true(4 * all.pool.compared > 3 * pools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_are_largest_live_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
