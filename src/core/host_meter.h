/* The most host memory that a process has had, seen by a thread that looks again and again: the
 * system keeps no such figure without mapped files, which come and go. */
#ifndef WD_CORE_HOST_METER_H
#define WD_CORE_HOST_METER_H

#include "core/error.h"

typedef struct wd_host_meter wd_host_meter;

/* Begins to look, a hundred times a second. `sharers`: how many processes, this one among them,
 * have each of its shared pages: it answers for so many parts of them. (What wd_host_memory_own
 * divides by, who has a page just now, is one as soon as the others have ended.) */
wd_status wd_host_meter_open(wd_host_meter **out, int sharers, wd_err *err);

/* The most anonymous bytes, with its part of the shared ones, at any look so far; 0 where /proc
 * does not tell. */
size_t wd_host_meter_peak(wd_host_meter *meter);

void wd_host_meter_close(wd_host_meter *meter); /* NULL is allowed */

#endif
