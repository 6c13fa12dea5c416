/* Copies between host and device, and within the device: bytes per second by size, from and to
 * pinned host memory. */
#include <stdio.h>

#include "bench/bench.h"

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
} copy;

static void launch(wd_queue *queue, const void *context)
{
    const copy *c = context;
    wd_queue_copy(queue, c->to, c->from, c->bytes);
}

static void report(const char *way, size_t bytes, void *to, const void *from,
                   wd_bench_context *bench)
{
    char line[160];
    const copy c = {to, from, bytes};
    const double seconds = wd_bench_time(bench, launch, &c);
    snprintf(line, sizeof line, "copy, %-21s %8.2f MiB %9.3f ms %9.2f GB/s", way,
             (double)bytes / (1 << 20), seconds * 1e3, (double)bytes / seconds * 1e-9);
    bench->print(bench->context, line);
}

wd_status wd_bench_copies(wd_bench_context *bench, wd_err *err)
{
    static const size_t sizes[] = {64 << 10, 1 << 20, 16 << 20, 256 << 20};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    const size_t most = sizes[SIZES - 1];
    wd_status status;
    void *host = NULL, *a = NULL, *b = NULL;
    WD_TRY_OUT(wd_host_alloc(&host, bench->device, most, "bench", err));
    WD_TRY_OUT(wd_device_alloc(&a, bench->device, most, "bench", err));
    WD_TRY_OUT(wd_device_alloc(&b, bench->device, most, "bench", err));
    for (int i = 0; i < SIZES; i++) {
        report("host to device", sizes[i], a, host, bench);
        report("device to host", sizes[i], host, a, bench);
        report("within the device", sizes[i], b, a, bench);
    }
out:
    wd_queue_wait(bench->queue);
    wd_device_free(bench->device, b);
    wd_device_free(bench->device, a);
    wd_host_free(bench->device, host);
    return status;
}
