/* What the host has. */
#ifndef WD_CORE_HOST_H
#define WD_CORE_HOST_H

#include <stddef.h>

/* Bytes that this process may still take: what the kernel calls available, less where a cgroup
 * allows less. SIZE_MAX where neither is known. */
size_t wd_host_memory_available(void);

/* All memory of the host, or what a cgroup allows this process in all. SIZE_MAX where neither is
 * known. */
size_t wd_host_memory_total(void);

/* Anonymous and shared resident bytes of this process: what it owns, without mapped files; what
 * several processes share is divided among them. 0 where /proc does not tell. */
size_t wd_host_memory_own(void);

/* The same, but of shared memory the part of one of `sharers` processes that have all of it. */
size_t wd_host_memory_part(int sharers);

/* The most that wd_host_memory_own was so far: the peak of all resident memory less the mapped
 * files that are resident now: too much where there were more of these (core/host_meter.h looks
 * itself). */
size_t wd_host_memory_own_peak(void);

/* Gives the heap's free pages back to the system: what a phase has freed is then there for the next
 * one, and wd_host_memory_own is what is in use. */
void wd_host_memory_trim(void);

#endif
