/* Requests to a run under way: `wandistiller tell RUN sample` leaves one in the run's folder, and
 * the run takes it between two steps.
 *
 * A request is the name of an empty file, .wandistiller-sample, .wandistiller-save or
 * .wandistiller-stop. The run takes it by removing the name, so each is taken once, and none is
 * lost, whatever several processes leave at the same time. Nothing is read, and no link is
 * followed. */
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

/* Leaves requests (wd_request, or-ed) in the folder of a run. One that is there already stays. */
wd_status wd_request_leave(const char *folder, unsigned requests, wd_err *err);

/* Takes the requests that lie in the open folder: they are removed. 0: there are none. */
unsigned wd_request_take(int folder);

#endif
