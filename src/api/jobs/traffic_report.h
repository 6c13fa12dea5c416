/* A report of the bytes that ranks have sent one another. */
#ifndef WD_API_JOBS_TRAFFIC_REPORT_H
#define WD_API_JOBS_TRAFFIC_REPORT_H

#include "job/comm/comm.h"

/* Logs the bytes of all ranks together, lane by lane, at the end of a run with several ranks. All
 * ranks call it. */
wd_status wd_traffic_report(wd_comm *comm, wd_err *err);

#endif
