/* Activations from rank to rank: see teacher/run/activation_transfer.h. */
#include "teacher/run/activation_transfer.h"

#include "core/memory.h"

wd_status wd_activation_transfer_open(wd_activation_transfer *out, wd_comm *comm,
                                      wd_activations *activations, wd_err *err)
{
    wd_status status;
    const int64_t most = activations->options->micro_batch;
    *out = (wd_activation_transfer){
        .comm = comm,
        .queue = activations->queue,
        .bytes = wd_sweep_packed_bytes(activations->options, most, WD_STAGE_BLOCK)};
    WD_TRY_OUT(wd_host_alloc((void **)&out->staging, activations->device,
                             WD_TRANSFERS_UNDER_WAY * out->bytes, "activations on their way", err));
    for (int i = 0; i < WD_TRANSFERS_UNDER_WAY; i++)
        WD_TRY_OUT(wd_event_open(&out->copied[i], activations->device, err));
out:
    if (status != WD_OK) wd_activation_transfer_close(out);
    return status;
}

void wd_activation_transfer_close(wd_activation_transfer *transfer)
{
    if (transfer->queue) wd_queue_wait(transfer->queue);
    for (int i = 0; i < WD_TRANSFERS_UNDER_WAY; i++) {
        if (i < transfer->sends) wd_comm_wait(transfer->comm, transfer->sent[i]);
        wd_event_close(transfer->copied[i]);
    }
    if (transfer->queue) wd_host_free(wd_queue_device(transfer->queue), transfer->staging);
    *transfer = (wd_activation_transfer){0};
}

void wd_activation_transfer_send(wd_activation_transfer *c, wd_activations *from,
                                 wd_activation_place *place, int64_t samples, wd_stage_kind next,
                                 int to)
{
    const int i = (int)(c->sends % WD_TRANSFERS_UNDER_WAY);
    char *staging = c->staging + (size_t)i * c->bytes;
    if (c->sends++ >= WD_TRANSFERS_UNDER_WAY) wd_comm_wait(c->comm, c->sent[i]);
    wd_activations_pack(staging, from, place, samples, next);
    wd_event_record(c->copied[i], from->queue);
    wd_event_record(place->left, from->queue);
    c->sent[i] =
        wd_comm_send(c->comm, WD_LANE_ACTIVATIONS, staging,
                     wd_sweep_packed_bytes(from->options, samples, next), to, c->copied[i]);
}

void wd_activation_transfer_receive(wd_activation_transfer *c, wd_activations *to,
                                    wd_activation_place *place, int64_t samples, wd_stage_kind next,
                                    int from)
{
    const int i = (int)(c->receives++ % WD_TRANSFERS_UNDER_WAY);
    char *staging = c->staging + (size_t)i * c->bytes;
    wd_event_wait(c->copied[i]);
    wd_comm_wait(c->comm, wd_comm_receive(c->comm, WD_LANE_ACTIVATIONS, staging,
                                          wd_sweep_packed_bytes(to->options, samples, next), from));
    wd_activations_unpack(to, place, staging, samples, next);
    wd_event_record(c->copied[i], to->queue);
}
