/* Opening devices: see dev/device_open.h. */
#include "dev/device_open.h"

#include <stdio.h>
#include <string.h>

#include "dev/cuda.h"

wd_status wd_device_open_listed(wd_device **out, char name[WD_DEVICE_SHORT_NAME],
                                const wd_device_spec *spec, int index, int threads, wd_err *err)
{
    const wd_sim_options options = {
        .number = index,
        .bytes = spec->bytes,
        .link_bytes_per_s = spec->link_bytes_per_s,
        .flops_per_s = {spec->flops_per_s[WD_16_BIT], spec->flops_per_s[WD_32_BIT]}};
    switch (spec->type) {
    case WD_DEVICE_CPU:
        snprintf(name, WD_DEVICE_SHORT_NAME, "cpu");
        return wd_device_open_cpu(out, threads, err);
    case WD_DEVICE_CUDA:
        snprintf(name, WD_DEVICE_SHORT_NAME, "cuda:%d", spec->number);
        return wd_device_open_cuda(out, spec->number, err);
    case WD_DEVICE_SIM:
        break;
    }
    snprintf(name, WD_DEVICE_SHORT_NAME, "sim:%d", index);
    return wd_device_open_sim(out, &options, err);
}

wd_status wd_device_open_one(wd_device **out, const char *text, int threads, wd_err *err)
{
    wd_device_list list;
    char name[WD_DEVICE_SHORT_NAME];
    WD_TRY(wd_device_list_parse(&list, text, err));
    if (list.count > 1 && strcmp(text, "auto"))
        return wd_fail(err, WD_INVALID_ARGUMENT, "--device %s: expected one device, found %d", text,
                       list.count);
    wd_device_list_warn(&list);
    wd_err why;
    const wd_status status = wd_device_open_listed(out, name, &list.device[0], 0, threads, &why);
    if (status == WD_OK) return WD_OK;
    if (status != WD_UNSUPPORTED || strcmp(text, "auto"))
        return wd_fail(err, status, "%s", why.message);
    wd_device_list_take_processor(&list, &why);
    wd_device_list_warn(&list);
    return wd_device_open_listed(out, name, &list.device[0], 0, threads, err);
}
