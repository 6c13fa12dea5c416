/* The memory of the host, and of this process. */
#ifndef WD_CORE_HOST_H
#define WD_CORE_HOST_H

#include <stddef.h>

#include "core/error.h"

/* Bytes that this process can still allocate: MemAvailable of the kernel, or less where a cgroup
 * (core/cgroup.h) allows less. SIZE_MAX: neither is known. */
size_t wd_host_memory_available(void);

/* Resident bytes of this process without mapped files: its anonymous memory, and its part of shared
 * memory, which is divided by the number of processes that map it now. 0: /proc does not tell. */
size_t wd_host_memory_own(void);

/* Like wd_host_memory_own, but shared memory is divided by `sharers`, the number of processes that
 * use all of it. */
size_t wd_host_memory_part(int sharers);

/* An upper bound of the peak of wd_host_memory_own: the peak of all resident memory, less the
 * mapped files that are resident now. It is too high if more of these were resident at the peak.
 * wd_host_meter_peak is the peak itself. */
size_t wd_host_memory_own_peak(void);

/* Gives the free pages of the heap back to the system, so that the next phase can use them, and
 * wd_host_memory_own counts only memory in use. */
void wd_host_memory_trim(void);

/* ---- the peak, sampled by a thread ----
 *
 * The system has no such figure: its own peak includes mapped files. */

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
