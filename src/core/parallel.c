/* Loops over several threads: see core/parallel.h.
 *
 * There are three builds: with gcc's OpenMP; without OpenMP (one thread); and with a compiler whose
 * OpenMP uses another runtime than oneDNN (clang). For the last one the entry points of libgomp are
 * declared here and called as gcc calls them. */
#include "core/parallel.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "core/log.h"

#if defined(WD_OPENMP) && defined(_OPENMP)
#include <omp.h>
#elif defined(WD_OPENMP)
int omp_get_max_threads(void);
int omp_get_num_threads(void);
int omp_get_thread_num(void);
int omp_get_max_active_levels(void);
void omp_set_num_threads(int threads);
void omp_set_dynamic(int on);
void omp_set_max_active_levels(int levels);
void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
#endif

#ifdef WD_OPENMP

typedef struct loop {
    int64_t n;
    wd_parallel_fn *fn;
    void *context;
} loop;

/* Runs this thread's part. Inside another parallel region the team is smaller than requested. */
static void run_part(void *data)
{
    const loop *l = data;
    int64_t parts = omp_get_num_threads(), part = omp_get_thread_num();
    int64_t begin = l->n * part / parts, end = l->n * (part + 1) / parts;
    if (begin < end) l->fn(begin, end, l->context);
}

void wd_parallel_for(int64_t n, int64_t grain, wd_parallel_fn *fn, void *context)
{
    assert(grain > 0);
    if (n <= 0) return;
    int64_t parts = n / grain, threads = omp_get_max_threads();
    if (parts > threads) parts = threads;
    if (parts <= 1) {
        fn(0, n, context);
        return;
    }
    loop l = {n, fn, context};
#ifdef _OPENMP
#pragma omp parallel num_threads((int)parts)
    run_part(&l);
#else
    GOMP_parallel(run_part, &l, (unsigned)parts, 0);
#endif
}

int wd_parallel_threads(void)
{
    return omp_get_max_threads();
}

/* With OMP_DYNAMIC and OMP_MAX_ACTIVE_LEVELS OpenMP may start fewer threads than
 * omp_get_max_threads(). oneDNN divides its work by that number without checking its team, so parts
 * of its results would not be computed. Both settings belong to the calling thread. */
void wd_parallel_set_threads(int threads)
{
    omp_set_dynamic(0);
    if (omp_get_max_active_levels() < 1) omp_set_max_active_levels(1);
    omp_set_num_threads(threads);
}

/* ---- a team ---- */

static void *pass(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* Tries to start `count` threads at the same time. */
static wd_status try_threads(int count, wd_err *err)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread[count];
    int made = 0, refused = 0;
    pthread_mutex_lock(&gate);
    while (made < count && !refused) {
        refused = pthread_create(&thread[made], NULL, pass, &gate);
        made += !refused;
    }
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < made; i++) pthread_join(thread[i], NULL);
    if (!refused) return WD_OK;
    return wd_fail(err, WD_OUT_OF_MEMORY,
                   "no memory for %d threads: the system refuses number %d: %s; ask for fewer, or "
                   "is the address space limited (ulimit -v)?",
                   count + 1, made + 2, strerror(refused));
}

static void count_team(int64_t begin, int64_t end, void *threads)
{
    if (begin == 0 && end > 0) *(int *)threads = omp_get_num_threads();
}

wd_status wd_parallel_start(int *out, int threads, wd_err *err)
{
    if (threads > 1) WD_TRY(try_threads(threads - 1, err));
    wd_parallel_set_threads(threads);
    *out = 1; /* one thread needs no team */
    wd_parallel_for(threads, 1, count_team, out);
    if (*out == threads) return WD_OK;
    wd_log(WD_LOG_WARNING,
           "%d threads are wanted, but OpenMP gives a team of %d: %d are used. Is OMP_THREAD_LIMIT "
           "set, or is this called from inside a parallel region?",
           threads, *out, *out);
    wd_parallel_set_threads(*out);
    return WD_OK;
}

#else

void wd_parallel_for(int64_t n, int64_t grain, wd_parallel_fn *fn, void *context)
{
    assert(grain > 0);
    (void)grain;
    if (n > 0) fn(0, n, context);
}

int wd_parallel_threads(void)
{
    return 1;
}
void wd_parallel_set_threads(int threads)
{
    (void)threads;
}

wd_status wd_parallel_start(int *out, int threads, wd_err *err)
{
    (void)err;
    *out = threads;
    return WD_OK;
}

#endif
