/* Fuzz target: any text as the value of --devices, of a size and of a speed. Accepted devices have
 * memory, and accepted speeds are above zero. */
#include "fuzzing.h"

#include <math.h>

#include "dev/device_list.h"

static bool is_speed(double speed)
{
    return isfinite(speed) && speed >= 0;
}

static void check_list(const wd_device_list *list)
{
    if (list->count < 1 || list->count > WD_DEVICES_MAX) abort();
    if (!is_speed(list->processor_flops_per_s) || !is_speed(list->memory_bytes_per_s)) abort();
    for (int i = 0; i < list->count; i++) {
        const wd_device_spec *d = &list->device[i];
        if (!is_speed(d->link_bytes_per_s)) abort();
        for (int k = 0; k < WD_PRECISIONS; k++)
            if (!is_speed(d->flops_per_s[k])) abort();
        if ((d->type == WD_DEVICE_SIM) != (d->bytes > 0)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[512];
    wd_err err;
    wd_device_list list;
    size_t size;
    double speed;
    const size_t n = bytes < sizeof text - 1 ? bytes : sizeof text - 1;
    memcpy(text, data, n);
    text[n] = '\0';
    if (wd_bytes_parse(&size, "--size", text, &err) == WD_OK && !size) abort();
    if (wd_bandwidth_parse(&speed, "--speed", text, &err) == WD_OK && !(speed > 0)) abort();
    if (wd_device_list_parse(&list, text, &err) != WD_OK) return 0;
    check_list(&list);
    wd_device_list_need_speeds(&list, text, &err);
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int rank = 0; rank < ranks; rank++) {
            wd_device_list part = list;
            if (wd_device_list_share(&part, rank, ranks, &err) == WD_OK) check_list(&part);
        }
    return 0;
}
