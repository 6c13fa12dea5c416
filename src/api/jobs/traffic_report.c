/* The bytes that ranks have sent: see api/jobs/traffic_report.h. */
#include "api/jobs/traffic_report.h"

#include <inttypes.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"

wd_status wd_traffic_report(wd_comm *comm, wd_err *err)
{
    static const char *const name[WD_LANES] = {[WD_LANE_CONTROL] = "control",
                                               [WD_LANE_GRADIENTS] = "gradients",
                                               [WD_LANE_TARGETS] = "targets",
                                               [WD_LANE_ACTIVATIONS] = "activations"};
    const size_t bytes = sizeof comm->sent;
    int64_t *all;
    if (comm->ranks == 1) return WD_OK;
    WD_TRY(wd_alloc((void **)&all, (size_t)comm->ranks, bytes, "what ranks have sent", err));
    memcpy(all + comm->rank * WD_LANES, comm->sent, bytes);
    wd_comm_allgather_small(comm, all, bytes);
    for (int lane = 0; lane < WD_LANES; lane++) {
        int64_t sum = 0;
        for (int r = 0; r < comm->ranks; r++) sum += all[r * WD_LANES + lane];
        wd_log(WD_LOG_INFO, "sent to other ranks: %-11s %" PRId64 " B", name[lane], sum);
    }
    wd_free(all);
    return WD_OK;
}
