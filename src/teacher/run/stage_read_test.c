/* What comes from the files to a device is copied once. Reads put it into pinned host memory, past
 * the page cache, and the device copies it from where it was read: no byte is copied in between,
 * and none that was not asked for. On a simulated device, which ends the process where a copy names
 * memory that is not pinned, and, compiled with WD_STANDIN_GPUS, on a GPU's stand-in.
 *
 * Linked with --wrap=wd_file_reader_read, --wrap=wd_file_reader_read_pages and
 * --wrap=wd_queue_copy, so that reads and copies are seen here. */
#include "teacher/plan/stage_layout.h"

#include "harness/host.h"
#ifdef WD_STANDIN_GPUS
#include "dev/cuda.h"
#include "standin/driver.h"
#endif

enum { READS_MAX = 1024, SWEEPS = 2 };

/* What was read of a file, and where it came to. */
typedef struct reading {
    const char *at;
    size_t bytes;
} reading;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    reading last[READS_MAX]; /* that nothing else was read over yet */
    int readings;
    size_t read, copied, elsewhere; /* bytes: read, copied from where they were read, and from
                                     * other host memory */
    int ordinary;                   /* reads by way of the page cache */
} seen;

wd_status __real_wd_file_reader_read(wd_file_reader *reader, void *to, const char *path,
                                     uint64_t offset, size_t bytes, wd_err *err);
wd_status __wrap_wd_file_reader_read(wd_file_reader *reader, void *to, const char *path,
                                     uint64_t offset, size_t bytes, wd_err *err);

wd_status __wrap_wd_file_reader_read(wd_file_reader *reader, void *to, const char *path,
                                     uint64_t offset, size_t bytes, wd_err *err)
{
    pthread_mutex_lock(&lock);
    seen.ordinary++;
    pthread_mutex_unlock(&lock);
    return __real_wd_file_reader_read(reader, to, path, offset, bytes, err);
}

wd_status __real_wd_file_reader_read_pages(wd_file_reader *reader, void *room, const char *path,
                                           uint64_t offset, size_t bytes, wd_err *err);
wd_status __wrap_wd_file_reader_read_pages(wd_file_reader *reader, void *room, const char *path,
                                           uint64_t offset, size_t bytes, wd_err *err);

wd_status __wrap_wd_file_reader_read_pages(wd_file_reader *reader, void *room, const char *path,
                                           uint64_t offset, size_t bytes, wd_err *err)
{
    assert_int_equal((uintptr_t)room % WD_READ_PAGE, 0);
    pthread_mutex_lock(&lock);
    const char *first = room, *end = first + wd_file_reader_room(bytes);
    int kept = 0;
    for (int i = 0; i < seen.readings; i++) {
        const reading r = seen.last[i];
        if (r.at + r.bytes <= first || r.at >= end) seen.last[kept++] = r;
    }
    assert_in_range(kept, 0, READS_MAX - 1);
    seen.last[kept] = (reading){wd_file_reader_place(room, offset), bytes};
    seen.readings = kept + 1;
    seen.read += bytes;
    pthread_mutex_unlock(&lock);
    return __real_wd_file_reader_read_pages(reader, room, path, offset, bytes, err);
}

static wd_device *device; /* that computes */

void __real_wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes);
void __wrap_wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes);

/* Whole tensors, from where they begin. */
void __wrap_wd_queue_copy(wd_queue *queue, void *to, const void *from, size_t bytes)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < seen.readings; i++)
        found |= seen.last[i].at == from && seen.last[i].bytes == bytes;
    if (found)
        seen.copied += bytes;
    else
        seen.elsewhere += bytes;
    pthread_mutex_unlock(&lock);
    assert_ptr_equal(wd_queue_device(queue), device);
    __real_wd_queue_copy(queue, to, from, bytes);
}

static void open_computing(rank *r)
{
#ifdef WD_STANDIN_GPUS
    wd_standin_options options = WD_STANDIN_DEFAULTS;
    wd_err err = {0};
    open_devices(r, false);
    wd_standin_install_all(&options);
    wd_test_ok(wd_device_open_cuda(&r->device, 0, &err), &err);
    wd_test_ok(wd_queue_open(&r->queue, r->device, &err), &err);
#else
    open_devices(r, true);
#endif
    device = r->device;
}

static void close_computing(rank *r)
{
    close_devices(r);
#ifdef WD_STANDIN_GPUS
    assert_int_equal(wd_standin_remove(), 0);
#endif
}

/* Of all tensors of the transformers that the teacher has, as they are in the files. */
static size_t bytes_in_files(const wd_pipeline *pipeline)
{
    static const wd_component component[] = {WD_COMPONENT_TRANSFORMER, WD_COMPONENT_TRANSFORMER_2};
    size_t bytes = 0;
    wd_err err = {0};
    for (int e = 0; e < wd_teacher_experts(pipeline); e++) {
        wd_safetensors *weights;
        wd_test_ok(wd_pipeline_open_weights(&weights, pipeline, component[e], &err), &err);
        for (int64_t i = 0; i < wd_safetensors_count(weights); i++)
            bytes += wd_tensor_bytes(&wd_safetensors_at(weights, i)->tensor);
        wd_safetensors_close(weights);
    }
    return bytes;
}

static void check(const wd_pipeline *pipeline, wd_dtype storage)
{
    rank r;
    open_computing(&r);
    memset(&seen, 0, sizeof seen);
    wd_residency *there = open_teacher(&r, pipeline, WD_HOME_DEVICE, storage, NULL);
    seen.elsewhere = 0; /* copies of what stays on the device, if any */
    wd_residency *disk = open_teacher(&r, pipeline, WD_HOME_DISK, storage, NULL);
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        wd__residency_begin(disk, (wd_sweep_experts){3, 3}, (wd_sweep_experts){0, 0});
        for (int e = 0; e < wd_residency_info_of(disk)->placement.experts; e++)
            for (int s = 0; s < stages_of(disk); s++) compare_stage(&r, disk, there, e, s);
    }
    wd_queue_wait(r.queue);
    wd_residency_close(disk);
    assert_int_equal(seen.read, SWEEPS * bytes_in_files(pipeline));
    assert_int_equal(seen.copied, seen.read);
    assert_int_equal(seen.elsewhere, 0);
    assert_int_equal(seen.ordinary, 0);
    wd_residency_close(there);
    close_computing(&r);
}

static void as_it_is_in_the_files(void **state)
{
    (void)state;
    check(&tiny, WD_BF16);
    check(&large, WD_BF16);
}

static void converted_on_the_device(void **state)
{
    (void)state;
    check(&tiny, WD_F32);
    check(&large, WD_F32);
}

/* A tensor that would not be aligned to its dtype in its room is read to the room's start. */
static void what_lies_unaligned_is_moved(void **state)
{
    (void)state;
    char path[256], *room = aligned_alloc(WD_READ_PAGE, wd_file_reader_room(64));
    wd_file_reader *reader;
    wd_err err = {0};
    snprintf(path, sizeof path, "%s/bytes", wd_test_folder());
    wd_test_ok(wd_file_write(path, "0123456789abcdef", 16, &err), &err);
    wd_test_ok(wd_file_reader_open(&reader, &err), &err);
    wd_safetensors_entry entry = {.file = path,
                                  .file_offset = 3,
                                  .tensor = {.dtype = WD_F32, .ndim = 1, .dim = {2}},
                                  .unaligned = true};
    wd_stage_layout layout = {.parts = 1, .entry = {&entry}, .file = {entry.tensor}};
    wd_test_ok(wd_stage_read(room, &layout, reader, &err), &err);
    wd_stage_was_read(&layout, room);
    assert_ptr_equal(layout.file[0].data, room);
    assert_memory_equal(room, "3456789a", 8);
    entry.file_offset = 4;
    entry.unaligned = false;
    wd_test_ok(wd_stage_read(room, &layout, reader, &err), &err);
    wd_stage_was_read(&layout, room);
    assert_ptr_equal(layout.file[0].data, room + 4);
    assert_memory_equal(room + 4, "456789ab", 8);
    wd_file_reader_close(reader);
    free(room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_it_is_in_the_files),
        cmocka_unit_test(converted_on_the_device),
        cmocka_unit_test(what_lies_unaligned_is_moved),
    };
    return cmocka_run_group_tests(tests, open_pipelines, NULL);
}
