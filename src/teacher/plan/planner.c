/* The planner: see teacher/plan/planner.h. */
#include "teacher/plan/planner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

enum { BATCHES_PER_DEVICE = 4, NEEDS_MAX = 32 };

/* Bytes that differ by a smaller share are sums of the same terms in another order. */
static const double EQUAL = 1e-9;

/* A plan that takes more than this share of another plan's time counts as no faster. */
static const double FASTER = 0.999;

/* What sweeps with one size of micro-batches need on a processor, or on any other device: all
 * devices of a kind need the same. */
typedef struct known_need {
    int64_t micro_batch;
    bool reads_host;
    wd_sweep_need need;
} known_need;

struct wd_planner {
    wd_planner_input input;
    known_need known[NEEDS_MAX];
    int count;
    bool planned[WD_STRATEGY_auto];
    wd_strategy_plan plan[WD_STRATEGY_auto]; /* of the strategies that are planned */
    wd_traffic traffic;                      /* of the plan that was asked for last */
    /* Scratch memory of planning, which is too large for a small stack. The plans compete with the
     * best one so far; the plan under way is made for the cluster and the sizes. */
    wd_strategy_plan on_processor, smaller, other_cut;
    wd_cluster cluster;
    wd_teacher_size size;
};

wd_status wd_planner_open(wd_planner **out, const wd_planner_input *input, wd_err *err)
{
    const int links = wd__traffic_room(&input->size, &input->cluster);
    wd_planner *p;
    WD_TRY(wd_alloc((void **)&p, 1, sizeof *p, "a planner", err));
    p->input = *input;
    p->traffic.room = links;
    const wd_status status = wd_alloc((void **)&p->traffic.link, (size_t)links,
                                      sizeof *p->traffic.link, "links of a plan", err);
    if (status == WD_OK)
        *out = p;
    else
        wd_planner_close(p);
    return status;
}

void wd_planner_close(wd_planner *planner)
{
    if (planner) wd_free(planner->traffic.link);
    wd_free(planner);
}

/* ---- needs ---- */

static wd_status need_of(const known_need **out, wd_planner *p, int64_t micro, int device,
                         wd_err *err)
{
    const bool reads_host = p->input.cluster.device[device].reads_host;
    known_need *n = p->known;
    while (n < p->known + p->count && (n->micro_batch != micro || n->reads_host != reads_host)) n++;
    *out = n;
    if (n < p->known + p->count) return WD_OK;
    if (p->count < NEEDS_MAX) p->count++;
    *out = n = &p->known[p->count - 1];
    *n = (known_need){.micro_batch = micro, .reads_host = reads_host};
    wd_sweep_options o = p->input.sweep;
    o.micro_batch = o.window_max = micro;
    return p->input.devices.need(&n->need, &o, p->input.devices.target[device], err);
}

/* The cluster and the sizes for this micro-batch and this window of a rank's sweep. */
static wd_status fill(wd_cluster *cluster, wd_teacher_size *size, wd_planner *p, int64_t window,
                      int64_t micro, wd_err *err)
{
    const known_need *need = NULL;
    const wd_planner_student *student = &p->input.student;
    wd_sweep_options o = p->input.sweep;
    o.window_max = window;
    o.micro_batch = micro;
    *cluster = p->input.cluster;
    *size = p->input.size;
    cluster->batches = wd_sweep_batches(&o);
    for (int d = 0; d < cluster->devices; d++) {
        WD_TRY(need_of(&need, p, micro, d, err));
        cluster->device[d].need = need->need;
    }
    cluster->device[student->device].student_flops = student->step_flops / student->step_targets;
    for (int s = 0; s < size->stages; s++)
        size->flops[s] = need->need.flops[wd_stage_kind_of(s, size->stages)];
    return WD_OK;
}

wd_status wd_planner_play(wd_timeline *out, wd_planner *planner, const wd_strategy_plan *plan,
                          const wd_sweep_load *load, wd_timeline_fn *fn, void *context, wd_err *err)
{
    wd_cluster cluster;
    wd_teacher_size size;
    const wd_sweep_setting sweep = {&plan->placement, &size, &cluster, load};
    const int64_t window = wd_placed_window(&plan->placement, plan->window);
    WD_TRY(fill(&cluster, &size, planner, window, plan->micro_batch, err));
    cluster.uncached = plan->uncached;
    return wd__timeline_play(out, &sweep, fn, context, err);
}

double wd_planner_copied(const wd_strategy_plan *plan)
{
    const double *bytes = plan->step_bytes;
    return bytes[WD_LINK_IN] + bytes[WD_LINK_OUT] + bytes[WD_LINK_ACROSS];
}

const wd_traffic *wd_planner_traffic(wd_planner *planner, const wd_strategy_plan *plan)
{
    wd_cluster cluster = planner->input.cluster;
    cluster.uncached = plan->uncached;
    wd__planner_move(&planner->traffic, plan, &planner->input, &planner->input.size, &cluster);
    wd__traffic_sort(&planner->traffic);
    return &planner->traffic;
}

/* ---- windows ---- */

/* The micro-batch that was asked for, or one that keeps products efficient. */
static int64_t efficient_micro_batch(const wd_sweep_options *o, int64_t window)
{
    int64_t micro = o->micro_batch;
    if (!micro) micro = wd_sweep_micro_batch(&o->config, o->frames, o->height, o->width);
    return wd_sweep_fitted(micro, window);
}

/* A micro-batch for windows that go through several devices: small enough that every device has
 * one. */
static int64_t pipelined_micro_batch(const wd_planner_input *in, int64_t window)
{
    int64_t micro = efficient_micro_batch(&in->sweep, window);
    const int devices = wd__cluster_devices(&in->cluster), stages = in->size.stages;
    int64_t most = window / (BATCHES_PER_DEVICE * (devices < stages ? devices : stages));
    if (in->sweep.micro_batch || micro <= most) return micro;
    return wd_sweep_fitted(most > 0 ? most : 1, window);
}

static bool spans_devices(const wd_placement *p)
{
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++)
            if (p->place[e][s].device != p->place[0][0].device) return true;
    return false;
}

static bool may_span(wd_strategy strategy)
{
    return strategy == WD_STRATEGY_balanced || strategy == WD_STRATEGY_sequential ||
           strategy == WD_STRATEGY_custom;
}

/* ---- one plan's bytes ---- */

static size_t shortfall(size_t needed, size_t there)
{
    return needed > there ? needed - there : 0;
}

static void account(wd_strategy_plan *plan, const wd_teacher_size *size, const wd_cluster *cluster)
{
    wd__placement_bytes(&plan->bytes, &plan->placement, size, cluster);
    plan->fits = true;
    for (int d = 0; d < plan->bytes.devices; d++) {
        plan->missing[d] =
            shortfall(wd_placed_peak(&plan->bytes, d), wd_cluster_at(cluster, d)->bytes);
        plan->fits &= !plan->missing[d];
    }
    const size_t host = wd_placed_host_peak(&plan->bytes, cluster);
    plan->host_missing = shortfall(host, cluster->host_bytes);
    plan->fits &= !plan->host_missing;
    plan->cache_bytes = shortfall(cluster->host_bytes, host);
    plan->uncached = plan->bytes.mapped > plan->cache_bytes;
}

/* ---- one plan ---- */

static wd_status place(wd_placement *out, const wd_planner_request *asked, wd_strategy strategy,
                       const wd_teacher_size *size, const wd_cluster *cluster, wd_err *err)
{
    if (strategy == WD_STRATEGY_custom)
        *out = *asked->custom;
    else
        WD_TRY(wd_strategy_place(out, strategy, size, cluster, asked->teacher_rank, err));
    const wd_placement begun = wd_placement_begin(size, cluster);
    out->by_batch = begun.by_batch;
    out->ranks = begun.ranks;
    out->devices = begun.devices;
    if (asked->buffers) out->buffers = asked->buffers;
    return WD_OK;
}

/* Whether `a` lacks fewer bytes than `b`. Every device must fit, so the one that lacks most bytes
 * decides; where that is the same, as where a student alone is too large, the sum does. */
static bool lacks_less(const wd_strategy_plan *a, const wd_strategy_plan *b)
{
    const wd_strategy_plan *const plan[2] = {a, b};
    size_t most[2], sum[2];
    for (int i = 0; i < 2; i++) {
        most[i] = sum[i] = plan[i]->host_missing;
        for (int d = 0; d < plan[i]->bytes.devices; d++) {
            wd_placed_most(&most[i], plan[i]->missing[d]);
            sum[i] += plan[i]->missing[d];
        }
    }
    return most[0] != most[1] ? most[0] < most[1] : sum[0] < sum[1];
}

/* Whether `a` is worth it in place of `b`: it fits, or is nearer to that, or both fit and it is
 * `faster`. */
static bool improves(const wd_strategy_plan *a, const wd_strategy_plan *b, bool faster)
{
    if (a->fits != b->fits) return a->fits;
    return a->fits ? faster : lacks_less(a, b);
}

static bool is_much_faster(const wd_strategy_plan *a, const wd_strategy_plan *b)
{
    return a->step_seconds < FASTER * b->step_seconds;
}

/* How many of a window's states a rank's sweep has. */
static int64_t share_of(const wd_planner *p, wd_strategy strategy, int64_t window)
{
    const wd_placement whose = {.each = wd__strategy_is_each(strategy, &p->input.cluster),
                                .ranks = p->input.cluster.ranks};
    return wd_placed_window(&whose, window);
}

static wd_status plan_cut(wd_strategy_plan *out, wd_planner *p, wd_strategy strategy,
                          int64_t window, int64_t micro, wd_err *err)
{
    wd_cluster *cluster = &p->cluster;
    wd_teacher_size *size = &p->size;
    memset(out, 0, sizeof *out);
    out->strategy = strategy;
    out->window = window;
    out->micro_batch = micro;
    WD_TRY(fill(cluster, size, p, share_of(p, strategy, window), micro, err));
    WD_TRY(place(&out->placement, &p->input.request, strategy, size, cluster, err));
    account(out, size, cluster);
    cluster->uncached = out->uncached;
    return wd__planner_predict(out, &p->input, size, cluster, err);
}

/* Plans a strategy with this window. What a micro-batch needs decides how stages are placed, and
 * that decides whether small micro-batches are of use: both sizes are tried. */
static wd_status plan_window(wd_strategy_plan *plan, wd_planner *p, wd_strategy strategy,
                             int64_t window, wd_err *err)
{
    wd_strategy_plan *other = &p->other_cut;
    const int64_t share = share_of(p, strategy, window);
    const int64_t micro = pipelined_micro_batch(&p->input, share);
    WD_TRY(plan_cut(plan, p, strategy, window, efficient_micro_batch(&p->input.sweep, share), err));
    if (micro == plan->micro_batch || !may_span(strategy)) return WD_OK;
    WD_TRY(plan_cut(other, p, strategy, window, micro, err));
    if (spans_devices(&other->placement) && improves(other, plan, is_much_faster(other, plan)))
        *plan = *other;
    return WD_OK;
}

static void count_bytes(wd_strategy_plan *plan, wd_planner *planner)
{
    const wd_traffic *traffic = wd_planner_traffic(planner, plan);
    for (int k = 0; k < WD_LINKS; k++)
        plan->step_bytes[k] = wd__traffic_bytes(traffic, (wd_link_kind)k);
    plan->step_bytes_sent = wd__traffic_sent(traffic);
}

static bool has_other_bits(const wd_placement *placement, const wd_cluster *cluster)
{
    for (int d = 0; d < wd__cluster_devices(cluster); d++)
        if (wd_cluster_at(cluster, d)->other_bits && wd_placed_computes(placement, d)) return true;
    return false;
}

static wd_status plan_anew(wd_strategy_plan *out, wd_planner *planner, wd_strategy strategy,
                           wd_err *err)
{
    const wd_planner_input *in = &planner->input;
    memset(out, 0, sizeof *out);
    out->strategy = strategy;
    out->objection = wd__strategy_objection(strategy, &in->cluster);
    if (strategy == WD_STRATEGY_custom && !in->request.custom)
        out->objection = "custom needs --teacher_device_map";
    if (out->objection) return WD_OK;
    int64_t window = in->sweep.window_max ? in->sweep.window_max : in->rounds.trajectories;
    WD_TRY(plan_window(out, planner, strategy, window, err));
    while (!in->sweep.window_max && window > 1) {
        wd_strategy_plan *smaller = &planner->smaller;
        WD_TRY(plan_window(smaller, planner, strategy, window = (window + 1) / 2, err));
        if (improves(smaller, out, is_much_faster(smaller, out))) *out = *smaller;
    }
    count_bytes(out, planner);
    out->other_bits = has_other_bits(&out->placement, &in->cluster);
    return WD_OK;
}

/* ---- where sheets are decoded ---- */

/* Seconds with three digits, as tables show them: no rate is known better. */
static double known_of(double seconds)
{
    char text[32];
    snprintf(text, sizeof text, "%.2e", seconds);
    return strtod(text, NULL);
}

/* Plans a strategy with sheets decoded where the cluster says, and on the processor, which it
 * prefers only where the plan fits or is faster for it. */
static wd_status plan_both(wd_strategy_plan *out, wd_planner *p, wd_strategy strategy, wd_err *err)
{
    wd_strategy_plan *other = &p->on_processor;
    wd_cluster *cluster = &p->input.cluster;
    const wd_planner_decoding *decoding = &p->input.decoding;
    const wd_planner_taken *taken = &decoding->on_processor;
    const wd_cluster here = *cluster;
    WD_TRY(plan_anew(out, p, strategy, err));
    if (!decoding->processor_may || out->objection) return WD_OK;
    for (int d = 0; d < cluster->devices; d++) {
        cluster->device[d].taken = taken->taken[d];
        cluster->device[d].workspace = taken->workspace[d];
    }
    cluster->host_taken = taken->host_taken;
    const wd_status status = plan_anew(other, p, strategy, err);
    *cluster = here;
    other->decodes_on_processor = true;
    if (status == WD_OK &&
        improves(other, out, known_of(other->step_seconds) < known_of(out->step_seconds)))
        *out = *other;
    return status;
}

/* Plans are asked for more than once, and made once. */
static wd_status plan_once(wd_planner *p, wd_strategy strategy, wd_err *err)
{
    WD_REQUIRE(strategy >= 0 && strategy < WD_STRATEGY_auto, "no plan has strategy %d", strategy);
    if (!p->planned[strategy]) WD_TRY(plan_both(&p->plan[strategy], p, strategy, err));
    p->planned[strategy] = true;
    return WD_OK;
}

/* ---- the best ---- */

static size_t all_bytes(const wd_strategy_plan *plan)
{
    const size_t ranks = plan->placement.each ? (size_t)plan->placement.ranks : 1;
    size_t sum = 0;
    for (int d = 0; d < plan->bytes.devices; d++) sum += wd_placed_total(&plan->bytes.device[d]);
    return ranks * sum + plan->bytes.host.weights + plan->bytes.host.reading;
}

bool wd_planner_is_better(const wd_strategy_plan *a, const wd_strategy_plan *b)
{
    if (a->fits != b->fits) return a->fits;
    if (!a->fits) return lacks_less(a, b);
    if (a->other_bits != b->other_bits) return b->other_bits;
    const double seconds_a = known_of(a->step_seconds), seconds_b = known_of(b->step_seconds);
    if (seconds_a != seconds_b) return seconds_a < seconds_b;
    const double moved_a = wd_planner_copied(a) + a->step_bytes[WD_LINK_READ];
    const double moved_b = wd_planner_copied(b) + b->step_bytes[WD_LINK_READ];
    if (fabs(moved_a - moved_b) > EQUAL * moved_b) return moved_a < moved_b;
    return all_bytes(a) < all_bytes(b);
}

wd_status wd_planner_all(const wd_strategy_plan **out, wd_planner *planner, wd_err *err)
{
    for (int i = 0; i < WD_STRATEGY_auto; i++) WD_TRY(plan_once(planner, (wd_strategy)i, err));
    *out = planner->plan;
    return WD_OK;
}

const wd_strategy_plan *wd_planner_best(const wd_strategy_plan *all)
{
    int best = -1;
    for (int i = 0; i < WD_STRATEGY_auto; i++) {
        if (all[i].objection) continue;
        if (best < 0 || wd_planner_is_better(&all[i], &all[best])) best = i;
    }
    return &all[best];
}

static int rivals_of(const wd_strategy_plan *best, const wd_strategy_plan *all)
{
    int fitting = 0;
    for (int i = 0; i < WD_STRATEGY_auto; i++)
        fitting += !all[i].objection && all[i].fits && all[i].other_bits == best->other_bits;
    return fitting;
}

wd_status wd_planner_plan(wd_strategy_plan *out, wd_planner *planner, wd_strategy strategy,
                          wd_err *err)
{
    const wd_planner_input *in = &planner->input;
    const wd_strategy_plan *all;
    if (strategy == WD_STRATEGY_auto) {
        WD_TRY(wd_planner_all(&all, planner, err));
        *out = *wd_planner_best(all);
        out->rivals = rivals_of(out, all);
        return WD_OK;
    }
    if (strategy == WD_STRATEGY_custom && !in->request.custom)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "teacher_device_strategy: custom needs --teacher_device_map FILE");
    WD_TRY(wd__strategy_check(strategy, &in->cluster, err));
    WD_TRY(plan_once(planner, strategy, err));
    *out = planner->plan[strategy];
    return WD_OK;
}
