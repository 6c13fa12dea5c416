/* Limits of control groups, in copies of what containers and batch systems leave in /proc and
 * /sys. */
#include "core/cgroup.h"

#include <limits.h>

#include "testing.h"

static char root[128];

/* Begins a new machine without groups. */
static void new_machine(void)
{
    static int machines;
    wd_err err;
    snprintf(root, sizeof root, "%s/%d", wd_test_folder(), machines++);
    wd_test_ok(wd_folder_make(root, &err), &err);
}

static void put(const char *path, const char *text)
{
    char full[512];
    wd_err err;
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *at = strchr(full + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        wd_test_ok(wd_folder_make(full, &err), &err);
        *at = '/';
    }
    wd_test_ok(wd_file_write(full, text, strlen(text), &err), &err);
}

static void expect(uint64_t memory, uint64_t left, int processors)
{
    wd_cgroup_limits found;
    wd_cgroup_read(&found, root);
    assert_int_equal(found.memory, memory);
    assert_int_equal(found.memory_left, left);
    assert_int_equal(found.processors, processors);
}

static void no_groups_are_no_limit(void **state)
{
    (void)state;
    new_machine();
    expect(UINT64_MAX, UINT64_MAX, INT_MAX);
    put("proc/self/cgroup", "0::/user.slice\n");
    expect(UINT64_MAX, UINT64_MAX, INT_MAX);
    put("sys/fs/cgroup/user.slice/memory.max", "max\n");
    put("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    expect(UINT64_MAX, UINT64_MAX, INT_MAX);
}

/* Slurm: the job is limited, its step and task below are not. */
static void a_group_above_limits(void **state)
{
    (void)state;
    new_machine();
    put("proc/self/cgroup", "0::/slurm/job_7/step_0/task_0\n");
    put("sys/fs/cgroup/slurm/job_7/step_0/task_0/memory.max", "max\n");
    put("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "9000\n");
    put("sys/fs/cgroup/slurm/job_7/step_0/memory.current", "100\n");
    put("sys/fs/cgroup/slurm/job_7/memory.max", "5000\n");
    put("sys/fs/cgroup/slurm/job_7/memory.current", "1200\n");
    put("sys/fs/cgroup/slurm/job_7/cpu.max", "250000 100000\n");
    put("sys/fs/cgroup/slurm/cpu.max", "800000 100000\n");
    expect(5000, 3800, 3);
    /* the largest limit may leave least */
    put("sys/fs/cgroup/slurm/job_7/step_0/memory.current", "8000\n");
    expect(5000, 1000, 3);
    put("sys/fs/cgroup/slurm/job_7/memory.high", "1500\n");
    expect(1500, 300, 3);
}

/* A container that has just downloaded its teacher: almost all that it uses is page cache. */
static void clean_page_cache_is_free(void **state)
{
    (void)state;
    new_machine();
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/memory.max", "65536\n");
    put("sys/fs/cgroup/memory.current", "65500\n");
    put("sys/fs/cgroup/memory.stat", "anon 10\nfile 65490\nshmem 1000\nfile_dirty 300\n"
                                     "file_writeback 50\ninactive_file 64000\nactive_file 490\n");
    expect(65536, 65536 - (65500 - 64490 + 350), INT_MAX);
    put("sys/fs/cgroup/memory.current", "70000\n");
    put("sys/fs/cgroup/memory.stat", "anon 69000\n");
    expect(65536, 0, INT_MAX);
}

static void version_1_is_read(void **state)
{
    (void)state;
    new_machine();
    put("proc/self/cgroup", "12:cpu,cpuacct:/docker/0a1b\n5:name=systemd:/docker/0a1b\n"
                            "4:memory:/docker/0a1b\n0::/system.slice\n");
    /* without a namespace of its own the container sees its group as the root */
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "8000\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "7000\n");
    put("sys/fs/cgroup/memory/memory.stat",
        "inactive_file 1\ntotal_inactive_file 5000\ntotal_active_file 1000\ntotal_dirty 10\n"
        "total_writeback 0\nhierarchical_memory_limit 8000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    expect(8000, 6990, 2);
    /* what only the line of the hierarchy tells */
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    expect(8000, 6990, 2);
    put("sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 9223372036854771712\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    expect(UINT64_MAX, UINT64_MAX, INT_MAX);
    put("sys/fs/cgroup/memory/docker/0a1b/memory.limit_in_bytes", "500\n");
    put("sys/fs/cgroup/memory/docker/0a1b/memory.usage_in_bytes", "20\n");
    expect(500, 480, INT_MAX);
}

/* Lines that no kernel writes end no read and limit nothing. */
static void damaged_lines_limit_nothing(void **state)
{
    (void)state;
    char line[20000];
    new_machine();
    put("sys/fs/cgroup/memory.max", "4000\n");
    put("sys/fs/cgroup/memory.current", "not a number\n");
    put("sys/fs/cgroup/cpu.max", "100 0\n");
    put("proc/self/cgroup", "\n:\nmemory\n0:\n");
    expect(UINT64_MAX, UINT64_MAX, INT_MAX);
    memset(line, 'x', sizeof line);
    memcpy(line, "0::/", 4);
    line[sizeof line - 1] = '\0';
    put("proc/self/cgroup", line);
    expect(UINT64_MAX, UINT64_MAX, INT_MAX);
    put("proc/self/cgroup", "0::/../../elsewhere\n");
    expect(4000, 0, INT_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_groups_are_no_limit),      cmocka_unit_test(a_group_above_limits),
        cmocka_unit_test(clean_page_cache_is_free),    cmocka_unit_test(version_1_is_read),
        cmocka_unit_test(damaged_lines_limit_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
