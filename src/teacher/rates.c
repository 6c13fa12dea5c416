/* Rates: see teacher/rates.h. A measurement begins small and grows until it takes long enough to be
 * trusted: so a slow device is not kept busy, and a fast one is not misjudged. Others may be at
 * work on the machine: the fastest of several samples is taken, and that all of them were long is
 * what ends growth. */
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
    SIDE_SATURATING =
        8192,           /* of devices that work while the host goes on: a GPU is not full below */
    LAUNCHES_MOST = 64, /* one after another on such a device, so that the first one's way there
                         * does not count */
    ROWS_LEAST = 16,
    COPY_LEAST = 64 << 10,
    COPY_MOST = 16 << 20,
    COPY_SATURATING = 64 << 20,
    READ_LEAST = 64 << 10,
    READ_MOST = 8 << 20, /* systems seldom read more ahead */
    SAMPLES = 5          /* the first of a size may have things to make or to find */
};

/* Several slices of a scheduler: threads that wait for one another take one or two where others are
 * at work, however little they have to do. */
static const double LONG_ENOUGH_S = 0.05;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Takes one sample of `size`: how many seconds. */
typedef wd_status sample_fn(double *seconds, void *context, int64_t size, wd_err *err);

/* `size` per second, of the first size from `from` to `most` whose fastest sample is long. */
static wd_status measure(double *per_s, sample_fn *sample, void *context, int64_t from,
                         int64_t most, wd_err *err)
{
    for (int64_t size = least(from, most);; size = least(2 * size, most)) {
        double fastest = INFINITY;
        for (int i = 0; i < SAMPLES; i++) {
            double seconds;
            WD_TRY(sample(&seconds, context, size, err));
            fastest = fmin(fastest, seconds);
            if (size < most && fastest <= LONG_ENOUGH_S) break;
        }
        *per_s = (double)size / fastest;
        if (size == most || fastest > LONG_ENOUGH_S) return WD_OK;
    }
}

/* ---- products ---- */

typedef struct product {
    wd_queue *queue;
    wd_matmul_args args;
    int64_t rows_max; /* of a launch */
} product;

static wd_status sample_product(double *seconds, void *context, int64_t rows, wd_err *err)
{
    product *p = context;
    (void)err;
    const double begun = wd_clock_s();
    for (int64_t left = rows; left > 0; left -= p->args.m) {
        p->args.m = least(left, p->rows_max);
        wd_op_matmul(p->queue, &p->args);
    }
    wd_queue_wait(p->queue);
    *seconds = wd_clock_s() - begun;
    return WD_OK;
}

/* The largest side of which three matrices have room in the pool. */
static int64_t saturating_side(const wd_device *device, size_t item)
{
    const size_t free = wd_device_bytes_max(device) - wd_device_bytes(device);
    int64_t side = SIDE_SATURATING;
    while (side > SIDE_MAX && 3 * (size_t)(side * side) * item > free) side /= 2;
    return side;
}

wd_status wd_rate_of_products(double *flops_per_s, wd_queue *queue, wd_dtype dtype, int64_t m,
                              int64_t k, int64_t n, wd_err *err)
{
    wd_status status;
    wd_device *device = wd_queue_device(queue);
    void *a = NULL, *b = NULL, *c = NULL;
    size_t item = wd_dtype_bytes(dtype);
    const bool at_once = wd_device_traits(device)->synchronous;
    const int64_t side = at_once ? SIDE_MAX : saturating_side(device, item);
    m = least(m, side), k = least(k, side), n = least(n, side);
    WD_TRY_OUT(wd_device_alloc(&a, device, (size_t)(m * k) * item, "a measurement", err));
    WD_TRY_OUT(wd_device_alloc(&b, device, (size_t)(n * k) * item, "a measurement", err));
    WD_TRY_OUT(wd_device_alloc(&c, device, (size_t)(m * n) * item, "a measurement", err));
    product p = {queue,
                 {.c = c,
                  .a = a,
                  .b = b,
                  .c_type = dtype,
                  .a_type = dtype,
                  .b_type = dtype,
                  .transpose_b = true,
                  .n = n,
                  .k = k,
                  .lda = k,
                  .ldb = k,
                  .ldc = n,
                  .batch = 1},
                 m};
    double rows_per_s;
    WD_TRY_OUT(
        measure(&rows_per_s, sample_product, &p, ROWS_LEAST, at_once ? m : m * LAUNCHES_MOST, err));
    *flops_per_s = 2.0 * rows_per_s * (double)n * (double)k;
out:
    wd_device_free(device, a);
    wd_device_free(device, b);
    wd_device_free(device, c);
    return status;
}

/* ---- links ---- */

typedef struct copy {
    wd_queue *queue;
    void *to, *from;
} copy;

static wd_status sample_copy(double *seconds, void *context, int64_t bytes, wd_err *err)
{
    const copy *c = context;
    (void)err;
    const double begun = wd_clock_s();
    wd_queue_copy(c->queue, c->to, c->from, (size_t)bytes);
    wd_queue_wait(c->queue);
    *seconds = wd_clock_s() - begun;
    return WD_OK;
}

wd_status wd_rate_of_link(double *bytes_per_s, wd_queue *queue, wd_err *err)
{
    wd_status status;
    wd_device *device = wd_queue_device(queue);
    copy c = {.queue = queue};
    size_t most = wd_device_traits(device)->synchronous ? COPY_MOST : COPY_SATURATING;
    size_t free = wd_device_bytes_max(device) - wd_device_bytes(device);
    if (free < most) most = free;
    WD_TRY_OUT(wd_device_alloc(&c.to, device, most, "a measurement", err));
    WD_TRY_OUT(wd_host_alloc(&c.from, device, most, "a measurement", err));
    WD_TRY_OUT(measure(bytes_per_s, sample_copy, &c, COPY_LEAST, (int64_t)most, err));
out:
    wd_host_free(device, c.from);
    wd_device_free(device, c.to);
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
        seconds = fmin(seconds, wd_clock_s() - begun);
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

typedef struct disk {
    wd_file_reader *reader;
    const char *path;
    void *to;
    int64_t at, whole;
} disk;

/* Finds nothing in memory: what others left there is forgotten, and what the system read ahead for
 * the one before, or still does, is not asked for. */
static wd_status sample_read(double *seconds, void *context, int64_t bytes, wd_err *err)
{
    disk *d = context;
    if (bytes > d->whole - d->at) d->at = 0;
    forget_pages(d->path);
    const double begun = wd_clock_s();
    WD_TRY(
        wd_file_reader_read_pages(d->reader, d->to, d->path, (uint64_t)d->at, (size_t)bytes, err));
    *seconds = wd_clock_s() - begun;
    d->at += bytes + READ_MOST;
    return WD_OK;
}

wd_status wd_rate_of_disk(double *bytes_per_s, const char *path, wd_err *err)
{
    wd_status status;
    void *block = NULL;
    disk d = {.path = path, .whole = (int64_t)forget_pages(path)};
    if (!d.whole) return wd_fail(err, WD_IO, "%s: cannot be read", path);
    const int64_t most = least(READ_MOST, d.whole);
    WD_TRY_OUT(wd_file_reader_open(&d.reader, err));
    WD_TRY_OUT(
        wd_alloc(&block, wd_file_reader_room(READ_MOST) + WD_READ_PAGE, 1, "a measurement", err));
    d.to = (char *)block + WD_READ_PAGE - (uintptr_t)block % WD_READ_PAGE;
    WD_TRY_OUT(measure(bytes_per_s, sample_read, &d, READ_LEAST, most, err));
out:
    wd_file_reader_close(d.reader);
    wd_free(block);
    return status;
}
