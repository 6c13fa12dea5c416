/* The peak of host memory: see core/host_meter.h. */
#include "core/host_meter.h"

#include <stdatomic.h>
#include <time.h>

#include "core/host.h"
#include "core/memory.h"
#include "core/thread.h"

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
