/* The request to stop a job, which wd_request_stop makes and wd_stop_requested reads. */
#ifndef WD_CORE_STOP_H
#define WD_CORE_STOP_H

#include "wandistiller_status.h"

/* Says whether this process is one of several ranks, which get the same request together. */
void wd_stop_as_one_of_many(bool many);

/* Every job calls this when it starts. It clears an earlier request, except in the first job of a
 * process: a program catches signals before it starts that job, and such a request is for it. */
void wd_stop_begin(void);

/* Counts what wd_stop_cleans_up asks for: `change` is 1 when a job has made such files, and -1 when
 * it has removed them. */
void wd_stop_hold(int change);

/* Clears the request. */
void wd__stop_forget(void);

#endif
