/* A pool's planned peak is what has to be there at once, and hardly more: random runs of true
 * sizes, every strategy, on dry devices. The largest live set of a pool is the most that was pushed
 * and not yet reset in each of its arenas (an arena is of one queue, and queues run at the same
 * time), byte by byte as it was asked for, with the blocks that are no arena: weights, gradients,
 * moments, slots that weights stream through, targets, batches, and the workspaces that launches
 * asked for.
 *
 * Linked with --wrap=wd_arena_push, so that pushes are seen here. */
#include "sparse.h"

#include "distill/plan.h"
#include "distill/random_harness.h"
#include "wan/preset.h"

enum { SCENES = 8, STEPS = 2, PERCENT = 2, SPACE_BITS = 44, ARENAS_MAX = 32, ACTIVE_MAX = 4096 };

/* ---- tensors in arenas ---- */

/* A push. */
typedef struct tensor {
    uintptr_t at;
    size_t bytes;
} tensor;

typedef struct arena {
    const wd_arena *arena;
    tensor active[ACTIVE_MAX]; /* ascending */
    int count;
    size_t alive, most_alive; /* bytes */
} arena;

static struct {
    arena arena[ARENAS_MAX];
    int arenas;
} seen;

static arena *find(const wd_arena *pushed)
{
    int i = 0;
    while (i < seen.arenas && seen.arena[i].arena != pushed) i++;
    assert_true(i < ARENAS_MAX);
    if (i == seen.arenas) seen.arena[seen.arenas++].arena = pushed;
    return &seen.arena[i];
}

void *__real_wd_arena_push(wd_arena *arena, size_t bytes);
void *__wrap_wd_arena_push(wd_arena *arena, size_t bytes);

/* What lies where something is pushed, or behind it, is no more. */
void *__wrap_wd_arena_push(wd_arena *pushed, size_t bytes)
{
    void *block = __real_wd_arena_push(pushed, bytes);
    if ((uintptr_t)block >> SPACE_BITS == 0) return block; /* it only measures */
    arena *a = find(pushed);
    while (a->count && a->active[a->count - 1].at >= (uintptr_t)block)
        a->alive -= a->active[--a->count].bytes;
    assert_true(a->count < ACTIVE_MAX);
    a->active[a->count++] = (tensor){(uintptr_t)block, bytes};
    a->alive += bytes;
    if (a->alive > a->most_alive) a->most_alive = a->alive;
    return block;
}

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
        const size_t bytes = (size_t)(d + 1) << SPACE_BITS;
        wd_test_ok(wd_device_alloc(&space, dry->device[d], bytes, "apart", &err), &err);
        wd_device_free(dry->device[d], space);
        wd_device_restart_peak(dry->device[d]);
    }
}

/* Puts what was alive in arenas in the place of their blocks. Returns in `whole` which devices' all
 * worked on a whole micro-batch: a window's states of one expert may be fewer, and room for one is
 * planned all the same. */
static void see_arenas(size_t live[ACCELERATORS], bool whole[ACCELERATORS])
{
    for (int i = 0; i < seen.arenas; i++) {
        const arena *a = &seen.arena[i];
        const uintptr_t d = ((uintptr_t)a->arena->base >> SPACE_BITS) - 1;
        if (d >= ACCELERATORS) continue;
        live[d] += a->most_alive - a->arena->capacity;
        whole[d] &= a->arena->peak == a->arena->capacity;
    }
}

/* The largest live set of each pool in a run. */
static void run_dry(size_t live[ACCELERATORS], bool whole[ACCELERATORS],
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
        whole[d] = true;
        live[d] = wd_device_bytes(dry.device[d]) + wd_queue_workspace_bytes(dry.teacher[d]) +
                  (d ? 0 : wd_queue_workspace_bytes(dry.student));
    }
    see_arenas(live, whole);
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

/* Pools that were compared, and the worst of them. */
typedef struct result {
    int pools, compared;
    double over_percent;
} result;

static void check(result *out, const char *strategy, const wd_machine_options *o,
                  const wd_placement *p)
{
    wd_err err;
    wd_devices devices;
    wd_memory_plan plan = {0};
    size_t live[ACCELERATORS];
    bool whole[ACCELERATORS];
    wd_test_ok(wd_devices_open(&devices, "sim:3x1TiB", 1, &err), &err);
    wd_test_ok(wd_plan_machine(&plan, o, &(wd_samples_options){0}, &devices, p, &err), &err);
    memset(&seen, 0, sizeof seen);
    run_dry(live, whole, o, &devices, p);
    for (int d = 0; d < ACCELERATORS; d++) {
        const size_t planned = wd_plan_peak(&plan, d);
        if (!planned) continue;
        assert_true(live[d] <= planned);
        out->pools++;
        if (!whole[d]) continue;
        out->compared++;
        const double over = 100 * ((double)planned / (double)live[d] - 1);
        if (!(over <= PERCENT))
            fail_msg("%s: %zu bytes of device %d planned, %zu alive at the most", strategy, planned,
                     d, live[d]);
        out->over_percent = fmax(out->over_percent, over);
    }
    wd_devices_close(&devices);
}

static void peaks_are_largest_live_sets(void **state)
{
    (void)state;
    result all = {0};
    for (int i = 0; i < SCENES; i++) {
        wd_machine_options o;
        const wd_pipeline teacher = random_teacher(i);
        large_run(&o, &teacher);
        for (int k = 0; k < WD_STRATEGY_auto; k++) {
            random_window(&o);
            const wd_placement p = place((wd_strategy)k, &o);
            check(&all, wd_strategy_name((wd_strategy)k), &o, &p);
        }
    }
    print_message("%d of %d pools: at most %.3f %% over the largest live set\n", all.compared,
                  all.pools, all.over_percent);
    assert_true(4 * all.compared > 3 * all.pools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_are_largest_live_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
