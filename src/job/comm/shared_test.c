/* Tests of memory shared by the ranks of a host, as threads and as processes: there is one copy
 * that all ranks see, and no file is left behind, even by ranks that were killed. */
#include "testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "harness/forked.h"
#include "job/comm/shared.h"
#include "sanitized.h"

enum { RANKS = 4, BYTES = (24 << 20) + 12345, LOOK_US = 1000, PAGE = 4096 };

static unsigned char byte_at(int rank, size_t i)
{
    return (unsigned char)(1 + rank * 17 + (int)(i % 101));
}

/* The part of the memory that a rank fills. There is one more part, which no rank fills. */
static size_t part_at(int rank)
{
    return BYTES / (RANKS + 1) * (size_t)rank;
}

/* The KiB that /proc/self/smaps_rollup has for `key`. */
static long rollup(const char *key)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    HARNESS_CHECK(file);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key))) sscanf(line + strlen(key), ": %ld", &kib);
    fclose(file);
    HARNESS_CHECK(kib >= 0);
    return kib;
}

static wd_shared *open_filled(wd_comm *comm)
{
    wd_err err = {0};
    wd_shared *shared;
    HARNESS_CHECK(wd_shared_open(&shared, comm, BYTES, "a test", &err) == WD_OK);
    unsigned char *data = wd_shared_data(shared);
    for (size_t i = part_at(comm->rank); i < part_at(comm->rank + 1); i++)
        data[i] = byte_at(comm->rank, i);
    wd_shared_seal(shared, comm);
    for (int r = 0; r < comm->ranks; r++)
        for (size_t i = part_at(r); i < part_at(r + 1); i++)
            HARNESS_CHECK(data[i] == byte_at(r, i));
    for (size_t i = part_at(RANKS); i < BYTES; i++) HARNESS_CHECK(!data[i]);
    return shared;
}

/* ---- processes ---- */

/* Zeroed memory in which ranks report to their parent. */
static void *open_shared_page(void)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    return page;
}

static void see_and_weigh(wd_comm *comm, void *context)
{
    long *pss = context;
    wd_shared *shared = open_filled(comm);
    wd_comm_barrier(comm); /* all ranks have touched it */
    pss[comm->rank] = rollup("Pss_Shmem");
    wd_comm_barrier(comm);
    wd_shared_close(shared);
}

static void processes_share_one_copy(void **state)
{
    (void)state;
    forked_job job;
    long *pss = open_shared_page(), sum = 0;
    forked_start(&job, RANKS, see_and_weigh, pss);
    assert_true(forked_end(&job, 0));
    for (int r = 0; r < RANKS; r++) sum += pss[r];
    print_message("%d ranks have %.1f MB of shared memory, %.3f of what they share\n", RANKS,
                  1.024e-3 * (double)sum, 1024.0 * (double)sum / BYTES);
    if (!WD_TEST_SANITIZED) assert_in_range(sum, BYTES / 1024, BYTES / 1024 * 101 / 100);
    munmap(pss, PAGE);
}

static void write_to_it(wd_comm *comm, void *context)
{
    int *survivors = context;
    volatile unsigned char *data = wd_shared_data(open_filled(comm));
    __atomic_add_fetch(&survivors[0], 1, __ATOMIC_SEQ_CST);
    data[0] = 1;
    __atomic_add_fetch(&survivors[1], 1, __ATOMIC_SEQ_CST);
}

static void what_is_sealed_is_only_read(void **state)
{
    (void)state;
    forked_job job;
    int *survivors = open_shared_page();
    forked_start(&job, 2, write_to_it, survivors);
    assert_false(forked_end(&job, 0));
    assert_int_equal(survivors[0], 2);
    assert_int_equal(survivors[1], 0);
    munmap(survivors, PAGE);
}

static void wait_for_the_end(wd_comm *comm, void *context)
{
    int *ready = context;
    open_filled(comm);
    __atomic_add_fetch(ready, 1, __ATOMIC_SEQ_CST);
    for (;;) pause();
}

/* The number of files of that size in a folder. */
static int files_left(const char *folder)
{
    int files = 0;
    DIR *dir = opendir(folder);
    if (!dir) return 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        struct stat s;
        if (!fstatat(dirfd(dir), entry->d_name, &s, AT_SYMLINK_NOFOLLOW) && s.st_size == BYTES)
            files++;
    }
    closedir(dir);
    return files;
}

static void nothing_is_left_of_ranks_that_are_killed(void **state)
{
    (void)state;
    forked_job job;
    int *ready = open_shared_page();
    forked_start(&job, RANKS, wait_for_the_end, ready);
    while (__atomic_load_n(ready, __ATOMIC_SEQ_CST) < RANKS) usleep(LOOK_US);
    assert_int_equal(files_left("/dev/shm"), 0); /* it never had a name */
    assert_false(forked_end(&job, SIGKILL));
    assert_int_equal(files_left("/dev/shm"), 0);
    assert_int_equal(files_left("/tmp"), 0);
    munmap(ready, PAGE);
}

/* ---- threads ---- */

typedef struct part {
    pthread_t thread;
    wd_comm *comm;
    size_t bytes;
    wd_shared *shared;
    wd_status status;
    wd_err err;
} part;

static void *share_and_close(void *context)
{
    part *p = context;
    wd_shared_close(open_filled(p->comm));
    wd_comm_close(p->comm);
    return NULL;
}

static void *only_open(void *context)
{
    part *p = context;
    wd_shared *shared;
    p->status = wd_shared_open(&shared, p->comm, p->bytes, "a test", &p->err);
    HARNESS_CHECK(!shared);
    wd_shared_seal(shared, p->comm);
    wd_shared_close(shared);
    wd_comm_close(p->comm);
    return NULL;
}

static void run_threads(part *all, int ranks, size_t bytes, void *(*run)(void *))
{
    wd_err err = {0};
    wd_comm *comm[RANKS];
    wd_test_ok(wd_comm_open_threads(comm, ranks, &err), &err);
    for (int r = 0; r < ranks; r++) {
        all[r] = (part){.comm = comm[r], .bytes = bytes};
        assert_int_equal(pthread_create(&all[r].thread, NULL, run, &all[r]), 0);
    }
    for (int r = 0; r < ranks; r++) pthread_join(all[r].thread, NULL);
}

static void threads_share_it_too(void **state)
{
    (void)state;
    part all[RANKS];
    run_threads(all, RANKS, BYTES, share_and_close);
}

/* A rank that is alone on its host shares no memory, but calls the function, too. */
static void *share_if_not_alone(void *context)
{
    part *p = context;
    wd_comm *comm = p->comm;
    const bool alone = comm->rank == RANKS - 1;
    comm->hosts = 2;
    comm->host = alone;
    comm->host_rank = alone ? 0 : comm->rank;
    comm->host_ranks = alone ? 1 : RANKS - 1;
    p->status = wd_shared_open(&p->shared, comm, PAGE, "a test", &p->err);
    if (p->shared) memset(wd_shared_data(p->shared), 7, PAGE);
    wd_shared_seal(p->shared, comm);
    wd_comm_close(comm);
    return NULL;
}

static void ranks_of_other_hosts_have_their_own(void **state)
{
    (void)state;
    part all[RANKS];
    run_threads(all, RANKS, 0, share_if_not_alone);
    for (int r = 0; r < RANKS; r++) {
        wd_test_ok(all[r].status, &all[r].err);
        const char *data = wd_shared_data(all[r].shared);
        if (r < RANKS - 1)
            assert_int_equal(data[PAGE - 1], 7);
        else
            assert_null(data);
        wd_shared_close(all[r].shared);
    }
}

static void too_much_is_refused_on_all(void **state)
{
    (void)state;
    part all[RANKS];
    run_threads(all, RANKS, (size_t)1 << 60, only_open);
    for (int r = 0; r < RANKS; r++) {
        wd_test_refused(all[r].status, &all[r].err, WD_OUT_OF_MEMORY, "a test");
        assert_int_equal(all[r].err.failed_rank, 1 + 0); /* the first rank makes it */
    }
}

static void one_rank_and_no_bytes_share_nothing(void **state)
{
    (void)state;
    part all[RANKS];
    run_threads(all, 1, BYTES, only_open);
    wd_test_ok(all[0].status, &all[0].err);
    run_threads(all, RANKS, 0, only_open);
    for (int r = 0; r < RANKS; r++) wd_test_ok(all[r].status, &all[r].err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_share_one_copy), /* before there are threads */
        cmocka_unit_test(what_is_sealed_is_only_read),
        cmocka_unit_test(nothing_is_left_of_ranks_that_are_killed),
        cmocka_unit_test(threads_share_it_too),
        cmocka_unit_test(ranks_of_other_hosts_have_their_own),
        cmocka_unit_test(too_much_is_refused_on_all),
        cmocka_unit_test(one_rank_and_no_bytes_share_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
