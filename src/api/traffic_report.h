/* What ranks have sent one another, beside what was planned. */
#ifndef WD_API_TRAFFIC_REPORT_H
#define WD_API_TRAFFIC_REPORT_H

#include "dist/comm.h"

/* Logs it, in bytes of all ranks together and lane by lane, at the end of a run with several. All
 * ranks call it. */
wd_status wd_traffic_report(wd_comm *comm, wd_err *err);

#endif
