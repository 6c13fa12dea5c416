/* Tests of exchanges among GPUs by NCCL, on the stand-ins of driver and NCCL: ranks are threads,
 * each with a GPU of its own. */
#include "failing.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/cuda.h"
#include "dev/ops.h"
#include "dev/peers.h"
#include "sanitized.h"
#include "standin/driver.h"
#include "standin/nccl.h"

enum { MEMBERS_MAX = 4, ROUNDS = 5, COUNT = 100, MIB = 1 << 20 };
enum { SEEDS = WD_TEST_SANITIZED ? MEMBERS_MAX : 12 }; /* to open a device takes long there */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void install(uint64_t seed)
{
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    options.devices = MEMBERS_MAX;
    options.nccl = true;
    options.seed = seed;
    wd_standin_install_all(&options);
}

static void remove_all(void)
{
    assert_int_equal(wd_standin_nccl_open(), 0);
    assert_int_equal(wd_standin_remove(), 0);
}

/* ---- members that are threads ---- */

typedef struct member {
    pthread_t thread;
    wd_peers_options options;
    int gpu;
    wd_device *device;
    wd_peers *peers;
    wd_status status; /* of opening */
    wd_err err;
    void (*work)(struct member *member); /* once it is open; NULL: nothing */
} member;

static void *run_member(void *context)
{
    member *m = context;
    CHECK(wd_device_open_cuda(&m->device, m->gpu, NULL) == WD_OK);
    m->status = wd_peers_open(&m->peers, m->device, &m->options, &m->err);
    if (m->status == WD_OK && m->work) m->work(m);
    wd_peers_close(m->peers);
    wd_device_close(m->device);
    return NULL;
}

static void make_key(unsigned char key[WD_PEERS_KEY_BYTES])
{
    wd_err err = {0};
    wd_device *device;
    wd_test_ok(wd_device_open_cuda(&device, 0, &err), &err);
    wd_test_ok(wd_peers_make_key(key, device, &err), &err);
    wd_device_close(device);
}

static void run_members(member *all, int members, void (*work)(member *m))
{
    unsigned char key[WD_PEERS_KEY_BYTES];
    make_key(key);
    for (int i = 0; i < members; i++) {
        memcpy(all[i].options.key, key, sizeof key);
        all[i].options.member = i;
        all[i].options.members = members;
        all[i].work = work;
        assert_int_equal(pthread_create(&all[i].thread, NULL, run_member, &all[i]), 0);
    }
    for (int i = 0; i < members; i++) pthread_join(all[i].thread, NULL);
}

/* ---- exchanges ---- */

static float value(int round, int from, int to, int i)
{
    return (float)(round * 100000 + from * 10000 + to * 1000 + i);
}

static void fill(wd_queue *queue, float *to, float with)
{
    wd_op_fill(queue, &(wd_fill_args){.to = to, .type = WD_F32, .count = COUNT, .value = with});
}

/* Every member sends every other one what a launch before has made, in two moves of unequal size,
 * and adds to what came; nothing is waited for until the end. */
static void exchange_much(member *m)
{
    const int me = m->options.member, members = m->options.members;
    wd_queue *queue, *other;
    wd_event *made;
    void *out, *in, *host;
    const size_t bytes = COUNT * sizeof(float);
    CHECK(wd_queue_open(&queue, m->device, NULL) == WD_OK);
    CHECK(wd_queue_open(&other, m->device, NULL) == WD_OK);
    CHECK(wd_event_open(&made, m->device, NULL) == WD_OK);
    CHECK(wd_device_alloc(&out, m->device, MEMBERS_MAX * bytes, "out", NULL) == WD_OK);
    CHECK(wd_device_alloc(&in, m->device, MEMBERS_MAX * bytes, "in", NULL) == WD_OK);
    CHECK(wd_host_alloc(&host, m->device, ROUNDS * MEMBERS_MAX * bytes, "host", NULL) == WD_OK);
    for (int round = 0; round < ROUNDS; round++) {
        wd_peer_move moves[4 * MEMBERS_MAX];
        int count = 0;
        wd_event_wait_on(other, made); /* what was sent may be written again */
        for (int p = 0; p < members; p++) {
            float *to = (float *)out + p * COUNT, *from = (float *)in + p * COUNT;
            const size_t part = bytes / 4 * (size_t)(p < me ? p + 1 : me + 1) / MEMBERS_MAX * 4;
            fill(other, to, value(round, me, p, 0));
            if (p == me) continue;
            moves[count++] = (wd_peer_move){.peer = p, .from = to, .bytes = part};
            moves[count++] = (wd_peer_move){.peer = p, .to = from, .bytes = part};
            moves[count++] =
                (wd_peer_move){.peer = p, .to = from + part / sizeof(float), .bytes = bytes - part};
            moves[count++] =
                (wd_peer_move){.peer = p, .from = to + part / sizeof(float), .bytes = bytes - part};
        }
        wd_event_record(made, other);
        wd_event_wait_on(queue, made);
        wd_peers_exchange(m->peers, queue, moves, count);
        wd_queue_copy(queue, (float *)host + round * MEMBERS_MAX * COUNT, in, MEMBERS_MAX * bytes);
        wd_event_record(made, queue);
    }
    wd_queue_wait(queue);
    while (m->options.on_fault && wd_device_fault(m->device, NULL) != WD_OK) pause();
    for (int round = 0; round < ROUNDS; round++)
        for (int p = 0; p < members; p++)
            for (int i = 0; i < COUNT && p != me; i++)
                CHECK(((float *)host)[(round * MEMBERS_MAX + p) * COUNT + i] ==
                      value(round, p, me, 0));
    CHECK(wd_device_fault(m->device, NULL) == WD_OK);
    wd_queue_close(queue);
    wd_queue_close(other);
    wd_event_close(made);
    wd_device_free(m->device, out);
    wd_device_free(m->device, in);
    wd_host_free(m->device, host);
}

static void what_is_sent_comes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        install(seed);
        member all[MEMBERS_MAX] = {0};
        const int members = 1 + (int)(seed % MEMBERS_MAX);
        for (int i = 0; i < members; i++) all[i].gpu = members - 1 - i;
        run_members(all, members, exchange_much);
        for (int i = 0; i < members; i++) wd_test_ok(all[i].status, &all[i].err);
        assert_int_equal(wd_standin_nccl_count().exchanges,
                         members > 1 ? members * (1 + ROUNDS) : 0);
        remove_all();
    }
}

/* ---- memory ---- */

static size_t room_before, beside_before;

static void check_room(member *m)
{
    CHECK(room_before - wd_device_bytes_max(m->device) == 4 * MIB);
    CHECK(wd_device_traits(m->device)->bytes_beside - beside_before == 4 * MIB);
}

static void what_nccl_takes_is_counted(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_device *device;
    install(0);
    wd_test_ok(wd_device_open_cuda(&device, 0, &err), &err);
    room_before = wd_device_bytes_max(device);
    beside_before = wd_device_traits(device)->bytes_beside;
    wd_device_close(device);
    wd_the_standin_nccl_faults.bytes_opened = 3 * MIB;
    member all[2] = {{.gpu = 0}, {.gpu = 1}};
    run_members(all, 2, check_room);
    for (int i = 0; i < 2; i++) wd_test_ok(all[i].status, &all[i].err);
    remove_all();
}

/* ---- what is refused ---- */

static void offers_tell_gpus_apart(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_device *gpu[2], *again, *cpu;
    wd_peers_offer offer[3];
    install(0);
    for (int i = 0; i < 2; i++) wd_test_ok(wd_device_open_cuda(&gpu[i], i, &err), &err);
    wd_test_ok(wd_device_open_cuda(&again, 1, &err), &err);
    wd_test_ok(wd_peers_offer_of(&offer[0], gpu[0], &err), &err);
    wd_test_ok(wd_peers_offer_of(&offer[1], gpu[1], &err), &err);
    wd_test_ok(wd_peers_offer_of(&offer[2], again, &err), &err);
    assert_string_equal(offer[0].library, "NCCL 2.28.9");
    assert_string_not_equal(offer[0].hardware, offer[1].hardware);
    assert_string_equal(offer[1].hardware, offer[2].hardware);
    wd_test_ok(wd_device_open_cpu(&cpu, 1, &err), &err);
    wd_test_refused(wd_peers_offer_of(&offer[0], cpu, &err), &err, WD_UNSUPPORTED,
                    "is not an NVIDIA GPU");
    wd_device_close(cpu);
    wd_device_close(again);
    for (int i = 0; i < 2; i++) wd_device_close(gpu[i]);
    remove_all();
}

static void without_nccl_there_is_no_offer(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_device *device;
    wd_peers_offer offer;
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    wd_standin_install_all(&options);
    wd_test_ok(wd_device_open_cuda(&device, 0, &err), &err);
    wd_test_refused(wd_peers_offer_of(&offer, device, &err), &err, WD_UNSUPPORTED,
                    "NCCL is missing");
    wd_device_close(device);
    assert_int_equal(wd_standin_remove(), 0);
}

/* In a process of its own, since NCCL is left as it is where something has failed. Returns its exit
 * code; -1: a signal ended it. */
static int in_a_process(void (*run)(void))
{
    int how = 0;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        signal(SIGABRT, SIG_DFL);
        alarm(120); /* who hangs has failed */
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static void check_failure(const member *m, const char *part)
{
    CHECK(m->status == WD_DEVICE_FAULT);
    if (!strstr(m->err.message, part)) fprintf(stderr, "%s\n", m->err.message);
    CHECK(strstr(m->err.message, part) && strstr(m->err.message, "--nccl off"));
}

static void open_on_one_gpu(void)
{
    install(0);
    member all[2] = {{.gpu = 1}, {.gpu = 1}};
    run_members(all, 2, NULL);
    for (int i = 0; i < 2; i++)
        check_failure(&all[i], "cuda:1 (NVIDIA Stand-in, 1 GiB): NCCL, connecting all ranks: "
                               "invalid usage (said by NCCL's stand-in)");
}

static void open_without_one(void)
{
    install(0);
    member lonely = {.options = {.open_s = 0.3, .members = 2}};
    make_key(lonely.options.key);
    run_member(&lonely);
    check_failure(&lonely, "some ranks do not come");
}

static void open_badly(void)
{
    install(0);
    wd_the_standin_nccl_faults.open_member = 2;
    member all[2] = {{.gpu = 0}, {.gpu = 1}};
    run_members(all, 2, NULL);
    for (int i = 0; i < 2; i++) check_failure(&all[i], "connecting all ranks");
}

static pthread_barrier_t devices_are_open; /* opening one takes longer than connecting may */

static void *open_only(void *context)
{
    member *m = context;
    CHECK(wd_device_open_cuda(&m->device, m->gpu, NULL) == WD_OK);
    pthread_barrier_wait(&devices_are_open);
    m->status = wd_peers_open(&m->peers, m->device, &m->options, &m->err);
    return NULL;
}

/* Two members that are not closed, of which one has failed as expected. */
static void open_two(double open_s, const char *expected)
{
    member all[2] = {0};
    unsigned char key[WD_PEERS_KEY_BYTES];
    make_key(key);
    pthread_barrier_init(&devices_are_open, NULL, 2);
    for (int i = 0; i < 2; i++) {
        all[i].options = (wd_peers_options){.member = i, .members = 2, .open_s = open_s};
        memcpy(all[i].options.key, key, sizeof key);
        all[i].gpu = i;
        CHECK(!pthread_create(&all[i].thread, NULL, open_only, &all[i]));
    }
    for (int i = 0; i < 2; i++) pthread_join(all[i].thread, NULL);
    pthread_barrier_destroy(&devices_are_open);
    check_failure(&all[all[0].status == WD_OK], expected);
}

static void open_garbled(void)
{
    install(0);
    wd_the_standin_nccl_faults.garbled = 1;
    open_two(0, "is not what came: expected");
}

static void open_hung(void)
{
    install(0);
    wd_the_standin_nccl_faults.hung = 1;
    open_two(3, "what they exchange does not come");
}

static void what_cannot_be_opened_is_said(void **state)
{
    (void)state;
    assert_int_equal(in_a_process(open_on_one_gpu), 0);
    assert_int_equal(in_a_process(open_without_one), 0);
    assert_int_equal(in_a_process(open_badly), 0);
    assert_int_equal(in_a_process(open_garbled), 0);
    assert_int_equal(in_a_process(open_hung), 0);
}

/* ---- faults ---- */

enum { ENDED_BY_FAULT = 7 };

/* As in a job: whoever is told ends the process, whatever its other threads wait for. */
static void end_process(void *context, const wd_err *fault)
{
    const char *expected = context;
    if (!strstr(fault->message, expected)) fprintf(stderr, "%s\n", fault->message);
    _exit(strstr(fault->message, expected) && fault->status == WD_DEVICE_FAULT ? ENDED_BY_FAULT
                                                                               : 1);
}

/* The peers' other exchanges go on without end, so the main thread would wait for ever. */
static void run_into(const char *expected)
{
    member all[2] = {{.gpu = 0}, {.gpu = 1}};
    for (int i = 0; i < 2; i++) {
        all[i].options.on_fault = end_process;
        all[i].options.context = (void *)(uintptr_t)expected;
    }
    run_members(all, 2, exchange_much);
}

static void run_into_refusal(void)
{
    install(1);
    wd_the_standin_nccl_faults.refused = 5;
    run_into("NCCL, an exchange: unhandled system error (said by NCCL's stand-in)");
}

static void run_into_lost_peer(void)
{
    install(2);
    wd_the_standin_nccl_faults.hung = 5;
    wd_the_standin_nccl_faults.reports_hung = true;
    run_into("remote process exited or there was a network error");
}

static void faults_are_told_while_others_hang(void **state)
{
    (void)state;
    assert_int_equal(in_a_process(run_into_refusal), ENDED_BY_FAULT);
    assert_int_equal(in_a_process(run_into_lost_peer), ENDED_BY_FAULT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_comes),
        cmocka_unit_test(what_nccl_takes_is_counted),
        cmocka_unit_test(offers_tell_gpus_apart),
        cmocka_unit_test(without_nccl_there_is_no_offer),
        cmocka_unit_test(what_cannot_be_opened_is_said),
        cmocka_unit_test(faults_are_told_while_others_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
