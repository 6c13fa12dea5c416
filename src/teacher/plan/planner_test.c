/* Plans of random teachers on random machines: `auto` is what a search through all plans finds; a
 * plan that is said to fit does, into exactly its own peaks and not a byte less. What sweeps need
 * is found by dry runs, as in earnest; weights, budgets and rates are made up. */
#include "core/random.h"
#include "placements.h"
#include "teacher/plan/planner.h"
#include "teacher/run/sweep.h"
#include "testing.h"

enum { SCENES = 200, WINDOW_MAX = 24, ROUNDS_MAX = 4 };

/* A large window is taken for a thousandth, and once more so with large micro-batches. */
static const double SLOWER_MAX = 1.0021;

static wd_device *processor, *accelerator; /* for their descriptions */

static int open_devices(void **state)
{
    (void)state;
    wd_err err;
    wd_test_ok(wd_device_open_cpu(&processor, 1, &err), &err);
    wd_test_ok(wd_device_open_sim(&accelerator, &(wd_sim_options){.bytes = 1 << 20}, &err), &err);
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    wd_device_close(accelerator);
    wd_device_close(processor);
    return 0;
}

/* ---- random teachers and machines ---- */

static uint64_t draws;

static double drawn(void)
{
    return wd_random_uniform((wd_random){.seed = 11, .stream = WD_RANDOM_TEST}, draws++);
}

static int64_t between(int64_t low, int64_t high)
{
    int64_t n = low + (int64_t)(drawn() * (double)(high - low + 1));
    return n < high ? n : high;
}

/* So that small and large ones come equally often. */
static double magnitude(double low, double high)
{
    return low * pow(high / low, drawn());
}

typedef struct scene {
    wd_planner_input input;
    wd_placement custom;
    uint8_t expert[ROUNDS_MAX * WINDOW_MAX];
    size_t weights_bytes; /* of all stages, on a device */
} scene;

static void random_size(scene *s)
{
    wd_teacher_size *size = &s->input.size;
    *size = (wd_teacher_size){.experts = (int)between(1, 2),
                              .stages = (int)s->input.sweep.config.layers + 2};
    const bool widens = between(0, 4) == 0, converts = between(0, 1);
    for (int e = 0; e < size->experts; e++)
        for (int i = 0; i < size->stages; i++) {
            size_t bytes = 64 * (size_t)between(1, 1000);
            size->stage[e][i] = (wd_stage_size){.device = bytes,
                                                .host = converts ? bytes : 0,
                                                .file = converts ? 2 * bytes : bytes,
                                                .reading = converts ? 2 * bytes : bytes,
                                                .casting = converts ? bytes / 2 : 0,
                                                .widened = widens ? 2 * bytes : 0};
            s->weights_bytes += bytes;
        }
}

static void random_cluster(scene *s)
{
    wd_cluster *cluster = &s->input.cluster;
    const int others = (int)between(0, 4), hosts = (int)between(1, 2);
    *cluster = (wd_cluster){.ranks = between(0, 1) ? hosts * (int)between(1, 3) : 1,
                            .hosts = hosts,
                            .devices = others + 1,
                            .teacher = wd_precision_of(s->input.sweep.dtype),
                            .student = others % 2 ? WD_32_BIT : WD_16_BIT,
                            .disk_bytes_per_s = magnitude(1e5, 1e8),
                            .memory_bytes_per_s = magnitude(1e6, 1e9),
                            .network_bytes_per_s = magnitude(1e5, 1e8)};
    if (cluster->ranks < hosts) cluster->hosts = 1;
    for (int d = 0; d < cluster->devices; d++) {
        wd_cluster_device *to = &cluster->device[d];
        bool last = d == others;
        to->reads_host = last;
        to->flops_per_s[WD_16_BIT] = magnitude(last ? 1e5 : 1e7, 1e9);
        to->flops_per_s[WD_32_BIT] = to->flops_per_s[WD_16_BIT] / 4;
        to->link_bytes_per_s = last ? INFINITY : magnitude(1e6, 1e9);
        to->bytes = last ? SIZE_MAX : (size_t)((double)s->weights_bytes * magnitude(0.1, 4));
        to->taken = last ? 0 : (size_t)((double)to->bytes * 0.3 * drawn());
        to->workspace = between(0, 1) ? (size_t)between(0, 1 << 16) : 0;
        s->input.devices.target[d] = last ? processor : accelerator;
    }
    cluster->host_bytes = (size_t)((double)s->weights_bytes * magnitude(0.05, 8));
    cluster->host_taken = (size_t)((double)cluster->host_bytes * 0.3 * drawn());
}

/* Runs of stages anywhere. */
static void random_custom(scene *s)
{
    const wd_cluster *cluster = &s->input.cluster;
    const int devices = wd__cluster_devices(cluster);
    s->custom = wd_placement_begin(&s->input.size, cluster);
    for (int e = 0; e < s->custom.experts; e++) {
        wd_stage_placement place = {WD_HOME_DEVICE, 0};
        for (int i = 0; i < s->custom.stages; i++) {
            if (i == 0 || between(0, 3) == 0) {
                place.device = (int)between(0, devices - 1);
                place.home = (wd_home)between(WD_HOME_DEVICE, WD_HOME_DISK);
                if (place.home == WD_HOME_HOST && wd_cluster_at(cluster, place.device)->reads_host)
                    place.home = WD_HOME_DEVICE;
            }
            s->custom.place[e][i] = place;
        }
    }
}

static void no_text(void *context, void *out, int64_t prompt, wd_dtype dtype)
{
    (void)context, (void)out, (void)prompt, (void)dtype;
}

static void random_scene(scene *s)
{
    *s = (scene){0};
    wd_planner_input *in = &s->input;
    in->devices.need = wd_sweep_plan_need;
    in->sweep = (wd_sweep_options){
        .config = {.in_channels = 4 * between(1, 4),
                   .heads = between(1, 3),
                   .head_dim = 4 * between(2, 8),
                   .ffn_dim = 8 * between(4, 16),
                   .layers = between(1, 9),
                   .freq_dim = 32,
                   .text_dim = 8 * between(2, 6),
                   .patch = {1, 2, 2},
                   .rope_max_seq_len = 64,
                   .cross_attn_norm = true,
                   .eps = 1e-6},
        .dtype = between(0, 1) ? WD_F32 : WD_BF16,
        .frames = 1,
        .height = 2 * between(1, 4),
        .width = 2 * between(1, 4),
        .text_tokens = between(2, 8),
        .text_repeat = 1,
        .window_max = between(0, 3) ? 0 : between(1, WINDOW_MAX),
        .micro_batch = between(0, 1) ? 0 : between(1, 6),
        .boundary_timestep = 500,
        .guidance_scale = {(double)between(1, 2), 2},
        .text = no_text,
    };
    in->sweep.config.out_channels = in->sweep.config.in_channels;
    random_size(s);
    random_cluster(s);
    random_custom(s);
    in->request.custom = between(0, 1) ? &s->custom : NULL;
    in->rounds.trajectories = between(1, WINDOW_MAX);
    in->rounds.count = between(1, ROUNDS_MAX);
    in->rounds.expert = s->input.size.experts > 1 ? s->expert : NULL;
    const double high_share = between(0, 3) ? drawn() : (double)between(0, 1);
    for (int64_t i = 0; i < in->rounds.count * in->rounds.trajectories; i++)
        s->expert[i] = drawn() > high_share;
    const int others = in->cluster.devices - 1, ranks = in->cluster.ranks;
    in->request.teacher_rank = ranks > 1 ? (int)between(0, ranks - 1)
                               : others  ? (int)between(0, others - 1)
                                         : 0;
    in->request.buffers = (int)between(0, 1) * (int)between(2, 5);
    in->student.step_targets = (double)between(1, 64);
    in->student.steps_ahead = 1 + 1 / (double)between(1, 4);
    in->student.step_flops = magnitude(1e5, 1e9);
    in->student.step_bytes = magnitude(1e3, 1e7);
    in->gradients.reduced_bytes = in->gradients.gathered_bytes = magnitude(1e3, 1e7);
    in->gradients.out_bytes = in->gradients.in_bytes = ranks > 1 ? in->gradients.reduced_bytes : 0;
    in->gradients.final_share = 0.6;
}

/* ---- plans ---- */

static wd_strategy_plan plan_of(const wd_planner_input *input, wd_strategy strategy)
{
    wd_err err;
    wd_planner *planner;
    wd_strategy_plan plan;
    wd_test_ok(wd_planner_open(&planner, input, &err), &err);
    if (wd_planner_plan(&plan, planner, strategy, &err))
        plan = (wd_strategy_plan){.objection = "these devices cannot serve it"};
    wd_planner_close(planner);
    return plan;
}

/* The cluster with what sweeps need that are cut as the plan says. */
static wd_cluster cluster_of(const wd_planner_input *input, const wd_strategy_plan *plan)
{
    wd_err err;
    wd_sweep_need need[2]; /* of the processor, of another one */
    wd_cluster cluster = input->cluster;
    wd_sweep_options o = input->sweep;
    o.window_max = wd_placed_window(&plan->placement, plan->window);
    o.micro_batch = plan->micro_batch;
    cluster.batches = wd_sweep_batches(&o);
    for (int k = 0; k < 2; k++)
        wd_test_ok(
            wd_sweep_need_of(&need[k], &o, k ? accelerator : processor, wd_device_open_dry, &err),
            &err);
    for (int d = 0; d < cluster.devices; d++)
        cluster.device[d].need = need[!cluster.device[d].reads_host];
    return cluster;
}

/* At the place that lacks most, which is what tables show. */
static size_t missing_of(const wd_strategy_plan *plan)
{
    size_t most = plan->host_missing;
    for (int d = 0; d < plan->bytes.devices; d++)
        if (plan->missing[d] > most) most = plan->missing[d];
    return most;
}

static bool same_plan(const wd_strategy_plan *a, const wd_strategy_plan *b)
{
    return a->window == b->window && a->micro_batch == b->micro_batch &&
           !memcmp(&a->placement, &b->placement, sizeof a->placement);
}

/* ---- tests ---- */

/* The best of all strategies with one window. */
typedef struct found {
    double seconds; /* INFINITY: none fits */
    size_t missing; /* the least */
} found;

static void search(found *best, const wd_planner_input *asked)
{
    wd_err err;
    wd_planner *planner;
    const wd_strategy_plan *all;
    wd_test_ok(wd_planner_open(&planner, asked, &err), &err);
    wd_test_ok(wd_planner_all(&all, planner, &err), &err);
    for (int k = 0; k < WD_STRATEGY_auto; k++) {
        const wd_strategy_plan plan = all[k];
        if (plan.objection) continue;
        const wd_cluster cluster = cluster_of(asked, &plan);
        bool fits = wd_test_fits(&plan.placement, &asked->size, &cluster);
        assert_int_equal(plan.fits, fits);
        assert_int_equal(missing_of(&plan) == 0, fits);
        if (fits) best->seconds = fmin(best->seconds, plan.step_seconds);
        if (missing_of(&plan) < best->missing) best->missing = missing_of(&plan);
    }
    wd_planner_close(planner);
}

/* Three digits of a time, as a table shows it: what is alike in these is equally good. */
static double shown(double seconds)
{
    char text[32];
    snprintf(text, sizeof text, "%.2e", seconds);
    return strtod(text, NULL);
}

/* Over all strategies and all windows that the planner may choose. */
static void auto_is_the_best(void **state)
{
    (void)state;
    int fitting = 0, ways = 0, chosen[WD_STRATEGY_auto] = {0};
    for (int i = 0; i < SCENES; i++) {
        scene s;
        random_scene(&s);
        found best = {INFINITY, SIZE_MAX};
        wd_planner_input asked = s.input;
        const int64_t given = s.input.sweep.window_max;
        for (int64_t w = given ? given : s.input.rounds.trajectories; w;
             w = given || w == 1 ? 0 : (w + 1) / 2) {
            asked.sweep.window_max = w;
            search(&best, &asked);
        }
        const wd_strategy_plan plan = plan_of(&s.input, WD_STRATEGY_auto);
        assert_null(plan.objection);
        assert_int_equal(plan.fits, best.seconds < INFINITY);
        if (!plan.fits)
            assert_int_equal(missing_of(&plan), best.missing);
        else if (shown(plan.step_seconds) > shown(SLOWER_MAX * best.seconds))
            fail_msg("scene %d: %s takes %g s, there is a plan of %g", i,
                     wd_strategy_name(plan.strategy), plan.step_seconds, best.seconds);
        fitting += plan.fits;
        chosen[plan.strategy] += plan.fits;
    }
    assert_in_range(fitting, SCENES / 4, SCENES - SCENES / 20);
    for (int k = 0; k < WD_STRATEGY_auto; k++) ways += chosen[k] > 0;
    assert_true(ways >= 6);
}

/* Where the processor's results have other bits, it computes only if nothing else fits. */
static void auto_keeps_the_bits(void **state)
{
    (void)state;
    int avoided = 0, needed = 0;
    for (int i = 0; i < SCENES / 4; i++) {
        scene s;
        bool others_fit = false;
        random_scene(&s);
        const int last = s.input.cluster.devices - 1;
        s.input.cluster.device[last].other_bits = last > 0;
        for (int k = 0; k < WD_STRATEGY_auto; k++) {
            const wd_strategy_plan plan = plan_of(&s.input, (wd_strategy)k);
            others_fit |= !plan.objection && plan.fits && !plan.other_bits;
        }
        const wd_strategy_plan plan = plan_of(&s.input, WD_STRATEGY_auto);
        if (others_fit) assert_true(plan.fits && !plan.other_bits);
        avoided += others_fit;
        needed += plan.fits && plan.other_bits;
    }
    assert_true(avoided > 0 && needed > 0);
}

/* Sheets are decoded on the processor only where the plan fits or is faster for it; either way it
 * is the plan, to the byte, that is made where they can be decoded nowhere else. */
static void sheets_are_decoded_where_there_is_room(void **state)
{
    (void)state;
    static const wd_strategy strategies[] = {WD_STRATEGY_gpu, WD_STRATEGY_offload, WD_STRATEGY_disk,
                                             WD_STRATEGY_balanced};
    int here = 0, saved = 0, faster = 0;
    for (int i = 0; i < SCENES; i++) {
        scene s;
        random_scene(&s);
        s.input.sweep.window_max = 0;
        wd_planner_input both = s.input, other = s.input;
        const wd_strategy strategy = strategies[i % 4];
        wd_cluster *cluster = &other.cluster;
        cluster->host_taken += cluster->host_bytes / 16;
        const wd_strategy_plan b = plan_of(&other, strategy);
        if (b.objection || cluster->device[0].reads_host) continue;
        /* sheets take up to twice what is left beside half of the activations */
        const size_t left = (b.fits ? cluster->device[0].bytes - wd_placed_peak(&b.bytes, 0) : 0) +
                            b.bytes.device[0].activations / 2;
        s.input.cluster.device[0].taken += (size_t)(2 * drawn() * (double)left);
        both.cluster = s.input.cluster;
        both.decoding.processor_may = true;
        both.decoding.on_processor.host_taken = cluster->host_taken;
        for (int d = 0; d < cluster->devices; d++) {
            both.decoding.on_processor.taken[d] = cluster->device[d].taken;
            both.decoding.on_processor.workspace[d] = cluster->device[d].workspace;
        }
        const wd_strategy_plan a = plan_of(&s.input, strategy), plan = plan_of(&both, strategy);
        assert_int_equal(plan.fits, a.fits || b.fits);
        assert_true(same_plan(&plan, plan.decodes_on_processor ? &b : &a));
        assert_int_equal(plan.bytes.host_taken,
                         (plan.decodes_on_processor ? &b : &a)->bytes.host_taken);
        assert_int_equal(plan.bytes.device[0].taken,
                         (plan.decodes_on_processor ? &b : &a)->bytes.device[0].taken);
        if (a.fits && plan.decodes_on_processor)
            assert_true(b.fits && b.step_seconds < a.step_seconds);
        here += a.fits && !plan.decodes_on_processor;
        saved += !a.fits && b.fits;
        faster += a.fits && plan.decodes_on_processor;
    }
    assert_true(here > 0 && saved > 0 && faster > 0);
}

/* The most of a device of any rank. */
static size_t fullest(const wd_placed_bytes *bytes, const wd_cluster *cluster, int device)
{
    size_t most = 0;
    for (int d = device; d < bytes->devices; d += cluster->devices) {
        const size_t peak = wd_placed_peak(bytes, d);
        if (peak > most) most = peak;
    }
    return most;
}

/* What is planned to the byte needs all of these bytes. */
static void peaks_are_exact(void **state)
{
    (void)state;
    int tight = 0;
    for (int i = 0; i < SCENES; i++) {
        scene s;
        random_scene(&s);
        const wd_strategy strategy = (wd_strategy)(i % WD_STRATEGY_auto);
        const wd_strategy_plan plan = plan_of(&s.input, strategy);
        if (plan.objection || !plan.fits) continue;
        const wd_cluster cluster = cluster_of(&s.input, &plan);
        wd_placed_bytes bytes;
        wd__placement_bytes(&bytes, &plan.placement, &s.input.size, &cluster);
        wd_planner_input exact = s.input;
        exact.sweep.window_max = plan.window;
        exact.sweep.micro_batch = plan.micro_batch;
        exact.cluster.host_bytes = wd_placed_host_peak(&bytes, &cluster);
        for (int d = 0; d < cluster.devices; d++)
            if (!cluster.device[d].reads_host)
                exact.cluster.device[d].bytes = fullest(&bytes, &cluster, d);
        const wd_strategy_plan again = plan_of(&exact, strategy);
        assert_true(again.fits && same_plan(&again, &plan));
        for (int d = 0; d <= cluster.devices; d++) {
            wd_planner_input less = exact;
            size_t *budget =
                d < cluster.devices ? &less.cluster.device[d].bytes : &less.cluster.host_bytes;
            if (!*budget || (d < cluster.devices && cluster.device[d].reads_host)) continue;
            --*budget;
            const wd_strategy_plan other = plan_of(&less, strategy);
            assert_false(other.fits && same_plan(&other, &plan));
            tight++;
        }
    }
    assert_true(tight > SCENES / 2);
}

/* A student that takes longer than the teacher does has its device for itself; one that takes next
 * to no time shares it. */
static void balanced_leaves_a_student_alone(void **state)
{
    (void)state;
    scene s;
    do random_scene(&s);
    while (s.input.cluster.devices < 4 || s.input.size.stages < 6);
    wd_planner_input *in = &s.input;
    in->cluster.ranks = in->cluster.hosts = 1;
    for (int d = 0; d + 1 < in->cluster.devices; d++) {
        in->cluster.device[d].bytes = SIZE_MAX / 4;
        for (int k = 0; k < WD_PRECISIONS; k++) in->cluster.device[d].flops_per_s[k] = 1e8;
    }
    in->student.step_flops = 1e3;
    wd_strategy_plan plan = plan_of(in, WD_STRATEGY_balanced);
    assert_int_equal(plan.placement.place[0][0].device, 0);
    in->student.step_flops = 1e3 * plan.step_seconds * 1e8;
    plan = plan_of(in, WD_STRATEGY_balanced);
    for (int i = 0; i < plan.placement.stages; i++)
        assert_true(plan.placement.place[0][i].device > 0);
    assert_true(fabs(plan.step_seconds * 1e8 / in->student.step_flops - 1) < 1e-9);
    assert_true(plan.student_limits);
}

/* Of one device, which makes targets in such micro-batches and learns from them. */
static double work_seconds(const scene *s, int64_t micro_batch)
{
    wd_err err;
    wd_sweep_need need;
    const wd_planner_input *in = &s->input;
    wd_sweep_options o = in->sweep;
    o.window_max = o.micro_batch = micro_batch;
    wd_test_ok(wd_sweep_need_of(&need, &o, accelerator, wd_device_open_dry, &err), &err);
    const double target = need.flops[WD_STAGE_EMBED] + need.flops[WD_STAGE_HEAD] +
                          (double)(in->size.stages - 2) * need.flops[WD_STAGE_BLOCK];
    return in->student.step_targets * target / wd__cluster_teacher_rate(&in->cluster, 0) +
           in->student.step_flops / wd_cluster_student_rate(&in->cluster, 0);
}

/* Each of teacher and student computes at the rate of its own precision, and at no other. */
static void rates_are_of_a_precision(void **state)
{
    (void)state;
    scene s;
    do random_scene(&s);
    while (s.input.cluster.devices < 2);
    wd_planner_input *in = &s.input;
    wd_cluster_device *gpu = &in->cluster.device[0];
    in->cluster.ranks = in->cluster.hosts = 1;
    in->sweep.window_max = in->sweep.micro_batch = in->rounds.trajectories = in->rounds.count = 8;
    in->rounds.expert = NULL;
    in->student.step_targets = in->student.steps_ahead = 8;
    gpu->link_bytes_per_s = 1e15;
    in->student.step_flops = 3e6;
    in->student.step_bytes = in->student.back_bytes = 1;
    for (int teacher = 0; teacher < WD_PRECISIONS; teacher++)
        for (int student = 0; student < WD_PRECISIONS; student++) {
            in->cluster.teacher = (wd_precision)teacher;
            in->cluster.student = (wd_precision)student;
            gpu->flops_per_s[WD_16_BIT] = 16e7;
            gpu->flops_per_s[WD_32_BIT] = 1e7;
            const double seconds = plan_of(in, WD_STRATEGY_gpu).step_seconds;
            assert_true(fabs(seconds / work_seconds(&s, 8) - 1) < 1e-6);
            gpu->flops_per_s[WD_16_BIT] *= teacher && student ? 10 : 1; /* of no use to it */
            gpu->flops_per_s[WD_32_BIT] *= teacher || student ? 1 : 10;
            assert_true(plan_of(in, WD_STRATEGY_gpu).step_seconds == seconds);
        }
}

/* A step that begins in the midst of a sweep has its device together with the rest of that, which
 * has been played by then: it counts all the same. */
static void no_step_is_shorter_than_its_work(void **state)
{
    (void)state;
    int tight = 0;
    for (int i = 0; i < SCENES; i++) {
        scene s;
        random_scene(&s);
        if (s.input.cluster.devices < 2) continue;
        s.input.cluster.ranks = s.input.cluster.hosts = 1;
        const wd_strategy_plan plan = plan_of(&s.input, WD_STRATEGY_gpu);
        const double work = work_seconds(&s, plan.micro_batch);
        if (plan.step_seconds < (1 - 1e-9) * work)
            fail_msg("scene %d: %g s, its work takes %g", i, plan.step_seconds, work);
        tight += plan.step_seconds < 1.001 * work;
    }
    assert_true(tight > SCENES / 10);
}

/* Weights that stream and what the student needs share the link that is busy all the time. */
static void a_link_for_both(void **state)
{
    (void)state;
    scene s;
    do random_scene(&s);
    while (s.input.cluster.devices < 2 || s.input.size.stages < 6);
    wd_planner_input *in = &s.input;
    in->cluster.ranks = in->cluster.hosts = 1;
    in->cluster.device[0].link_bytes_per_s = 1e3;
    in->student.step_flops = in->student.step_bytes = 1;
    const wd_strategy_plan alone = plan_of(in, WD_STRATEGY_offload);
    assert_int_equal(alone.timeline.limit, WD_RESOURCE_LINK);
    in->student.step_bytes = alone.step_seconds * 1e3 / 2;
    const double both = plan_of(in, WD_STRATEGY_offload).step_seconds;
    if (fabs(both - 1.5 * alone.step_seconds) > 0.01 * both)
        fail_msg("%g s, %g s alone", both, alone.step_seconds);
}

/* Of one rank, with a GPU or more. Returns the scene's input. */
static wd_planner_input *one_rank_scene(scene *s)
{
    do random_scene(s);
    while (s->input.cluster.devices < 2);
    s->input.cluster.ranks = s->input.cluster.hosts = 1;
    return &s->input;
}

/* What is updated in host memory takes no time beside a longer sweep, and limits a step that would
 * otherwise be shorter. It is added where gradients come after the sweeps, or the processor
 * computes the teacher. */
static void updates_on_the_host(void **state)
{
    (void)state;
    scene s;
    wd_planner_input *in = one_rank_scene(&s);
    in->cluster.adamw_weights_per_s = 1e9;
    in->student.update_weights = 0;
    const double seconds = plan_of(in, WD_STRATEGY_gpu).step_seconds;
    const double computes =
        in->student.step_flops / wd_cluster_student_rate(&in->cluster, in->student.device);
    in->student.update_weights = 0.9e9 * (seconds - computes);
    wd_strategy_plan plan = plan_of(in, WD_STRATEGY_gpu);
    assert_true(plan.step_seconds == seconds && !plan.update_limits);
    in->student.update_weights = 3e9 * (seconds + computes);
    plan = plan_of(in, WD_STRATEGY_gpu);
    assert_true(fabs(plan.step_seconds / (3 * seconds + 4 * computes) - 1) < 1e-9);
    assert_true(plan.update_limits && !plan.student_limits);
    in->student.update_weights = 0;
    in->student.update_bytes = /* as long over the link */
        3 * (seconds + computes) * in->cluster.device[in->student.device].link_bytes_per_s;
    assert_true(fabs(plan_of(in, WD_STRATEGY_gpu).step_seconds / plan.step_seconds - 1) < 1e-9);
    in->student.update_waits = true;
    in->student.update_bytes = 0;
    in->student.update_weights = 1e9;
    assert_true(fabs(plan_of(in, WD_STRATEGY_gpu).step_seconds / (seconds + 1) - 1) < 1e-9);
    in->student.update_waits = false;
    in->student.update_weights = 0;
    const double by_processor = plan_of(in, WD_STRATEGY_cpu).step_seconds;
    in->student.update_weights = 1e9;
    assert_true(fabs(plan_of(in, WD_STRATEGY_cpu).step_seconds / (by_processor + 1) - 1) < 1e-9);
}

/* An EMA in host memory takes no time beside a longer step, whatever its update waits for. */
static void updates_of_an_ema(void **state)
{
    (void)state;
    scene s;
    wd_planner_input *in = one_rank_scene(&s);
    in->cluster.adamw_weights_per_s = 1;
    in->cluster.ema_weights_per_s = 1e9;
    in->student.update_weights = 0;
    in->student.update_of_ema = in->student.update_waits = true;
    const double seconds = plan_of(in, WD_STRATEGY_gpu).step_seconds;
    const double by_processor = plan_of(in, WD_STRATEGY_cpu).step_seconds;
    in->student.update_weights = 0.99e9 * seconds;
    assert_true(plan_of(in, WD_STRATEGY_gpu).step_seconds == seconds);
    in->student.update_weights = 2e9 * seconds;
    const wd_strategy_plan plan = plan_of(in, WD_STRATEGY_gpu);
    assert_true(fabs(plan.step_seconds / (2 * seconds) - 1) < 1e-9 && plan.update_limits);
    in->student.update_weights = 1e9;
    assert_true(fabs(plan_of(in, WD_STRATEGY_cpu).step_seconds / (by_processor + 1) - 1) < 1e-9);
}

/* Two ranks of a host exchange gradients through host memory, or from device to device. */
static void gradients_go_from_device_to_device(void **state)
{
    (void)state;
    scene s;
    do random_scene(&s);
    while (s.input.cluster.devices < 2);
    wd_planner_input *in = &s.input;
    in->cluster.ranks = 2;
    in->cluster.hosts = 1;
    in->cluster.memory_bytes_per_s = 2e3;
    in->cluster.device[0].link_bytes_per_s = 8e3;
    in->gradients.in_bytes = in->gradients.out_bytes = 0;
    /* each rank sends half of each */
    in->gradients.reduced_bytes = in->gradients.gathered_bytes = 1e6;
    double seconds = plan_of(in, WD_STRATEGY_gpu).reduce_seconds;
    assert_true(fabs(seconds / (2e6 / 2e3) - 1) < 1e-9);
    in->gradients.direct = true;
    seconds = plan_of(in, WD_STRATEGY_gpu).reduce_seconds;
    assert_true(fabs(seconds / (1e6 / 8e3) - 1) < 1e-9);
}

/* Gradients leave a device over its link, and what came of them comes back over it. */
static void gradients_take_the_link(void **state)
{
    (void)state;
    scene s;
    do random_scene(&s);
    while (s.input.cluster.devices < 2);
    wd_planner_input *in = &s.input;
    in->cluster.ranks = 2;
    in->cluster.hosts = 1;
    in->cluster.memory_bytes_per_s = 1e12;
    in->cluster.device[0].link_bytes_per_s = 1e6;
    in->gradients.reduced_bytes = in->gradients.out_bytes = 2e6;
    in->gradients.gathered_bytes = in->gradients.in_bytes = 3e6;
    in->request.teacher_rank = 0;
    const wd_strategy_plan plan = plan_of(in, WD_STRATEGY_gpu);
    assert_true(fabs(plan.reduce_seconds - 5) < 1e-9);
    assert_true(plan.step_seconds >= 5);
    in->cluster.ranks = 1;
    in->gradients.out_bytes = in->gradients.in_bytes = 0;
    assert_true(plan_of(in, WD_STRATEGY_gpu).reduce_seconds == 0);
}

/* An expert that no state of a sweep needs is not brought. */
static void experts_apart(void **state)
{
    (void)state;
    scene s;
    double copied[2], weights = 0;
    do random_scene(&s);
    while (s.input.size.experts < 2 || s.input.cluster.devices < 2 || s.input.cluster.ranks > 1 ||
           s.input.rounds.trajectories < 2);
    wd_planner_input *in = &s.input;
    in->rounds.count = 2;
    in->rounds.expert = s.expert;
    in->sweep.window_max = in->rounds.trajectories;
    for (int one_expert_per_window = 0; one_expert_per_window < 2; one_expert_per_window++) {
        for (int64_t i = 0; i < 2 * in->rounds.trajectories; i++)
            s.expert[i] = one_expert_per_window ? i >= in->rounds.trajectories
                                                : i % in->rounds.trajectories > 0;
        copied[one_expert_per_window] = plan_of(in, WD_STRATEGY_offload).step_bytes[WD_LINK_IN];
    }
    for (int i = 0; i < 2 * in->size.stages; i++)
        weights += (double)in->size.stage[i % 2][i / 2].device;
    const double sweeps = in->student.step_targets / (double)in->rounds.trajectories;
    assert_true(fabs(copied[0] - copied[1] - sweeps * weights / 2) < 1e-9 * copied[0]);
}

/* A teacher on a device of its own, which takes as long for eight states as the student for four
 * steps. Needed in each step, they are made beside it. Where one is needed in each, the window is
 * begun two steps ahead, and the student waits for as long as two more. */
static void windows_far_apart(void **state)
{
    (void)state;
    scene s;
    do random_scene(&s);
    while (s.input.cluster.devices < 3);
    wd_planner_input *in = &s.input;
    in->cluster.ranks = in->cluster.hosts = 1;
    in->request.teacher_rank = 1;
    in->sweep.window_max = in->sweep.micro_batch = in->rounds.trajectories = in->rounds.count = 8;
    in->rounds.expert = NULL;
    in->student.steps_ahead = 2;
    in->student.step_targets = 8;
    in->cluster.device[0].link_bytes_per_s = in->cluster.device[1].link_bytes_per_s = 1e15;
    in->student.step_flops = in->student.step_bytes = 1;
    const double teacher = plan_of(in, WD_STRATEGY_gpu0).step_seconds;
    const double student = teacher / 4;
    in->student.step_flops = student * wd_cluster_student_rate(&in->cluster, 0);
    double seconds = plan_of(in, WD_STRATEGY_gpu0).step_seconds;
    assert_true(fabs(seconds - teacher) < 1e-6 * teacher);
    in->student.step_targets = 1;
    seconds = plan_of(in, WD_STRATEGY_gpu0).step_seconds;
    assert_true(fabs(8 * seconds - (teacher + 6 * student)) < 1e-6 * teacher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_is_the_best),
        cmocka_unit_test(peaks_are_exact),
        cmocka_unit_test(experts_apart),
        cmocka_unit_test(balanced_leaves_a_student_alone),
        cmocka_unit_test(a_link_for_both),
        cmocka_unit_test(updates_on_the_host),
        cmocka_unit_test(updates_of_an_ema),
        cmocka_unit_test(gradients_take_the_link),
        cmocka_unit_test(windows_far_apart),
        cmocka_unit_test(rates_are_of_a_precision),
        cmocka_unit_test(no_step_is_shorter_than_its_work),
        cmocka_unit_test(auto_keeps_the_bits),
        cmocka_unit_test(gradients_go_from_device_to_device),
        cmocka_unit_test(sheets_are_decoded_where_there_is_room),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
