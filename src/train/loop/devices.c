/* See train/loop/devices.h. */
#include "train/loop/devices.h"

#include <string.h>

#include "dev/device_open.h"

static wd_status open_device(wd_devices *d, int i, const wd_device_spec *spec, int64_t threads,
                             wd_err *err)
{
    if (spec->type == WD_DEVICE_CPU) d->processor = i;
    return wd_device_open_listed(&d->device[i], d->name[i], spec, i, (int)threads, err);
}

static wd_status open_devices(wd_devices *d, int64_t threads, wd_err *err)
{
    static const wd_device_spec processor = {.type = WD_DEVICE_CPU};
    d->processor = -1;
    for (; d->count < d->list.count; d->count++)
        WD_TRY(open_device(d, d->count, &d->list.device[d->count], threads, err));
    if (d->processor >= 0) return WD_OK;
    WD_TRY(open_device(d, d->count, &processor, threads, err));
    d->count++;
    return WD_OK;
}

static wd_status open_queues(wd_devices *d, wd_err *err)
{
    wd_device *processor = d->device[d->processor];
    int other = 0; /* the first that does not read the processor's pool in place */
    while (other < d->count && wd_device_traits(d->device[other])->reads_host) other++;
    if (other < d->count && wd_device_traits(processor)->reads_host)
        wd_host_register_pool(d->device[other], processor);
    for (int i = 0; i < d->count; i++) WD_TRY(wd_queue_open(&d->teacher[i], d->device[i], err));
    d->host = d->student = d->home = d->teacher[d->processor];
    if (d->processor == 0) return WD_OK;
    d->student = d->home = NULL;
    WD_TRY(wd_queue_open(&d->student, d->device[0], err));
    return wd_queue_open(&d->home, d->device[0], err);
}

/* Opens the processor where `auto` has found GPUs that cannot be used, such as without cuDNN. */
static wd_status open_processor_instead(wd_devices *d, int64_t threads, const wd_err *why,
                                        wd_err *err)
{
    wd_device_list list;
    wd_device_list_take_processor(&list, why);
    wd_device_list_warn(&list);
    wd_devices_close(d);
    d->list = list;
    return open_devices(d, threads, err);
}

wd_status wd_devices_open_shared(wd_devices *out, const char *list, int64_t threads,
                                 const wd_comm *comm, wd_err *err)
{
    *out = (wd_devices){0};
    WD_TRY(wd_device_list_parse(&out->list, list, err));
    if (!comm || comm->host_rank == 0) wd_device_list_warn(&out->list);
    if (comm) WD_TRY(wd_device_list_share(&out->list, comm->host_rank, comm->host_ranks, err));
    if (out->list.count >= WD_PLACED_DEVICES_MAX)
        return wd_fail(err, WD_UNSUPPORTED,
                       "--devices %s: expected at most %d devices for a rank, found %d", list,
                       WD_PLACED_DEVICES_MAX - 1, out->list.count);
    const bool alone = !comm || comm->ranks == 1; /* all ranks take devices of one kind */
    wd_err why;
    wd_status status = open_devices(out, threads, &why);
    if (status == WD_UNSUPPORTED && alone && !out->count && !strcmp(list, "auto"))
        status = open_processor_instead(out, threads, &why, err);
    else if (status != WD_OK && err)
        *err = why;
    if (status == WD_OK) status = open_queues(out, err);
    if (status != WD_OK) wd_devices_close(out);
    return status;
}

wd_status wd_devices_open(wd_devices *out, const char *list, int64_t threads, wd_err *err)
{
    return wd_devices_open_shared(out, list, threads, NULL, err);
}

wd_status wd__devices_open_dry(wd_devices *out, const wd_devices *target, wd_err *err)
{
    wd_status status = WD_OK;
    *out = (wd_devices){.list = target->list, .processor = target->processor};
    memcpy(out->name, target->name, sizeof out->name);
    for (; out->count < target->count && status == WD_OK; out->count++)
        status = wd_device_open_dry(&out->device[out->count], target->device[out->count], err);
    if (status == WD_OK) status = open_queues(out, err);
    if (status != WD_OK) wd_devices_close(out);
    return status;
}

void wd_devices_close(wd_devices *devices)
{
    if (devices->student != devices->host) wd_queue_close(devices->student);
    if (devices->home != devices->host) wd_queue_close(devices->home);
    for (int i = 0; i < WD_PLACED_DEVICES_MAX; i++) wd_queue_close(devices->teacher[i]);
    for (int i = 0; i < WD_PLACED_DEVICES_MAX; i++) wd_device_close(devices->device[i]);
    *devices = (wd_devices){0};
}
