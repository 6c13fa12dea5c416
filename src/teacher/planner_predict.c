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
    double states[WD_PLACED_EXPERTS_MAX], batches[WD_PLACED_EXPERTS_MAX]; /* a rank's, on average */
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

static int batches_of(double states, int64_t micro)
{
    int64_t n = (int64_t)((states + (double)micro - 1e-9) / (double)micro);
    if (n < 1) n = 1;
    return n < WD_TIMELINE_BATCHES_MAX ? (int)n : WD_TIMELINE_BATCHES_MAX;
}

/* Of a window's states, those that a rank's sweep has. */
static double share_of(const wd_strategy_plan *plan)
{
    return (double)wd_placed_window(&plan->placement, plan->window) / (double)plan->window;
}

/* Cuts the rounds that there are into windows. */
static void find_kinds(sweep_kind kind[SWEEP_KINDS], const wd_planner_input *in,
                       const wd_strategy_plan *plan)
{
    const int64_t rounds = in->expert ? in->rounds : 1, window = plan->window;
    const double share = share_of(plan);
    for (int64_t first = 0; first < rounds * in->trajectories; first += in->trajectories)
        for (int64_t at = 0; at < in->trajectories; at += window) {
            double states[WD_PLACED_EXPERTS_MAX] = {0};
            for (int64_t i = at; i < at + window && i < in->trajectories; i++)
                states[in->expert ? in->expert[first + i] : 0]++;
            sweep_kind *k = &kind[(states[0] > 0) + 2 * (states[1] > 0)];
            k->sweeps++;
            for (int e = 0; e < WD_PLACED_EXPERTS_MAX; e++) {
                k->states[e] += states[e] * share;
                if (!(states[e] > 0)) continue;
                k->batches[e] += batches_of(states[e] * share, plan->micro_batch);
            }
        }
    for (int k = 0; k < SWEEP_KINDS; k++) {
        for (int e = 0; e < WD_PLACED_EXPERTS_MAX && kind[k].sweeps > 0; e++) {
            kind[k].states[e] /= kind[k].sweeps;
            kind[k].batches[e] /= kind[k].sweeps;
        }
        kind[k].sweeps /= (double)(rounds * in->trajectories);
    }
}

static wd_sweep_load load_of(const sweep_kind *kind, const wd_strategy_plan *plan,
                             const wd_planner_input *in, const teacher_spell *spell)
{
    const wd_sweep_options *o = &in->sweep;
    const wd_dit_config *c = &o->config;
    const int64_t latents = c->in_channels * o->frames * o->height * o->width;
    const size_t text_bytes = (size_t)(o->text_tokens * c->text_dim) * wd_dtype_bytes(o->dtype);
    const size_t timestep_bytes = sizeof(float);
    const wd_sweep_hop hop = wd_sweep_hop_of(o);
    wd_sweep_load load = {
        .sweeps_apart = (int)wd_sweeps_apart(in->trajectories, plan->window),
        .hop_bytes = (double)hop.state,
        .hop_batch_bytes = (double)hop.batch,
        .hop_head_bytes = (double)hop.head,
        .text_bytes = (double)(text_bytes + timestep_bytes),
        .latent_bytes = (double)latents * sizeof(float),
        .home = in->student_device,
        .apart = spell->left > 0,
    };
    for (int e = 0; e < plan->placement.experts; e++) {
        const double states = kind->states[e];
        if (states <= 0) continue;
        load.batches_mean[e] = kind->batches[e];
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
 * velocities and activations are on their way from rank to rank. Of the kind of sweep that most of
 * the time goes into, what it is and how it went. */
typedef struct spell_play {
    double seconds, beside, network;
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
    find_kinds(kind, in, plan);
    for (int k = 0; k < SWEEP_KINDS; k++) {
        if (!(kind[k].sweeps > 0)) continue;
        const double sweeps = p->spell.targets * kind[k].sweeps;
        const wd_sweep_load load = load_of(&kind[k], plan, in, &p->spell);
        const wd_timeline t =
            wd_timeline_play(&plan->placement, p->size, &shared, &load, NULL, NULL);
        const double seconds = t.sweep_seconds * sweeps;
        play.seconds += seconds;
        play.beside += beside_student(&t, plan, in) * sweeps;
        play.network += t.network_seconds * sweeps;
        if (seconds < most) continue;
        most = seconds;
        play.load = load;
        play.timeline = t;
    }
    return play;
}

/* ---- a step of the student ---- */

/* What the ranks of a host send one another, and other hosts: in bytes. */
typedef struct host_sends {
    double near, far;
} host_sends;

/* Of `bytes` that all ranks have of one another. Flat, each sends each other one its share; or
 * hosts do, once for all their ranks, which exchange the rest among themselves. */
static host_sends exchange(const wd_site *site, double bytes, bool flat)
{
    const double ranks = wd_site_ranks(site), near = wd_site_host_ranks(site);
    return (host_sends){bytes * (flat ? near * (near - 1) / ranks : near - 1),
                        bytes * (flat ? near : 1) * (ranks - near) / ranks};
}

/* Shares of gradients go to whose they are, and later what has come of them to all. */
static host_sends gradients_of(const wd_planner_input *in)
{
    const host_sends reduced = exchange(&in->site, in->reduced_bytes, in->reduced_flat);
    const host_sends gathered = exchange(&in->site, in->gathered_bytes, in->gathered_flat);
    return (host_sends){reduced.near + gathered.near, reduced.far + gathered.far};
}

/* The ranks of a host at the same time. */
static double reduce_seconds(const wd_planner_input *in)
{
    const host_sends sends = gradients_of(in);
    double seconds = 0;
    if (in->site.memory_bytes_per_s > 0) seconds += sends.near / in->site.memory_bytes_per_s;
    if (in->site.network_bytes_per_s > 0) seconds += sends.far / in->site.network_bytes_per_s;
    return seconds;
}

/* Between ranks gradients are in host memory: over its link a device gives all that it has made and
 * gets what came of them, bucket by bucket, while others are on their way from rank to rank. */
static student_step student_step_of(const wd_planner_input *in)
{
    const wd_site_device *device = &in->site.device[in->student_device];
    const double carried = in->gradients_in_bytes + in->gradients_out_bytes;
    const double own = in->student_step_bytes + in->student_back_bytes;
    return (student_step){
        .compute = in->student_step_flops / device->flops_per_s,
        .brought = (own + carried) / device->link_bytes_per_s,
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

/* ---- bytes ---- */

static wd_student_traffic student_traffic_of(const wd_planner_input *in)
{
    const host_sends gradients = gradients_of(in);
    const double near = wd_site_host_ranks(&in->site);
    return (wd_student_traffic){
        .device = in->student_device,
        .in = in->student_step_bytes,
        .out = in->student_back_bytes,
        .gradients_in = in->gradients_in_bytes,
        .gradients_out = in->gradients_out_bytes,
        .gradients_near = gradients.near / near,
        .gradients_far = gradients.far / near,
    };
}

void wd_planner_move(wd_traffic *out, const wd_strategy_plan *plan, const wd_planner_input *in,
                     const wd_teacher_size *size, const wd_site *site)
{
    sweep_kind kind[SWEEP_KINDS] = {0};
    const teacher_spell spell = spell_of(in, plan->window);
    const wd_student_traffic student = student_traffic_of(in);
    out->links = 0;
    find_kinds(kind, in, plan);
    for (int k = 0; k < SWEEP_KINDS; k++) {
        if (!(kind[k].sweeps > 0)) continue;
        const wd_sweep_load load = load_of(&kind[k], plan, in, &spell);
        wd_traffic_sweeps(out, &plan->placement, size, site, &load,
                          in->step_targets * kind[k].sweeps);
    }
    wd_traffic_student(out, &plan->placement, site, &student);
}

/* ---- all of it ---- */

void wd_planner_predict(wd_strategy_plan *plan, wd_traffic *traffic, const wd_planner_input *in,
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
    wd_planner_move(traffic, plan, in, size, site);
    for (int k = 0; k < WD_LINKS; k++)
        plan->step_bytes[k] = wd_traffic_bytes(traffic, (wd_link_kind)k);
    plan->step_bytes_sent = wd_traffic_sent(traffic);
    plan->load = alone.load;
    plan->timeline = alone.timeline;
    if (!device->reads_host && alone.beside > 0) {
        const double apart = spell.steps * (student.compute + student.brought + waits);
        seconds = share_device(&p, seconds, alone.seconds + apart);
    }
    plan->step_seconds = (seconds + left) / (spell.steps + spell.left);
}
