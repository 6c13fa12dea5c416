/* The ring: `slots` closed slots at most, and one open. Each slot has its place in one host buffer,
 * and an event that happens when its copies are done. */
#include "train/network/readback.h"

#include <inttypes.h>

#include "core/error.h"
#include "core/memory.h"

typedef struct slot {
    float *value;
    int64_t tag, count;
    wd_event *done;
} slot;

struct wd_readback {
    wd_device *device;
    int slots;
    int64_t values_max;
    float *values; /* [slots, values_max] */
    slot *slot;    /* [slots] */
    int open;      /* index of the open slot */
    int pending;
};

wd_status wd_readback_open(wd_readback **out, wd_device *device, int slots, int64_t values_max,
                           wd_err *err)
{
    WD_REQUIRE(slots >= 2 && values_max >= 1, "%d slots of %" PRId64 " values", slots, values_max);
    wd_readback *readback = NULL;
    wd_status status = WD_OK;
    WD_TRY(wd_alloc((void **)&readback, 1, sizeof *readback, "readback ring", err));
    *readback = (wd_readback){.device = device, .slots = slots, .values_max = values_max};
    WD_TRY_OUT(
        wd_alloc((void **)&readback->slot, (size_t)slots, sizeof(slot), "readback slots", err));
    WD_TRY_OUT(wd_host_alloc((void **)&readback->values, device,
                             (size_t)slots * (size_t)values_max * sizeof(float), "readback values",
                             err));
    for (int i = 0; i < slots; i++) {
        readback->slot[i].value = readback->values + i * values_max;
        WD_TRY_OUT(wd_event_open(&readback->slot[i].done, device, err));
    }
out:
    if (status == WD_OK)
        *out = readback;
    else
        wd_readback_close(readback);
    return status;
}

void wd_readback_close(wd_readback *readback)
{
    if (!readback) return;
    while (readback->pending) wd_readback_take(readback);
    for (int i = 0; readback->slot && i < readback->slots; i++) {
        wd_event_close(readback->slot[i].done);
    }
    wd_host_free(readback->device, readback->values);
    wd_free(readback->slot);
    wd_free(readback);
}

static void require_open_slot(const wd_readback *readback)
{
    WD_REQUIRE(readback->pending < readback->slots, "all %d slots are on their way",
               readback->slots);
}

void wd_readback_gather(wd_readback *readback, const float *from, int64_t count, wd_queue *queue)
{
    slot *s = &readback->slot[readback->open];
    require_open_slot(readback);
    WD_REQUIRE(count >= 0 && s->count + count <= readback->values_max,
               "a slot has room for %" PRId64 " values and gets %" PRId64, readback->values_max,
               s->count + count);
    wd_queue_copy(queue, s->value + s->count, from, (size_t)count * sizeof(float));
    s->count += count;
}

void wd_readback_commit(wd_readback *readback, int64_t tag, wd_queue *queue)
{
    require_open_slot(readback);
    slot *s = &readback->slot[readback->open];
    s->tag = tag;
    wd_event_record(s->done, queue);
    readback->open = (readback->open + 1) % readback->slots;
    readback->pending++;
}

int wd_readback_pending(const wd_readback *readback)
{
    return readback->pending;
}

wd_readback_values wd_readback_take(wd_readback *readback)
{
    WD_REQUIRE(readback->pending > 0, "a result is taken, and none is on its way");
    int oldest = (readback->open - readback->pending + readback->slots) % readback->slots;
    slot *s = &readback->slot[oldest];
    wd_event_wait(s->done);
    wd_readback_values values = {.tag = s->tag, .count = s->count, .value = s->value};
    s->count = 0;
    readback->pending--;
    return values;
}
