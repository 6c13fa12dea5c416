/* Peers: dispatch to the kind of device, and peers of plans. See dev/peers.h. */
#include "dev/peers.h"

#include "core/error.h"
#include "core/memory.h"
#include "dev/device_impl.h"

bool wd_peers_may(const wd_device *device)
{
    return device->kind->peers != NULL;
}

wd_status wd_peers_offer_of(wd_peers_offer *out, wd_device *device, wd_err *err)
{
    *out = (wd_peers_offer){0};
    if (device->kind->peers) return device->kind->peers->offer(out, device, err);
    return wd_fail(err, WD_UNSUPPORTED, "%s is not an NVIDIA GPU", device->name);
}

wd_status wd_peers_make_key(unsigned char key[WD_PEERS_KEY_BYTES], wd_device *device, wd_err *err)
{
    return device->kind->peers->make_key(key, device, err);
}

wd_status wd_peers_open(wd_peers **out, wd_device *device, const wd_peers_options *options,
                        wd_err *err)
{
    WD_REQUIRE(options->member >= 0 && options->member < options->members, "peer %d of %d",
               options->member, options->members);
    return device->kind->peers->open(out, device, options, err);
}

void wd_peers_exchange(wd_peers *peers, wd_queue *queue, const wd_peer_move *moves, int count)
{
    if (queue->device->is_dry) return;
    WD_REQUIRE(queue->device == peers->device,
               "an exchange of another device's peers on a queue of %s", queue->device->name);
    for (int i = 0; i < count; i++)
        WD_REQUIRE(moves[i].peer >= 0 && moves[i].peer < peers->members &&
                       moves[i].peer != peers->member && !moves[i].from != !moves[i].to,
                   "move %d of an exchange, with peer %d of %d", i, moves[i].peer, peers->members);
    peers->kind->exchange(peers, queue, moves, count);
}

void wd_peers_close(wd_peers *peers)
{
    if (peers) peers->kind->close(peers);
}

/* ---- peers of plans ---- */

static void dry_close(wd_peers *peers)
{
    wd_free(peers);
}

wd_status wd_peers_open_dry(wd_peers **out, wd_err *err)
{
    static const wd_peers_kind dry = {.close = dry_close};
    WD_TRY(wd_alloc((void **)out, 1, sizeof **out, "peers", err));
    **out = (wd_peers){.kind = &dry};
    return WD_OK;
}
