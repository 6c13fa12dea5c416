/* What a placement says in bytes is what the residencies allocate; and the published models. */
#include "teacher/plan/stage_layout.h"

#include "placements.h"
#include "teacher_copy.h"
#include "test_preset.h"

#include "teacher/plan/strategy.h"
#include "teacher/run/residency.h"

static wd_pipeline tiny;
static wd_teacher_files files[2];

static int open_model(const char *path)
{
    wd_err err = {0};
    wd_safetensors *weights;
    wd_test_ok(wd_pipeline_open(&tiny, path, &err), &err);
    for (int e = 0; e < 2; e++) {
        wd_test_ok(
            wd_pipeline_open_weights(
                &weights, &tiny, e ? WD_COMPONENT_TRANSFORMER_2 : WD_COMPONENT_TRANSFORMER, &err),
            &err);
        files[e] = (wd_teacher_files){.weights = weights};
    }
    return 0;
}

static int open_tiny(void **state)
{
    (void)state;
    return open_model(WD_SOURCE_DIR "/models/wan-tiny");
}

/* One more space at the end of its header, and no tensor of a file is aligned any more. */
static void shift_tensors(const char *path)
{
    wd_err err;
    char *data, *shifted;
    size_t bytes;
    uint64_t header;
    wd_test_ok(wd_file_read(&data, &bytes, path, (size_t)1 << 30, &err), &err);
    wd_test_ok(wd_alloc((void **)&shifted, bytes + 1, 1, "a file", &err), &err);
    memcpy(&header, data, sizeof header);
    const size_t end = sizeof header + (size_t)header++;
    memcpy(shifted, &header, sizeof header);
    memcpy(shifted + sizeof header, data + sizeof header, end - sizeof header);
    shifted[end] = ' ';
    memcpy(shifted + end + 1, data + end, bytes - end);
    wd_test_ok(wd_file_write(path, shifted, bytes + 1, &err), &err);
    wd_free(shifted);
    wd_free(data);
}

static int open_unaligned(void **state)
{
    static const char *const files_of[] = {"transformer", "transformer_2"};
    char model[WD_PATH_MAX], file[64];
    (void)state;
    wd_test_copy_teacher(model, "unaligned");
    for (int e = 0; e < 2; e++) {
        snprintf(file, sizeof file, "%s/diffusion_pytorch_model.safetensors", files_of[e]);
        shift_tensors(wd_test_in(model, file));
    }
    open_model(model);
    assert_true(wd_safetensors_find(files[0].weights, "proj_out.weight")->unaligned);
    return 0;
}

static int close_tiny(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++) wd_safetensors_close((wd_safetensors *)(uintptr_t)files[e].weights);
    return 0;
}

/* Bytes that a residency on the processor holds, pool and host. */
static size_t measured(wd_strategy strategy, wd_dtype storage)
{
    wd_err err = {0};
    wd_device *device;
    wd_queue *queue;
    wd_residency *r;
    wd_test_ok(wd_device_open_cpu(&device, 1, &err), &err);
    wd_test_ok(wd_queue_open(&queue, device, &err), &err);
    const wd_placement p =
        wd_test_all_in(&tiny, strategy == WD_STRATEGY_cpu ? WD_HOME_DEVICE : WD_HOME_DISK);
    wd_test_ok(wd_residency_open_placed(&r, &tiny, &p, storage, &queue, NULL, NULL, &err), &err);
    size_t bytes = wd_device_bytes(device) + wd_residency_info_of(r)->host_bytes;
    wd_residency_close(r);
    wd_queue_close(queue);
    wd_device_close(device);
    return bytes;
}

static void bytes_are_those_of_residencies(void **state)
{
    (void)state;
    static const wd_dtype storage[] = {WD_F32, WD_BF16, WD_F16};
    static const wd_strategy strategy[] = {WD_STRATEGY_cpu, WD_STRATEGY_disk};
    const wd_cluster cluster = {.devices = 1,
                                .device = {{.reads_host = true, .flops_per_s = {1, 1}}}};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            wd_err err = {0};
            wd_teacher_size size;
            wd_placement p;
            wd_test_ok(wd_teacher_size_of(&size, &tiny.dit, 2, files, storage[i], &err), &err);
            wd_test_ok(wd_strategy_place(&p, strategy[k], &size, &cluster, 0, &err), &err);
            wd_placed_bytes bytes;
            wd__placement_bytes(&bytes, &p, &size, &cluster);
            assert_int_equal(measured(strategy[k], storage[i]), wd__placed_host_total(&bytes.host));
        }
}

/* That of the files. */
static wd_dtype stored_dtype(void)
{
    return wd_safetensors_find(files[0].weights, "proj_out.weight")->tensor.dtype;
}

/* A processor reads what is kept as it is in the files to where it is used: beside that it needs
 * room for what it converts, and none if that is nothing. */
static void a_processor_reads_in_place(void **state)
{
    (void)state;
    wd_err err = {0};
    const wd_cluster cluster = {.devices = 1,
                                .device = {{.reads_host = true, .flops_per_s = {1, 1}}}};
    const wd_dtype stored = stored_dtype();
    for (int converts = 0; converts < 2; converts++) {
        wd_teacher_size size;
        wd_placement p;
        const wd_dtype storage = !converts ? stored : stored == WD_F32 ? WD_BF16 : WD_F32;
        wd_test_ok(wd_teacher_size_of(&size, &tiny.dit, 2, files, storage, &err), &err);
        wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_disk, &size, &cluster, 0, &err), &err);
        wd_placed_bytes bytes;
        wd__placement_bytes(&bytes, &p, &size, &cluster);
        if (converts)
            assert_true(bytes.host.reading >= size.stage[0][1].file / 2);
        else
            assert_int_equal(bytes.host.reading, 0);
    }
}

/* Bytes of a device, which is closed, and of host memory, of a dry run: what a rank counts as its
 * part of a host's; `like` NULL: it is alone. */
static size_t planned(const wd_placement *p, wd_dtype storage, wd_device *device,
                      const wd_comm *like)
{
    wd_err err = {0};
    wd_device *dry;
    wd_queue *queue;
    wd_residency *r;
    wd_comm *comm = NULL;
    if (like) wd_test_ok(wd_comm_open_dry(&comm, like, &err), &err);
    wd_test_ok(wd_device_open_dry(&dry, device, &err), &err);
    wd_test_ok(wd_queue_open(&queue, dry, &err), &err);
    wd_queue *processor = wd_device_traits(device)->reads_host ? queue : NULL;
    wd_test_ok(wd_residency_open_placed(&r, &tiny, p, storage, &queue, processor, comm, &err),
               &err);
    const size_t bytes = wd_device_bytes(dry) + wd_residency_info_of(r)->host_bytes;
    wd_residency_close(r);
    wd_queue_close(queue);
    wd_device_close(dry);
    wd_device_close(device);
    wd_comm_close(comm);
    return bytes;
}

static wd_device *processor(void)
{
    wd_err err;
    wd_device *device;
    wd_test_ok(wd_device_open_cpu(&device, 1, &err), &err);
    return device;
}

static wd_device *simulated(void)
{
    wd_err err;
    wd_device *device;
    const wd_sim_options options = {.bytes = (size_t)1 << 30};
    wd_test_ok(wd_device_open_sim(&device, &options, &err), &err);
    return device;
}

/* Of the blocks of one expert so many come from disk, the rest stays where it is mapped: there is
 * no place that none of them would ever be in. */
static void few_blocks_need_few_slots(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_teacher_size size;
    const wd_cluster cluster = {.devices = 1,
                                .device = {{.reads_host = true, .flops_per_s = {1, 1}}}};
    const wd_dtype storage = stored_dtype();
    wd_test_ok(wd_teacher_size_of(&size, &tiny.dit, 2, files, storage, &err), &err);
    for (int blocks = 1; blocks <= size.stages - 2; blocks++) {
        wd_placement p;
        wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_cpu, &size, &cluster, 0, &err), &err);
        p.buffers = WD_STREAM_BUFFERS_MAX;
        for (int s = 1; s <= blocks; s++) p.place[1][s].home = WD_HOME_DISK;
        wd_placed_bytes bytes;
        wd__placement_bytes(&bytes, &p, &size, &cluster);
        assert_int_equal(wd__placed_host_total(&bytes.host),
                         (size_t)blocks * size.stage[1][1].device);
        assert_int_equal(planned(&p, storage, processor(), NULL),
                         wd__placed_host_total(&bytes.host));
    }
}

/* Stages that are read for a device have two stagings, each of which takes the largest of them. */
static void stagings_take_the_largest_stage(void **state)
{
    (void)state;
    static const wd_dtype storage[] = {WD_F32, WD_BF16, WD_F16};
    const wd_cluster cluster = {.devices = 1, .device = {{.flops_per_s = {1, 1}}}};
    for (int i = 0; i < 3; i++)
        for (int ends = 0; ends < 2; ends++) {
            wd_err err = {0};
            wd_teacher_size size;
            wd_placement p;
            wd_test_ok(wd_teacher_size_of(&size, &tiny.dit, 2, files, storage[i], &err), &err);
            const wd_stage_size *stage = size.stage[0];
            const int head = size.stages - 1;
            assert_true(stage[0].reading > stage[head].reading);
            wd_test_ok(wd_strategy_place(&p, WD_STRATEGY_gpu, &size, &cluster, 0, &err), &err);
            p.place[0][ends ? 0 : 1].home = WD_HOME_DISK;
            if (ends) p.place[0][head].home = WD_HOME_DISK;
            wd_placed_bytes bytes;
            wd__placement_bytes(&bytes, &p, &size, &cluster);
            assert_int_equal(bytes.host.reading, 2 * stage[ends ? 0 : 1].reading);
            assert_int_equal(planned(&p, storage[i], simulated(), NULL),
                             wd_placed_total(&bytes.device[0]) +
                                 wd__placed_host_total(&bytes.host));
        }
}

/* What the ranks of a host count together is what its placement says of the host. */
static void ranks_add_up_to_their_host(void **state)
{
    (void)state;
    enum { RANKS = 6, HOSTS = 2, HERE = RANKS / HOSTS, PAGES = 3 * 4096 }; /* of a ring */
    static const wd_dtype storage[] = {WD_F32, WD_BF16, WD_F16};
    static const wd_strategy strategy[] = {WD_STRATEGY_cpu, WD_STRATEGY_disk};
    const wd_comm like = {
        .rank = 1, .ranks = RANKS, .hosts = HOSTS, .host_rank = 1, .host_ranks = HERE};
    const wd_cluster cluster = {.ranks = RANKS,
                                .hosts = HOSTS,
                                .devices = 1,
                                .device = {{.reads_host = true, .flops_per_s = {1, 1}}}};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            wd_err err = {0};
            wd_teacher_size size;
            wd_placement p;
            wd_test_ok(wd_teacher_size_of(&size, &tiny.dit, 2, files, storage[i], &err), &err);
            wd_test_ok(wd_strategy_place(&p, strategy[k], &size, &cluster, 0, &err), &err);
            wd_placed_bytes bytes;
            wd__placement_bytes(&bytes, &p, &size, &cluster);
            const size_t host = wd__placed_host_total(&bytes.host);
            const size_t counted = HERE * planned(&p, storage[i], processor(), &like);
            assert_in_range(counted, host, host + HERE + PAGES);
        }
}

/* 14,288,491,584 weights in each expert of A14B, 28.6 GB in bf16. */
static void a_published_model(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_teacher_size size;
    const wd_dit_config a14b = wd_test_preset("wan2.2-a14b").dit;
    const wd_teacher_files f32[2] = {{.dtype = WD_F32}, {.dtype = WD_F32}};
    size_t device = 0, file = 0, host = 0;
    wd_test_ok(wd_teacher_size_of(&size, &a14b, 2, f32, WD_BF16, &err), &err);
    for (int e = 0; e < 2; e++)
        for (int s = 0; s < size.stages; s++) {
            device += size.stage[e][s].device;
            host += size.stage[e][s].host;
            file += size.stage[e][s].file;
        }
    assert_int_equal(file, 2 * 57153966336);
    assert_in_range(device, 2 * 28576983168, 2 * 28576983168 + (size_t)400000000);
    assert_true(host < device); /* fp32 islands are used as mapped */
}

/* What is quantised on its way in has a byte for each weight of a matrix, and its scales. */
static void a_published_model_quantised(void **state)
{
    (void)state;
    wd_err err = {0};
    wd_teacher_size size;
    const wd_dit_config a14b = wd_test_preset("wan2.2-a14b").dit;
    const wd_teacher_files f32 = {.dtype = WD_F32, .quantised = WD_F8_E4M3};
    const size_t d = 5120, e = 13824, matrices = 8 * d * d + 2 * d * e, rows = 9 * d + e;
    const size_t islands = 4 * (6 * d + 2 * d); /* the table, norm2 */
    const size_t others = 9 * d + e + 4 * d;    /* biases, norms of q and k */
    wd_test_ok(wd_teacher_size_of(&size, &a14b, 1, &f32, WD_BF16, &err), &err);
    assert_int_equal(size.stage[0][1].file, matrices + 4 * rows + islands + 4 * others);
    assert_in_range(size.stage[0][1].device, matrices + 4 * rows + islands + 2 * others,
                    matrices + 4 * rows + islands + 2 * others + 64 * 60);
    assert_int_equal(size.stage[0][1].widened, 2 * matrices);
    assert_int_equal(size.stage[0][0].widened, 0);
    assert_int_equal(size.stage[0][size.stages - 1].widened, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_residencies),
        cmocka_unit_test(a_processor_reads_in_place),
        cmocka_unit_test(few_blocks_need_few_slots),
        cmocka_unit_test(stagings_take_the_largest_stage),
        cmocka_unit_test(ranks_add_up_to_their_host),
        cmocka_unit_test(a_published_model),
        cmocka_unit_test(a_published_model_quantised),
    };
    const struct CMUnitTest unaligned[] = {
        cmocka_unit_test(bytes_are_those_of_residencies),
        cmocka_unit_test(a_processor_reads_in_place),
        cmocka_unit_test(stagings_take_the_largest_stage),
        cmocka_unit_test(ranks_add_up_to_their_host),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny) +
           cmocka_run_group_tests(unaligned, open_unaligned, close_tiny);
}
