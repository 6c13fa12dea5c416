/* The start-up deadline: ends the process when a phase of the start takes too long.
 *
 * Until the ranks' watches are connected (job/watch/watch.h), and while MPI_Init runs, a rank that
 * was stopped, hangs or gets no memory is seen by nobody: the others wait for it without end. So
 * each rank has a thread that allows every phase of the start so many seconds, and then reports
 * that and ends the process, for which the launcher ends the job. A process that was itself stopped
 * meanwhile gets that time back, since the others have reported it. */
#ifndef WD_JOB_WATCH_DEADLINE_H
#define WD_JOB_WATCH_DEADLINE_H

#include "job/watch/watch.h"

typedef struct wd_deadline wd_deadline;

/* The first phase begins, which `phase` (borrowed) names in the report. If it takes longer than
 * `seconds`, one of the ranks on this machine that have the same parent process reports it. */
wd_status wd_deadline_start(wd_deadline **out, int rank, double seconds, const char *phase,
                            wd_err *err);

/* The next phase begins. */
void wd_deadline_next(wd_deadline *deadline, double seconds, const char *phase);

/* From now on a phase that takes too long is reported by this watch, which ends the job on all
 * machines with one report. NULL: there is no watch. */
void wd_deadline_report_by(wd_deadline *deadline, wd_watch *watch);

/* The start is over: the deadline no longer applies. NULL is allowed. */
void wd_deadline_stop(wd_deadline *deadline);

#endif
