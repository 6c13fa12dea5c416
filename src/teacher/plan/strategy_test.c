/* Placements by strategy, held to what a search through all of them finds. */
#include "core/random.h"
#include "placements.h"
#include "teacher/plan/strategy.h"
#include "testing.h"

/* ---- random teachers and machines ---- */

static uint64_t draws;

static int64_t between(int64_t low, int64_t high)
{
    double u = wd_random_uniform((wd_random){.seed = 7, .stream = WD_RANDOM_TEST}, draws++);
    int64_t n = low + (int64_t)(u * (double)(high - low + 1));
    return n < high ? n : high;
}

static wd_teacher_size random_teacher(int stages)
{
    wd_teacher_size size = {.experts = (int)between(1, 2), .stages = stages};
    for (int s = 0; s < stages; s++) {
        size.flops[s] = (double)between(1, 20);
        for (int e = 0; e < size.experts; e++) {
            size_t bytes = (size_t)between(1, 20);
            size.stage[e][s] = (wd_stage_size){
                .device = bytes, .host = bytes / 2, .casting = (size_t)between(0, 15)};
        }
    }
    return size;
}

static wd_cluster random_cluster(int devices, int64_t bytes_max)
{
    wd_cluster cluster = {.devices = devices, .host_bytes = 100, .disk_bytes_per_s = 1};
    cluster.batches = (int)between(1, 5);
    cluster.teacher = (wd_precision)between(WD_16_BIT, WD_32_BIT);
    cluster.student = (wd_precision)between(WD_16_BIT, WD_32_BIT);
    for (int d = 0; d < devices; d++) {
        cluster.device[d] =
            (wd_cluster_device){.bytes = (size_t)between(1, bytes_max),
                                .flops_per_s = {(double)between(1, 4), (double)between(1, 4)},
                                .student_flops = (double)between(0, 1) * (double)between(0, 40),
                                .link_bytes_per_s = 1,
                                .workspace = (size_t)between(0, 5)};
        cluster.device[d].taken = (size_t)between(0, (int64_t)cluster.device[d].bytes / 4);
        wd_sweep_need *need = &cluster.device[d].need;
        need->granule = (size_t)between(0, 3);
        need->tables = (size_t)between(0, 2);
        need->place = (size_t)between(0, 6);
        need->scratch = (size_t)between(0, 18);
        need->workspace = (size_t)between(0, 9);
    }
    return cluster;
}

/* ---- what a placement is worth ---- */

/* Seconds per target and expert of the slowest device that has stages. */
static double slowest(const wd_placement *p, const wd_teacher_size *size, const wd_cluster *cluster)
{
    double most = 0;
    for (int d = 0; d < cluster->devices; d++) {
        const wd_cluster_device *on = &cluster->device[d];
        double flops = 0;
        for (int s = 0; s < p->stages; s++)
            if (p->place[0][s].device == d) flops += size->flops[s];
        const double seconds = flops / on->flops_per_s[cluster->teacher] +
                               on->student_flops / on->flops_per_s[cluster->student];
        if (flops > 0 && seconds > most) most = seconds;
    }
    return most;
}

/* The best over all ways of giving stages [s, stages) to devices d and later ones, in order; < 0:
 * none fits. */
static double search(wd_placement *p, const wd_teacher_size *size, const wd_cluster *cluster, int s,
                     int d)
{
    if (s == p->stages) return wd_test_fits(p, size, cluster) ? slowest(p, size, cluster) : -1;
    double best = -1;
    for (; d < cluster->devices; d++) {
        for (int e = 0; e < p->experts; e++)
            p->place[e][s] = (wd_stage_placement){WD_HOME_DEVICE, d};
        double t = search(p, size, cluster, s + 1, d);
        if (t >= 0 && (best < 0 || t < best)) best = t;
    }
    return best;
}

static void balanced_is_the_best(void **state)
{
    (void)state;
    int fitting = 0, not_fitting = 0;
    for (int i = 0; i < 400; i++) {
        const wd_teacher_size size = random_teacher((int)between(3, 8));
        const wd_cluster cluster = random_cluster((int)between(2, 4), 200);
        wd_err err = {0};
        wd_placement p, any = wd_placement_begin(&size, &cluster);
        wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_balanced, &size, &cluster, 0, &err), &err);
        double best = search(&any, &size, &cluster, 0, 0);
        assert_int_equal(wd_test_fits(&p, &size, &cluster), best >= 0);
        if (best >= 0) assert_true(slowest(&p, &size, &cluster) == best);
        fitting += best >= 0;
        not_fitting += best < 0;
    }
    assert_true(fitting > 50 && not_fitting > 50);
}

/* Twelve equal stages on four equal devices, the first of which has a student of so many stages'
 * work beside them. */
static void balanced_beside_a_student(void **state)
{
    (void)state;
    static const int student[] = {0, 2, 6, 30}, least[] = {3, 4, 4, 4};
    for (int i = 0; i < 4; i++) {
        wd_teacher_size size = {.experts = 1, .stages = 12};
        wd_cluster cluster = {.devices = 4, .host_bytes = 100, .batches = 1};
        wd_err err = {0};
        wd_placement p;
        int load[4] = {student[i]};
        for (int s = 0; s < 12; s++) size.flops[s] = 1;
        for (int d = 0; d < 4; d++) cluster.device[d] = (wd_cluster_device){.flops_per_s = {1, 1}};
        cluster.device[0].student_flops = student[i];
        wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_balanced, &size, &cluster, 0, &err), &err);
        for (int s = 0; s < 12; s++) load[p.place[0][s].device]++;
        for (int d = 1; d < 4; d++) assert_true(load[d] <= least[i]);
        assert_true(load[0] <= least[i] || load[0] == student[i]);
    }
}

static void sequential_fills_the_first(void **state)
{
    (void)state;
    for (int i = 0; i < 400; i++) {
        const wd_teacher_size size = random_teacher((int)between(3, 8));
        const wd_cluster cluster = random_cluster((int)between(2, 4), 200);
        wd_err err = {0};
        wd_placement p;
        wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_sequential, &size, &cluster, 0, &err), &err);
        wd_placed_bytes bytes;
        wd__placement_bytes(&bytes, &p, &size, &cluster);
        for (int d = 0; d + 1 < cluster.devices; d++)
            assert_true(wd_placed_peak(&bytes, d) <= cluster.device[d].bytes);
        for (int s = 1; s < p.stages; s++) {
            int before = p.place[0][s - 1].device, now = p.place[0][s].device;
            assert_true(now >= before);
            if (now == before) continue;
            wd_placement one_more = p;
            for (int e = 0; e < size.experts; e++) one_more.place[e][s].device = before;
            wd_placed_bytes full;
            wd__placement_bytes(&full, &one_more, &size, &cluster);
            assert_true(wd_placed_peak(&full, before) > cluster.device[before].bytes);
        }
    }
}

static size_t on_device(const wd_placement *p, const wd_teacher_size *size,
                        const wd_cluster *cluster, int device)
{
    wd_placed_bytes bytes;
    wd__placement_bytes(&bytes, p, size, cluster);
    return wd_placed_total(&bytes.device[device]);
}

static size_t in_host(const wd_placement *p, const wd_teacher_size *size, const wd_cluster *cluster)
{
    wd_placed_bytes bytes;
    wd__placement_bytes(&bytes, p, size, cluster);
    return wd__placed_host_total(&bytes.host);
}

static void bytes_by_home(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_placement p;
    wd_teacher_size size = {.experts = 2, .stages = 3};
    wd_cluster cluster = {.devices = 3, .host_bytes = 1000};
    for (int e = 0; e < 2; e++)
        for (int s = 0; s < 3; s++)
            size.stage[e][s] = (wd_stage_size){.device = (size_t)(10 * e + s + 1),
                                               .host = 1,
                                               .file = 50,
                                               .reading = (size_t)(s + 5)};
    for (int d = 0; d < 3; d++)
        cluster.device[d] = (wd_cluster_device){.bytes = 48, .flops_per_s = {1, 1}};
    cluster.device[0].reads_host = true;

    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_cpu, &size, &cluster, 0, &err), &err);
    assert_int_equal(on_device(&p, &size, &cluster, 0), 6); /* the rest is mapped */
    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_gpu, &size, &cluster, 0, &err), &err);
    assert_int_equal(on_device(&p, &size, &cluster, 1), 1 + 2 + 3 + 11 + 12 + 13);
    assert_true(wd_test_fits(&p, &size, &cluster));
    cluster.device[1].bytes = 41;
    assert_false(wd_test_fits(&p, &size, &cluster));
    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_gpu0, &size, &cluster, 1, &err), &err);
    assert_int_equal(on_device(&p, &size, &cluster, 2), 42);
    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_offload, &size, &cluster, 0, &err), &err);
    assert_int_equal(on_device(&p, &size, &cluster, 1), 11 + 2 * 12 + 13);
    assert_int_equal(in_host(&p, &size, &cluster), 42);
    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_disk, &size, &cluster, 0, &err), &err);
    assert_int_equal(on_device(&p, &size, &cluster, 1), 11 + 2 * 12 + 13);
    assert_int_equal(in_host(&p, &size, &cluster), 2 * 7); /* one is sent while one is read */
    size.stage[1][1].casting = 9, size.stage[0][2].widened = 20;
    assert_int_equal(on_device(&p, &size, &cluster, 1), 11 + 2 * 12 + 13 + 9 + 20);
    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_gpu, &size, &cluster, 0, &err), &err);
    assert_int_equal(on_device(&p, &size, &cluster, 1), 42 + 20);
}

/* Three ranks of two devices and a processor, two of them on one host. */
static void many_ranks(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_placement p;
    wd_teacher_size size = {.experts = 1, .stages = 6};
    wd_cluster cluster = {
        .ranks = 3, .hosts = 2, .devices = 3, .host_bytes = 10000, .host_taken = 100};
    for (int s = 0; s < 6; s++) {
        size.flops[s] = 1;
        size.stage[0][s] = (wd_stage_size){.device = 10, .host = 10, .file = 10, .reading = 7};
    }
    for (int d = 0; d < 3; d++)
        cluster.device[d] = (wd_cluster_device){
            .bytes = 1000, .flops_per_s = {1, 1}, .reads_host = d == 2, .need.place = 3};
    cluster.batches = 1;

    /* each: weights once per host, all else for each of its ranks */
    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_cpu, &size, &cluster, 0, &err), &err);
    assert_true(p.each && wd_placed_here(&p, p.place[0][0].device, 2));
    assert_int_equal(in_host(&p, &size, &cluster), 60 + 2 * 3);
    wd_placed_bytes bytes;
    wd__placement_bytes(&bytes, &p, &size, &cluster);
    assert_int_equal(wd_placed_host_peak(&bytes, &cluster), 60 + 2 * (3 + 100));
    assert_int_equal(wd_placed_window(&p, 8), 3);
    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_offload, &size, &cluster, 0, &err), &err);
    assert_int_equal(in_host(&p, &size, &cluster), 60);
    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_disk, &size, &cluster, 0, &err), &err);
    assert_int_equal(in_host(&p, &size, &cluster), 2 * 7);

    /* all share one: on a rank's first device, or a stage on each device of all ranks */
    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_gpu0, &size, &cluster, 1, &err), &err);
    assert_true(!p.each && p.place[0][5].device == 3 && wd_placed_rank(&p, 3) == 1);
    assert_false(wd_placed_here(&p, p.place[0][5].device, 0));
    assert_int_equal(wd_placed_window(&p, 8), 8);
    assert_int_equal(wd_strategy_place(&p, WD_STRATEGY_gpu0, &size, &cluster, 3, &err),
                     WD_INVALID_ARGUMENT);
    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_balanced, &size, &cluster, 0, &err), &err);
    for (int s = 0; s < 6; s++) {
        assert_int_equal(p.place[0][s].device, s / 2 * 3 + s % 2);
        assert_int_equal(wd_placed_rank(&p, p.place[0][s].device), s / 2);
    }
    wd__placement_bytes(&bytes, &p, &size, &cluster);
    for (int d = 0; d < 9; d++) /* the second of a rank is sent to by the first */
        assert_int_equal(wd_placed_total(&bytes.device[d]),
                         d % 3 == 2 ? 0 : 10 + 3 * (d % 3 == 0 ? 1 : 3));

    /* without other devices the processor of a rank can have it for all, and nobody hop */
    cluster.device[0] = cluster.device[2], cluster.devices = 1;
    wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_gpu0, &size, &cluster, 2, &err), &err);
    assert_int_equal(p.place[0][0].device, 2);
    assert_int_equal(in_host(&p, &size, &cluster), 63);
    assert_non_null(wd__strategy_objection(WD_STRATEGY_balanced, &cluster));
}

static int places_of(const wd_placement *p, const wd_cluster *cluster, int device)
{
    wd_sweep_device part[WD_PLACED_DEVICES_MAX];
    const int devices = p->ranks ? p->ranks * p->devices : cluster->devices;
    wd__sweep_devices(part, devices, p, cluster->batches);
    return part[device].places;
}

/* What stays on accelerators is one segment, whatever comes, or is a processor's, is one each, but
 * for an embedding for another device, and for a head behind what came to its device. */
static void segments(void **state)
{
    (void)state;
    static const int device[] = {0, 0, 1, 1, 2, 0}, end[] = {2, 3, 4, 5, 6};
    wd_placement p = {.experts = 1, .stages = 6, .buffers = 2, .by_batch = 3};
    for (int s = 0; s < 6; s++) p.place[0][s].device = device[s];
    p.place[0][2].home = WD_HOME_DISK;
    for (int s = 0, i = 0; s < 6; i++) {
        const wd_segment segment = wd_sweep_segment(&p, 0, s);
        assert_int_equal(segment.first, s);
        assert_int_equal(segment.end, end[i]);
        s = segment.end;
    }
    for (int s = 0; s < 6; s++) p.place[0][s] = (wd_stage_placement){WD_HOME_DEVICE, s / 3};
    assert_int_equal(wd_sweep_segment(&p, 0, 0).end, 6);
    p.place[0][0].home = WD_HOME_HOST; /* it stays while all are embedded */
    assert_int_equal(wd_sweep_segment(&p, 0, 0).end, 6);
    p.place[0][0].home = WD_HOME_DEVICE;

    /* a head takes what comes to a streamed last block, not where both are one device's anyway */
    p.place[0][4] = (wd_stage_placement){WD_HOME_HOST, 1};
    assert_int_equal(wd_sweep_segment(&p, 0, 4).end, 5);
    p.place[0][3].device = 0;
    assert_int_equal(wd_sweep_segment(&p, 0, 4).end, 6);
    p.by_batch = 0;
    assert_int_equal(wd_sweep_segment(&p, 0, 4).end, 5);
    p.place[0][3].device = 1, p.place[0][4].home = WD_HOME_DEVICE, p.by_batch = 3;

    /* what another device embeds comes one by one, from where no window waits */
    p.place[0][0] = (wd_stage_placement){WD_HOME_DEVICE, 2};
    assert_int_equal(wd_sweep_segment(&p, 0, 0).end, 6);
    p.place[0][1].home = WD_HOME_HOST;
    assert_int_equal(wd_sweep_segment(&p, 0, 0).end, 2);
    const wd_cluster cluster = {.devices = 3, .batches = 9};
    assert_int_equal(places_of(&p, &cluster, 0), 9);
    assert_int_equal(places_of(&p, &cluster, 2), 1);
}

/* A device to which micro-batches come needs room for few of them, also where a sweep has but one:
 * the next sweep's comes meanwhile. One where they begin has one at a time, one where stages come
 * needs room for all. */
static void places(void **state)
{
    (void)state;
    wd_cluster cluster = {.devices = 2, .batches = 9};
    wd_placement p = {.experts = 1, .stages = 6, .buffers = 2, .by_batch = 3};
    assert_int_equal(places_of(&p, &cluster, 0), 1);
    assert_int_equal(places_of(&p, &cluster, 1), 0);
    p.place[0][3].device = 1;
    assert_int_equal(places_of(&p, &cluster, 0), 3); /* they come back */
    assert_int_equal(places_of(&p, &cluster, 1), 3);
    p.place[0][4].device = p.place[0][5].device = 1;
    assert_int_equal(places_of(&p, &cluster, 0), 1);
    assert_int_equal(places_of(&p, &cluster, 1), 3);
    cluster.batches = 1;
    assert_int_equal(places_of(&p, &cluster, 1), 3);
    cluster.batches = 9;
    p.ranks = 2, p.devices = 1; /* it fetches them itself, one after another */
    assert_int_equal(places_of(&p, &cluster, 1), 1);
    p.ranks = p.devices = 0;
    p.place[0][3].home = WD_HOME_HOST;
    assert_int_equal(places_of(&p, &cluster, 0), 9);
    assert_int_equal(places_of(&p, &cluster, 1), 9);

    /* it waits where a segment ends, and passes through other devices */
    p.place[0][3] = (wd_stage_placement){WD_HOME_HOST, 0};
    assert_int_equal(places_of(&p, &cluster, 0), 9);
    assert_int_equal(places_of(&p, &cluster, 1), 3);
}

static void objections(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_placement p;
    wd_strategy strategy;
    const wd_teacher_size size = random_teacher(4);
    wd_cluster cluster = random_cluster(1, 100);
    wd_test_refused(wd_strategy_place(&p, WD_STRATEGY_balanced, &size, &cluster, 0, &err), &err,
                    WD_UNSUPPORTED,
                    "two devices or more; these devices can serve gpu, gpu0, custom");
    cluster.device[0].reads_host = true;
    wd_test_refused(wd_strategy_place(&p, WD_STRATEGY_gpu, &size, &cluster, 0, &err), &err,
                    WD_UNSUPPORTED,
                    "gpu needs a device; these devices can serve cpu, custom, disk");
    cluster = random_cluster(2, 100);
    wd_test_refused(wd_strategy_place(&p, WD_STRATEGY_gpu0, &size, &cluster, 2, &err), &err,
                    WD_INVALID_ARGUMENT, "teacher_rank: 2");
    wd_test_refused(wd_strategy_of(&strategy, "gpus", &err), &err, WD_INVALID_ARGUMENT, "\"gpus\"");
    for (int i = 0; i < WD_STRATEGY_COUNT; i++) {
        wd_test_ok(wd_strategy_of(&strategy, wd_strategy_name((wd_strategy)i), &err), &err);
        assert_int_equal(strategy, i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(balanced_is_the_best),
        cmocka_unit_test(balanced_beside_a_student),
        cmocka_unit_test(sequential_fills_the_first),
        cmocka_unit_test(bytes_by_home),
        cmocka_unit_test(many_ranks),
        cmocka_unit_test(segments),
        cmocka_unit_test(places),
        cmocka_unit_test(objections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
