/* Requests to a run under way: `wandistiller tell RUN sample` leaves one in the run's folder, and
 * the run takes it between two steps.
 *
 * It is the file .wandistiller-request with a line for each request. A writer puts a whole file in
 * its place, with what was left there before; the run moves it away before it reads it. So each
 * request is taken at least once, whatever the two do at the same time. Links are not followed. */
#ifndef WD_TRAIN_OUTPUT_REQUEST_H
#define WD_TRAIN_OUTPUT_REQUEST_H

#include "core/error.h"

typedef enum wd_request {
    WD_REQUEST_SAMPLE = 1, /* draw a sheet of samples now */
    WD_REQUEST_SAVE = 2,   /* write a checkpoint now */
    WD_REQUEST_STOP = 4    /* end as Ctrl-C ends a run */
} wd_request;

/* The request called `name` ("sample", "save", "stop"); 0: there is none. */
unsigned wd_request_find(const char *name);

/* Leaves requests (wd_request, or-ed) in the folder of a run. */
wd_status wd_request_leave(const char *folder, unsigned requests, wd_err *err);

/* Removes requests from the open folder, which no run has obeyed. */
void wd_request_forget(int folder);

/* Takes the requests that lie in the open folder: they are removed. 0: there are none. What is
 * not of this program is removed, too, with a warning, since it would be found after every step. */
unsigned wd_request_take(int folder);

#endif
