/* What the student launches is the same in every step, byte for byte of its arguments: so a GPU
 * could record a step once and repeat it. And a device that fails ends the run with what failed. On
 * wan-tiny.
 *
 * Linked with --wrap=wd_queue_launch, so that launches are seen here. What alternates by design is
 * not launched: the sources of copies, which are staging that the step before may still use, and
 * what comes from the ring of targets. Teacher and trajectories have queues of their own here,
 * whose launches depend on which targets a step needs. */
#include "harness/trainer.h"

#include "dev/ops.h"
#include "train/network/init.h"

enum { LAUNCHES_MAX = 4096, ARGS_MAX = 512, LATER = 4 };

typedef struct launch {
    int op;
    size_t bytes;
    char args[ARGS_MAX];
} launch;

static struct {
    wd_queue *queue, *teacher; /* of the student; of the teacher */
    int64_t step;
    int launches[LATER + 2];
    bool updated;     /* in this step */
    int swept_beside; /* steps in which the teacher gets work after the update was asked for */
    launch launch[2][LAUNCHES_MAX]; /* of steps LATER and LATER + 1 */
} seen;

#if defined __has_builtin
#if __has_builtin(__builtin_clear_padding)
#define CLEAR_PADDING(args) __builtin_clear_padding(args)
#endif
#endif

/* The arguments, with zeros between them: what a caller leaves there means nothing. */
static void copy_args(char *to, int op, const void *args)
{
    switch ((wd_op)op) {
#ifdef CLEAR_PADDING
#define X(op_name, name)                                                                           \
    case WD_OP_##op_name: {                                                                        \
        wd_##name##_args clear = *(const wd_##name##_args *)args;                                  \
        CLEAR_PADDING(&clear);                                                                     \
        memcpy(to, &clear, sizeof clear);                                                          \
        break;                                                                                     \
    }
        WD_OP_MAP(X)
#undef X
#endif
    default:
        (void)to, (void)args;
    }
}

void __real_wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes);
void __wrap_wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes);

void __wrap_wd_queue_launch(wd_queue *queue, int op, const void *args, size_t bytes)
{
    if (queue == seen.queue) seen.updated |= op == WD_OP_CLIP_FACTOR;
    if (queue == seen.teacher && seen.updated) {
        seen.swept_beside++;
        seen.updated = false;
    }
    if (queue == seen.queue && seen.step >= 0) {
        const int n = seen.launches[seen.step]++;
        assert_true(n < LAUNCHES_MAX && bytes <= ARGS_MAX);
        if (seen.step >= LATER) {
            launch *to = &seen.launch[seen.step - LATER][n];
            to->op = op;
            to->bytes = bytes;
            copy_args(to->args, op, args);
        }
    }
    __real_wd_queue_launch(queue, op, args, bytes);
}

static wd_device *simulated(int64_t failing_launch)
{
    wd_err err;
    wd_device *device;
    const wd_sim_options options = {.bytes = 1 << 30, .failing_launch = failing_launch};
    wd_test_ok(wd_device_open_sim(&device, &options, &err), &err);
    return device;
}

static void run_steps(const wd_stepper_options *o, wd_device *device)
{
    wd_err err;
    wd_queue *queue[2];
    wd_residency *residency;
    wd_stepper *m = NULL;
    const wd_placement all = {.experts = wd_teacher_experts(&teacher),
                              .stages = wd_dit_stages(&teacher.dit),
                              .buffers = 2};
    for (int i = 0; i < 2; i++) wd_test_ok(wd_queue_open(&queue[i], device, &err), &err);
    wd_test_ok(wd_residency_open_placed(&residency, &teacher, &all, o->teacher_dtype, &queue[1],
                                        NULL, NULL, &err),
               &err);
    const wd_stepper_teacher where = {residency, &all, &queue[1], queue[1]};
    wd_test_ok(wd_stepper_open(&m, o, &where, queue[0], &err), &err);
    wd_test_ok(wd_stepper_begin(m, &err), &err);
    seen.queue = queue[0];
    seen.teacher = queue[1];
    seen.swept_beside = 0;
    for (int64_t step = 0; step < LATER + 2; step++) {
        seen.step = step;
        seen.launches[step] = 0;
        seen.updated = false;
        /* a rate that changes, as by a schedule */
        wd_test_ok(
            wd_stepper_step(m, &(wd_step){.number = step, .lr = 1e-3 / (double)(step + 1)}, &err),
            &err);
        seen.step = -1;
        while (wd_stepper_results_pending(m) > 1) wd_stepper_take_result(m);
    }
    while (wd_stepper_results_pending(m)) wd_stepper_take_result(m);
    wd_stepper_close(m);
    wd_residency_close(residency);
    for (int i = 0; i < 2; i++) wd_queue_close(queue[i]);
}

static void steps_launch_the_same(void **state)
{
    (void)state;
#ifndef CLEAR_PADDING
    wd_test_skip("this compiler cannot tell arguments from what lies between them");
#endif
    for (int accumulation = 1; accumulation <= 3; accumulation++) {
        wd_device *device = simulated(0);
        wd_stepper_options o = small_stepper(&teacher);
        o.accumulation = accumulation;
        o.optimizer.decay = 0.1;
        run_steps(&o, device);
        wd_device_close(device);
        const int count = seen.launches[LATER];
        assert_true(count > 100);
        assert_int_equal(seen.launches[LATER + 1], count);
        for (int i = 0; i < count; i++) {
            const launch *a = &seen.launch[0][i], *b = &seen.launch[1][i];
            assert_int_equal(a->op, b->op);
            if (memcmp(a->args, b->args, a->bytes))
                fail_msg("launch %d of %d, %s, has other arguments one step later", i, count,
                         wd_op_name((wd_op)a->op));
        }
    }
}

/* The update in host memory is asked for before the last sweeps of the step, where gradients are
 * there: of one rank, whether or not it is told so. */
static void the_host_updates_beside_sweeps(void **state)
{
    (void)state;
    wd_err err;
    wd_comm *alone;
    wd_test_ok(wd_comm_open_single(&alone, &err), &err);
    for (int i = 0; i < 12; i++) {
        wd_device *device = simulated(0);
        wd_stepper_options o = small_stepper(&teacher);
        o.reuse = 1;
        o.place = (wd_state_place)(i / 4);
        o.comm = i & 1 ? alone : NULL;
        o.deterministic_reduce = i & 2;
        run_steps(&o, device);
        wd_device_close(device);
        const bool beside = o.place == WD_STATE_ON_HOST && !(o.comm && o.deterministic_reduce);
        assert_int_equal(wd_stepper_update_waits(&o), o.comm && o.deterministic_reduce);
        assert_int_equal(seen.swept_beside > 0, beside);
    }
    wd_comm_close(alone);
}

/* At the first launch of all, and at one of a later step; also where the host makes the updates. */
static void a_device_that_fails_ends_the_run(void **state)
{
    (void)state;
    static const int64_t failing[] = {1, 3000, 3001, 3002};
    for (int i = 0; i < 12; i++) {
        wd_err err = {0};
        wd_trainer_result result;
        char run[32], expected[64];
        wd_trainer_options options = small_run();
        options.stepper.place = (wd_state_place)(i / 4);
        snprintf(run, sizeof run, "failed-%d", i);
        snprintf(expected, sizeof expected, "sim:0 (1 GiB) failed at launch %lld",
                 (long long)failing[i % 4]);
        wd_test_refused(run_on(simulated(failing[i % 4]), &result, run, &options, &err), &err,
                        WD_DEVICE_FAULT, expected);
        assert_false(has_checkpoint(run, STEPS));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_launch_the_same),
        cmocka_unit_test(the_host_updates_beside_sweeps),
        cmocka_unit_test(a_device_that_fails_ends_the_run),
    };
    return cmocka_run_group_tests_name("repeated", tests, open_teacher, NULL);
}
