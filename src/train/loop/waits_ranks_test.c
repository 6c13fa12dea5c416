/* What a rank waits for while it launches a step: never for a device, and for messages of other
 * ranks only as docs/design.md says. On wan-tiny; ranks are threads, each with a simulated device
 * that is much slower than the launch. With WD_STANDIN_GPUS these are GPUs that the stand-in driver
 * shows, where nothing is done before somebody waits for it, and gradients go by NCCL, too.
 *
 * Linked with --wrap=wd_event_wait, --wrap=wd_queue_wait and --wrap=wd_comm_wait, so that waits are
 * seen here. Threads other than the ranks' own may wait. */
#include "harness/ranks.h"

#include "job/launch/rank_peers.h"
#include "tiny_teacher.h"

enum { RANKS = 2, STEPS = 5, FIRST = 2, STEADY = STEPS - FIRST };

/* Of a rank's own thread, in steady steps. */
typedef struct waits {
    bool launching;
    int devices;            /* waits for a device that took time */
    int messages[WD_LANES]; /* all waits */
} waits;

static _Thread_local waits seen;

void __real_wd_event_wait(wd_event *event);
void __wrap_wd_event_wait(wd_event *event);

void __wrap_wd_event_wait(wd_event *event)
{
    if (seen.launching && !wd_event_is_done(event)) seen.devices++;
    __real_wd_event_wait(event);
}

void __real_wd_queue_wait(wd_queue *queue);
void __wrap_wd_queue_wait(wd_queue *queue);

void __wrap_wd_queue_wait(wd_queue *queue)
{
    seen.devices += seen.launching;
    __real_wd_queue_wait(queue);
}

void __real_wd_comm_wait(wd_comm *comm, wd_ticket ticket);
void __wrap_wd_comm_wait(wd_comm *comm, wd_ticket ticket);

void __wrap_wd_comm_wait(wd_comm *comm, wd_ticket ticket)
{
    seen.messages[ticket.lane] += seen.launching;
    __real_wd_comm_wait(comm, ticket);
}

/* ---- ranks ---- */

typedef struct part {
    rank_thread at;
    const wd_stepper_options *options;
    bool direct; /* gradients go from GPU to GPU by NCCL */
    waits waits;
} part;

#ifdef WD_STANDIN_GPUS
#include "standin/driver.h"

static const char *const devices[RANKS] = {"cuda:0", "cuda:1"};

static int open_all(void **state)
{
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    options.nccl = true;
    wd_standin_install_all(&options);
    return open_teacher(state);
}

static int close_all(void **state)
{
    (void)state;
    return wd_standin_remove();
}
#else
static const char *const devices[RANKS] = {SLOW_SIM, SLOW_SIM};

static int open_all(void **state)
{
    return open_teacher(state);
}

static int close_all(void **state)
{
    (void)state;
    return 0;
}
#endif

static void *run_part(void *context)
{
    part *p = context;
    rank_stepper r;
    wd_stepper_options o = *p->options;
    char why[WD_RANK_PEERS_TEXT];
    wd_comm *comm = o.comm = p->at.comm;
    const wd_placement all = whole_on_first(o.teacher);
    HARNESS_OK(wd_devices_open(&r.devices, devices[comm->rank], 1, err));
    if (p->direct) HARNESS_OK(wd_rank_peers_open(comm, why, r.devices.device[0], NULL, 0, err));
    HARNESS_CHECK(!comm->peers == !p->direct);
    open_stepper(&r, &o, &all);
    for (int64_t step = 0; step < STEPS; step++) {
        seen.launching = step >= FIRST;
        HARNESS_OK(wd_stepper_step(r.stepper, &(wd_step){.number = step, .lr = 1e-3}, err));
        seen.launching = false;
        while (wd_stepper_results_pending(r.stepper) > 1) wd_stepper_take_result(r.stepper);
    }
    while (wd_stepper_results_pending(r.stepper)) wd_stepper_take_result(r.stepper);
    p->waits = seen;
    wd_rank_peers_close(comm);
    close_stepper(&r);
    return NULL;
}

/* Returns how often each rank waits for messages with gradients or weights in a steady step. */
static int run(const wd_stepper_options *options, bool direct)
{
    part all[RANKS];
    for (int r = 0; r < RANKS; r++) all[r] = (part){.options = options, .direct = direct};
    run_ranks(all, sizeof *all, RANKS, run_part);
    for (int r = 0; r < RANKS; r++) {
        const waits *w = &all[r].waits;
        assert_int_equal(w->devices, 0);
        assert_int_equal(w->messages[WD_LANE_CONTROL], 0);
        assert_int_equal(w->messages[WD_LANE_ACTIVATIONS], 0);
        assert_in_range(w->messages[WD_LANE_TARGETS], 1, STEADY); /* a window is of several steps */
        assert_int_equal(w->messages[WD_LANE_GRADIENTS], all[0].waits.messages[WD_LANE_GRADIENTS]);
        assert_int_equal(w->messages[WD_LANE_GRADIENTS] % STEADY, 0);
    }
    return all[0].waits.messages[WD_LANE_GRADIENTS] / STEADY;
}

/* Of each bucket, for what the other rank sends and for its sums; then for the norm, and in bf16
 * for weights that remain fp32. */
static void by_host_memory_messages_are_waited_for(void **state)
{
    (void)state;
    wd_stepper_options o = small_stepper(&teacher);
    const int whole = run(&o, false);
    assert_true(whole > 0);
    o.shard_optimizer = true;
    assert_int_equal(run(&o, false), whole + 1);
    o.student_dtype = WD_BF16;
    assert_int_equal(run(&o, false), whole + 2);
}

#ifdef WD_STANDIN_GPUS
/* Gradients and weights go without any wait; the norm and the weights that remain fp32 do not. */
static void by_nccl_gradients_are_not_waited_for(void **state)
{
    (void)state;
    wd_stepper_options o = small_stepper(&teacher);
    assert_int_equal(run(&o, true), 0);
    o.shard_optimizer = true;
    assert_int_equal(run(&o, true), 1);
    o.student_dtype = WD_BF16;
    assert_int_equal(run(&o, true), 2);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_host_memory_messages_are_waited_for),
#ifdef WD_STANDIN_GPUS
        cmocka_unit_test(by_nccl_gradients_are_not_waited_for),
#endif
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
