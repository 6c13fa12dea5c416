/* The request to stop a job: made and asked through wd_request_stop and wd_stop_requested. */
#ifndef WD_CORE_STOP_H
#define WD_CORE_STOP_H

#include "wandistiller.h"

/* A job that starts forgets an earlier request. */
void wd_stop_forget(void);

#endif
