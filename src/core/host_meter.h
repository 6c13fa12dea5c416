/* The peak host memory of this process, sampled by a thread. The system has no such figure: its own
 * peak includes mapped files. */
#ifndef WD_CORE_HOST_METER_H
#define WD_CORE_HOST_METER_H

#include "core/error.h"

typedef struct wd_host_meter wd_host_meter;

/* Starts a thread that samples a hundred times per second. `sharers`: the number of processes,
 * including this one, that use each shared page; the meter counts one part in `sharers` of it.
 * (wd_host_memory_own divides by the processes that map a page now, of which one is left when the
 * others have ended.) The caller closes *out. */
wd_status wd_host_meter_open(wd_host_meter **out, int sharers, wd_err *err);

/* The highest sample so far, in bytes: anonymous memory and the process's part of shared memory; 0:
 * /proc does not tell. */
size_t wd_host_meter_peak(wd_host_meter *meter);

void wd_host_meter_close(wd_host_meter *meter); /* NULL is allowed */

#endif
