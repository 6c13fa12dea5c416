/* Tests of the devices: counters, copies, the guard's locked pool, and the counters of a dry run.
 *
 * With WD_CUDA_TESTED the device is a GPU: the stand-in's, or a real one (kernels/tested_gpu.h).
 */
#include "failing.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/cpu/cpu.h"
#include "dev/ops.h"

typedef wd_status opener(wd_device **out, int threads, wd_err *err);

/* Kinds of devices, and of each a second device, whose memory the first one's queues may copy. */
#ifdef WD_CUDA_TESTED
#include "kernels/tested_gpu.h"

static wd_status open_gpu(wd_device **out, int threads, wd_err *err)
{
    return (void)threads, wd_device_open_cuda(out, tested_gpu_number(), err);
}

static wd_status open_other_gpu(wd_device **out, int threads, wd_err *err)
{
    return (void)threads, wd_device_open_cuda(out, tested_gpu_other(), err);
}

enum { KINDS = 1 };

static opener *const openers[KINDS] = {open_gpu}, *const others[KINDS] = {open_other_gpu};

static bool is_on_host(opener *open) /* its pool is host memory */
{
    return (void)open, false;
}
#else
static wd_status open_sim(wd_device **out, int threads, wd_err *err)
{
    (void)threads;
    return wd_device_open_sim(out, &(wd_sim_options){.bytes = (size_t)1 << 40}, err);
}

enum { KINDS = 3 };

static opener *const openers[KINDS] = {wd_device_open_cpu, wd_device_open_guard, open_sim};
static opener *const *const others = openers;

static bool is_on_host(opener *open)
{
    return open != open_sim;
}
#endif

/* What the books count for a block. */
static size_t counted(const wd_device *device, size_t bytes)
{
    const size_t granule = wd_device_traits(device)->granule;
    return (bytes + granule - 1) / granule * granule;
}

static void books_are_kept(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        wd_device *device;
        void *a, *b, *none;
        assert_int_equal(openers[kind](&device, 1, NULL), WD_OK);
        assert_int_equal(wd_device_traits(device)->reads_host, is_on_host(openers[kind]));
        assert_false(wd_device_is_dry(device));
        assert_int_equal(wd_device_alloc(&a, device, 1000, "a", NULL), WD_OK);
        assert_int_equal(wd_device_alloc(&b, device, 5000, "b", NULL), WD_OK);
        assert_int_equal(wd_device_alloc(&none, device, 0, "none", NULL), WD_OK);
        assert_int_equal((uintptr_t)a % 64, 0);
        assert_int_equal((uintptr_t)b % 64, 0);
        const size_t both = counted(device, 1000) + counted(device, 5000);
        assert_int_equal(wd_device_bytes(device), both);
        wd_device_free(device, a);
        wd_device_free(device, NULL);
        assert_int_equal(wd_device_bytes(device), counted(device, 5000));
        assert_int_equal(wd_device_bytes_peak(device), both);
        assert_int_equal(wd__device_alloc_count(device), 3);
        wd_device_free(device, b);
        wd_device_free(device, none);
        assert_int_equal(wd_device_bytes(device), 0);
        wd_device_close(device);
    }
}

static void traits_say_what_a_device_is_like(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        wd_device *device, *dry;
        char kernels[WD_KERNELS_TEXT];
        assert_int_equal(openers[kind](&device, 1, NULL), WD_OK);
        assert_int_equal(wd_device_open_dry(&dry, device, NULL), WD_OK);
        assert_int_equal(wd_device_kernels(kernels, NULL), WD_OK);
        for (int i = 0; i < 2; i++) {
            const wd_device *d = i ? dry : device;
            const wd_traits *traits = wd_device_traits(d);
            assert_int_equal(traits->synchronous, is_on_host(openers[kind]));
            assert_int_equal(traits->reads_host, is_on_host(openers[kind]));
#ifdef WD_CUDA_TESTED
            assert_int_equal(traits->granule, 2 << 20);
            assert_true(traits->bytes_beside > 0 && traits->bytes_of_others > 0);
            assert_non_null(strstr(traits->kernels, "cuBLASLt"));
            assert_string_equal(traits->kernels, wd_device_traits(device)->kernels);
#else
            assert_int_equal(traits->granule, 1);
            assert_int_equal(traits->bytes_beside, 0);
            assert_string_equal(traits->kernels, kernels);
#endif
        }
        assert_int_equal(wd_device_fault(device, NULL), WD_OK);
        assert_int_equal(wd_device_fault(dry, NULL), WD_OK);
        assert_int_equal(wd_device_check_planned(dry, NULL), WD_OK);
        wd_device_close(dry);
        wd_device_close(device);
    }
}

/* Host memory for copies is zeroed, and a dry device counts as many bytes. */
static void host_memory_is_counted(void **state)
{
    (void)state;
    enum { BYTES = 100000 };
    for (int kind = 0; kind < KINDS; kind++) {
        wd_device *device[2];
        int64_t took[2];
        assert_int_equal(openers[kind](&device[0], 1, NULL), WD_OK);
        assert_int_equal(wd_device_open_dry(&device[1], device[0], NULL), WD_OK);
        for (int i = 0; i < 2; i++) {
            const int64_t before = wd_memory_held();
            void *block, *empty;
            assert_int_equal(wd_host_alloc(&block, device[i], BYTES, "staging", NULL), WD_OK);
            took[i] = wd_memory_held() - before;
            assert_int_equal((uintptr_t)block % 64, 0);
            for (int b = 0; b < BYTES; b++) assert_int_equal(((char *)block)[b], 0);
            assert_int_equal(wd_host_alloc(&empty, device[i], 0, "nothing", NULL), WD_OK);
            assert_non_null(empty);
            wd_host_free(device[i], empty);
            wd_host_free(device[i], block);
            wd_host_free(device[i], NULL);
            assert_int_equal(wd_memory_held(), before);
        }
        assert_in_range(took[0], BYTES, BYTES + 512);
        assert_int_equal(took[0], took[1]);
        assert_int_equal(wd_device_bytes(device[0]), 0);
        wd_device_close(device[1]);
        wd_device_close(device[0]);
    }
}

static void registered_memory_is_copied(void **state)
{
    (void)state;
    enum { COUNT = 1024 };
    _Alignas(4096) static int in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++) in[i] = i * 3;
    for (int kind = 0; kind < KINDS; kind++) {
        wd_device *device;
        wd_queue *queue;
        void *block;
        assert_int_equal(openers[kind](&device, 1, NULL), WD_OK);
        assert_int_equal(wd_queue_open(&queue, device, NULL), WD_OK);
        assert_int_equal(wd_device_alloc(&block, device, sizeof in, "x", NULL), WD_OK);
        assert_int_equal(wd_host_register(device, in, sizeof in, "shared", NULL), WD_OK);
        wd_queue_copy(queue, (char *)block + 4, in + 1, sizeof in - 4);
        wd_queue_copy_and_wait(queue, block, &(int){7}, sizeof *in);
        wd_queue_copy_and_wait(queue, out, block, sizeof out);
        assert_int_equal(out[0], 7);
        assert_memory_equal(out + 1, in + 1, sizeof in - 4);
        assert_int_equal(wd_queue_total(queue).copies, 3);
        wd_host_unregister(device, in);
        wd_host_unregister(device, NULL);
        wd_device_free(device, block);
        wd_queue_close(queue);
        wd_device_close(device);
    }
}

static void too_much_memory_is_refused(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        wd_device *device;
        wd_err err = {0};
        void *block = NULL;
        assert_int_equal(openers[kind](&device, 1, NULL), WD_OK);
        assert_int_equal(wd_device_alloc(&block, device, SIZE_MAX / 4, "gradients", &err),
                         WD_OUT_OF_MEMORY);
        assert_non_null(strstr(err.message, "gradients"));
        assert_null(block);
        assert_int_equal(wd_device_bytes_peak(device), 0);
        wd_device_close(device);
    }
}

/* Copies in all directions, of more bytes than one thread takes. */
static void copies_arrive(void **state)
{
    (void)state;
    enum { BYTES = 3000001 };
    for (int kind = 0; kind < KINDS; kind++) {
        wd_device *device;
        wd_queue *queue;
        void *a, *b;
        unsigned char *in, *out;
        assert_int_equal(openers[kind](&device, 2, NULL), WD_OK);
        assert_int_equal(wd_host_alloc((void **)&in, device, BYTES, "in", NULL), WD_OK);
        assert_int_equal(wd_host_alloc((void **)&out, device, BYTES, "out", NULL), WD_OK);
        for (int i = 0; i < BYTES; i++) in[i] = (unsigned char)(i * 7 + i / 251);
        assert_int_equal(wd_queue_open(&queue, device, NULL), WD_OK);
        assert_ptr_equal(wd_queue_device(queue), device);
        assert_int_equal(wd_device_alloc(&a, device, BYTES, "a", NULL), WD_OK);
        assert_int_equal(wd_device_alloc(&b, device, BYTES, "b", NULL), WD_OK);
        wd_queue_copy(queue, out, a, 64); /* zeroed */
        wd_queue_wait(queue);
        for (int i = 0; i < 64; i++) assert_int_equal(out[i], 0);
        wd_queue_copy(queue, a, in, BYTES);
        wd_queue_copy(queue, b, a, BYTES);
        wd_queue_copy(queue, out, b, BYTES);
        wd_queue_wait(queue);
        assert_memory_equal(in, out, BYTES);
        assert_int_equal(wd_queue_total(queue).copies, 4);
        assert_true(wd_queue_total(queue).bytes_copied == 3.0 * BYTES + 64);
        wd_device_free(device, a);
        wd_device_free(device, b);
        wd_queue_close(queue);
        wd_host_free(device, in);
        wd_host_free(device, out);
        wd_device_close(device);
    }
}

/* A device and another one of its kind, each with a queue, a block and an event. */
typedef struct side {
    wd_device *device;
    wd_queue *queue;
    wd_event *event;
    void *block;
} side;

static void open_side(side *s, opener *open, size_t bytes)
{
    wd_err err = {0};
    wd_test_ok(open(&s->device, 1, &err), &err);
    wd_test_ok(wd_queue_open(&s->queue, s->device, &err), &err);
    wd_test_ok(wd_event_open(&s->event, s->device, &err), &err);
    wd_test_ok(wd_device_alloc(&s->block, s->device, bytes, "x", &err), &err);
}

static void close_side(side *s)
{
    wd_event_close(s->event);
    wd_device_free(s->device, s->block);
    wd_queue_close(s->queue);
    wd_device_close(s->device);
}

/* A block goes from one device to the other and back, some of it by queues of either; each round
 * begins with other values, and the host waits only at the end. */
static void check_copies_between(opener *open, opener *open_other)
{
    enum { ROUNDS = 4, COUNT = 700001, PART = 300007 };
    const size_t bytes = COUNT * sizeof(float), part = PART * sizeof(float);
    side a, b;
    float *got;
    open_side(&a, open, bytes);
    open_side(&b, open_other, bytes);
    assert_int_equal(wd_host_alloc((void **)&got, a.device, ROUNDS * bytes, "got", NULL), WD_OK);
    for (int round = 0; round < ROUNDS; round++) {
        float *x = a.block, *y = b.block;
        wd_op_fill(a.queue,
                   &(wd_fill_args){.to = x, .type = WD_F32, .count = COUNT, .value = (float)round});
        wd_queue_copy(a.queue, y, x, part);
        wd_event_record(a.event, a.queue);
        wd_event_wait_on(b.queue, a.event);
        wd_queue_copy(b.queue, y + PART, x + PART, bytes - part);
        wd_op_fill(b.queue, &(wd_fill_args){
                                .to = y, .type = WD_F32, .count = 1, .value = 100 + (float)round});
        wd_queue_copy(b.queue, x, y, bytes);
        wd_event_record(b.event, b.queue);
        wd_event_wait_on(a.queue, b.event);
        wd_queue_copy(a.queue, got + (size_t)round * COUNT, x, bytes);
    }
    wd_queue_wait(a.queue);
    wd_queue_wait(b.queue);
    assert_int_equal(wd_device_fault(a.device, NULL), WD_OK);
    assert_int_equal(wd_device_fault(b.device, NULL), WD_OK);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < COUNT; i++)
            assert_true(got[(size_t)round * COUNT + (size_t)i] == (float)(round + (i ? 0 : 100)));
    wd_host_free(a.device, got);
    close_side(&b);
    close_side(&a);
}

static void copies_between_devices_arrive(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        if (openers[kind] != wd_device_open_guard) /* whose pool is its own */
            check_copies_between(openers[kind], others[kind]);
}

static void check_events(opener *open)
{
    wd_device *device;
    wd_queue *queue[2];
    wd_event *event;
    _Alignas(4096) static float got[4];
    float *x;
    void *block;
    memset(got, 0, sizeof got);
    assert_int_equal(open(&device, 2, NULL), WD_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(wd_queue_open(&queue[i], device, NULL), WD_OK);
    assert_int_equal(wd_event_open(&event, device, NULL), WD_OK);
    assert_int_equal(wd_device_alloc(&block, device, sizeof got, "x", NULL), WD_OK);
    x = block;
    wd_op_fill(queue[0], &(wd_fill_args){.to = x, .type = WD_F32, .count = 4, .value = 3});
    wd_event_record(event, queue[0]);
    wd_event_wait_on(queue[1], event);
    assert_int_equal(wd_host_register(device, got, sizeof got, "got", NULL), WD_OK);
    wd_queue_copy(queue[1], got, x, sizeof got);
    wd_event_record(event, queue[1]);
    wd_event_wait(event);
    for (int i = 0; i < 4; i++) assert_true(got[i] == 3);
    wd_host_unregister(device, got);
    wd_event_close(event);
    wd_event_close(NULL);
    wd_device_free(device, block);
    for (int i = 0; i < 2; i++) wd_queue_close(queue[i]);
    wd_queue_close(NULL);
    wd_device_close(device);
    wd_device_close(NULL);
}

static void events_order_queues(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) check_events(openers[kind]);
}

/* Whether a child process that touches *address dies of it. */
static bool faults(volatile char *address)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would report it */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        char value = *address;
        _exit(value & 0);
    }
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static void guard_keeps_its_pool_shut(void **state)
{
    (void)state;
    wd_device *device;
    wd_queue *queue;
    void *block;
    enum { COUNT = 1600 }; /* 6400 bytes: ends inside the second page */
    float *got = malloc(COUNT * sizeof *got);
    assert_int_equal(wd_device_open_guard(&device, 1, NULL), WD_OK);
    assert_int_equal(wd_queue_open(&queue, device, NULL), WD_OK);
    assert_int_equal(wd_device_alloc(&block, device, COUNT * sizeof *got, "x", NULL), WD_OK);
    char *first = block, *last = first + COUNT * sizeof *got - 1;
    assert_true(faults(first) && faults(last) && faults(last + 1));
    wd_op_fill(queue, &(wd_fill_args){.to = block, .type = WD_F32, .count = COUNT, .value = 2});
    assert_true(faults(first) && faults(last));
    wd_queue_copy_and_wait(queue, got, block, COUNT * sizeof *got);
    for (int i = 0; i < COUNT; i++) assert_true(got[i] == 2);
    assert_true(faults(first) && faults(last));
    wd_device_free(device, block);
    wd_queue_close(queue);
    wd_device_close(device);
    free(got);
}

/* How a child process ends whose queue copies from a host's `bytes`, of which one less is
 * registered if `registered`: 0, or a signal. */
static int end_of_copy(opener *open, bool registered, size_t bytes)
{
    pid_t child = fork();
    if (child == 0) {
        _Alignas(4096) static char host[64];
        wd_device *device;
        wd_queue *queue;
        void *block;
        signal(SIGABRT, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        if (open(&device, 1, NULL) || wd_queue_open(&queue, device, NULL) ||
            wd_device_alloc(&block, device, sizeof host, "x", NULL) ||
            (registered && wd_host_register(device, host, sizeof host - 1, "host", NULL)))
            _exit(1);
        wd_queue_copy(queue, block, host, bytes);
        wd_queue_wait(queue);
        _exit(0);
    }
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status));
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* All bytes of an asynchronous copy must be pinned, except on the cpu device. */
static void copies_name_pinned_memory_only(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        const int refused = openers[kind] == wd_device_open_cpu ? 0 : SIGABRT;
        assert_int_equal(end_of_copy(openers[kind], false, 1), refused);
        assert_int_equal(end_of_copy(openers[kind], true, 64), refused);
        assert_int_equal(end_of_copy(openers[kind], true, 63), 0);
    }
}

/* Blocks of a processor's pool are registered when they are allocated, and unregistered when they
 * are freed. */
static void a_processors_pool_is_registered(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    wd_device *cpu, *last;
    wd_queue *queue;
    wd_err err;
    int *from, *to;
    void *block;
    const int64_t held = wd_memory_held();
    wd_test_ok(wd_device_open_cpu(&cpu, 1, &err), &err);
    wd_test_ok(openers[KINDS - 1](&last, 1, &err), &err);
    wd_host_register_pool(last, cpu);
    wd_test_ok(wd_queue_open(&queue, last, &err), &err);
    wd_test_ok(wd_device_alloc((void **)&from, cpu, sizeof(int[COUNT]), "from", &err), &err);
    wd_test_ok(wd_device_alloc((void **)&to, cpu, sizeof(int[COUNT]), "to", &err), &err);
    wd_test_ok(wd_device_alloc(&block, last, sizeof(int[COUNT]), "x", &err), &err);
    for (int i = 0; i < COUNT; i++) from[i] = i;
    wd_queue_copy(queue, block, from, sizeof(int[COUNT]));
    wd_queue_copy(queue, to, block, sizeof(int[COUNT]));
    wd_queue_wait(queue);
    assert_memory_equal(from, to, sizeof(int[COUNT]));
    wd_device_free(cpu, from);
    wd_device_free(cpu, to);
    wd_device_free(last, block);
    wd_queue_close(queue);
    wd_device_close(cpu);
    wd_device_close(last);
    assert_int_equal(wd_memory_held(), held);
}

/* Device memory of a plain cpu device is accessible, so the test above shows the effect of the
 * guard. */
static void faults_only_when_guarded(void **state)
{
    (void)state;
    wd_device *device;
    void *block;
    assert_int_equal(wd_device_open_cpu(&device, 1, NULL), WD_OK);
    assert_int_equal(wd_device_alloc(&block, device, 64, "x", NULL), WD_OK);
    assert_false(faults(block));
    wd_device_free(device, block);
    wd_device_close(device);
}

/* Launches on a dry device and on its target have the same counters, and a workspace that suffices.
 */
static void launch_some(wd_device *device, wd_queue *queue, bool reserve, size_t bytes)
{
    void *x, *o;
    enum { B = 2, L = 33, N = 2, K = 8, COUNT = B * L * N * K };
    if (reserve) assert_int_equal(wd_queue_reserve_workspace(queue, bytes, NULL), WD_OK);
    assert_int_equal(wd_device_alloc(&x, device, COUNT * 4, "x", NULL), WD_OK);
    assert_int_equal(wd_device_alloc(&o, device, COUNT * 4, "o", NULL), WD_OK);
    wd_op_fill(queue, &(wd_fill_args){.to = x, .type = WD_F32, .count = COUNT, .value = 1});
    wd_op_attention(queue, &(wd_attention_args){.o = o,
                                                .q = x,
                                                .k = x,
                                                .v = x,
                                                .type = WD_F32,
                                                .samples = B,
                                                .kv_samples = B,
                                                .heads = N,
                                                .head_dim = K,
                                                .q_tokens = L,
                                                .kv_tokens = L,
                                                .q_stride = N * K,
                                                .kv_stride = N * K,
                                                .o_stride = N * K,
                                                .scale = 0.5f});
    wd_op_matmul(queue, &(wd_matmul_args){.c = x,
                                          .a = o,
                                          .b = o,
                                          .transpose_b = true,
                                          .m = 3,
                                          .n = 4,
                                          .k = 5,
                                          .lda = 5,
                                          .ldb = 5,
                                          .ldc = 4,
                                          .batch = 2,
                                          .stride_a = 15,
                                          .stride_c = 12});
    wd_queue_wait(queue);
    wd_device_free(device, x);
    wd_device_free(device, o);
}

static void check_dry_run(opener *open)
{
    wd_device *target, *dry;
    wd_queue *queue, *dry_queue;
    assert_int_equal(open(&target, 1, NULL), WD_OK);
    assert_int_equal(wd_device_open_dry(&dry, target, NULL), WD_OK);
    assert_true(wd_device_is_dry(dry));
    assert_int_equal(wd_device_traits(dry)->reads_host, wd_device_traits(target)->reads_host);
    assert_int_equal(wd_queue_open(&queue, target, NULL), WD_OK);
    assert_int_equal(wd_queue_open(&dry_queue, dry, NULL), WD_OK);
    launch_some(dry, dry_queue, false, 0);
    size_t workspace = wd_queue_workspace_bytes(dry_queue);
    launch_some(target, queue, true, workspace);
    assert_int_equal(wd_queue_workspace_bytes(queue), workspace);
    assert_int_equal(wd_device_bytes_peak(target),
                     wd_device_bytes_peak(dry) + counted(target, workspace));
    assert_int_equal(wd_queue_total(dry_queue).launches, 3);
    double flops = 4.0 * 2 * 33 * 33 * 16 + 2.0 * 2 * 3 * 4 * 5;
    assert_true(wd_queue_total(dry_queue).flops == flops);
    assert_true(wd_queue_total(queue).flops == flops);
    wd_queue_close(queue);
    wd_queue_close(dry_queue);
    wd_device_close(dry);
    wd_device_close(target);
}

/* Launches after a rehearsal allocate nothing. */
static void check_rehearsal(opener *open)
{
    wd_device *target;
    wd_queue *queue, *rehearsal;
    assert_int_equal(open(&target, 1, NULL), WD_OK);
    assert_int_equal(wd_queue_open(&queue, target, NULL), WD_OK);
    assert_int_equal(wd_rehearsal_open(&rehearsal, queue, NULL), WD_OK);
    launch_some(wd_queue_device(rehearsal), rehearsal, false, 0);
    assert_int_equal(wd_rehearsal_close(rehearsal, queue, NULL), WD_OK);
    const int64_t before = wd__device_alloc_count(target);
    launch_some(target, queue, false, 0);
    assert_int_equal(wd__device_alloc_count(target), before + 2); /* its tensors */
    wd_queue_close(queue);
    wd_device_close(target);
}

static void rehearsed_launches_find_their_workspace(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) check_rehearsal(openers[kind]);
}

/* A rehearsal without memory is an error. */
static void rehearsals_are_refused(void **state)
{
    (void)state;
    wd_err err;
    wd_device *target;
    wd_queue *queue, *rehearsal;
    const wd_sim_options small = {.bytes = 64};
    assert_int_equal(wd_device_open_sim(&target, &small, &err), WD_OK);
    assert_int_equal(wd_queue_open(&queue, target, &err), WD_OK);
    assert_int_equal(wd_rehearsal_open(&rehearsal, queue, &err), WD_OK);
    launch_some(wd_queue_device(rehearsal), rehearsal, false, 0);
    assert_int_equal(wd_rehearsal_close(rehearsal, queue, &err), WD_OUT_OF_MEMORY);
    assert_non_null(strstr(err.message, "64 free"));
    wd_queue_close(queue);
    wd_device_close(target);
}

static void dry_run_counts(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) check_dry_run(openers[kind]);
}

static void ops_have_names_and_flops(void **state)
{
    (void)state;
    assert_string_equal(wd_op_name(WD_OP_MATMUL), "matmul");
    assert_string_equal(wd_op_name(WD_OP_ADAMW), "adamw");
    wd_conv_args conv = {.type = WD_BF16,
                         .w_type = WD_F32,
                         .samples = 1,
                         .in = {1, 8, 8},
                         .out = {1, 8, 8},
                         .ci = 4,
                         .co = 6,
                         .kernel = {3, 3, 3},
                         .tap0 = 2,
                         .tap1 = 3};
    assert_true(wd_op_flops(WD_OP_CONV, &conv) == 2.0 * 64 * 6 * 9 * 4);
    wd_attention_args forward = {
        .samples = 2, .kv_samples = 1, .heads = 3, .head_dim = 8, .q_tokens = 5, .kv_tokens = 7};
    assert_true(wd_op_flops(WD_OP_ATTENTION, &forward) == 4.0 * 2 * 3 * 8 * 5 * 7);
    wd_attention_backward_args backward = {
        .samples = 2, .heads = 3, .head_dim = 8, .q_tokens = 5, .kv_tokens = 7};
    assert_true(wd_op_flops(WD_OP_ATTENTION_BACKWARD, &backward) == 10.0 * 2 * 3 * 8 * 5 * 7);
    wd_adamw_args adamw = {.count = 10};
    assert_true(wd_op_flops(WD_OP_ADAMW, &adamw) == 0);
}

static void isa_can_be_lowered(void **state)
{
    (void)state;
    wd_device *device;
    wd_err err = {0};
    setenv("WD_CPU_ISA", "generic", 1);
    assert_int_equal(wd_device_open_cpu(&device, 3, NULL), WD_OK);
    assert_string_equal(wd_device_name(device), "cpu (GENERIC, 3 threads)");
    wd_device_close(device);
    setenv("WD_CPU_ISA", "sse9", 1);
    assert_int_equal(wd_device_open_cpu(&device, 1, &err), WD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "sse9"));
    for (int isa = 0; isa < WD_CPU_ISA_COUNT; isa++) { /* of a build with WD_ISAS */
        if (wd__cpu_isa_is_built((wd_cpu_isa)isa)) continue;
        setenv("WD_CPU_ISA", wd__cpu_isa_name((wd_cpu_isa)isa), 1);
        wd_test_refused(wd_device_open_cpu(&device, 1, &err), &err, WD_UNSUPPORTED,
                        "this program was built with the kernels of generic");
    }
    unsetenv("WD_CPU_ISA");
}

static wd_status open_all_and_close(void *context, wd_err *err)
{
    opener *const *open = context;
    wd_device *device = NULL;
    wd_queue *queue = NULL;
    wd_event *event = NULL;
    void *block = NULL, *host = NULL;
    _Alignas(4096) static char page[4096];
    wd_status status = (*open)(&device, 1, err);
    if (status == WD_OK) status = wd_queue_open(&queue, device, err);
    if (status == WD_OK) status = wd_event_open(&event, device, err);
    if (status == WD_OK) status = wd_device_alloc(&block, device, 100, "x", err);
    if (status == WD_OK) status = wd_host_alloc(&host, device, 100, "y", err);
    if (status == WD_OK) status = wd_host_register(device, page, sizeof page, "z", err);
    if (status == WD_OK) wd_host_unregister(device, page);
    wd_host_free(device, host);
    if (block) wd_device_free(device, block);
    wd_event_close(event);
    wd_queue_close(queue);
    wd_device_close(device);
    return status;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        opener *open = openers[kind];
        wd_test_failing_allocations(open_all_and_close, NULL, &open, 3);
    }
}

/* ---- the tested GPU ---- */

#ifdef WD_CUDA_TESTED
/* Ends the program if there is no such GPU. A process of its own asks for it: see main. */
static int open_kinds(void **state)
{
    int status;
    (void)state;
    tested_gpu_begin(false);
    pid_t child = fork();
    if (child == 0) {
        wd_device *device = NULL;
        wd_err err = {0};
        tested_gpu_require(open_gpu(&device, 1, &err), "a GPU", &err);
        tested_gpu_require(open_other_gpu(&device, 1, &err), "the other GPU", &err);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    if (WEXITSTATUS(status)) exit(WEXITSTATUS(status));
    return 0;
}

/* Every test gave back all that it took of the stand-in. */
static int close_kinds(void **state)
{
    (void)state;
#ifdef WD_ON_STANDIN
    return wd_standin_remove();
#else
    return 0;
#endif
}
#else
static int open_kinds(void **state)
{
    return (void)state, 0;
}

static int close_kinds(void **state)
{
    return (void)state, 0;
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_name_pinned_memory_only), /* first: its processes open devices,
                                                           * which CUDA's driver refuses to a
                                                           * process whose parent has used it */
        cmocka_unit_test(books_are_kept),
        cmocka_unit_test(traits_say_what_a_device_is_like),
        cmocka_unit_test(host_memory_is_counted),
        cmocka_unit_test(registered_memory_is_copied),
        cmocka_unit_test(too_much_memory_is_refused),
        cmocka_unit_test(copies_arrive),
        cmocka_unit_test(copies_between_devices_arrive),
        cmocka_unit_test(events_order_queues),
        cmocka_unit_test(guard_keeps_its_pool_shut),
        cmocka_unit_test(a_processors_pool_is_registered),
        cmocka_unit_test(faults_only_when_guarded),
        cmocka_unit_test(dry_run_counts),
        cmocka_unit_test(rehearsed_launches_find_their_workspace),
        cmocka_unit_test(rehearsals_are_refused),
        cmocka_unit_test(ops_have_names_and_flops),
        cmocka_unit_test(isa_can_be_lowered),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests_name("device", tests, open_kinds, close_kinds);
}
