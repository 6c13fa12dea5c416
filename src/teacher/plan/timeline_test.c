/* Sweeps played through, against what can be worked out by hand. */
#include "teacher/plan/timeline.h"

#include "testing.h"

enum { BLOCKS = 12 };

/* Twelve equal stages: 1 s of compute for one state, 4 s to copy, 8 s to read. */
static wd_teacher_size twelve(void)
{
    wd_teacher_size size = {.experts = 1, .stages = BLOCKS};
    for (int s = 0; s < BLOCKS; s++) {
        size.flops[s] = 10;
        size.stage[0][s] = (wd_stage_size){.device = 400, .host = 400, .file = 400};
    }
    return size;
}

static wd_cluster cluster_of(int devices)
{
    wd_cluster cluster = {.devices = devices, .host_bytes = 1 << 20, .disk_bytes_per_s = 50};
    for (int d = 0; d < devices; d++)
        cluster.device[d] = (wd_cluster_device){.bytes = 1 << 20,
                                                .flops_per_s = {10, 10},
                                                .link_bytes_per_s = 100,
                                                .reads_host = false};
    return cluster;
}

static wd_placement placed(wd_home home, int devices)
{
    wd_placement p = {.experts = 1, .stages = BLOCKS, .buffers = 2, .by_batch = ~0u};
    for (int s = 0; s < BLOCKS; s++)
        p.place[0][s] = (wd_stage_placement){home, s * devices / BLOCKS};
    return p;
}

static wd_timeline played(const wd_placement *p, const wd_teacher_size *size,
                          const wd_cluster *cluster, const wd_sweep_load *load, wd_timeline_fn *fn,
                          void *context)
{
    wd_err err;
    wd_timeline out;
    const wd_sweep_setting sweep = {p, size, cluster, load};
    wd_test_ok(wd__timeline_play(&out, &sweep, fn, context, &err), &err);
    return out;
}

static wd_timeline play(wd_home home, int devices, int batches)
{
    const wd_placement p = placed(home, devices);
    const wd_teacher_size size = twelve();
    const wd_cluster cluster = cluster_of(devices);
    const wd_sweep_load load = {.batches = {batches}, .batch_targets = {1, 1}};
    return played(&p, &size, &cluster, &load, NULL, NULL);
}

static void assert_seconds(double got, double expected)
{
    if (fabs(got - expected) > 1e-9 * expected) fail_msg("%g s, expected %g", got, expected);
}

static void one_device(void **state)
{
    (void)state;
    const wd_timeline t = play(WD_HOME_DEVICE, 1, 8);
    assert_seconds(t.sweep_seconds, 8 * BLOCKS);
    assert_int_equal(t.limit, WD_RESOURCE_COMPUTE);
    assert_seconds(t.busy, 1);
}

/* Copies hide behind compute from the window on at which they are as long. */
static void offload(void **state)
{
    (void)state;
    assert_seconds(play(WD_HOME_HOST, 1, 8).sweep_seconds, 8 * BLOCKS);
    assert_seconds(play(WD_HOME_HOST, 1, 4).sweep_seconds, 4 * BLOCKS);
    const wd_timeline t = play(WD_HOME_HOST, 1, 1);
    assert_seconds(t.sweep_seconds, 4 * BLOCKS);
    assert_int_equal(t.limit, WD_RESOURCE_LINK);
}

/* One block that comes for every sweep has one buffer: it comes once it is used. */
static void a_block_that_comes_alone(void **state)
{
    (void)state;
    const wd_cluster cluster = cluster_of(1);
    const wd_sweep_load load = {.batches = {1}, .batch_targets = {1, 1}};
    wd_placement p = placed(WD_HOME_DEVICE, 1);
    wd_teacher_size size = twelve();
    p.place[0][5].home = WD_HOME_HOST;
    size.stage[0][5].device = 4000;
    const wd_timeline t = played(&p, &size, &cluster, &load, NULL, NULL);
    assert_seconds(t.sweep_seconds, 40 + 1);
}

/* Embedding and head take no block's place: the first block comes while the last is computed. */
static void small_stages_at_the_ends(void **state)
{
    (void)state;
    const wd_placement p = placed(WD_HOME_HOST, 1);
    const wd_cluster cluster = cluster_of(1);
    const wd_sweep_load load = {.batches = {4}, .batch_targets = {1, 1}};
    wd_teacher_size size = twelve();
    for (int s = 0; s < BLOCKS; s += BLOCKS - 1) {
        size.flops[s] = 0;
        size.stage[0][s].device = 0;
    }
    const wd_timeline t = played(&p, &size, &cluster, &load, NULL, NULL);
    assert_seconds(t.sweep_seconds, 4 * (BLOCKS - 2));
}

/* The first block, too, comes to its device where another one embeds for it. */
static void embedded_for_another(void **state)
{
    (void)state;
    wd_placement p = placed(WD_HOME_HOST, 2);
    const wd_teacher_size size = twelve();
    const wd_cluster cluster = cluster_of(2);
    const wd_sweep_load load = {.batches = {1}, .batch_targets = {1}};
    p.place[0][0] = (wd_stage_placement){WD_HOME_DEVICE, 0};
    for (int s = 1; s < BLOCKS; s++) p.place[0][s].device = 1;
    const wd_timeline t = played(&p, &size, &cluster, &load, NULL, NULL);
    assert_seconds(t.sweep_seconds, 4 * (BLOCKS - 1));
}

/* A stage is read while its buffer is in use, and while another stage is sent. */
static void disk(void **state)
{
    (void)state;
    const wd_timeline t = play(WD_HOME_DISK, 1, 2);
    assert_seconds(t.sweep_seconds, 8 * BLOCKS);
    assert_int_equal(t.limit, WD_RESOURCE_DISK);
    assert_seconds(play(WD_HOME_DISK, 1, 16).sweep_seconds, 16 * BLOCKS);
    assert_seconds(play(WD_HOME_DISK, 1, 8).sweep_seconds, 8 * BLOCKS);
}

/* Four devices and enough micro-batches: none waits; with one, three of four do. */
static void pipeline(void **state)
{
    (void)state;
    assert_seconds(play(WD_HOME_DEVICE, 4, 16).sweep_seconds, 16 * BLOCKS / 4);
    assert_seconds(play(WD_HOME_DEVICE, 4, 1).sweep_seconds, BLOCKS);
}

/* A sweep waits for the one that had the same states, not for those between: with as many of them
 * as devices, or more, all are at work. */
static void sweeps_of_other_states(void **state)
{
    (void)state;
    const wd_placement p = placed(WD_HOME_DEVICE, 4);
    const wd_teacher_size size = twelve();
    const wd_cluster cluster = cluster_of(4);
    for (int sweeps_apart = 0; sweeps_apart < 8; sweeps_apart++) {
        const wd_sweep_load load = {
            .batches = {1}, .batch_targets = {1}, .sweeps_apart = sweeps_apart};
        const wd_timeline t = played(&p, &size, &cluster, &load, NULL, NULL);
        const int under_way = sweeps_apart < 1 ? 1 : sweeps_apart < 4 ? sweeps_apart : 4;
        assert_seconds(t.sweep_seconds, (double)BLOCKS / under_way);
    }
}

/* A state comes from where trajectories are, with its text, and its velocity goes back. */
static void from_the_latents_device_and_back(void **state)
{
    (void)state;
    const wd_placement p = placed(WD_HOME_DEVICE, 1);
    const wd_teacher_size size = twelve();
    wd_cluster cluster = cluster_of(2);
    wd_sweep_load load = {.batches = {2},
                          .batch_targets = {3},
                          .text_bytes = 200,
                          .latent_bytes = 100,
                          .latents_device = 1};
    wd_timeline t = played(&p, &size, &cluster, &load, NULL, NULL);
    assert_seconds(t.sweep_seconds, 6 * (BLOCKS + 2 + 1 + 1));
    load.latents_device = 0;
    t = played(&p, &size, &cluster, &load, NULL, NULL);
    assert_seconds(t.sweep_seconds, 6 * (BLOCKS + 2));
    cluster.device[0].reads_host = true;
    t = played(&p, &size, &cluster, &load, NULL, NULL);
    assert_seconds(t.sweep_seconds, 6 * BLOCKS);
}

/* A head gets no more of a micro-batch than it reads. The device that sends it waits. */
static void to_a_head(void **state)
{
    (void)state;
    wd_placement p = placed(WD_HOME_DEVICE, 1);
    const wd_teacher_size size = twelve();
    const wd_cluster cluster = cluster_of(2);
    const wd_sweep_load load = {.batches = {2},
                                .batch_targets = {3},
                                .activation_bytes_per_state = 7000,
                                .activation_bytes_per_batch = 6000,
                                .head_input_bytes_per_state = 5000};
    p.place[0][BLOCKS - 1].device = 1;
    assert_seconds(played(&p, &size, &cluster, &load, NULL, NULL).sweep_seconds,
                   2 * 3 * (BLOCKS - 1 + 50));
    p.place[0][BLOCKS - 2].device = 1;
    assert_seconds(played(&p, &size, &cluster, &load, NULL, NULL).sweep_seconds,
                   2 * (3 * (BLOCKS - 2 + 70) + 60));
}

/* Two ranks of a device each, on one host or two. */
static wd_cluster two_ranks(int hosts)
{
    wd_cluster cluster = cluster_of(1);
    cluster.ranks = 2;
    cluster.hosts = hosts;
    cluster.memory_bytes_per_s = 50;
    cluster.network_bytes_per_s = 10;
    return cluster;
}

/* A micro-batch goes to host memory, from rank to rank, and to the other device; the device that it
 * leaves waits for the first of these only. Velocities go to the other rank beside all that. */
static void from_rank_to_rank(void **state)
{
    (void)state;
    wd_placement p = placed(WD_HOME_DEVICE, 2);
    p.ranks = 2, p.devices = 1;
    const wd_teacher_size size = twelve();
    const wd_sweep_load load = {.batches = {1},
                                .batch_targets = {2},
                                .activation_bytes_per_state = 75,
                                .activation_bytes_per_batch = 50,
                                .latent_bytes = 5};
    for (int hosts = 1; hosts <= 2; hosts++) {
        const wd_cluster cluster = two_ranks(hosts);
        const double rate = hosts > 1 ? 10 : 50;
        const wd_timeline t = played(&p, &size, &cluster, &load, NULL, NULL);
        assert_seconds(t.sweep_seconds, 2 * BLOCKS + 200 / 100 + 200 / rate + 200 / 100);
        assert_seconds(t.network_seconds, 200 / rate);
    }
}

/* Where each has a teacher they do the same at the same time, and tell each other velocities. */
static void a_teacher_each(void **state)
{
    (void)state;
    wd_placement p = placed(WD_HOME_DEVICE, 1);
    p.ranks = 2, p.devices = 1, p.each = true;
    const wd_teacher_size size = twelve();
    const wd_sweep_load load = {.batches = {4}, .batch_targets = {1}, .latent_bytes = 30};
    const wd_cluster near = two_ranks(1), far = two_ranks(2);
    wd_timeline t = played(&p, &size, &near, &load, NULL, NULL);
    assert_seconds(t.sweep_seconds, 4 * BLOCKS);
    assert_seconds(t.network_seconds, 2 * 4 * 30 / 50.0); /* both at a time */
    t = played(&p, &size, &far, &load, NULL, NULL);
    assert_seconds(t.network_seconds, 4 * 30 / 10.0);
}

/* What is converted on the device goes over the link as it is in the file. */
static void converted_from_disk(void **state)
{
    (void)state;
    const wd_placement p = placed(WD_HOME_DISK, 1);
    wd_teacher_size size = twelve();
    wd_cluster cluster = cluster_of(1);
    const wd_sweep_load load = {.batches = {1}, .batch_targets = {1}};
    for (int s = 0; s < BLOCKS; s++) size.stage[0][s].file = 800;
    cluster.disk_bytes_per_s = 1e6;
    const wd_timeline t = played(&p, &size, &cluster, &load, NULL, NULL);
    assert_seconds(t.sweep_seconds, 8 * BLOCKS);
}

/* The processor needs no copies: a buffer is read into, and computed from. */
static void processor_streams_from_disk(void **state)
{
    (void)state;
    const wd_placement p = placed(WD_HOME_DISK, 1);
    const wd_teacher_size size = twelve();
    const wd_sweep_load load = {.batches = {1}, .batch_targets = {1, 1}};
    wd_cluster cluster = cluster_of(1);
    cluster.device[0].reads_host = true;
    const wd_timeline t = played(&p, &size, &cluster, &load, NULL, NULL);
    assert_seconds(t.sweep_seconds, 8 * BLOCKS);
}

/* More mapped weights than the page cache keeps are read in every sweep, when a processor comes to
 * them. */
static void mapped_again_and_again(void **state)
{
    (void)state;
    wd_placement p = placed(WD_HOME_DEVICE, 1);
    wd_teacher_size size = twelve();
    const wd_sweep_load load = {.batches = {3}, .batch_targets = {1}};
    wd_cluster cluster = cluster_of(1);
    for (int s = 0; s < BLOCKS; s++) size.stage[0][s].host = 300; /* the rest is mapped: 2 s */
    cluster.device[0].reads_host = true;
    p.by_batch = 0;
    assert_seconds(played(&p, &size, &cluster, &load, NULL, NULL).sweep_seconds, 3 * BLOCKS);
    cluster.uncached = true;
    const wd_timeline t = played(&p, &size, &cluster, &load, NULL, NULL);
    assert_seconds(t.sweep_seconds, (3 + 2) * BLOCKS);
}

typedef struct watch {
    double end[WD_RESOURCE_DISK + 1][2];
    int events;
} watch;

/* Every resource's work comes in order, and never two pieces at once. */
static void see(void *context, const wd_timeline_event *event)
{
    watch *w = context;
    double *end = &w->end[event->resource][event->device < 0 ? 0 : event->device];
    assert_true(event->begin >= *end && event->end >= event->begin);
    *end = event->end;
    w->events++;
}

static void resources_work_in_order(void **state)
{
    (void)state;
    wd_placement p = placed(WD_HOME_DEVICE, 2);
    p.place[0][2].home = WD_HOME_DISK;
    p.place[0][7].home = WD_HOME_HOST;
    const wd_teacher_size size = twelve();
    const wd_cluster cluster = cluster_of(2);
    const wd_sweep_load load = {
        .batches = {3}, .batch_targets = {2, 2}, .activation_bytes_per_state = 15};
    watch w = {.events = 0};
    played(&p, &size, &cluster, &load, see, &w);
    /* four sweeps of: twelve stages and a hop for three micro-batches, a read, two copies */
    assert_int_equal(w.events, 4 * (3 * (BLOCKS + 1) + 1 + 2));
}

/* A device may be ahead of the next one by the places there. Expert 0: 8 s of a micro-batch on the
 * first device, 1 s on the second, which has all of expert 1, 9 s. Of ten each the second device
 * would be busy all the time, 100 s of a sweep, if the first one could do its part of the next
 * sweep while the second is at expert 1. But a micro-batch gets the place of the third one before
 * it: the first three come when the second device is done with the last three of expert 1, at 72,
 * 81 and 90 s after the last of expert 0; seven follow in 8 s each, and the last one takes 1 s. */
static void places(void **state)
{
    (void)state;
    const wd_teacher_size size = {.experts = 2, .stages = 3, .flops = {80, 5, 5}};
    const wd_cluster cluster = cluster_of(2);
    wd_placement p = {.experts = 2, .stages = 3, .buffers = 2, .by_batch = ~0u};
    const wd_sweep_load load = {.batches = {10, 10}, .batch_targets = {1, 1}};
    for (int e = 0; e < 2; e++)
        for (int s = 0; s < 3; s++) p.place[e][s] = (wd_stage_placement){WD_HOME_DEVICE, e || s};
    const wd_timeline t = played(&p, &size, &cluster, &load, NULL, NULL);
    assert_seconds(t.sweep_seconds, 90 + 7 * 8 + 1);
    assert_seconds(t.compute_seconds[1], 100);
}

static double seconds_on_four(const wd_sweep_load *load)
{
    const wd_placement p = placed(WD_HOME_DEVICE, 4);
    const wd_teacher_size size = twelve();
    const wd_cluster cluster = cluster_of(5);
    return played(&p, &size, &cluster, load, NULL, NULL).sweep_seconds;
}

/* Sweeps of other states fill devices that one micro-batch at a time goes through; where each
 * begins with the step before the one that needs it, as many do as there are in a step: two take
 * 12 s and 3 s more. Three sweeps of two targets are two steps, of 12 and of 15 s. */
static void sweeps_step_by_step(void **state)
{
    (void)state;
    wd_sweep_load load = {.batches = {1}, .batch_targets = {1}, .sweeps_apart = 8};
    assert_seconds(seconds_on_four(&load), 3);
    load.window = load.student.targets = load.student.ahead = 1;
    assert_seconds(seconds_on_four(&load), BLOCKS);
    load.student.targets = 2;
    assert_seconds(seconds_on_four(&load), (BLOCKS + 3) / 2.0);
    load.window = 2;
    load.student.targets = 3;
    assert_seconds(seconds_on_four(&load), (BLOCKS + BLOCKS + 3) / 3.0);
}

/* Of a window for four steps the first target comes 12 s after it began, the next ones 3 s each
 * later. Begun two steps before it is needed it keeps the first of them waiting, if these take
 * less, and no other. A teacher that takes as long as the steps has no time to wait for them. */
static void windows_of_several_steps(void **state)
{
    (void)state;
    wd_sweep_load load = {.batches = {4},
                          .batch_targets = {1},
                          .sweeps_apart = 8,
                          .window = 4,
                          .latents_device = 4,
                          .student = {.targets = 1, .ahead = 2}};
    load.student.compute_seconds = 6;
    assert_seconds(seconds_on_four(&load), 4 * 6);
    load.student.compute_seconds = 4;
    assert_seconds(seconds_on_four(&load), 4 * 4 + (12 - 2 * 4));
    load.student.ahead = 1.5;
    assert_seconds(seconds_on_four(&load), 4 * 4 + (12 - 1.5 * 4));
    load.student.ahead = 0.5;
    assert_seconds(seconds_on_four(&load), 4 * 4 + (12 - 0.5 * 4));
}

/* A step that is launched after a sweep begins when the last micro-batch could be launched: of
 * sixteen, 3 s apart, that is when the third before it began, 36 s after the first. */
static void steps_are_launched_after_sweeps(void **state)
{
    (void)state;
    const wd_sweep_load load = {.batches = {16},
                                .batch_targets = {1},
                                .sweeps_apart = 1,
                                .window = 16,
                                .latents_device = 4,
                                .student = {.targets = 1, .compute_seconds = 4, .ahead = 2}};
    assert_seconds(seconds_on_four(&load), 16 * 4 + (36 - 2 * 4));
}

/* While a student computes on the only device each gets half of it: a sweep of 12 s, begun with the
 * step before the one that needs it, takes 16 s where that has 4 s to do and 24 s where it has 20,
 * which then take 32. A link is shared in the same way. */
static void halves(void **state)
{
    (void)state;
    const wd_placement p = placed(WD_HOME_DEVICE, 1);
    const wd_teacher_size size = twelve();
    const wd_cluster cluster = cluster_of(1);
    wd_sweep_load load = {.batches = {1}, .batch_targets = {1}, .window = 1};
    load.student = (wd_student_load){.targets = 1, .compute_seconds = 4, .ahead = 1};
    assert_seconds(played(&p, &size, &cluster, &load, NULL, NULL).sweep_seconds, 16);
    load.student.compute_seconds = 20;
    assert_seconds(played(&p, &size, &cluster, &load, NULL, NULL).sweep_seconds, 32);
    const wd_placement brought = placed(WD_HOME_HOST, 1);
    load.student = (wd_student_load){.targets = 1, .link_seconds = 100, .ahead = 1};
    assert_seconds(played(&brought, &size, &cluster, &load, NULL, NULL).sweep_seconds,
                   100 + 4 * BLOCKS);
}

/* What ranks tell one another begins within a step, and the next one begins when it is done. */
static void steps_of_many_ranks(void **state)
{
    (void)state;
    wd_sweep_load load = {.batches = {1}, .batch_targets = {1}, .window = 1, .latents_device = 4};
    load.student = (wd_student_load){.targets = 1,
                                     .compute_seconds = 30,
                                     .after_seconds = 10,
                                     .network_seconds = 45,
                                     .ahead = 1};
    assert_seconds(seconds_on_four(&load), 10 + 45);
    load.student.link_seconds = 50;
    assert_seconds(seconds_on_four(&load), 10 + 50);
}

/* A step needs states of both experts, of which those of the second come last: the first step waits
 * for three micro-batches of the four, 3 s each. */
static void steps_of_both_experts(void **state)
{
    (void)state;
    const wd_teacher_size size = {.experts = 2, .stages = 3, .flops = {10, 10, 10}};
    const wd_cluster cluster = cluster_of(2);
    const wd_placement p = {.experts = 2, .stages = 3, .buffers = 2, .by_batch = ~0u};
    const wd_sweep_load load = {.batches = {2, 2},
                                .batch_targets = {1, 1},
                                .window = 4,
                                .latents_device = 1,
                                .student = {.targets = 2, .compute_seconds = 4, .ahead = 1}};
    assert_seconds(played(&p, &size, &cluster, &load, NULL, NULL).sweep_seconds,
                   2 * 4 + (3 * 3 - 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places),
        cmocka_unit_test(one_device),
        cmocka_unit_test(offload),
        cmocka_unit_test(a_block_that_comes_alone),
        cmocka_unit_test(small_stages_at_the_ends),
        cmocka_unit_test(embedded_for_another),
        cmocka_unit_test(disk),
        cmocka_unit_test(pipeline),
        cmocka_unit_test(sweeps_of_other_states),
        cmocka_unit_test(sweeps_step_by_step),
        cmocka_unit_test(windows_of_several_steps),
        cmocka_unit_test(steps_of_both_experts),
        cmocka_unit_test(steps_are_launched_after_sweeps),
        cmocka_unit_test(halves),
        cmocka_unit_test(steps_of_many_ranks),
        cmocka_unit_test(converted_from_disk),
        cmocka_unit_test(from_the_latents_device_and_back),
        cmocka_unit_test(processor_streams_from_disk),
        cmocka_unit_test(mapped_again_and_again),
        cmocka_unit_test(to_a_head),
        cmocka_unit_test(from_rank_to_rank),
        cmocka_unit_test(a_teacher_each),
        cmocka_unit_test(resources_work_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
