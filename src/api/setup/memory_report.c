/* Reports of memory: see api/setup/memory_report.h. */
#include "api/setup/memory_report.h"

#include <stdio.h>
#include <string.h>

#include "core/host.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "io/json/json.h"

const char *wd_bytes_text(char *out, size_t out_bytes, size_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    int u = 0;
    while (v >= 1000 && u < 4) v /= 1024, u++; /* three digits are enough */
    snprintf(out, out_bytes, "%.3g %s", v, unit[u]);
    return out;
}

const char *wd_place_name(const wd_devices *devices, int place)
{
    return place == WD_MEMORY_HOST ? "host memory" : devices->name[place];
}

bool wd_device_beside_text(char out[160], const wd_device *device)
{
    char all[32], libraries[32], others[32];
    const wd_traits *traits = wd_device_traits(device);
    const size_t beside = traits->bytes_beside, gone = traits->bytes_of_others;
    if (!beside && !gone) return false;
    snprintf(out, 160,
             "of its %s libraries take %s, the driver and other processes %s (nvidia-smi lists "
             "them)",
             wd_bytes_text(all, sizeof all, wd_device_bytes_max(device) + beside + gone),
             wd_bytes_text(libraries, sizeof libraries, beside),
             wd_bytes_text(others, sizeof others, gone));
    return true;
}

/* Whether `place` is host memory, or a device with memory of its own. */
static bool is_place(const wd_devices *devices, int place)
{
    return place == WD_MEMORY_HOST || place != devices->processor;
}

static void report_place(const wd_memory_plan *plan, const wd_devices *devices, int place)
{
    char peak[32], mapped[32], item[32], beside[160];
    const size_t most = wd_memory_plan_peak(plan, place);
    if (place == WD_MEMORY_HOST)
        wd_log(WD_LOG_INFO, "memory: %s at the most, and %s of mapped files",
               wd_bytes_text(peak, sizeof peak, most),
               wd_bytes_text(mapped, sizeof mapped, plan->mapped_bytes));
    else
        wd_log(WD_LOG_INFO, "%s: %s at the most, of %s", devices->name[place],
               wd_bytes_text(peak, sizeof peak, most),
               wd_bytes_text(mapped, sizeof mapped, wd_device_bytes_max(devices->device[place])));
    if (place != WD_MEMORY_HOST && wd_device_beside_text(beside, devices->device[place]))
        wd_log(WD_LOG_INFO, "  %s", beside);
    for (int i = 0; i < plan->items; i++) {
        const wd_memory_item *p = &plan->item[i];
        if (p->place != place) continue;
        wd_log(p->bytes >= most / 100 ? WD_LOG_INFO : WD_LOG_DEBUG, "  %-10s %-32s %s",
               wd_memory_phase_name(p->phase), p->name, wd_bytes_text(item, sizeof item, p->bytes));
    }
}

void wd_memory_report_plan(const wd_memory_plan *plan, const wd_devices *devices)
{
    for (int place = WD_MEMORY_HOST; place < devices->count; place++)
        if (is_place(devices, place)) report_place(plan, devices, place);
}

/* The measured memory of a device. */
typedef struct measured {
    const wd_memory_plan *plan;
    int place;
} measured;

static void report_item(void *context, const char *what, size_t bytes)
{
    const measured *m = context;
    char planned[32], found[32];
    const wd_memory_item *as = wd_memory_plan_find(m->plan, what, m->place);
    wd_log(WD_LOG_INFO, "  %-10s %-32s planned %-9s measured %s",
           as ? wd_memory_phase_name(as->phase) : "", what,
           as ? wd_bytes_text(planned, sizeof planned, as->bytes) : "-",
           wd_bytes_text(found, sizeof found, bytes));
}

void wd_memory_report_measured(const wd_memory_plan *plan, const wd_devices *devices,
                               size_t host_bytes)
{
    char planned[32], found[32];
    for (int place = WD_MEMORY_HOST; place < devices->count; place++) {
        if (!is_place(devices, place)) continue;
        const int device = place == WD_MEMORY_HOST ? devices->processor : place;
        measured m = {plan, place};
        const size_t most =
            place == WD_MEMORY_HOST ? host_bytes : wd_device_bytes_peak(devices->device[place]);
        const bool simulated =
            place == WD_MEMORY_HOST && devices->list.device[0].type == WD_DEVICE_SIM;
        wd_log(WD_LOG_INFO, "%s: planned %s, measured %s%s", wd_place_name(devices, place),
               wd_bytes_text(planned, sizeof planned, wd_memory_plan_peak(plan, place)),
               wd_bytes_text(found, sizeof found, most),
               simulated ? ", the pools of simulated devices included" : "");
        wd_device_each_peak(devices->device[device], report_item, &m);
    }
}

/* ---- the other ranks ---- */

enum { RANK_TEXT = 4096 };

/* A rank's figures, line by line. */
typedef struct rank_lines {
    char text[RANK_TEXT];
    size_t used;
} rank_lines;

static void add_teacher(void *context, const char *what, size_t bytes)
{
    rank_lines *to = context;
    char text[32];
    if (strncmp(what, "teacher", strlen("teacher")) || !bytes) return;
    to->used = wd_append_text(to->text, sizeof to->text, to->used, ", %s %s", what,
                              wd_bytes_text(text, sizeof text, bytes));
}

/* What of the teacher a rank has in host memory is planned, since ranks of a host share it. */
static void add_shared(rank_lines *to, const wd_memory_plan *plan)
{
    for (int i = 0; i < plan->items; i++)
        if (plan->item[i].place == WD_MEMORY_HOST && strstr(plan->item[i].name, "teacher weights"))
            add_teacher(to, "teacher weights", plan->item[i].bytes);
}

static void describe(rank_lines *to, const wd_memory_plan *plan, const wd_devices *devices,
                     size_t host_bytes)
{
    char planned[32], found[32];
    for (int place = WD_MEMORY_HOST; place < devices->count; place++) {
        if (!is_place(devices, place)) continue;
        const bool is_host = place == WD_MEMORY_HOST;
        const size_t most = is_host ? host_bytes : wd_device_bytes_peak(devices->device[place]);
        to->used =
            wd_append_text(to->text, sizeof to->text, to->used, "%s: planned %s, measured %s",
                           wd_place_name(devices, place),
                           wd_bytes_text(planned, sizeof planned, wd_memory_plan_peak(plan, place)),
                           wd_bytes_text(found, sizeof found, most));
        if (is_host)
            add_shared(to, plan);
        else
            wd_device_each_peak(devices->device[place], add_teacher, to);
        to->used = wd_append_text(to->text, sizeof to->text, to->used, "\n");
    }
}

wd_status wd_memory_report_ranks(wd_comm *comm, const wd_memory_plan *plan,
                                 const wd_devices *devices, size_t host_bytes, wd_err *err)
{
    rank_lines *all;
    if (comm->ranks == 1) return WD_OK;
    WD_TRY(wd_alloc((void **)&all, (size_t)comm->ranks, sizeof *all, "what ranks say", err));
    describe(&all[comm->rank], plan, devices, host_bytes);
    wd_comm_allgather_small(comm, all, sizeof *all);
    for (int r = 0; r < comm->ranks; r++) {
        char *rest, *line = strtok_r(all[r].text, "\n", &rest);
        for (; line; line = strtok_r(NULL, "\n", &rest))
            wd_log(WD_LOG_INFO, "rank %d: %s", r, line);
    }
    wd_free(all);
    return WD_OK;
}

/* Host memory: bytes of this process, and free bytes. */
typedef struct host_memory {
    size_t own, free;
} host_memory;

/* Reads both figures. The time does not depend on the amount of memory, since the watch of a
 * running job reads them every two seconds. (wd_host_memory_own walks the page tables, which takes
 * 20 ms per GiB.) */
static host_memory see_host(int sharers)
{
    return (host_memory){wd_host_memory_part(sharers), wd_host_memory_available()};
}

static void say_now(char out[160], const wd_devices *d, int device, const host_memory *host)
{
    char allocated[32], reserved[32], total[32], free[32];
    const size_t now = wd_device_bytes(d->device[device]);
    const bool is_host = device == d->processor;
    const size_t most = is_host ? host->free + host->own : wd_device_bytes_max(d->device[device]);
    snprintf(out, 160, "allocated %s, reserved %s, total %s, free %s",
             wd_bytes_text(allocated, sizeof allocated, now),
             wd_bytes_text(reserved, sizeof reserved, is_host ? host->own : now),
             wd_bytes_text(total, sizeof total, most),
             wd_bytes_text(free, sizeof free, is_host ? host->free : most - now));
}

static void see(void *witness)
{
    wd_memory_witness *w = witness;
    if (w->has_seen) return;
    const host_memory host = see_host(w->sharers);
    for (int d = 0; d < w->devices->count; d++) say_now(w->then[d], w->devices, d, &host);
    w->has_seen = true;
}

void wd_memory_witness_begin(wd_memory_witness *witness)
{
    wd_on_shortage(see, witness);
}

/* The memory of a device when an allocation failed, or now if none did. */
static const char *witness_says(char out[160], const wd_memory_witness *witness, int device,
                                const host_memory *host)
{
    if (witness->has_seen) return witness->then[device];
    say_now(out, witness->devices, device, host);
    return out;
}

const char *wd_memory_witness_says(char out[160], const wd_memory_witness *witness, int device)
{
    const host_memory host = see_host(witness->sharers);
    return witness_says(out, witness, device, &host);
}

void wd_memory_report_note(void *witness, wd_watch_note *out)
{
    const wd_memory_witness *w = witness;
    const host_memory host = see_host(w ? w->sharers : 1);
    char text[160];
    size_t names = 0, lines = 0;
    if (!w) {
        snprintf(out->memory, sizeof out->memory, "host memory: reserved %s, free %s",
                 wd_bytes_text(text, 32, host.own), wd_bytes_text(text + 32, 32, host.free));
        return;
    }
    const wd_devices *d = w->devices;
    for (int i = 0; i < d->count; i++) {
        names = wd_append_text(out->device, sizeof out->device, names, "%s%s", i ? ", " : "",
                               d->name[i]);
        lines = wd_append_text(out->memory, sizeof out->memory, lines, "%s: %s\n", d->name[i],
                               witness_says(text, w, i, &host));
    }
}

json_t *wd_memory_plan_json(const wd_memory_plan *plan, const wd_devices *devices, size_t before)
{
    json_t *items = json_array(), *peaks = json_object();
    for (int i = 0; i < plan->items; i++) {
        const wd_memory_item *p = &plan->item[i];
        json_array_append_new(items, json_pack("{s:s, s:s, s:s, s:I}", "name", p->name, "where",
                                               wd_place_name(devices, p->place), "while",
                                               wd_memory_phase_name(p->phase), "bytes",
                                               (json_int_t)p->bytes));
    }
    for (int d = 0; d < devices->count; d++)
        if (is_place(devices, d))
            json_object_set_new(peaks, devices->name[d],
                                json_integer((json_int_t)wd_memory_plan_peak(plan, d)));
    return json_pack("{s:I, s:I, s:I, s:o, s:o}", "bytes_peak",
                     (json_int_t)wd_memory_plan_peak(plan, WD_MEMORY_HOST), "bytes_before",
                     (json_int_t)before, "bytes_mapped", (json_int_t)plan->mapped_bytes, "devices",
                     peaks, "items", items);
}

static json_t *measured_peaks(const wd_devices *devices)
{
    json_t *peaks = json_object();
    for (int d = 0; d < devices->count; d++)
        if (is_place(devices, d))
            json_object_set_new(peaks, devices->name[d],
                                json_integer((json_int_t)wd_device_bytes_peak(devices->device[d])));
    return peaks;
}

wd_status wd_memory_report_add(json_t *run, const char *path, const wd_devices *devices,
                               wd_err *err)
{
    json_t *memory = json_object_get(run, "memory");
    if (!json_is_object(memory))
        return wd_fail(err, WD_BAD_FORMAT, "%s: expected an object \"memory\", found none", path);
    if (json_object_set_new(memory, "devices_measured", measured_peaks(devices)))
        return wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to write it", path);
    return WD_OK;
}
