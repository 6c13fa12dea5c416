/* Messages for the user of the library: see wd_log_to in wandistiller.h. */
#ifndef WD_CORE_LOG_H
#define WD_CORE_LOG_H

#include "wandistiller.h"

void wd_log(wd_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Keeps messages of WD_LOG_ERROR, as many as there is room for, instead of saying them: a rank of a
 * job says what it has to say in the job's one report (dist/watch.h). false: says what was kept and
 * not taken, and whatever comes. */
void wd_log_keep_errors(bool on);

/* Takes what was kept, a line each. Returns the bytes of the text. */
size_t wd_log_take_errors(char *out, size_t out_bytes);

/* A line of that report: an error that is said even while errors are kept. */
void wd_log_report(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Of rank `rank` of a job: those behind the first say warnings and errors only, "[Rank 2] " in
 * front. */
void wd_log_as_rank(int rank);
int wd_log_rank(void); /* 0: the first, or there are no others */

#endif
