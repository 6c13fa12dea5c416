/* Limits of control groups: see core/cgroup.h.
 *
 * The files are described in the kernel's Documentation/admin-guide: cgroup-v2.rst, and
 * cgroup-v1/memory.rst for version 1. */
#include "core/cgroup.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 2 * PATH_MAX };

/* Version 1 writes "no limit" as the largest multiple of the page size in 63 bits. */
static const uint64_t v1_unlimited = INT64_MAX - (1 << 20);

typedef void read_group_fn(wd_cgroup_limits *limits, const char *folder);

/* ---- files ---- */

static FILE *open_in(const char *folder, const char *name)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "re");
}

/* The number that a file consists of; UINT64_MAX for "max" and for a file that is missing. */
static uint64_t number_in(const char *folder, const char *name)
{
    FILE *file = open_in(folder, name);
    uint64_t value;
    if (!file) return UINT64_MAX;
    if (fscanf(file, "%" SCNu64, &value) != 1) value = UINT64_MAX;
    fclose(file);
    return value;
}

/* The number of `key` in memory.stat, which has lines "key number"; `otherwise` if it is missing.
 */
static uint64_t stat_of(const char *folder, const char *key, uint64_t otherwise)
{
    FILE *file = open_in(folder, "memory.stat");
    char line[256], found[128];
    uint64_t value, result = otherwise;
    if (!file) return otherwise;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%127s %" SCNu64, found, &value) == 2 && !strcmp(found, key))
            result = value;
    fclose(file);
    return result;
}

/* ---- memory ---- */

static uint64_t less(uint64_t from, uint64_t what)
{
    return from > what ? from - what : 0;
}

/* Bytes of page cache that is neither dirty nor being written. The two lists of file pages do not
 * contain shared memory and tmpfs, which need swap to go. */
static uint64_t droppable(const char *folder, const char *const key[4])
{
    uint64_t sum = 0;
    for (int i = 0; i < 2; i++) sum += stat_of(folder, key[i], 0);
    for (int i = 2; i < 4; i++) sum = less(sum, stat_of(folder, key[i], 0));
    return sum;
}

static void limit_memory(wd_cgroup_limits *limits, uint64_t most, uint64_t used, uint64_t droppable)
{
    if (most == UINT64_MAX) return;
    const uint64_t left = used == UINT64_MAX ? 0 : less(most, less(used, droppable));
    if (most < limits->memory) limits->memory = most;
    if (left < limits->memory_left) limits->memory_left = left;
}

/* Above memory.high the kernel makes a process so slow that it is as good as a limit. */
static void read_memory_v2(wd_cgroup_limits *limits, const char *folder)
{
    static const char *const keys[4] = {"inactive_file", "active_file", "file_dirty",
                                        "file_writeback"};
    const uint64_t max = number_in(folder, "memory.max"), high = number_in(folder, "memory.high");
    limit_memory(limits, max < high ? max : high, number_in(folder, "memory.current"),
                 droppable(folder, keys));
}

static void read_memory_v1(wd_cgroup_limits *limits, const char *folder)
{
    static const char *const keys[4] = {"total_inactive_file", "total_active_file", "total_dirty",
                                        "total_writeback"};
    const uint64_t own = number_in(folder, "memory.limit_in_bytes");
    const uint64_t above = stat_of(folder, "hierarchical_memory_limit", UINT64_MAX);
    const uint64_t most = own < above ? own : above;
    limit_memory(limits, most < v1_unlimited ? most : UINT64_MAX,
                 number_in(folder, "memory.usage_in_bytes"), droppable(folder, keys));
}

/* ---- processors ---- */

static void limit_processors(wd_cgroup_limits *limits, uint64_t quota, uint64_t period)
{
    if (!quota || !period || quota > INT64_MAX) return;
    const uint64_t processors = quota / period + (quota % period != 0);
    if (processors < (uint64_t)limits->processors) limits->processors = (int)processors;
}

/* cpu.max is "quota period" or "max period", in microseconds. */
static void read_processors_v2(wd_cgroup_limits *limits, const char *folder)
{
    FILE *file = open_in(folder, "cpu.max");
    uint64_t quota, period;
    if (!file) return;
    if (fscanf(file, "%" SCNu64 " %" SCNu64, &quota, &period) == 2)
        limit_processors(limits, quota, period);
    fclose(file);
}

/* A quota of -1, which is none, is read as a number that is too large. */
static void read_processors_v1(wd_cgroup_limits *limits, const char *folder)
{
    limit_processors(limits, number_in(folder, "cpu.cfs_quota_us"),
                     number_in(folder, "cpu.cfs_period_us"));
}

/* ---- groups ---- */

/* Reads the group and all groups above it below `base`. A container may see its own groups as the
 * root while /proc tells the path on the host: folders that are missing say nothing. */
static void read_groups(wd_cgroup_limits *limits, const char *base, const char *group,
                        read_group_fn *read)
{
    char folder[PATH_BYTES];
    const size_t least = strlen(base);
    if (strstr(group, "/..")) group = ""; /* a group outside of what this process may see */
    if (snprintf(folder, sizeof folder, "%s%s", base, group) >= (int)sizeof folder) return;
    for (;;) {
        read(limits, folder);
        char *end = strrchr(folder, '/');
        if (strlen(folder) <= least || !end) return;
        *end = '\0';
    }
}

/* Whether the list "cpu,cpuacct" has the controller. */
static bool has(const char *controllers, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = controllers; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, name, length) && (!at[length] || at[length] == ',')) return true;
    }
    return false;
}

/* A line of /proc/self/cgroup is "number:controllers:group"; version 2 has no controllers. */
static void read_line(wd_cgroup_limits *limits, const char *root, char *line)
{
    char base[PATH_BYTES];
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return;
    *group++ = '\0';
    controllers++;
    group[strcspn(group, "\n")] = '\0';
    const int bytes = snprintf(base, sizeof base, "%s/sys/fs/cgroup%s%s", root,
                               *controllers ? "/" : "", controllers);
    if (bytes >= (int)sizeof base) return;
    if (!*controllers) {
        read_groups(limits, base, group, read_memory_v2);
        read_groups(limits, base, group, read_processors_v2);
    }
    if (has(controllers, "memory")) read_groups(limits, base, group, read_memory_v1);
    if (has(controllers, "cpu")) read_groups(limits, base, group, read_processors_v1);
}

void wd_cgroup_read(wd_cgroup_limits *out, const char *root)
{
    *out = (wd_cgroup_limits){UINT64_MAX, UINT64_MAX, INT_MAX};
    char path[PATH_BYTES], *line = NULL;
    size_t room = 0;
    if (snprintf(path, sizeof path, "%s/proc/self", root) >= (int)sizeof path) return;
    FILE *file = open_in(path, "cgroup");
    if (!file) return;
    while (getline(&line, &room, file) > 0) read_line(out, root, line);
    free(line);
    fclose(file);
}
