/* Tests of the cuda device on the stand-in driver, which is as strict as a GPU: books, copies, the
 * order of streams, pinned memory, peers, faults, calls that fail. */
#include "failing.h"

#include <pthread.h>

#include "dev/cuda.h"
#include "dev/cuda/impl.h"
#include "dev/ops.h"
#include "standin/driver.h"

enum { SEEDS = 24, GRANULE = 2 << 20 };

static void install(uint64_t seed)
{
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    options.seed = seed;
    wd_standin_install_all(&options);
}

static wd_device *open_device(int number)
{
    wd_err err = {0};
    wd_device *device = NULL;
    wd_test_ok(wd_device_open_cuda(&device, number, &err), &err);
    return device;
}

static wd_queue *open_queue(wd_device *device)
{
    wd_err err = {0};
    wd_queue *queue = NULL;
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    return queue;
}

static void *take(wd_device *device, size_t bytes)
{
    wd_err err = {0};
    void *block = NULL;
    wd_test_ok(wd_device_alloc(&block, device, bytes, "a block", &err), &err);
    return block;
}

static int *take_host(wd_device *device, int count, int first)
{
    wd_err err = {0};
    void *block = NULL;
    wd_test_ok(wd_host_alloc(&block, device, (size_t)count * sizeof(int), "a host block", &err),
               &err);
    for (int i = 0; i < count; i++) ((int *)block)[i] = first + i;
    return block;
}

static void well(wd_device *device)
{
    wd_err err = {0};
    wd_test_ok(wd_device_fault(device, &err), &err);
}

/* ---- what it is like ---- */

static void a_device_says_what_it_is(void **state)
{
    (void)state;
    int count = 0;
    wd_err err = {0};
    install(0);
    wd_test_ok(wd_cuda_count(&count, &err), &err);
    assert_int_equal(count, 2);
    wd_device *device = open_device(1);
    const wd_traits *traits = wd_device_traits(device);
    assert_string_equal(wd_device_name(device), "cuda:1 (NVIDIA Stand-in, 1 GiB)");
    assert_false(traits->synchronous || traits->reads_host);
    assert_int_equal(traits->granule, GRANULE);
    /* 1 MiB is the context's; a 64th of 1 GiB is left to libraries */
    assert_int_equal(traits->bytes_beside, 16 << 20);
    assert_int_equal(traits->bytes_of_others, 1 << 20);
    assert_int_equal(wd_device_bytes_max(device), (1 << 30) - (16 << 20) - GRANULE);
    wd_device_close(device);
    assert_int_equal(wd_standin_remove(), 0);
}

/* Libraries may keep state of a context: all openings in a process have the same one. */
static void openings_share_a_context(void **state)
{
    (void)state;
    wd_cu_context context = NULL;
    wd_err err = {0};
    const wd_cuda_api *api;
    install(0);
    wd_test_ok(wd__cuda_api_need(&api, WD_CUDA_DRIVER, &err), &err);
    for (int i = 0; i < 3; i++) {
        wd_cu_context now = NULL;
        wd_device *device = open_device(0);
        api->driver.ctx_get_current(&now);
        if (i) assert_ptr_equal(now, context);
        context = now;
        wd_device_close(device);
        assert_int_equal(api->driver.ctx_set_current(context), WD_CU_SUCCESS);
    }
    assert_int_equal(wd_standin_remove(), 0);
}

/* One GPU as two devices: each has half of the memory, a block goes from one to the other, and the
 * environment that says so is checked. */
static void a_gpu_is_shared_where_that_is_asked_for(void **state)
{
    (void)state;
    static const char *const wrong[] = {"0", "9", "12", "two", " 2"};
    int count = 0;
    wd_err err = {0};
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    options.devices = 1;
    wd_standin_install_all(&options);
    wd_device *alone = open_device(0);
    const size_t most = wd_device_bytes_max(alone);
    wd_device_close(alone);
    assert_int_equal(setenv("WD_GPU_SHARES", "2", 1), 0);
    wd_test_ok(wd_cuda_count(&count, &err), &err);
    assert_int_equal(count, 2);
    wd_device *first = open_device(0), *second = open_device(1), *none;
    assert_string_equal(wd_device_name(second), "cuda:1 (NVIDIA Stand-in, 1 GiB, shared)");
    assert_int_equal(wd_device_bytes_max(first), most / 2 / GRANULE * GRANULE);
    assert_int_equal(wd_device_bytes_max(second), wd_device_bytes_max(first));
    wd_test_refused(wd_device_open_cuda(&none, 2, &err), &err, WD_UNSUPPORTED,
                    "cuda:2: expected a GPU below 2");
    wd_queue *queue = open_queue(second);
    void *from = take(first, wd_device_bytes_max(first)), *to = take(second, GRANULE);
    int *host = take_host(first, 2, 7);
    wd_queue_copy(queue, from, &host[0], sizeof *host);
    wd_queue_copy(queue, to, from, sizeof *host);
    wd_queue_copy(queue, &host[1], to, sizeof *host);
    wd_queue_wait(queue);
    assert_int_equal(host[1], 7);
    well(first);
    well(second);
    wd_queue_close(queue);
    wd_device_free(first, from);
    wd_device_free(second, to);
    wd_host_free(first, host);
    wd_device_close(first);
    wd_device_close(second);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(setenv("WD_GPU_SHARES", wrong[i], 1), 0);
        wd_test_refused(wd_cuda_count(&count, &err), &err, WD_INVALID_ARGUMENT,
                        "WD_GPU_SHARES: expected a number from 1 to 8, found ");
    }
    assert_int_equal(unsetenv("WD_GPU_SHARES"), 0);
    assert_int_equal(wd_standin_remove(), 0);
}

static void what_cannot_be_opened_is_refused(void **state)
{
    (void)state;
    wd_device *device = NULL;
    wd_err err = {0};
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    install(0);
    wd_test_refused(wd_device_open_cuda(&device, 2, &err), &err, WD_UNSUPPORTED,
                    "cuda:2: expected a GPU below 2");
    assert_int_equal(wd_standin_remove(), 0);
    options.capability = 75;
    wd_standin_install_all(&options);
    wd_test_refused(wd_device_open_cuda(&device, 0, &err), &err, WD_UNSUPPORTED,
                    "compute capability 7.5: expected 8.0");
    assert_non_null(strstr(err.message, "--devices cpu"));
    assert_int_equal(wd_standin_remove(), 0);
    options.devices = 0;
    wd_standin_install_all(&options);
    wd_test_refused(wd_device_open_cuda(&device, 0, &err), &err, WD_UNSUPPORTED,
                    "shows no GPU to this process");
    int count = -1;
    wd_test_ok(wd_cuda_count(&count, &err), &err);
    assert_int_equal(count, 0);
    assert_int_equal(wd_standin_remove(), 0);
    assert_null(device);
}

/* A driver that is too old for the kernels is named before any library is asked for, which would
 * have to be another one for a newer driver. */
static void old_driver_is_named_before_libraries(void **state)
{
    (void)state;
    wd_device *device = NULL;
    wd_err err = {0};
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    options.driver_version = 12040;
    options.load_result = WD_CU_UNSUPPORTED_PTX_VERSION;
    wd_standin_install(&options); /* without libraries */
    wd_test_refused(wd_device_open_cuda(&device, 0, &err), &err, WD_UNSUPPORTED,
                    "the NVIDIA driver, which supports CUDA 12.4, cannot load this program's "
                    "kernels: CUDA_ERROR_UNSUPPORTED_PTX_VERSION");
    assert_non_null(strstr(err.message, "need driver 580 or later: install a newer driver"));
    assert_non_null(strstr(err.message, "--devices cpu"));
    assert_int_equal(wd_standin_remove(), 0);
    options.load_result = WD_CU_LAUNCH_FAILED; /* the GPU is broken, the driver is not too old */
    wd_standin_install(&options);
    wd_test_refused(wd_device_open_cuda(&device, 0, &err), &err, WD_DEVICE_FAULT,
                    "kernels: CUDA_ERROR_LAUNCH_FAILED");
    assert_null(strstr(err.message, "580"));
    assert_int_equal(wd_standin_remove(), 0);
    options.load_result = WD_CU_OUT_OF_MEMORY;
    wd_standin_install(&options);
    wd_test_refused(wd_device_open_cuda(&device, 0, &err), &err, WD_OUT_OF_MEMORY,
                    "1023 of 1024 MiB are free, too little for the libraries to begin with");
    assert_int_equal(wd_standin_remove(), 0);
    assert_null(device);
}

/* Call 10 of the driver retains the context, after those that ask what the GPU is. */
static void context_of_a_gpu_that_others_have_is_explained(void **state)
{
    (void)state;
    static const struct {
        wd_cu_result result;
        wd_status status;
        const char *said;
    } cases[] = {{WD_CU_OUT_OF_MEMORY, WD_OUT_OF_MEMORY, "have nearly all of its memory"},
                 {WD_CU_DEVICE_UNAVAILABLE, WD_DEVICE_FAULT, "lets only one process use it"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wd_device *device = NULL;
        wd_err err = {0};
        install(0);
        wd_standin_fail_call(9, cases[i].result);
        wd_test_refused(wd_device_open_cuda(&device, 0, &err), &err, cases[i].status,
                        cases[i].said);
        assert_non_null(strstr(err.message, "its context: CUDA_ERROR_"));
        assert_non_null(strstr(err.message, "nvidia-smi"));
        assert_int_equal(wd_standin_remove(), 0);
    }
}

/* Whoever plans for a GPU learns what its kernels cannot do, whatever else is planned. */
static void what_no_kernel_takes_is_refused_when_it_is_planned(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_device *dry;
    install(0);
    wd_device *device = open_device(0);
    wd_test_ok(wd_device_open_dry(&dry, device, &err), &err);
    wd_queue *queue = open_queue(dry);
    wd_attention_args a = {
        .samples = 1, .kv_samples = 1, .heads = 1, .head_dim = 2048, .q_tokens = 3, .kv_tokens = 3};
    wd_op_attention(queue, &a);
    wd_test_ok(wd_device_check_planned(dry, &err), &err);
    a.head_dim = 4096;
    wd_op_attention(queue, &a);
    a.head_dim = 64;
    wd_op_attention(queue, &a);
    wd_test_refused(wd_device_check_planned(dry, &err), &err, WD_UNSUPPORTED,
                    "cuda:0 (NVIDIA Stand-in, 1 GiB) cannot compute the operation attention");
    assert_non_null(strstr(err.message, "--devices cpu"));
    wd_queue_close(queue);
    wd_queue *real = open_queue(device);
    wd_test_ok(wd_rehearsal_open(&queue, real, &err), &err);
    a.head_dim = 4096;
    wd_op_attention(queue, &a);
    wd_test_refused(wd_rehearsal_close(queue, real, &err), &err, WD_UNSUPPORTED, "attention");
    wd_queue_close(real);
    wd_device_close(dry);
    wd_device_close(device);
    assert_int_equal(wd_standin_remove(), 0);
}

static void memory_is_counted_in_granules_and_zeroed(void **state)
{
    (void)state;
    install(0);
    wd_device *device = open_device(0);
    wd_queue *queue = open_queue(device);
    int *host = take_host(device, 300, 1);
    void *block = take(device, 300 * sizeof *host);
    assert_int_equal((uintptr_t)block % 256, 0);
    assert_int_equal(wd_device_bytes(device), GRANULE);
    wd_queue_copy(queue, host, block, 300 * sizeof *host);
    wd_queue_wait(queue);
    for (int i = 0; i < 300; i++) assert_int_equal(host[i], 0);
    wd_device_free(device, block);
    assert_int_equal(wd_device_bytes(device), 0);
    well(device);
    wd_host_free(device, host);
    wd_queue_close(queue);
    wd_device_close(device);
    assert_int_equal(wd_standin_remove(), 0);
}

/* The GPU has less than this run thinks, since somebody else has come. */
static void a_shortage_names_other_processes(void **state)
{
    (void)state;
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    void *block = NULL, *first;
    wd_err err = {0};
    options.bytes_of_others = 512 << 20;
    wd_standin_install_all(&options);
    wd_device *one = open_device(0), *two = open_device(0);
    assert_true(wd_device_bytes_max(one) < (size_t)512 << 20);
    first = take(two, 400 << 20);
    wd_test_refused(wd_device_alloc(&block, one, 200 << 20, "weights", &err), &err,
                    WD_OUT_OF_MEMORY, "other processes and contexts");
    assert_non_null(strstr(err.message, "weights"));
    wd_test_refused(wd_device_alloc(&block, one, 800 << 20, "weights", &err), &err,
                    WD_OUT_OF_MEMORY, "are allocated");
    assert_int_equal(wd_device_bytes(one), 0);
    wd_device_free(two, first);
    wd_device_close(one);
    wd_device_close(two);
    assert_int_equal(wd_standin_remove(), 0);
}

/* ---- order ---- */

/* What crosses two streams of two devices arrives whole where events say so, in any order that
 * the streams take. */
static void send_around(bool peers)
{
    enum { COUNT = 1000, ROUNDS = 6, BYTES = COUNT * sizeof(int) };
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    wd_err err = {0};
    wd_event *sent, *taken;
    options.no_peers = !peers;
    wd_standin_install_all(&options);
    wd_device *one = open_device(0), *two = open_device(1);
    wd_queue *up = open_queue(one), *down = open_queue(two);
    wd_test_ok(wd_event_open(&sent, one, &err), &err);
    wd_test_ok(wd_event_open(&taken, two, &err), &err);
    void *first = take(one, BYTES), *second = take(two, BYTES);
    int *in = take_host(one, COUNT * ROUNDS, 5), *out = take_host(two, COUNT * ROUNDS, 0);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        wd_standin_seed(seed);
        memset(out, 0, (size_t)ROUNDS * BYTES);
        for (int r = 0; r < ROUNDS; r++) {
            wd_event_wait_on(up, taken); /* nobody reads `second` any more */
            wd_queue_copy(up, first, in + (size_t)r * COUNT, BYTES);
            wd_queue_copy(up, second, first, BYTES);
            wd_event_record(sent, up);
            wd_event_wait_on(down, sent);
            wd_queue_copy(down, out + (size_t)r * COUNT, second, BYTES);
            wd_event_record(taken, down);
        }
        wd_event_wait(taken);
        assert_true(wd_event_is_done(taken) && wd_event_is_done(sent));
        assert_memory_equal(in, out, (size_t)ROUNDS * BYTES);
    }
    well(one);
    well(two);
    wd_host_free(one, in);
    wd_host_free(two, out);
    wd_device_free(one, first);
    wd_device_free(two, second);
    wd_event_close(sent);
    wd_event_close(taken);
    wd_queue_close(up);
    wd_queue_close(down);
    wd_device_close(one);
    wd_device_close(two);
    assert_int_equal(wd_standin_remove(), 0);
}

static void events_order_streams_of_two_gpus(void **state)
{
    (void)state;
    send_around(true);
    send_around(false);
}

/* One stream writes, another reads, with an event between them or without: in how many orders, each
 * of another seed, something else is read than what was written. */
static int times_read_wrongly(bool with_event)
{
    int wrong = 0;
    wd_err err = {0};
    wd_event *event;
    install(0);
    wd_device *device = open_device(0);
    wd_queue *writer = open_queue(device), *reader = open_queue(device);
    wd_test_ok(wd_event_open(&event, device, &err), &err);
    void *block = take(device, sizeof(int));
    int *in = take_host(device, 1, 0), *out = take_host(device, 1, 0);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        wd_standin_seed(seed);
        *in = (int)seed + 1;
        wd_queue_copy(writer, block, in, sizeof *in);
        if (with_event) wd_event_record(event, writer);
        if (with_event) wd_event_wait_on(reader, event);
        wd_queue_copy(reader, out, block, sizeof *in);
        wd_queue_wait(reader);
        wrong += *out != *in;
        wd_queue_wait(writer);
    }
    well(device);
    wd_host_free(device, in);
    wd_host_free(device, out);
    wd_device_free(device, block);
    wd_event_close(event);
    wd_queue_close(writer);
    wd_queue_close(reader);
    wd_device_close(device);
    assert_int_equal(wd_standin_remove(), 0);
    return wrong;
}

/* The stand-in finds an event that is missing: so the tests here show something. */
static void a_missing_event_is_found(void **state)
{
    (void)state;
    assert_int_equal(times_read_wrongly(true), 0);
    assert_in_range(times_read_wrongly(false), 1, SEEDS - 1);
}

/* A host's read before it has waited finds nothing: copies are put on a stream, and run later. */
static void copies_are_not_done_at_once(void **state)
{
    (void)state;
    install(3);
    wd_device *device = open_device(0);
    wd_queue *queue = open_queue(device);
    void *block = take(device, sizeof(int));
    int *in = take_host(device, 1, 7), *out = take_host(device, 1, 0);
    wd_queue_copy(queue, block, in, sizeof *in);
    wd_queue_copy(queue, out, block, sizeof *in);
    assert_int_equal(*out, 0);
    wd_queue_wait(queue);
    assert_int_equal(*out, 7);
    assert_int_equal(wd_standin_count().synchronous_copies, 0);
    int plain[2] = {9, 0};
    wd_queue_copy_and_wait(queue, block, &plain[0], sizeof(int));
    wd_queue_copy_and_wait(queue, &plain[1], block, sizeof(int));
    assert_int_equal(plain[1], 9);
    assert_int_equal(wd_standin_count().synchronous_copies, 2);
    well(device);
    wd_host_free(device, in);
    wd_host_free(device, out);
    wd_device_free(device, block);
    wd_queue_close(queue);
    wd_device_close(device);
    assert_int_equal(wd_standin_remove(), 0);
}

/* ---- host memory ---- */

static void registered_memory_can_be_copied(void **state)
{
    (void)state;
    wd_err err = {0};
    install(1);
    wd_device *device = open_device(0);
    wd_queue *queue = open_queue(device);
    void *block = take(device, sizeof(int));
    int *page = aligned_alloc(4096, 8192);
    assert_non_null(page);
    wd_test_ok(wd_host_register(device, page, 8192, "a page", &err), &err);
    page[0] = 5;
    wd_queue_copy(queue, block, &page[0], sizeof *page);
    wd_queue_copy(queue, &page[2000], block, sizeof *page);
    wd_queue_wait(queue);
    assert_int_equal(page[2000], 5);
    wd_host_unregister(device, page);
    well(device);
    free(page);
    wd_device_free(device, block);
    wd_queue_close(queue);
    wd_device_close(device);
    assert_int_equal(wd_standin_remove(), 0);
}

/* The driver refuses by itself, too, what device.c would not let through. */
static void the_driver_refuses_memory_that_is_not_pinned(void **state)
{
    (void)state;
    const wd_cuda_api *api;
    wd_err err = {0};
    wd_cu_stream stream;
    wd_cu_address block;
    wd_cu_context context;
    int plain = 0;
    install(0);
    wd_test_ok(wd__cuda_api_need(&api, WD_CUDA_DRIVER, &err), &err);
    assert_int_equal(api->driver.mem_alloc(&block, 64), WD_CU_INVALID_CONTEXT);
    assert_int_equal(api->driver.device_primary_ctx_retain(&context, 0), WD_CU_SUCCESS);
    assert_int_equal(api->driver.ctx_set_current(context), WD_CU_SUCCESS);
    assert_int_equal(api->driver.stream_create(&stream, WD_CU_STREAM_NON_BLOCKING), WD_CU_SUCCESS);
    assert_int_equal(api->driver.mem_alloc(&block, 64), WD_CU_SUCCESS);
    assert_int_equal(api->driver.memcpy_async(block, (uintptr_t)&plain, sizeof plain, stream),
                     WD_CU_INVALID_VALUE);
    assert_int_equal(api->driver.memset_d8_async(block, 0, 65, stream), WD_CU_INVALID_VALUE);
    assert_int_equal(wd_standin_remove(), 2); /* stream, block */
}

/* A launch has at most 48 KiB of shared memory, unless its kernel's limit was raised, which this
 * program never does. */
static void the_driver_refuses_too_much_shared_memory(void **state)
{
    (void)state;
    install(0);
    wd_cuda_device *d = wd__cuda_of(open_device(0));
    wd_queue *queue = open_queue(&d->base);
    const wd_cuda_driver *driver = wd__cuda_driver_of(d);
    wd_fill_args fill = {.type = WD_F32};
    size_t bytes = sizeof fill;
    void *extra[] = {(void *)WD_CU_LAUNCH_BUFFER_POINTER, &fill, (void *)WD_CU_LAUNCH_BUFFER_SIZE,
                     &bytes, NULL};
    wd_cu_function kernel = d->kernel[WD_CUDA_fill];
    wd_cu_stream stream = ((wd_cuda_queue *)queue)->stream;
    assert_int_equal(driver->launch_kernel(kernel, 1, 1, 1, 32, 1, 1, 49152, stream, NULL, extra),
                     WD_CU_SUCCESS);
    assert_int_equal(driver->launch_kernel(kernel, 1, 1, 1, 32, 1, 1, 49153, stream, NULL, extra),
                     WD_CU_INVALID_VALUE);
    wd_queue_wait(queue);
    well(&d->base);
    wd_queue_close(queue);
    wd_device_close(&d->base);
    assert_int_equal(wd_standin_remove(), 0);
}

/* ---- failures ---- */

/* Work that fails is said once the host has waited; after that nothing more is done, nothing hangs,
 * and everything can be closed. */
static void faults_are_kept(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_event *event;
    install(2);
    wd_device *device = open_device(0);
    wd_queue *queue = open_queue(device);
    wd_test_ok(wd_event_open(&event, device, &err), &err);
    void *block = take(device, sizeof(int)), *more = NULL;
    int *host = take_host(device, 2, 7);
    wd_queue_copy(queue, block, &host[0], sizeof *host);
    wd_queue_wait(queue);
    wd_standin_fail_work(1, WD_CU_ILLEGAL_ADDRESS);
    wd_queue_copy(queue, &host[1], block, sizeof *host);
    well(device); /* nobody has waited */
    wd_queue_wait(queue);
    for (int i = 0; i < 2; i++)
        wd_test_refused(wd_device_fault(device, &err), &err, WD_DEVICE_FAULT,
                        "cuda:0 (NVIDIA Stand-in, 1 GiB): work of a stream: "
                        "CUDA_ERROR_ILLEGAL_ADDRESS (700: ");
    const int64_t copies = wd_standin_count().copies;
    wd_queue_copy(queue, &host[1], block, sizeof *host);
    wd_event_record(event, queue);
    wd_event_wait_on(queue, event);
    wd_event_wait(event);
    assert_true(wd_event_is_done(event));
    wd_test_refused(wd_device_alloc(&more, device, 64, "more", &err), &err, WD_DEVICE_FAULT,
                    "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_int_equal(wd_standin_count().copies, copies);
    assert_int_equal(host[1], 8);
    wd_host_free(device, host);
    wd_device_free(device, block);
    wd_event_close(event);
    wd_queue_close(queue);
    wd_device_close(device);
    assert_int_equal(wd_standin_remove(), 0);
}

static void an_operation_without_a_kernel_is_a_fault(void **state)
{
    (void)state;
    wd_err err = {0};
    install(0);
    wd_device *device = open_device(0);
    wd_queue *queue = open_queue(device);
    wd_op_fill(queue, &(wd_fill_args){.type = WD_F32});
    well(device);
    wd_op_attention(queue, &(wd_attention_args){.type = WD_F32, .head_dim = 1 << 20});
    wd_test_refused(wd_device_fault(device, &err), &err, WD_DEVICE_FAULT, "operation attention");
    wd_queue_close(queue);
    wd_device_close(device);
    assert_int_equal(wd_standin_remove(), 0);
}

/* Opens all there is and closes it. */
static wd_status open_all(void *context, wd_err *err)
{
    wd_device *device = NULL;
    wd_queue *queue = NULL;
    wd_event *event = NULL;
    void *block = NULL, *host = NULL;
    (void)context;
    wd_status status = wd_device_open_cuda(&device, 0, err);
    if (status == WD_OK) status = wd_queue_open(&queue, device, err);
    if (status == WD_OK) status = wd_event_open(&event, device, err);
    if (status == WD_OK) status = wd_device_alloc(&block, device, 100, "x", err);
    if (status == WD_OK) status = wd_host_alloc(&host, device, 100, "y", err);
    if (status == WD_OK) wd_queue_copy(queue, block, host, 100);
    if (status == WD_OK) wd_event_record(event, queue);
    if (status == WD_OK) wd_event_wait_on(queue, event);
    if (status == WD_OK) wd_event_wait(event);
    if (status == WD_OK) wd_queue_wait(queue);
    if (status == WD_OK) status = wd_device_fault(device, err);
    if (block) wd_device_free(device, block);
    if (host) wd_host_free(device, host);
    wd_event_close(event);
    wd_queue_close(queue);
    wd_device_close(device);
    return status;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    install(0);
    wd_test_failing_allocations(open_all, NULL, NULL, 5);
    assert_int_equal(wd_standin_remove(), 0);
}

/* Whichever call of the driver fails, it is an error that names the driver's, and host memory is
 * given back. */
static void calls_of_the_driver_may_fail(void **state)
{
    (void)state;
    int64_t n = 1, refused = 0;
    for (;; n++) {
        wd_err err = {0};
        install(0);
        const int64_t held = wd_memory_held();
        wd_standin_fail_call(n, WD_CU_NOT_SUPPORTED);
        const wd_status status = open_all(NULL, &err);
        const bool reached = wd_standin_count().calls >= n;
        wd_standin_remove(); /* a call that frees may have been what failed */
        assert_int_equal(wd_memory_held(), held);
        if (!reached) break;
        if (status != WD_OK) /* cuBLASLt says it in its own words */
            assert_true(strstr(err.message, "CUDA_ERROR_NOT_SUPPORTED") ||
                        strstr(err.message, "CUBLAS_STATUS_EXECUTION_FAILED"));
        refused += status != WD_OK;
    }
    assert_in_range(n, 60, 400);
    assert_in_range(refused, 50, n);
}

/* ---- threads ---- */

static void *copy_much(void *context)
{
    wd_device *device = context;
    wd_queue *queue = open_queue(device);
    int *host = take_host(device, 64, 3);
    void *block = take(device, 32 * sizeof *host);
    for (int i = 0; i < 200; i++) {
        host[0] = i;
        wd_queue_copy(queue, block, host, 32 * sizeof *host);
        wd_queue_copy(queue, host + 32, block, 32 * sizeof *host);
        wd_queue_wait(queue);
        if (host[32] != i || host[63] != host[31]) abort();
    }
    wd_host_free(device, host);
    wd_queue_close(queue);
    wd_device_free(device, block);
    return NULL;
}

static void several_threads_may_call(void **state)
{
    (void)state;
    pthread_t thread[4];
    install(5);
    wd_device *device[2] = {open_device(0), open_device(1)};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, copy_much, device[i % 2]), 0);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) {
        well(device[i]);
        wd_device_close(device[i]);
    }
    assert_int_equal(wd_standin_remove(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_says_what_it_is),
        cmocka_unit_test(openings_share_a_context),
        cmocka_unit_test(a_gpu_is_shared_where_that_is_asked_for),
        cmocka_unit_test(what_cannot_be_opened_is_refused),
        cmocka_unit_test(old_driver_is_named_before_libraries),
        cmocka_unit_test(context_of_a_gpu_that_others_have_is_explained),
        cmocka_unit_test(what_no_kernel_takes_is_refused_when_it_is_planned),
        cmocka_unit_test(memory_is_counted_in_granules_and_zeroed),
        cmocka_unit_test(a_shortage_names_other_processes),
        cmocka_unit_test(events_order_streams_of_two_gpus),
        cmocka_unit_test(a_missing_event_is_found),
        cmocka_unit_test(copies_are_not_done_at_once),
        cmocka_unit_test(registered_memory_can_be_copied),
        cmocka_unit_test(the_driver_refuses_memory_that_is_not_pinned),
        cmocka_unit_test(the_driver_refuses_too_much_shared_memory),
        cmocka_unit_test(faults_are_kept),
        cmocka_unit_test(an_operation_without_a_kernel_is_a_fault),
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(calls_of_the_driver_may_fail),
        cmocka_unit_test(several_threads_may_call),
    };
    return cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
