/* The start of a job: see api/setup/run.h. */
#include "api/setup/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/setup/memory_report.h"
#include "api/setup/ranks.h"
#include "api/setup/rate_cache.h"
#include "core/file_space.h"
#include "core/host.h"
#include "core/log.h"
#include "core/stop.h"
#include "core/temporary_folder.h"
#include "dev/device_open.h"
#include "dev/library_memory.h"

/* Opens the processor beside a device that is none. */
static wd_status open_processor(wd_run *run, int threads, wd_err *err)
{
    static const wd_device_spec spec = {.type = WD_DEVICE_CPU};
    char name[WD_DEVICE_SHORT_NAME];
    if (wd_device_traits(run->device)->reads_host) {
        run->processor = run->device;
        run->host = run->queue;
        return WD_OK;
    }
    WD_TRY(wd_device_open_listed(&run->processor, name, &spec, 0, threads, err));
    return wd_queue_open(&run->host, run->processor, err);
}

wd_status wd_run_open(wd_run *out, wd_job job, const void *options, const char *device,
                      int64_t threads, wd_err *err)
{
    const int alone = (int)wd_threads_alone(threads);
    *out = (wd_run){0};
    WD_TRY(wd_options_check(job, options, err));
    wd_stop_begin();
    out->bytes_before = wd_host_memory_own();
    WD_TRY(wd_device_open_one(&out->device, device ? device : "auto", alone, err));
    wd_status status = wd_device_memory_measure(&out->device, 1, err);
    if (status == WD_OK) status = wd_queue_open(&out->queue, out->device, err);
    if (status == WD_OK) status = open_processor(out, alone, err);
    if (status != WD_OK) wd_run_close(out);
    return status;
}

void wd_run_close(wd_run *run)
{
    if (run->host != run->queue) wd_queue_close(run->host);
    wd_queue_close(run->queue);
    if (run->processor != run->device) wd_device_close(run->processor);
    wd_device_close(run->device);
    *run = (wd_run){0};
}

wd_status wd__run_go_on(wd_err *err)
{
    return wd_stop_requested() ? wd_fail(err, WD_INTERRUPTED, "stopped on request") : WD_OK;
}

/* ---- merged LoRAs ---- */

static const char prefix[] = "wandistiller-loras-";

wd_status wd_merged_make_folder(wd_merged *out, wd_err *err)
{
    const char *above = getenv("TMPDIR");
    if (!above || !*above) above = "/tmp";
    wd_temporary_folder_remove_abandoned(above, prefix);
    out->lock = wd_temporary_folder_make(out->folder, sizeof out->folder, above, prefix);
    if (out->lock >= 0) {
        wd_stop_hold(1);
        return WD_OK;
    }
    *out->folder = '\0';
    return wd_fail(err, WD_IO,
                   "%s: no folder for temporary weights can be made there: %s; set TMPDIR to a "
                   "folder with space for them",
                   above, strerror(errno));
}

/* The bytes of both experts that will be written. */
static wd_status count_bytes(uint64_t *out, const wd_pipeline *p, wd_err *err)
{
    static const wd_component expert[] = {WD_COMPONENT_TRANSFORMER, WD_COMPONENT_TRANSFORMER_2};
    wd_safetensors *set;
    *out = 0;
    for (int e = 0; e < 2; e++) {
        if (!p->has[expert[e]]) continue;
        WD_TRY(wd_pipeline_open_weights(&set, p, expert[e], err));
        *out += wd_overlay_bytes_to_write(set);
        wd_safetensors_close(set);
    }
    return WD_OK;
}

wd_status wd_merged_add(wd_merged *m, wd_pipeline *p, wd_err *err)
{
    const bool quantises = p->overlay.quantised != WD_F32;
    char size[32];
    uint64_t bytes;
    wd_err why = {0};
    if (!*m->folder) WD_TRY(wd_merged_make_folder(m, err));
    p->overlay.folder = m->folder;
    WD_TRY(count_bytes(&bytes, p, err));
    wd_bytes_text(size, sizeof size, bytes);
    if (bytes)
        wd_log(WD_LOG_INFO,
               "%s: %s of %s weights will be written to %s, and removed at the end; set TMPDIR to "
               "use another folder",
               quantises ? "quantisation" : "LoRAs", size, quantises ? "quantised" : "merged",
               m->folder);
    wd_file_space_watch();
    const wd_status status = wd_pipeline_make_overlay(p, &why);
    if (status == WD_OK) return WD_OK;
    const bool lacks = status == WD_IO && wd_file_space_lacked();
    return wd_fail(err, status, "%s%s%s", why.message,
                   lacks ? "; set TMPDIR to a folder with room for " : "", lacks ? size : "");
}

wd_status wd_merged_open(wd_merged *out, wd_pipeline *p, wd_dtype dtype, wd_err *err)
{
    *out->folder = '\0';
    if (!p->lora[0] && !p->lora[1]) return WD_OK;
    p->overlay = (wd_overlay){.dtype = dtype};
    return wd_merged_add(out, p, err);
}

void wd_merged_close(wd_merged *merged)
{
    if (!*merged->folder) return;
    wd_temporary_folder_remove(merged->folder);
    close(merged->lock);
    wd_stop_hold(-1);
    *merged->folder = '\0';
}

/* ---- memory beside the pools ---- */

static wd_status measure_beside(wd_device *device, wd_rate_cache *cache, wd_err *err)
{
    char key[WD_RATE_KEY_MAX];
    size_t bytes;
    snprintf(key, sizeof key, "bytes beside the pool, %s", wd_device_traits(device)->kernels);
    double known = wd_rate_cache_get(cache, key);
    if (!(known > 0)) {
        const wd_status status = wd_device_measure_beside(&bytes, device, err);
        if (status == WD_OUT_OF_MEMORY) return WD_OK;
        WD_TRY(status);
        if (!bytes) return WD_OK; /* loaded already, by an earlier device of this process */
        known = wd_rate_cache_put(cache, key, (double)bytes);
        wd_log(WD_LOG_DEBUG, "%s: libraries took %.0f MiB when they first computed",
               wd_device_name(device), known / (1 << 20));
    }
    wd_device_reserve_beside(device, (size_t)known);
    return WD_OK;
}

wd_status wd_device_memory_measure(wd_device *const *device, int count, wd_err *err)
{
    wd_rate_cache cache = {0};
    wd_status status = WD_OK;
    bool open = false;
    for (int i = 0; i < count && status == WD_OK; i++) {
        if (!wd_device_beside_is_estimate(device[i])) continue;
        if (!open) wd_rate_cache_open(&cache);
        open = true;
        status = measure_beside(device[i], &cache, err);
    }
    if (open) wd_rate_cache_close(&cache);
    return status;
}
