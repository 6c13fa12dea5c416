/* Messages for the user of the library: see wd_log_to in wandistiller_status.h. */
#ifndef WD_CORE_LOG_H
#define WD_CORE_LOG_H

#include "wandistiller_status.h"

void wd_log(wd_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs a message unless the listener of wd_log_to has heard the same one of the last 16 of this
 * function: a job opens its files several times. */
void wd_log_once(wd_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* on: keeps messages of WD_LOG_ERROR in a buffer, as many as fit, instead of logging them, since
 * the ranks of a job log their errors in one report (job/watch/watch.h). Not on: logs the messages
 * that were kept and not taken, and all later ones. */
void wd_log_keep_errors(bool on);

/* Moves the kept messages to `out`, one per line. Returns the bytes of the text. */
size_t wd_log_take_errors(char *out, size_t out_bytes);

/* Logs a line of the job's report: an error that is logged even while errors are kept. */
void wd_log_report(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* From now on this process logs as rank `rank` of a job. Ranks other than 0 log only warnings and
 * errors, with "[Rank 2] " in front. */
void wd_log_as_rank(int rank);
int wd_log_rank(void); /* the rank of wd_log_as_rank; 0 in a process without ranks */

#endif
