/* What the control groups (cgroups) of this process allow. Containers, systemd and batch systems
 * limit memory and processors with them, often not in the process's own group but in one above
 * it: Slurm limits the job and starts each task in a group below. So every group from the own one
 * up to the root counts, and the smallest limit holds. Both versions of cgroups are read. */
#ifndef WD_CORE_CGROUP_H
#define WD_CORE_CGROUP_H

#include <stdint.h>

typedef struct wd_cgroup_limits {
    uint64_t memory; /* bytes: the smallest limit of memory; UINT64_MAX: none */
    /* Bytes that can still be allocated under the tightest limit; UINT64_MAX: no limit. Page cache
     * that the kernel can drop at once, which groups count as used, is counted as free, as
     * MemAvailable of the kernel does. */
    uint64_t memory_left;
    int processors; /* quota of processor time, rounded up to whole processors; INT_MAX: none */
} wd_cgroup_limits;

/* Reads the limits below the folder `root`, which is "" except in tests. What cannot be read is no
 * limit. */
void wd_cgroup_read(wd_cgroup_limits *out, const char *root);

#endif
