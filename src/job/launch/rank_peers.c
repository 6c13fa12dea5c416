/* See job/launch/rank_peers.h. */
#include "job/launch/rank_peers.h"

#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "job/launch/launch.h"
#include "job/watch/deadline.h"

/* The time from the limit of the library's own operations, which report in detail what failed, to
 * the deadline of a call that does not return. */
static const double deadline_later_s = 2;

/* What a rank tells the others. */
typedef struct notice {
    int host;
    bool may; /* its kind of device can have peers */
    wd_peers_offer offer;
    char why_not[WD_RANK_PEERS_TEXT / 2]; /* "": it has made an offer */
} notice;

static void write_notice(notice *out, const wd_comm *comm, wd_device *device)
{
    wd_err err = {0};
    *out = (notice){.host = comm->host, .may = wd_peers_may(device)};
    if (wd_peers_offer_of(&out->offer, device, &err) != WD_OK)
        snprintf(out->why_not, sizeof out->why_not, "%s", err.message);
}

/* What is in the way of two ranks, of which the second is `b`; false: nothing. */
static bool is_in_the_way(char *why, const notice *all, int a, int b)
{
    const wd_peers_offer *first = &all[a].offer, *second = &all[b].offer;
    if (all[b].why_not[0])
        snprintf(why, WD_RANK_PEERS_TEXT, "rank %d: %s", b, all[b].why_not);
    else if (a < b && strcmp(first->library, second->library))
        snprintf(why, WD_RANK_PEERS_TEXT, "rank %d has %s and rank %d %s", a, first->library, b,
                 second->library);
    else if (a < b && all[a].host == all[b].host && !strcmp(first->hardware, second->hardware))
        snprintf(why, WD_RANK_PEERS_TEXT,
                 "ranks %d and %d have one GPU (%s), and NCCL wants one "
                 "for each",
                 a, b, first->hardware);
    else
        return false;
    return true;
}

static void find_what_is_in_the_way(char *why, const notice *all, int ranks)
{
    bool may = false;
    *why = 0;
    for (int r = 0; r < ranks; r++) may |= all[r].may;
    for (int b = 0; b < ranks && may; b++)
        for (int a = 0; a <= b; a++)
            if (is_in_the_way(why, all, a, b)) return;
}

static wd_status can_be_peers(bool *out, char *why, wd_comm *comm, wd_device *device, wd_err *err)
{
    notice *all;
    WD_TRY(wd_alloc((void **)&all, (size_t)comm->ranks, sizeof *all, "what ranks offer", err));
    write_notice(&all[comm->rank], comm, device);
    wd_comm_allgather_small(comm, all, sizeof *all);
    find_what_is_in_the_way(why, all, comm->ranks);
    *out = all[0].may && !*why;
    wd_free(all);
    return WD_OK;
}

/* The first rank's, told to all. */
static wd_status share_key(unsigned char *key, wd_comm *comm, wd_device *device, wd_err *err)
{
    unsigned char *all;
    wd_status status = WD_OK;
    WD_TRY(wd_alloc((void **)&all, (size_t)comm->ranks, WD_PEERS_KEY_BYTES, "keys", err));
    if (comm->rank == 0) status = wd_peers_make_key(all, device, err);
    if (status == WD_OK) {
        wd_comm_allgather_small(comm, all, WD_PEERS_KEY_BYTES);
        memcpy(key, all, WD_PEERS_KEY_BYTES);
    }
    wd_free(all);
    return status;
}

static void end_job(void *watch, const wd_err *fault)
{
    wd_watch_fail(watch, fault);
}

/* The library may hang in any of its calls, in rank 0's for the key, too. */
static wd_status connect(wd_comm *comm, wd_device *device, wd_watch *watch, double limit_s,
                         wd_err *err)
{
    wd_deadline *deadline;
    wd_peers_options options = {.member = comm->rank,
                                .members = comm->ranks,
                                .open_s = limit_s,
                                .on_fault = watch ? end_job : NULL,
                                .context = watch};
    WD_TRY(wd_deadline_start(&deadline, comm->rank, limit_s + deadline_later_s,
                             "connecting the GPUs of all ranks by NCCL (NCCL_DEBUG=INFO in the "
                             "environment makes it say more; --nccl off exchanges gradients by way "
                             "of host memory)",
                             err));
    wd_deadline_report_by(deadline, watch);
    wd_status status = share_key(options.key, comm, device, err);
    if (status == WD_OK) status = wd_peers_open(&comm->peers, device, &options, err);
    wd_deadline_stop(deadline);
    return status;
}

wd_status wd_rank_peers_open(wd_comm *comm, char why[WD_RANK_PEERS_TEXT], wd_device *device,
                             wd_watch *watch, double limit_s, wd_err *err)
{
    bool can;
    comm->peers = NULL;
    WD_TRY(can_be_peers(&can, why, comm, device, err));
    if (!can) return WD_OK;
    return connect(comm, device, watch,
                   limit_s > 0 ? limit_s : wd_launch_limit_s(comm->ranks, true), err);
}

void wd_rank_peers_close(wd_comm *comm)
{
    if (!comm->peers) return;
    wd_comm_barrier(comm);
    wd_peers_close(comm->peers);
    comm->peers = NULL;
}
