/* The request to stop a job: made and asked through wd_request_stop and wd_stop_requested. */
#ifndef WD_CORE_STOP_H
#define WD_CORE_STOP_H

#include "wandistiller.h"

/* From now on this process is one of several that are asked together, or no more. */
void wd_stop_as_one_of_many(bool many);

/* A job starts, and forgets an earlier request, unless it is the process's first: a program catches
 * signals before it has begun a job, and what is asked then is for that. */
void wd_stop_begin(void);

/* Nobody has asked for one. */
void wd_stop_forget(void);

#endif
