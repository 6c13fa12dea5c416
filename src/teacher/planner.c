/* The planner: see teacher/planner.h. */
#include "teacher/planner.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "teacher/station.h"

enum { BATCHES_PER_DEVICE = 4, NEEDS_MAX = 32, HALVINGS = 8 };

/* What takes more of the time of another plan than this is no faster. */
static const double FASTER = 0.999;

/* Bytes that differ by less, in parts of one, are sums of the same terms in another order. */
static const double EQUAL = 1e-9;

/* What sweeps of one micro-batch need on one kind of device. */
typedef struct known_need {
    int64_t micro_batch;
    int device;
    wd_sweep_need need;
    double flops[WD_STAGE_KINDS];
} known_need;

struct wd_planner {
    wd_planner_input input;
    known_need known[NEEDS_MAX];
    int count;
    bool planned[WD_STRATEGY_auto];
    wd_strategy_plan plan[WD_STRATEGY_auto]; /* of those: the same is asked for more than once */
};

wd_status wd_planner_open(wd_planner **out, const wd_planner_input *input, wd_err *err)
{
    WD_TRY(wd_alloc((void **)out, 1, sizeof **out, "a planner", err));
    (*out)->input = *input;
    return WD_OK;
}

void wd_planner_close(wd_planner *planner)
{
    wd_free(planner);
}

/* ---- needs ---- */

/* Processors are alike, and so are devices that are none: what one needs, the others do. */
static bool are_alike(const wd_planner_input *in, int a, int b)
{
    return in->site.device[a].reads_host == in->site.device[b].reads_host;
}

static wd_status need_of(const known_need **out, wd_planner *p, int64_t micro, int device,
                         wd_err *err)
{
    for (int i = 0; i < p->count; i++)
        if (p->known[i].micro_batch == micro && are_alike(&p->input, p->known[i].device, device)) {
            *out = &p->known[i];
            return WD_OK;
        }
    known_need *n = &p->known[p->count < NEEDS_MAX ? p->count++ : NEEDS_MAX - 1];
    wd_sweep_options o = p->input.sweep;
    o.micro_batch = o.window_max = micro;
    *n = (known_need){.micro_batch = micro, .device = device};
    WD_TRY(wd_sweep_need_of(&n->need, n->flops, &o, p->input.target[device], err));
    *out = n;
    return WD_OK;
}

/* Site and sizes as they are with this micro-batch and this window of a rank's sweep. */
static wd_status fill(wd_site *site, wd_teacher_size *size, wd_planner *p, int64_t window,
                      int64_t micro, wd_err *err)
{
    const known_need *need = NULL;
    wd_sweep_options o = p->input.sweep;
    o.window_max = window;
    o.micro_batch = micro;
    *site = p->input.site;
    *size = p->input.size;
    site->batches = wd_sweep_batches(&o);
    for (int d = 0; d < site->devices; d++) {
        WD_TRY(need_of(&need, p, micro, d, err));
        site->device[d].need = need->need;
    }
    site->device[p->input.student_device].student_flops =
        p->input.student_step_flops / p->input.step_targets;
    for (int s = 0; s < size->stages; s++)
        size->flops[s] = need->flops[wd_stage_kind_of(s, size->stages)];
    return WD_OK;
}

wd_status wd_planner_play(wd_planner *planner, const wd_strategy_plan *plan, wd_timeline_fn *fn,
                          void *context, wd_err *err)
{
    wd_site site;
    wd_teacher_size size;
    WD_TRY(fill(&site, &size, planner, wd_placed_window(&plan->placement, plan->window),
                plan->micro_batch, err));
    site.uncached = wd_planner_is_uncached(plan);
    wd_timeline_play(&plan->placement, &size, &site, &plan->load, fn, context);
    return WD_OK;
}

/* ---- windows ---- */

static int64_t fitted(const wd_planner_input *in, int64_t micro, int64_t window)
{
    wd_sweep_options o = in->sweep;
    o.window_max = window;
    o.micro_batch = micro;
    return wd_sweep_micro_fitted(&o);
}

/* What was asked for, or what keeps products efficient. */
static int64_t efficient_micro_batch(const wd_planner_input *in, int64_t window)
{
    const wd_sweep_options *o = &in->sweep;
    int64_t micro = o->micro_batch;
    if (!micro) micro = wd_sweep_micro_batch(&o->config, o->frames, o->height, o->width);
    return fitted(in, micro, window);
}

/* The same where micro-batches follow one another through devices: enough that all have one. */
static int64_t pipelined_micro_batch(const wd_planner_input *in, int64_t window)
{
    int64_t micro = efficient_micro_batch(in, window);
    const int devices = wd_site_devices(&in->site), stages = in->size.stages;
    int64_t most = window / (BATCHES_PER_DEVICE * (devices < stages ? devices : stages));
    if (in->sweep.micro_batch || micro <= most) return micro;
    return fitted(in, most > 0 ? most : 1, window);
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

/* ---- one plan: its bytes ---- */

static size_t shortfall(size_t needed, size_t there)
{
    return needed > there ? needed - there : 0;
}

static void account(wd_strategy_plan *plan, const wd_teacher_size *size, const wd_site *site)
{
    plan->bytes = wd_placement_bytes(&plan->placement, size, site);
    plan->fits = true;
    for (int d = 0; d < plan->bytes.devices; d++) {
        plan->missing[d] =
            shortfall(wd_placed_peak(&plan->bytes, site, d), wd_site_at(site, d)->bytes);
        plan->fits &= !plan->missing[d];
    }
    const size_t host = wd_placed_host_peak(&plan->bytes, site);
    plan->host_missing = shortfall(host, site->host_bytes);
    plan->fits &= !plan->host_missing;
    plan->mapped_bytes = wd_placement_mapped(&plan->placement, size, site);
    plan->cache_bytes = shortfall(site->host_bytes, host);
}

bool wd_planner_is_uncached(const wd_strategy_plan *plan)
{
    return plan->mapped_bytes > plan->cache_bytes;
}

/* ---- one plan: its time ---- */

/* Sweeps are alike that have states of the same experts: weights of the others are not brought. */
typedef struct sweep_kind {
    double sweeps; /* per target of all */
    double states[WD_PLACED_EXPERTS_MAX];
} sweep_kind;

enum { SWEEP_KINDS = 1 << WD_PLACED_EXPERTS_MAX };

/* What the teacher does at a time, and how many of the student's steps are computed beside it.
 * Windows that follow one another closely are made all the time: a step's share of them in each
 * step. Else a window is made in the steps that it is ahead of its use, and in those that are left
 * until the next one the student is alone. */
typedef struct teacher_spell {
    double targets, steps;
    double left; /* steps in which nothing is made */
} teacher_spell;

static teacher_spell spell_of(const wd_planner_input *in, int64_t window)
{
    const double targets = (double)(window < in->trajectories ? window : in->trajectories);
    const double apart = targets / in->step_targets;
    assert(in->steps_ahead > 0);
    if (apart <= in->steps_ahead) return (teacher_spell){.targets = in->step_targets, .steps = 1};
    return (teacher_spell){targets, in->steps_ahead, apart - in->steps_ahead};
}

/* Of a spell, in seconds: the teacher's part, what of it the student's device computes, and what
 * velocities and activations are on their way from rank to rank. */
typedef struct spell_parts {
    double seconds, beside, network;
} spell_parts;

/* Cuts the rounds that there are into windows. */
static void find_kinds(sweep_kind kind[SWEEP_KINDS], const wd_planner_input *in, int64_t window)
{
    const int64_t rounds = in->expert ? in->rounds : 1;
    for (int64_t first = 0; first < rounds * in->trajectories; first += in->trajectories)
        for (int64_t at = 0; at < in->trajectories; at += window) {
            double states[WD_PLACED_EXPERTS_MAX] = {0};
            for (int64_t i = at; i < at + window && i < in->trajectories; i++)
                states[in->expert ? in->expert[first + i] : 0]++;
            sweep_kind *k = &kind[(states[0] > 0) + 2 * (states[1] > 0)];
            k->sweeps++;
            for (int e = 0; e < WD_PLACED_EXPERTS_MAX; e++) k->states[e] += states[e];
        }
    for (int k = 0; k < SWEEP_KINDS; k++) {
        for (int e = 0; e < WD_PLACED_EXPERTS_MAX && kind[k].sweeps > 0; e++)
            kind[k].states[e] /= kind[k].sweeps;
        kind[k].sweeps /= (double)(rounds * in->trajectories);
    }
}

static int batches_of(double states, int64_t micro)
{
    int64_t n = (int64_t)((states + (double)micro - 1e-9) / (double)micro);
    if (n < 1) n = 1;
    return n < WD_TIMELINE_BATCHES_MAX ? (int)n : WD_TIMELINE_BATCHES_MAX;
}

static wd_sweep_load load_of(const sweep_kind *kind, const wd_strategy_plan *plan,
                             const wd_planner_input *in, const teacher_spell *spell)
{
    const wd_sweep_options *o = &in->sweep;
    const wd_dit_config *c = &o->config;
    const int64_t latents = c->in_channels * o->frames * o->height * o->width;
    const size_t text_bytes = (size_t)(o->text_tokens * c->text_dim) * wd_dtype_bytes(o->dtype);
    const wd_sweep_hop hop = wd_sweep_hop_of(o);
    wd_sweep_load load = {
        .sweeps_apart = (int)wd_sweeps_apart(in->trajectories, plan->window),
        .hop_bytes = (double)hop.state,
        .hop_batch_bytes = (double)hop.batch,
        .text_bytes = (double)text_bytes,
        .latent_bytes = (double)latents * sizeof(float),
        .home = in->student_device,
        .apart = spell->left > 0,
    };
    const double share =
        (double)wd_placed_window(&plan->placement, plan->window) / (double)plan->window;
    for (int e = 0; e < plan->placement.experts; e++) {
        const double states = kind->states[e] * share;
        if (states <= 0) continue;
        load.batches[e] = batches_of(states, plan->micro_batch);
        load.batch_targets[e] = states / load.batches[e];
    }
    return load;
}

/* Of a sweep: on the students' device that is busiest with it. */
static double beside_student(const wd_timeline *t, const wd_strategy_plan *plan,
                             const wd_planner_input *in)
{
    double most = 0;
    for (int d = in->student_device; d < plan->bytes.devices; d += in->site.devices)
        most = fmax(most, t->compute_seconds[d]);
    return most;
}

/* Shares of the rates of the student's device. */
typedef struct device_share {
    double compute, link;
} device_share;

/* What the teacher does in a spell, where the student leaves it such a share of its device. */
static spell_parts play_spell(wd_strategy_plan *plan, const wd_planner_input *in,
                              const wd_teacher_size *size, const wd_site *site,
                              const teacher_spell *spell, device_share share)
{
    sweep_kind kind[SWEEP_KINDS] = {0};
    spell_parts parts = {0};
    wd_site shared = *site;
    double most = 0;
    shared.device[in->student_device].flops_per_s *= share.compute;
    shared.device[in->student_device].link_bytes_per_s *= share.link;
    find_kinds(kind, in, plan->window);
    const double ranks = plan->placement.each ? wd_site_ranks(site) : 1;
    const double hosts = plan->placement.each ? ranks / wd_site_host_ranks(site) : 1;
    plan->step_bytes_copied = plan->step_bytes_read = plan->step_bytes_sent = 0;
    for (int k = 0; k < SWEEP_KINDS; k++) {
        if (!(kind[k].sweeps > 0)) continue;
        const double sweeps = spell->targets * kind[k].sweeps;
        const double step_sweeps = in->step_targets * kind[k].sweeps;
        const wd_sweep_load load = load_of(&kind[k], plan, in, spell);
        const wd_timeline t = wd_timeline_play(&plan->placement, size, &shared, &load, NULL, NULL);
        const double seconds = t.sweep_seconds * sweeps;
        parts.seconds += seconds;
        parts.beside += beside_student(&t, plan, in) * sweeps;
        parts.network += t.network_seconds * sweeps;
        plan->step_bytes_copied += t.bytes_copied * step_sweeps * ranks;
        plan->step_bytes_read += t.bytes_read * step_sweeps * hosts;
        plan->step_bytes_sent += t.bytes_sent * step_sweeps;
        if (seconds < most) continue;
        most = seconds;
        plan->load = load;
        plan->timeline = t;
    }
    return parts;
}

/* Every rank sends each other one its share of gradients, and later what has come of its own. */
static double rank_sends(const wd_planner_input *in)
{
    const int ranks = wd_site_ranks(&in->site);
    return (in->reduced_bytes + in->gathered_bytes) * (ranks - 1) / ranks;
}

/* How long `bytes` take that all ranks have of one another, the ranks of a host at the same time.
 * Flat, each sends each other one its share; or hosts do, once for all their ranks, which exchange
 * the rest among themselves. */
static double exchange_seconds(const wd_site *site, double bytes, bool flat)
{
    const double ranks = wd_site_ranks(site), near = wd_site_host_ranks(site);
    const double within = flat ? near * (near - 1) / ranks : near - 1;
    const double across = (flat ? near : 1) * (ranks - near) / ranks;
    double seconds = 0;
    if (site->memory_bytes_per_s > 0) seconds += bytes * within / site->memory_bytes_per_s;
    if (site->network_bytes_per_s > 0) seconds += bytes * across / site->network_bytes_per_s;
    return seconds;
}

static double reduce_seconds(const wd_planner_input *in)
{
    return exchange_seconds(&in->site, in->reduced_bytes, in->reduced_flat) +
           exchange_seconds(&in->site, in->gathered_bytes, in->gathered_flat);
}

/* What the student's device and the network do for the student: in one step. */
typedef struct student_step {
    double compute, brought, reduce;
} student_step;

/* Between ranks gradients are in host memory: over its link a device gives all that it has made and
 * gets what came of them, bucket by bucket, while others are on their way from rank to rank. */
static student_step student_step_of(const wd_planner_input *in)
{
    const wd_site_device *device = &in->site.device[in->student_device];
    const double carried =
        wd_site_ranks(&in->site) > 1 ? in->reduced_bytes + in->gathered_bytes : 0;
    return (student_step){
        .compute = in->student_step_flops / device->flops_per_s,
        .brought = (in->student_step_bytes + carried) / device->link_bytes_per_s,
        .reduce = fmax(reduce_seconds(in), carried / device->link_bytes_per_s),
    };
}

/* What is left of the time that gradients take, while backward goes on and while the next targets
 * are made: the student's device waits for it. */
static double exposed(const wd_planner_input *in, const student_step *s, double teacher)
{
    return fmax(0, s->reduce - in->final_share * s->compute - teacher);
}

/* Seconds of a spell, found by halving. A processor does one after the other. Another device
 * computes for both, side by side, and its link brings what both need: it takes as long as the
 * teacher does with the share that a student leaves it which is busy for its part of that time. The
 * longer, the larger the share. */
static double share_device(wd_strategy_plan *plan, const wd_planner_input *in,
                           const wd_teacher_size *size, const wd_site *site,
                           const teacher_spell *spell, const student_step *student, double least,
                           double most)
{
    const wd_sweep_load load = plan->load;
    const wd_timeline timeline = plan->timeline;
    const double sent = plan->step_bytes_sent;
    const double compute = spell->steps * student->compute,
                 brought = spell->steps * student->brought;
    if (most < least) most = least;
    for (int i = 0; i < HALVINGS && most > least / FASTER; i++) {
        const double seconds = i ? (least + most) / 2 : least;
        const device_share share = {1 - compute / seconds, 1 - brought / seconds};
        if (share.link <= 0 ||
            play_spell(plan, in, size, site, spell, share).seconds > seconds * (1 + 1e-9))
            least = seconds;
        else
            most = seconds;
    }
    plan->load = load;
    plan->timeline = timeline;
    plan->step_bytes_sent = sent;
    return most;
}

static void predict(wd_strategy_plan *plan, const wd_planner_input *in, const wd_teacher_size *size,
                    const wd_site *site)
{
    const wd_site_device *device = &site->device[in->student_device];
    const student_step student = student_step_of(in);
    const teacher_spell spell = spell_of(in, plan->window);
    const spell_parts alone = play_spell(plan, in, size, site, &spell, (device_share){1, 1});
    const double teacher = device->reads_host ? alone.seconds : alone.beside;
    const double waits = exposed(in, &student, teacher / spell.steps);
    const double left = spell.left * (student.compute + exposed(in, &student, 0));
    const double busy = spell.steps * (student.compute + waits) + teacher;
    const double network = spell.steps * student.reduce + alone.network;
    double seconds = fmax(fmax(busy, network), alone.seconds);
    plan->reduce_seconds = student.reduce;
    plan->exposed_seconds = waits;
    plan->network_limits = network >= seconds || spell.steps * waits > seconds / 2;
    plan->student_limits = busy + left > alone.seconds && !plan->network_limits;
    plan->step_bytes_sent += rank_sends(in);
    if (!device->reads_host && alone.beside > 0)
        seconds =
            share_device(plan, in, size, site, &spell, &student, seconds,
                         alone.seconds + spell.steps * (student.compute + student.brought + waits));
    plan->step_seconds = (seconds + left) / (spell.steps + spell.left);
}

/* ---- one plan ---- */

static wd_status place(wd_placement *out, const wd_planner_input *in, wd_strategy strategy,
                       const wd_teacher_size *size, const wd_site *site, wd_err *err)
{
    if (strategy == WD_STRATEGY_custom)
        *out = *in->custom;
    else
        WD_TRY(wd_strategy_place(out, strategy, size, site, in->teacher_rank, err));
    const wd_placement begun = wd_placement_begin(size, site);
    out->by_batch = begun.by_batch;
    out->ranks = begun.ranks;
    out->devices = begun.devices;
    if (in->slots) out->slots = in->slots;
    return WD_OK;
}

static size_t all_missing(const wd_strategy_plan *plan)
{
    size_t sum = plan->host_missing;
    for (int d = 0; d < plan->bytes.devices; d++) sum += plan->missing[d];
    return sum;
}

/* Whether `a`, of smaller pieces than `b`, is worth it. */
static bool improves(const wd_strategy_plan *a, const wd_strategy_plan *b)
{
    if (a->fits != b->fits) return a->fits;
    if (!a->fits) return all_missing(a) < all_missing(b);
    return a->step_seconds < FASTER * b->step_seconds;
}

/* States of a window that a rank's sweep has. */
static int64_t share_of(const wd_planner *p, wd_strategy strategy, int64_t window)
{
    const wd_placement whose = {.each = wd_strategy_is_each(strategy, &p->input.site),
                                .ranks = p->input.site.ranks};
    return wd_placed_window(&whose, window);
}

static wd_status plan_cut(wd_strategy_plan *out, wd_planner *p, wd_strategy strategy,
                          int64_t window, int64_t micro, wd_err *err)
{
    wd_site site;
    wd_teacher_size size;
    *out = (wd_strategy_plan){.strategy = strategy, .window = window, .micro_batch = micro};
    WD_TRY(fill(&site, &size, p, share_of(p, strategy, window), micro, err));
    WD_TRY(place(&out->placement, &p->input, strategy, &size, &site, err));
    account(out, &size, &site);
    site.uncached = wd_planner_is_uncached(out);
    predict(out, &p->input, &size, &site);
    return WD_OK;
}

/* With this window. What a micro-batch needs says how stages are placed, which says whether small
 * micro-batches are of use: both kinds are tried. */
static wd_status plan_window(wd_strategy_plan *plan, wd_planner *p, wd_strategy strategy,
                             int64_t window, wd_err *err)
{
    wd_strategy_plan other;
    const int64_t share = share_of(p, strategy, window);
    const int64_t micro = pipelined_micro_batch(&p->input, share);
    WD_TRY(plan_cut(plan, p, strategy, window, efficient_micro_batch(&p->input, share), err));
    if (micro == plan->micro_batch || !may_span(strategy)) return WD_OK;
    WD_TRY(plan_cut(&other, p, strategy, window, micro, err));
    if (spans_devices(&other.placement) && improves(&other, plan)) *plan = other;
    return WD_OK;
}

static wd_status plan_anew(wd_strategy_plan *out, wd_planner *planner, wd_strategy strategy,
                           wd_err *err)
{
    const wd_planner_input *in = &planner->input;
    *out = (wd_strategy_plan){.strategy = strategy};
    out->objection = wd_strategy_objection(strategy, &in->site);
    if (strategy == WD_STRATEGY_custom && !in->custom)
        out->objection = "custom needs --teacher_device_map";
    if (out->objection) return WD_OK;
    int64_t window = in->sweep.window_max ? in->sweep.window_max : in->trajectories;
    WD_TRY(plan_window(out, planner, strategy, window, err));
    while (!in->sweep.window_max && window > 1) {
        wd_strategy_plan smaller;
        WD_TRY(plan_window(&smaller, planner, strategy, window = (window + 1) / 2, err));
        if (improves(&smaller, out)) *out = smaller;
    }
    return WD_OK;
}

wd_status wd_planner_plan(wd_strategy_plan *out, wd_planner *planner, wd_strategy strategy,
                          wd_err *err)
{
    assert(strategy != WD_STRATEGY_auto);
    if (!planner->planned[strategy])
        WD_TRY(plan_anew(&planner->plan[strategy], planner, strategy, err));
    planner->planned[strategy] = true;
    *out = planner->plan[strategy];
    return WD_OK;
}

wd_status wd_planner_need(wd_strategy_plan *out, wd_planner *planner, wd_strategy strategy,
                          wd_err *err)
{
    const wd_planner_input *in = &planner->input;
    if (strategy == WD_STRATEGY_custom && !in->custom)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "teacher_device_strategy: custom needs --teacher_device_map FILE");
    WD_TRY(wd_strategy_check(strategy, &in->site, err));
    return wd_planner_plan(out, planner, strategy, err);
}

/* ---- the best ---- */

static size_t all_bytes(const wd_strategy_plan *plan)
{
    const size_t ranks = plan->placement.each ? (size_t)plan->placement.ranks : 1;
    size_t sum = 0;
    for (int d = 0; d < plan->bytes.devices; d++) sum += wd_placed_total(&plan->bytes.device[d]);
    return ranks * sum + plan->bytes.host_weights + plan->bytes.host_reading;
}

/* To three digits, as tables show it: no rate is known better. */
static double known_of(double seconds)
{
    char text[32];
    snprintf(text, sizeof text, "%.2e", seconds);
    return strtod(text, NULL);
}

bool wd_planner_is_better(const wd_strategy_plan *a, const wd_strategy_plan *b)
{
    if (a->fits != b->fits) return a->fits;
    if (!a->fits) return all_missing(a) < all_missing(b);
    const double seconds_a = known_of(a->step_seconds), seconds_b = known_of(b->step_seconds);
    if (seconds_a != seconds_b) return seconds_a < seconds_b;
    const double moved_a = a->step_bytes_copied + a->step_bytes_read;
    const double moved_b = b->step_bytes_copied + b->step_bytes_read;
    if (fabs(moved_a - moved_b) > EQUAL * moved_b) return moved_a < moved_b;
    return all_bytes(a) < all_bytes(b);
}

wd_status wd_planner_all(wd_strategy_plan *out, wd_planner *planner, wd_err *err)
{
    for (int i = 0; i < WD_STRATEGY_auto; i++)
        WD_TRY(wd_planner_plan(&out[i], planner, (wd_strategy)i, err));
    return WD_OK;
}

wd_strategy_plan wd_planner_best(const wd_strategy_plan *all)
{
    int best = -1, fitting = 0;
    for (int i = 0; i < WD_STRATEGY_auto; i++) {
        if (all[i].objection) continue;
        if (best < 0 || wd_planner_is_better(&all[i], &all[best])) best = i;
        fitting += all[i].fits;
    }
    wd_strategy_plan plan = all[best];
    plan.rivals = fitting;
    return plan;
}

wd_status wd_planner_auto(wd_strategy_plan *out, wd_planner *planner, wd_err *err)
{
    wd_strategy_plan *all;
    WD_TRY(wd_alloc((void **)&all, WD_STRATEGY_auto, sizeof *all, "plans", err));
    const wd_status status = wd_planner_all(all, planner, err);
    if (status == WD_OK) *out = wd_planner_best(all);
    wd_free(all);
    return status;
}
