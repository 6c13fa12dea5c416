/* See teacher/planner_predict.h. */
#include "teacher/planner_predict.h"

#include <assert.h>
#include <math.h>

#include "teacher/station.h"

enum { HALVINGS = 8 };

/* ---- sweeps of a plan ---- */

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
        .hop_head_bytes = (double)hop.head,
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

/* ---- a spell of the teacher ---- */

/* What the student's device and the network do for the student: in one step. */
typedef struct student_step {
    double compute, brought, reduce;
} student_step;

/* A plan whose time is looked for, and what that follows from. */
typedef struct prediction {
    const wd_strategy_plan *plan;
    const wd_planner_input *in;
    const wd_teacher_size *size;
    const wd_site *site;
    teacher_spell spell;
    student_step student;
} prediction;

/* Shares of the rates of the student's device. */
typedef struct device_share {
    double compute, link;
} device_share;

/* Of a spell, in seconds: the teacher's part, what of it the student's device computes, and what
 * velocities and activations are on their way from rank to rank. Of a step, in bytes, what moves.
 * Of the kind of sweep that most of the time goes into, what it is and how it went. */
typedef struct spell_play {
    double seconds, beside, network;
    double step_copied, step_read, step_sent;
    wd_sweep_load load;
    wd_timeline timeline;
} spell_play;

/* What the teacher does in a spell, where the student leaves it such a share of its device. */
static spell_play play_spell(const prediction *p, device_share share)
{
    const wd_strategy_plan *plan = p->plan;
    const wd_planner_input *in = p->in;
    sweep_kind kind[SWEEP_KINDS] = {0};
    spell_play play = {0};
    wd_site shared = *p->site;
    double most = 0;
    shared.device[in->student_device].flops_per_s *= share.compute;
    shared.device[in->student_device].link_bytes_per_s *= share.link;
    find_kinds(kind, in, plan->window);
    const double ranks = plan->placement.each ? wd_site_ranks(p->site) : 1;
    const double hosts = plan->placement.each ? ranks / wd_site_host_ranks(p->site) : 1;
    for (int k = 0; k < SWEEP_KINDS; k++) {
        if (!(kind[k].sweeps > 0)) continue;
        const double sweeps = p->spell.targets * kind[k].sweeps;
        const double step_sweeps = in->step_targets * kind[k].sweeps;
        const wd_sweep_load load = load_of(&kind[k], plan, in, &p->spell);
        const wd_timeline t =
            wd_timeline_play(&plan->placement, p->size, &shared, &load, NULL, NULL);
        const double seconds = t.sweep_seconds * sweeps;
        play.seconds += seconds;
        play.beside += beside_student(&t, plan, in) * sweeps;
        play.network += t.network_seconds * sweeps;
        play.step_copied += t.bytes_copied * step_sweeps * ranks;
        play.step_read += t.bytes_read * step_sweeps * hosts;
        play.step_sent += t.bytes_sent * step_sweeps;
        if (seconds < most) continue;
        most = seconds;
        play.load = load;
        play.timeline = t;
    }
    return play;
}

/* ---- a step of the student ---- */

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

/* ---- both ---- */

/* Seconds of a spell, found by halving. A processor does one after the other. Another device
 * computes for both, side by side, and its link brings what both need: it takes as long as the
 * teacher does with the share that a student leaves it which is busy for its part of that time. The
 * longer, the larger the share. */
static double share_device(const prediction *p, double least, double most)
{
    const double compute = p->spell.steps * p->student.compute;
    const double brought = p->spell.steps * p->student.brought;
    if (most < least) most = least;
    for (int i = 0; i < HALVINGS && most > least / WD_PLANNER_FASTER; i++) {
        const double seconds = i ? (least + most) / 2 : least;
        const device_share share = {1 - compute / seconds, 1 - brought / seconds};
        if (share.link <= 0 || play_spell(p, share).seconds > seconds * (1 + 1e-9))
            least = seconds;
        else
            most = seconds;
    }
    return most;
}

void wd_planner_predict(wd_strategy_plan *plan, const wd_planner_input *in,
                        const wd_teacher_size *size, const wd_site *site)
{
    const wd_site_device *device = &site->device[in->student_device];
    const teacher_spell spell = spell_of(in, plan->window);
    const student_step student = student_step_of(in);
    const prediction p = {plan, in, size, site, spell, student};
    const spell_play alone = play_spell(&p, (device_share){1, 1});
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
    plan->step_bytes_copied = alone.step_copied;
    plan->step_bytes_read = alone.step_read;
    plan->step_bytes_sent = alone.step_sent + rank_sends(in);
    plan->load = alone.load;
    plan->timeline = alone.timeline;
    if (!device->reads_host && alone.beside > 0) {
        const double apart = spell.steps * (student.compute + student.brought + waits);
        seconds = share_device(&p, seconds, alone.seconds + apart);
    }
    plan->step_seconds = (seconds + left) / (spell.steps + spell.left);
}
