/* See api/setup/rank_gpus.h. */
#include "api/setup/rank_gpus.h"

#include <stdio.h>
#include <string.h>

#include "api/setup/rate_cache.h"
#include "core/log.h"
#include "core/memory.h"
#include "dev/library_memory.h"
#include "job/launch/rank_peers.h"

/* ---- that they are of one kind ---- */

/* What a rank computes with. */
typedef struct kinds {
    char first[WD_KERNELS_TEXT]; /* its first device */
    char other[WD_KERNELS_TEXT]; /* the first of its others that is of another kind; "": none */
} kinds;

static const char *kind_of(const wd_devices *devices, int i)
{
    return wd_device_traits(devices->device[i])->kernels;
}

static void list_kinds(kinds *out, const wd_devices *devices)
{
    *out = (kinds){0};
    snprintf(out->first, sizeof out->first, "%s", kind_of(devices, 0));
    for (int i = 1; i < devices->list.count && !out->other[0]; i++)
        if (strcmp(kind_of(devices, i), out->first))
            snprintf(out->other, sizeof out->other, "%s", kind_of(devices, i));
}

/* Where kinds differ; false: nowhere. */
static bool differ(char *out, size_t bytes, const kinds *all, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        if (all[r].other[0])
            snprintf(out, bytes, "rank %d computes with devices of different kinds, %s and %s", r,
                     all[r].first, all[r].other);
        else if (strcmp(all[0].first, all[r].first))
            snprintf(out, bytes, "rank 0 computes with %s, and rank %d with %s", all[0].first, r,
                     all[r].first);
        else
            continue;
        return true;
    }
    return false;
}

wd_status wd_rank_gpus_compare(const wd_devices *devices, wd_comm *comm,
                               const wd_train_options *options, wd_err *err)
{
    kinds *all;
    char text[3 * WD_KERNELS_TEXT];
    WD_TRY(wd_alloc((void **)&all, (size_t)comm->ranks, sizeof *all, "kinds of devices", err));
    list_kinds(&all[comm->rank], devices);
    wd_comm_allgather_small(comm, all, sizeof *all);
    const bool different = differ(text, sizeof text, all, comm->ranks);
    wd_free(all);
    if (!different) return WD_OK;
    if (options->deterministic_reduce)
        return wd_fail(err, WD_MISMATCH,
                       "%s: --deterministic_reduce promises the same student however many ranks "
                       "there are, which devices of different kinds, or with other versions of "
                       "libraries, cannot give. Use devices of one kind (--devices), with the same "
                       "libraries on all hosts, or leave --deterministic_reduce out",
                       text);
    if (comm->rank == 0)
        wd_log(WD_LOG_WARNING,
               "%s: their results differ in the last bits, so the student depends on which of them "
               "computes what, and another number or order of them gives another student",
               text);
    return WD_OK;
}

/* ---- how gradients go ---- */

static bool is_off(const wd_train_options *o, const wd_comm *comm)
{
    return comm->ranks == 1 || !strcmp(o->nccl, "off");
}

/* By way of host memory: `why` is "" where nobody would expect anything else. */
static wd_status go_by_host(const char *why, const wd_comm *comm, const wd_train_options *o,
                            wd_err *err)
{
    if (!strcmp(o->nccl, "on"))
        return wd_fail(err, WD_UNSUPPORTED,
                       "--nccl on: %s. --nccl auto exchanges gradients by way of host memory then",
                       *why ? why : "no rank has an NVIDIA GPU");
    if (*why && comm->rank == 0)
        wd_log(WD_LOG_INFO, "gradients go by way of host memory and MPI: %s", why);
    return WD_OK;
}

/* ---- the memory that NCCL takes ---- */

/* The name of this memory in the cache of measurements. */
static void name_memory(char key[WD_RATE_KEY_MAX], const wd_peers_offer *offer,
                        const wd_device *device, const wd_comm *comm)
{
    snprintf(key, WD_RATE_KEY_MAX, "bytes of %s for %d ranks on %d hosts, %s", offer->library,
             comm->ranks, comm->hosts, wd_device_traits(device)->kernels);
}

/* Keeps what rank 0 has measured, for plans of such ranks. */
static void remember_memory(wd_device *device, const wd_comm *comm, size_t bytes)
{
    wd_peers_offer offer;
    wd_rate_cache cache;
    char key[WD_RATE_KEY_MAX];
    if (comm->rank || !bytes || wd_peers_offer_of(&offer, device, NULL) != WD_OK) return;
    name_memory(key, &offer, device, comm);
    wd_rate_cache_open(&cache);
    wd_rate_cache_put(&cache, key, (double)bytes);
    wd_rate_cache_close(&cache);
}

static void reserve_memory(wd_device *device, const wd_peers_offer *offer, const wd_comm *comm)
{
    wd_rate_cache cache;
    char key[WD_RATE_KEY_MAX];
    name_memory(key, offer, device, comm);
    wd_rate_cache_open(&cache);
    const double bytes = wd_rate_cache_get(&cache, key);
    wd_rate_cache_close(&cache);
    if (bytes > 0)
        wd_device_reserve_more_beside(device, (size_t)bytes);
    else
        wd_log(WD_LOG_WARNING,
               "the plan has no memory for %s: what it takes for %d ranks on %d hosts is known "
               "once such a job has begun on this machine, and for a day",
               offer->library, comm->ranks, comm->hosts);
}

/* ---- opening ---- */

wd_status wd_rank_gpus_open(const wd_devices *devices, wd_comm *comm, wd_watch *watch,
                            const wd_train_options *options, wd_err *err)
{
    char why[WD_RANK_PEERS_TEXT];
    wd_device *device = devices->device[0];
    const size_t before = wd_device_traits(device)->bytes_beside;
    if (is_off(options, comm)) return WD_OK;
    WD_TRY(wd_rank_peers_open(comm, why, device, watch, 0, err));
    if (!comm->peers) return go_by_host(why, comm, options, err);
    remember_memory(device, comm, wd_device_traits(device)->bytes_beside - before);
    if (comm->rank == 0) wd_log(WD_LOG_INFO, "gradients go from GPU to GPU, by NCCL");
    return WD_OK;
}

wd_status wd_rank_gpus_open_planned(const wd_devices *devices, wd_comm *comm,
                                    const wd_train_options *options, wd_err *err)
{
    wd_err why = {0};
    wd_peers_offer offer;
    wd_device *device = devices->device[0];
    if (is_off(options, comm)) return WD_OK;
    if (wd_peers_offer_of(&offer, device, &why) == WD_OK) {
        reserve_memory(device, &offer, comm);
        return wd_peers_open_dry(&comm->peers, err);
    }
    return go_by_host(wd_peers_may(device) ? why.message : "", comm, options, err);
}
