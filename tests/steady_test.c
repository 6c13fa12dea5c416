/* A run's thousandth step takes no memory that its first did not: malloc and mmap of the whole
 * process, libraries included, are counted in a short run and in one that is 1,000 steps longer. */
#include "sanitized.h"
#include "testing.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wandistiller.h>

#if !WD_TEST_SANITIZED

enum { LARGE = 4096 };

static atomic_llong large_calls, live, peak;

static void *came(void *block)
{
    if (!block) return NULL;
    long long size = (long long)malloc_usable_size(block);
    long long now = atomic_fetch_add(&live, size) + size, most = atomic_load(&peak);
    while (now > most && !atomic_compare_exchange_weak(&peak, &most, now)) continue;
    return block;
}

static void left(void *block)
{
    if (block) atomic_fetch_sub(&live, (long long)malloc_usable_size(block));
}

static void called(size_t bytes)
{
    if (bytes > LARGE) atomic_fetch_add(&large_calls, 1);
}

/* glibc's own, by the names it has for those who stand in front. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

void *malloc(size_t bytes)
{
    called(bytes);
    return came(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    called(count * bytes);
    return came(__libc_calloc(count, bytes));
}

void *realloc(void *block, size_t bytes)
{
    called(bytes);
    left(block);
    return came(__libc_realloc(block, bytes));
}

void *memalign(size_t alignment, size_t bytes)
{
    called(bytes);
    return came(__libc_memalign(alignment, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *block = memalign(alignment, bytes);
    if (!block) return ENOMEM;
    *out = block;
    return 0;
}

void free(void *block)
{
    left(block);
    __libc_free(block);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    called(bytes);
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
}

typedef struct figures {
    long long large_calls, growth; /* growth: the most that was live beyond the start's */
} figures;

static figures train(int64_t steps)
{
    wd_err err = {0};
    char out[256];
    snprintf(out, sizeof out, "%s/student-%d", wd_test_folder(), (int)steps);
    wd_train_options o = wd_train_defaults();
    o.teacher_path = WD_SOURCE_DIR "/models/wan-tiny";
    o.data_path = WD_SOURCE_DIR "/models/wan-tiny/prompts.txt";
    o.output_dir = out;
    o.cache_dir = wd_test_folder();
    o.num_steps = steps;
    o.batch_size = 2;
    o.trajectories = 4;
    o.trajectory_steps = 4;
    o.height = o.width = 32;
    o.save_samples = "false";
    o.num_threads = 2;
    long long calls = atomic_load(&large_calls), before = atomic_load(&live);
    atomic_store(&peak, before);
    wd_test_ok(wd_train(NULL, &o, &err), &err);
    return (figures){atomic_load(&large_calls) - calls, atomic_load(&peak) - before};
}

static void a_thousand_steps_take_nothing(void **state)
{
    (void)state;
    train(19); /* what is made once and kept: oneDNN's kernels, the prompts' embeddings */
    const figures less = train(20), more = train(1020);
    assert_true(less.large_calls > 0 && less.growth > 0);
    assert_int_equal(more.large_calls, less.large_calls);
    assert_in_range(more.growth, 0, less.growth + LARGE);
}

#else

static void a_thousand_steps_take_nothing(void **state)
{
    (void)state;
    wd_test_skip("a sanitizer has a malloc of its own");
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_thousand_steps_take_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
