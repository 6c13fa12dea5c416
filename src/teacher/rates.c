/* Rates: see teacher/rates.h. A measurement begins small and grows until it takes long enough to be
 * trusted: so a slow device is not kept busy, and a fast one is not misjudged. Others may be at
 * work on the machine: the fastest of several is taken. */
#include "teacher/rates.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/memory.h"
#include "dev/ops.h"
#include "io/file_reader.h"

enum {
    SIDE_MAX = 1024,
    COPY_LEAST = 64 << 10,
    COPY_MOST = 16 << 20,
    READ_MOST = 8 << 20,
    SAMPLES = 4
};

static const double LONG_ENOUGH_S = 0.01;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- products ---- */

static double faster(double a, double b)
{
    return a < b ? a : b;
}

static double time_product(wd_queue *queue, const wd_matmul_args *args)
{
    double begun = wd_clock_s();
    wd_op_matmul(queue, args);
    wd_queue_wait(queue);
    return wd_clock_s() - begun;
}

wd_status wd_rate_of_products(double *flops_per_s, wd_queue *queue, wd_dtype dtype, int64_t m,
                              int64_t k, int64_t n, wd_err *err)
{
    wd_status status;
    wd_device *device = wd_queue_device(queue);
    void *a = NULL, *b = NULL, *c = NULL;
    size_t item = wd_dtype_bytes(dtype);
    m = least(m, SIDE_MAX), k = least(k, SIDE_MAX), n = least(n, SIDE_MAX);
    WD_TRY_OUT(wd_device_alloc(&a, device, (size_t)(m * k) * item, "a measurement", err));
    WD_TRY_OUT(wd_device_alloc(&b, device, (size_t)(n * k) * item, "a measurement", err));
    WD_TRY_OUT(wd_device_alloc(&c, device, (size_t)(m * n) * item, "a measurement", err));
    wd_matmul_args args = {.c = c,
                           .a = a,
                           .b = b,
                           .c_type = dtype,
                           .a_type = dtype,
                           .b_type = dtype,
                           .transpose_b = true,
                           .m = 1,
                           .n = n,
                           .k = k,
                           .lda = k,
                           .ldb = k,
                           .ldc = n,
                           .batch = 1};
    double seconds = 0;
    for (args.m = least(m, 16);; args.m = least(m, 4 * args.m)) {
        time_product(queue, &args); /* makes the kernel */
        seconds = time_product(queue, &args);
        if (args.m == m || seconds > LONG_ENOUGH_S) break;
    }
    for (int i = 1; i < SAMPLES; i++) seconds = faster(seconds, time_product(queue, &args));
    *flops_per_s = 2.0 * (double)args.m * (double)n * (double)k / seconds;
out:
    wd_device_free(device, a);
    wd_device_free(device, b);
    wd_device_free(device, c);
    return status;
}

/* ---- links ---- */

static double time_copy(wd_queue *queue, void *to, const void *from, size_t bytes)
{
    double begun = wd_clock_s();
    wd_queue_copy(queue, to, from, bytes);
    wd_queue_wait(queue);
    return wd_clock_s() - begun;
}

wd_status wd_rate_of_link(double *bytes_per_s, wd_queue *queue, wd_err *err)
{
    wd_status status;
    wd_device *device = wd_queue_device(queue);
    void *to = NULL, *from = NULL;
    size_t most = COPY_MOST, free = wd_device_bytes_max(device) - wd_device_bytes(device);
    if (free < most) most = free;
    WD_TRY_OUT(wd_device_alloc(&to, device, most, "a measurement", err));
    WD_TRY_OUT(wd_alloc(&from, most, 1, "a measurement", err));
    size_t bytes = most < COPY_LEAST ? most : COPY_LEAST;
    double seconds;
    while (seconds = time_copy(queue, to, from, bytes), bytes < most && seconds < LONG_ENOUGH_S)
        bytes = 4 * bytes < most ? 4 * bytes : most;
    for (int i = 1; i < SAMPLES; i++) seconds = faster(seconds, time_copy(queue, to, from, bytes));
    *bytes_per_s = (double)bytes / seconds;
out:
    wd_free(from);
    wd_device_free(device, to);
    return status;
}

wd_status wd_rate_of_memory(double *bytes_per_s, wd_err *err)
{
    char *to;
    double seconds = INFINITY;
    WD_TRY(wd_alloc((void **)&to, 2, COPY_MOST, "a measurement", err));
    for (int i = 0; i < SAMPLES; i++) {
        const double begun = wd_clock_s();
        memcpy(to + i % 2 * COPY_MOST, to + (i + 1) % 2 * COPY_MOST, COPY_MOST);
        seconds = faster(seconds, wd_clock_s() - begun);
    }
    *bytes_per_s = COPY_MOST / seconds;
    wd_free(to);
    return WD_OK;
}

/* ---- disks ---- */

/* Drops the file's pages; returns its bytes, 0 if it cannot be opened. */
static uint64_t forget_pages(const char *path)
{
    struct stat about = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    if (fstat(fd, &about)) about.st_size = 0;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return (uint64_t)about.st_size;
}

wd_status wd_rate_of_disk(double *bytes_per_s, const char *path, wd_err *err)
{
    wd_status status;
    wd_file_reader *reader = NULL;
    void *to = NULL;
    uint64_t whole = forget_pages(path), at = 0;
    if (!whole) return wd_fail(err, WD_IO, "%s: cannot be read", path);
    size_t piece = whole < COPY_LEAST ? (size_t)whole : COPY_LEAST;
    WD_TRY_OUT(wd_file_reader_open(&reader, err));
    WD_TRY_OUT(wd_alloc(&to, READ_MOST, 1, "a measurement", err));
    *bytes_per_s = 0;
    for (int samples = 0; samples < SAMPLES && at < whole;) {
        if (piece > whole - at) piece = (size_t)(whole - at);
        const double begun = wd_clock_s();
        WD_TRY_OUT(wd_file_reader_read(reader, to, path, at, piece, err));
        const double seconds = wd_clock_s() - begun, rate = (double)piece / seconds;
        const bool grows = !samples && piece < READ_MOST && seconds <= LONG_ENOUGH_S;
        if (!samples || rate > *bytes_per_s) *bytes_per_s = rate;
        at += piece;
        if (grows)
            piece = 4 * piece < READ_MOST ? 4 * piece : READ_MOST;
        else
            samples++;
    }
out:
    wd_file_reader_close(reader);
    wd_free(to);
    return status;
}
