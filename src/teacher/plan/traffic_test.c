/* What moves in sweeps, link by link, against what can be worked out by hand. */
#include "teacher/plan/traffic.h"

#include "testing.h"

enum { STAGES = 4, LINKS = 64 };

/* Stages of 400 bytes; 700 in the files, 100 of them used as mapped by a processor. */
static wd_teacher_size four(int experts)
{
    wd_teacher_size size = {.experts = experts, .stages = STAGES};
    for (int e = 0; e < experts; e++)
        for (int s = 0; s < STAGES; s++)
            size.stage[e][s] = (wd_stage_size){.device = 400, .host = 300, .file = 700};
    return size;
}

/* Devices of a rank, the last one its processor. */
static wd_cluster cluster_of(int ranks, int hosts, int devices)
{
    wd_cluster cluster = {.ranks = ranks, .hosts = hosts, .devices = devices};
    cluster.device[devices - 1].reads_host = true;
    return cluster;
}

/* Three states in two micro-batches, from and to the first device. */
static const wd_sweep_load LOAD = {.batches = {2, 2},
                                   .batch_targets = {1.5, 1.5},
                                   .batches_mean = {2, 2},
                                   .activation_bytes_per_state = 10,
                                   .activation_bytes_per_batch = 7,
                                   .head_input_bytes_per_state = 4,
                                   .text_bytes = 5,
                                   .latent_bytes = 11};
static const double HOP = 3 * 10 + 2 * 7, TO_HEAD = 3 * 4, TEXT = 3 * 5, LATENTS = 3 * 11;

typedef struct expected {
    wd_link_kind kind;
    int from, to, alike;
    double bytes;
} expected;

static void assert_links(const wd_traffic *t, const expected *e, int count)
{
    assert_int_equal(t->links, count);
    for (int i = 0; i < count; i++) {
        const wd_link *l = &t->link[i];
        if (l->kind != e[i].kind || l->from != e[i].from || l->to != e[i].to ||
            l->alike != e[i].alike || fabs(l->bytes - e[i].bytes) > 1e-9 * e[i].bytes)
            fail_msg("link %d: kind %d from %d to %d, %d times %g; expected %d from %d to %d, %d "
                     "times %g",
                     i, l->kind, l->from, l->to, l->alike, l->bytes, e[i].kind, e[i].from, e[i].to,
                     e[i].alike, e[i].bytes);
    }
}

#define ASSERT_LINKS(traffic, ...)                                                                 \
    assert_links(traffic, (const expected[]){__VA_ARGS__},                                         \
                 sizeof((const expected[]){__VA_ARGS__}) / sizeof(expected))

static wd_traffic sweep(wd_link link[LINKS], const wd_placement *p, const wd_cluster *cluster)
{
    wd_traffic t = {.link = link, .room = LINKS};
    const wd_teacher_size size = four(p->experts);
    assert_true(wd__traffic_room(&size, cluster) <= LINKS);
    wd__traffic_sweeps(&t, &(wd_sweep_setting){p, &size, cluster, &LOAD}, 2);
    wd__traffic_sort(&t);
    return t;
}

static wd_placement placed(const wd_cluster *cluster, const wd_stage_placement place[STAGES])
{
    const wd_teacher_size size = four(1);
    wd_placement p = wd_placement_begin(&size, cluster);
    for (int s = 0; s < STAGES; s++) p.place[0][s] = place[s];
    return p;
}

/* All homes, both ways between two devices, and over the processor. Two sweeps. */
static void links_of_one_rank(void **state)
{
    (void)state;
    wd_link link[LINKS];
    const wd_cluster cluster = cluster_of(1, 1, 3);
    const wd_placement p =
        placed(&cluster,
               (const wd_stage_placement[]){
                   {WD_HOME_HOST, 1}, {WD_HOME_DISK, 0}, {WD_HOME_DEVICE, 1}, {WD_HOME_DISK, 2}});
    const wd_traffic t = sweep(link, &p, &cluster);
    ASSERT_LINKS(
        &t, {WD_LINK_READ, 0, -1, 1, 2 * (700 + 700)}, {WD_LINK_IN, -1, 0, 1, 2 * (700 + LATENTS)},
        {WD_LINK_IN, -1, 1, 1, 2 * (400 + TEXT)}, {WD_LINK_OUT, 1, -1, 1, 2 * TO_HEAD},
        {WD_LINK_ACROSS, 0, 1, 1, 2 * (LATENTS + HOP)}, {WD_LINK_ACROSS, 1, 0, 1, 2 * HOP});
}

/* What is mapped is read again where the page cache cannot keep it. A head gets what it reads, also
 * where there is room for more. */
static void mapped_weights_are_read(void **state)
{
    (void)state;
    wd_link link[LINKS];
    wd_cluster cluster = cluster_of(1, 1, 2);
    const wd_placement p = placed(&cluster, (const wd_stage_placement[]){{WD_HOME_HOST, 0},
                                                                         {WD_HOME_DEVICE, 1},
                                                                         {WD_HOME_DEVICE, 1},
                                                                         {WD_HOME_DEVICE, 0}});
    for (int uncached = 0; uncached < 2; uncached++) {
        cluster.uncached = uncached;
        const wd_traffic t = sweep(link, &p, &cluster);
        assert_true(wd__traffic_bytes(&t, WD_LINK_READ) == uncached * 2 * 2 * 100);
        assert_true(wd__traffic_bytes(&t, WD_LINK_IN) == 2 * (400 + TEXT + TO_HEAD));
        assert_true(wd__traffic_bytes(&t, WD_LINK_OUT) == 2 * HOP);
    }
}

/* Two hosts of two ranks with a device each, the last one with the head alone. A micro-batch goes
 * from the first rank to the one beside it and to one on the other host, from which velocities come
 * to all. */
static void links_between_ranks(void **state)
{
    (void)state;
    wd_link link[LINKS];
    const wd_cluster cluster = cluster_of(4, 2, 1 + 1);
    const wd_placement p = placed(&cluster, (const wd_stage_placement[]){{WD_HOME_DEVICE, 0},
                                                                         {WD_HOME_DEVICE, 2},
                                                                         {WD_HOME_DEVICE, 2},
                                                                         {WD_HOME_DISK, 6}});
    wd_traffic t = sweep(link, &p, &cluster);
    ASSERT_LINKS(
        &t, {WD_LINK_READ, 1, -1, 1, 2 * 700}, {WD_LINK_IN, -1, 0, 1, 2 * (TEXT + LATENTS)},
        {WD_LINK_IN, -1, 2, 1, 2 * (HOP + LATENTS)}, {WD_LINK_IN, -1, 4, 1, 2 * LATENTS},
        {WD_LINK_IN, -1, 6, 1, 2 * (TO_HEAD + 700)}, {WD_LINK_OUT, 0, -1, 1, 2 * HOP},
        {WD_LINK_OUT, 2, -1, 1, 2 * TO_HEAD}, {WD_LINK_OUT, 6, -1, 1, 2 * LATENTS},
        {WD_LINK_NEAR, 0, 1, 1, 2 * HOP}, {WD_LINK_NEAR, 3, WD_LINK_ALL, 1, 2 * LATENTS},
        {WD_LINK_FAR, 1, 3, 1, 2 * TO_HEAD}, {WD_LINK_FAR, 3, WD_LINK_ALL, 1, 2 * 2 * LATENTS});
    assert_true(wd__traffic_sent(&t) == 2 * 3 * LATENTS);
}

/* Every rank has a teacher: one stands for all four, a disk for those of both hosts. */
static void links_of_ranks_alike(void **state)
{
    (void)state;
    wd_link link[LINKS];
    const wd_cluster cluster = cluster_of(4, 2, 1 + 1);
    wd_placement p = placed(
        &cluster, (const wd_stage_placement[]){
                      {WD_HOME_DISK, 0}, {WD_HOME_DISK, 0}, {WD_HOME_DISK, 0}, {WD_HOME_DISK, 0}});
    p.each = true;
    wd_traffic t = sweep(link, &p, &cluster);
    const wd_student_traffic student = {.in = 3,
                                        .out = 4,
                                        .gradients_in = 100,
                                        .gradients_out = 200,
                                        .gradients_near = 30,
                                        .gradients_far = 60};
    wd__traffic_student(&t, &p, &cluster, &student);
    ASSERT_LINKS(&t, {WD_LINK_READ, 0, -1, 2, 2 * 4 * 700},
                 {WD_LINK_IN, -1, 0, 4, 2 * (4 * 700 + TEXT + 3 * LATENTS) + 103},
                 {WD_LINK_OUT, 0, -1, 4, 2 * LATENTS + 204},
                 {WD_LINK_NEAR, 0, WD_LINK_ALL, 4, 2 * LATENTS + 30},
                 {WD_LINK_FAR, 0, WD_LINK_ALL, 4, 2 * 2 * LATENTS + 60});
    static const double gradients[] = {0, 100, 200, 30, 60};
    for (int i = 0; i < t.links; i++) assert_true(t.link[i].gradients == gradients[i]);
    assert_true(wd__traffic_sent(&t) == 2 * 3 * LATENTS + 90);
    assert_true(wd__traffic_bytes(&t, WD_LINK_OUT) == 4 * (2 * LATENTS + 204));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_of_one_rank),
        cmocka_unit_test(mapped_weights_are_read),
        cmocka_unit_test(links_between_ranks),
        cmocka_unit_test(links_of_ranks_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
