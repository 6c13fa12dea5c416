/* What the host has. */
#ifndef WD_CORE_HOST_H
#define WD_CORE_HOST_H

#include <stddef.h>

/* Bytes that this process may still take: what the kernel calls available, less where a cgroup
 * allows less. SIZE_MAX where neither is known. */
size_t wd_host_memory_available(void);

/* Anonymous and shared resident bytes of this process: what it owns, without mapped files. 0 where
 * /proc does not tell. */
size_t wd_host_memory_own(void);

#endif
