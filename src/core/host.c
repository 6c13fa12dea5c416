/* The memory of the host: see core/host.h. */
#include "core/host.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/cgroup.h"
#include "core/memory.h"
#include "core/thread.h"

/* The number of `key` in a file of "key: number kB" lines; UINT64_MAX if it is missing. */
static uint64_t kib_of(const char *path, const char *key)
{
    FILE *file = fopen(path, "r");
    if (!file) return UINT64_MAX;
    char line[256];
    uint64_t value = UINT64_MAX;
    while (value == UINT64_MAX && fgets(line, sizeof line, file)) {
        size_t n = strlen(key);
        if (!strncmp(line, key, n) && line[n] == ':') sscanf(line + n + 1, "%" SCNu64, &value);
    }
    fclose(file);
    return value;
}

/* The smaller of a number of KiB, UINT64_MAX if it is not known, and of bytes. */
static size_t smaller(uint64_t kib, uint64_t bytes)
{
    const uint64_t of_host = kib == UINT64_MAX ? UINT64_MAX : kib * 1024;
    return (size_t)(of_host < bytes ? of_host : bytes);
}

size_t wd_host_memory_available(void)
{
    wd_cgroup_limits limits;
    wd_cgroup_read(&limits, "");
    return smaller(kib_of("/proc/meminfo", "MemAvailable"), limits.memory_left);
}

/* Resident memory without mapped files, in KiB. */
typedef struct resident {
    uint64_t anonymous, shared;
} resident;

static bool find_resident(resident *out)
{
    out->anonymous = kib_of("/proc/self/status", "RssAnon");
    out->shared = kib_of("/proc/self/status", "RssShmem");
    return out->anonymous != UINT64_MAX && out->shared != UINT64_MAX;
}

/* The part of `shared` that counts for other processes. */
static uint64_t shared_by_others(uint64_t shared)
{
    const uint64_t part = kib_of("/proc/self/smaps_rollup", "Pss_Shmem");
    return part < shared ? shared - part : 0;
}

size_t wd_host_memory_own(void)
{
    resident now;
    if (!find_resident(&now)) return 0;
    return (size_t)(now.anonymous + now.shared - shared_by_others(now.shared)) * 1024;
}

size_t wd_host_memory_part(int sharers)
{
    resident now;
    if (!find_resident(&now)) return 0;
    return (size_t)(now.anonymous + now.shared / (uint64_t)sharers) * 1024;
}

size_t wd_host_memory_own_peak(void)
{
    uint64_t all = kib_of("/proc/self/status", "VmHWM");
    uint64_t mapped = kib_of("/proc/self/status", "RssFile");
    resident now;
    if (all == UINT64_MAX || mapped == UINT64_MAX) return 0;
    if (find_resident(&now)) mapped += shared_by_others(now.shared);
    return all > mapped ? (size_t)(all - mapped) * 1024 : 0;
}

void wd_host_memory_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* ---- the peak, sampled by a thread ---- */

enum { LOOK_NS = 10 * 1000 * 1000 };

struct wd_host_meter {
    pthread_t thread;
    int sharers;
    _Atomic size_t peak;
    atomic_bool closing;
};

static void look(wd_host_meter *m)
{
    const size_t now = wd_host_memory_part(m->sharers);
    if (now > m->peak) m->peak = now;
}

static void *run(void *context)
{
    wd_host_meter *m = context;
    while (!m->closing) {
        look(m);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    return NULL;
}

wd_status wd_host_meter_open(wd_host_meter **out, int sharers, wd_err *err)
{
    wd_host_meter *m;
    WD_TRY(wd_alloc((void **)&m, 1, sizeof *m, "a meter of host memory", err));
    m->sharers = sharers;
    if (wd_thread_start(&m->thread, run, m)) {
        wd_free(m);
        return wd_fail(err, WD_OUT_OF_MEMORY, "no thread for a meter of host memory");
    }
    *out = m;
    return WD_OK;
}

size_t wd_host_meter_peak(wd_host_meter *meter)
{
    return meter->peak;
}

void wd_host_meter_close(wd_host_meter *meter)
{
    if (!meter) return;
    meter->closing = true;
    pthread_join(meter->thread, NULL);
    wd_free(meter);
}
