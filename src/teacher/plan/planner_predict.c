/* See teacher/plan/planner.h. */
#include "teacher/plan/planner.h"

#include <math.h>

/* ---- sweeps of a plan ---- */

/* Sweeps that have states of the same experts, and bring the weights of these. */
typedef struct sweep_kind {
    double sweeps; /* per target of all ranks */
    /* The averages over ranks of the states and micro-batches that a sweep has of each expert. */
    double states[WD_PLACED_EXPERTS_MAX], batches[WD_PLACED_EXPERTS_MAX];
} sweep_kind;

enum {
    SWEEP_KINDS = 1 << WD_PLACED_EXPERTS_MAX,
    BATCHES_MAX = 1024 /* micro-batches of an expert in a sweep that are played one by one */
};

static int batches_of(double states, int64_t micro)
{
    int64_t n = (int64_t)((states + (double)micro - 1e-9) / (double)micro);
    if (n < 1) n = 1;
    return n < BATCHES_MAX ? (int)n : BATCHES_MAX;
}

/* The share of a window's states that a rank's sweep has. */
static double share_of(const wd_strategy_plan *plan)
{
    return (double)wd_placed_window(&plan->placement, plan->window) / (double)plan->window;
}

/* Cuts all rounds into windows, and counts the sweeps of each kind. */
static void find_kinds(sweep_kind kind[SWEEP_KINDS], const wd_planner_rounds *in,
                       const wd_strategy_plan *plan)
{
    const int64_t rounds = in->expert ? in->count : 1, window = plan->window;
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
                             const wd_planner_input *in, const wd_student_load *student)
{
    const wd_sweep_options *o = &in->sweep;
    const int64_t trajectories = in->rounds.trajectories;
    /* the states of a micro-batch share the unconditional text */
    const double one = (double)wd_sweep_packed_bytes(o, 1, WD_STAGE_BLOCK);
    const double two = (double)wd_sweep_packed_bytes(o, 2, WD_STAGE_BLOCK);
    wd_sweep_load load = {
        .sweeps_apart = (int)wd_sweeps_apart(trajectories, plan->window),
        .activation_bytes_per_state = two - one,
        .activation_bytes_per_batch = 2 * one - two,
        .head_input_bytes_per_state = (double)wd_sweep_packed_bytes(o, 1, WD_STAGE_HEAD),
        .text_bytes = (double)(wd_sweep_text_bytes(o) + sizeof(float)) /* and timestep */,
        .latent_bytes = (double)wd_sweep_latent_bytes(o),
        .latents_device = in->student.device,
        .window = (double)(plan->window < trajectories ? plan->window : trajectories),
        .student = *student,
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

wd_sweep_load wd_planner_load_alone(const wd_strategy_plan *plan, const wd_planner_input *input,
                                    int expert, int64_t states)
{
    const wd_student_load none = {0};
    sweep_kind kind = {.sweeps = 1};
    kind.states[expert] = (double)states;
    kind.batches[expert] = batches_of((double)states, plan->micro_batch);
    wd_sweep_load load = load_of(&kind, plan, input, &none);
    load.sweeps_apart = 1;
    load.window = (double)states;
    return load;
}

/* ---- a step of the student ---- */

/* Bytes that the ranks of a host send to one another, and to other hosts. */
typedef struct host_sends {
    double near, far;
} host_sends;

/* The bytes that are sent if all ranks get `bytes`, of which each rank has a share. Flat: each rank
 * sends its share to every other rank. Else shares are sent once to each host, whose ranks exchange
 * them among themselves. */
static host_sends exchange(const wd_cluster *cluster, double bytes, bool flat)
{
    const double ranks = wd__cluster_ranks(cluster), near = wd_cluster_host_ranks(cluster);
    return (host_sends){bytes * (flat ? near * (near - 1) / ranks : near - 1),
                        bytes * (flat ? near : 1) * (ranks - near) / ranks};
}

/* Gradients go to the ranks that add them up, and the results to all ranks; all ranks of a host
 * send at the same time. From device to device each has the link of its own device. Else gradients
 * go to host memory over that link, and the results come back, bucket by bucket, while other
 * buckets are on their way from rank to rank. */
static wd_student_load student_of(const wd_planner_input *in)
{
    const wd_cluster *cluster = &in->cluster;
    const wd_planner_student *s = &in->student;
    const wd_planner_gradients *g = &in->gradients;
    const double link = cluster->device[s->device].link_bytes_per_s;
    const double near_ranks = wd_cluster_host_ranks(cluster);
    const double near_rate = g->direct ? near_ranks * link : cluster->memory_bytes_per_s;
    const double far_rate = cluster->network_bytes_per_s;
    const host_sends reduced = exchange(cluster, g->reduced_bytes, g->reduced_flat);
    const host_sends gathered = exchange(cluster, g->gathered_bytes, g->gathered_flat);
    const double near = reduced.near + gathered.near, far = reduced.far + gathered.far;
    const double messages =
        (near_rate > 0 ? near / near_rate : 0) + (far_rate > 0 ? far / far_rate : 0);
    const double carried = (g->in_bytes + g->out_bytes) / link;
    const double compute = s->step_flops / wd_cluster_student_rate(cluster, s->device);
    return (wd_student_load){
        .targets = s->step_targets,
        .ahead = s->steps_ahead,
        .compute_seconds = compute,
        .after_seconds = wd__cluster_ranks(cluster) > 1 ? (1 - g->final_share) * compute : 0,
        .link_seconds = (s->step_bytes + s->back_bytes) / link + carried,
        .network_seconds = messages,
        .reduce_seconds = fmax(messages, carried),
        .traffic = {.device = s->device,
                    .in = s->step_bytes,
                    .out = s->back_bytes,
                    .gradients_in = g->in_bytes,
                    .gradients_out = g->out_bytes,
                    .gradients_near = near / near_ranks,
                    .gradients_far = far / near_ranks},
    };
}

/* ---- bytes ---- */

void wd__planner_move(wd_traffic *out, const wd_strategy_plan *plan, const wd_planner_input *in,
                      const wd_teacher_size *size, const wd_cluster *cluster)
{
    sweep_kind kind[SWEEP_KINDS] = {0};
    const wd_student_load student = student_of(in);
    out->links = 0;
    find_kinds(kind, &in->rounds, plan);
    for (int k = 0; k < SWEEP_KINDS; k++) {
        if (!(kind[k].sweeps > 0)) continue;
        const wd_sweep_load load = load_of(&kind[k], plan, in, &student);
        const wd_sweep_setting sweep = {&plan->placement, size, cluster, &load};
        wd__traffic_sweeps(out, &sweep, in->student.step_targets * kind[k].sweeps);
    }
    wd__traffic_student(out, &plan->placement, cluster, &student.traffic);
}

/* ---- both ---- */

/* Seconds of a step's sweeps. */
typedef struct step_play {
    double seconds;
    double busiest; /* in which the busiest resource has work */
    double compute; /* of the teacher on the student's device */
    double network; /* of messages between ranks */
} step_play;

/* Seconds that a sweep computes on a student's device, on the busiest of these devices. */
static double beside_student(const wd_timeline *t, const wd_strategy_plan *plan,
                             const wd_planner_input *in)
{
    double most = 0;
    for (int d = in->student.device; d < plan->bytes.devices; d += in->cluster.devices)
        most = fmax(most, t->compute_seconds[d]);
    return most;
}

/* Plays all kinds of sweeps. The plan gets the timeline of the kind that takes most of the time. */
static wd_status play_step(step_play *out, wd_strategy_plan *plan, const wd_planner_input *in,
                           const wd_teacher_size *size, const wd_cluster *cluster,
                           const wd_student_load *student, wd_err *err)
{
    sweep_kind kind[SWEEP_KINDS] = {0};
    step_play step = {0};
    double most = 0;
    find_kinds(kind, &in->rounds, plan);
    for (int k = 0; k < SWEEP_KINDS; k++) {
        if (!(kind[k].sweeps > 0)) continue;
        const double sweeps = in->student.step_targets * kind[k].sweeps;
        const wd_sweep_load load = load_of(&kind[k], plan, in, student);
        const wd_sweep_setting sweep = {&plan->placement, size, cluster, &load};
        wd_timeline t;
        WD_TRY(wd__timeline_play(&t, &sweep, NULL, NULL, err));
        const double seconds = t.sweep_seconds * sweeps;
        step.seconds += seconds;
        step.busiest += t.busy * seconds;
        step.compute += beside_student(&t, plan, in) * sweeps;
        step.network += t.network_seconds * sweeps;
        if (seconds < most) continue;
        most = seconds;
        plan->load = load;
        plan->timeline = t;
    }
    *out = step;
    return WD_OK;
}

/* Seconds of a rank's update in host memory: gradients come down, the processor steps what is
 * there, and new weights go up, all at the same time. Of an EMA: weights come down. */
static double update_seconds(const wd_planner_input *in)
{
    const wd_planner_student *s = &in->student;
    const double rate =
        s->update_of_ema ? in->cluster.ema_weights_per_s : in->cluster.adamw_weights_per_s;
    const double link = in->cluster.device[s->device].link_bytes_per_s;
    return fmax(rate > 0 ? s->update_weights / rate : 0, s->update_bytes / link);
}

/* Whether stages of the teacher are computed by the processor, which then cannot make the update
 * meanwhile. */
static bool processor_computes(const wd_strategy_plan *plan, const wd_cluster *cluster)
{
    bool found = false;
    for (int d = 0; d < plan->bytes.devices; d++)
        found |= wd_cluster_at(cluster, d)->reads_host && plan->timeline.compute_seconds[d] > 0;
    return found;
}

/* Seconds of a step, which takes `other` without the update, before the update can begin. */
static double seconds_before_update(const wd_strategy_plan *plan, const wd_planner_input *in,
                                    const wd_cluster *cluster, double student, double other)
{
    if (processor_computes(plan, cluster)) return other;
    if (in->student.update_of_ema) return 0; /* it goes on beside all of the next step */
    return in->student.update_waits ? other : student;
}

wd_status wd__planner_predict(wd_strategy_plan *plan, const wd_planner_input *in,
                              const wd_teacher_size *size, const wd_cluster *cluster, wd_err *err)
{
    const wd_student_load student = student_of(in);
    const double final_seconds = in->gradients.final_share * student.compute_seconds;
    step_play step;
    WD_TRY(play_step(&step, plan, in, size, cluster, &student, err));
    plan->reduce_seconds = student.reduce_seconds;
    plan->exposed_seconds = fmax(0, plan->reduce_seconds - final_seconds - step.compute);
    const double network = plan->reduce_seconds + step.network;
    const double busy = student.compute_seconds + step.compute;
    const double update = update_seconds(in), other = fmax(step.seconds, fmax(busy, network));
    const double first = seconds_before_update(plan, in, cluster, student.compute_seconds, other);
    const bool chain_limits = update > 0 && first + update > other;
    plan->step_seconds = fmax(other, first + update);
    plan->update_limits = chain_limits && update > first;
    plan->network_limits = network >= step.seconds || plan->exposed_seconds > step.seconds / 2;
    const bool chain_of_student = chain_limits && first == student.compute_seconds;
    plan->student_limits =
        (busy > step.busiest || chain_of_student) && !plan->network_limits && !plan->update_limits;
    return WD_OK;
}
