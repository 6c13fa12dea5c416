/* Loops over several threads: see cpu/parallel.h.
 *
 * Three builds: gcc's OpenMP; no OpenMP (one thread); and a compiler whose own OpenMP is another
 * runtime than oneDNN's (clang). For that one the entry points of libgomp are declared here and
 * called by hand, as gcc would call them.
 */
#include "dev/cpu/parallel.h"

#include <assert.h>

#if defined(WD_OPENMP) && defined(_OPENMP)
#include <omp.h>
#elif defined(WD_OPENMP)
int omp_get_max_threads(void);
int omp_get_num_threads(void);
int omp_get_thread_num(void);
void omp_set_num_threads(int threads);
void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
#endif

#ifdef WD_OPENMP

typedef struct loop {
    int64_t n;
    wd_parallel_fn *fn;
    void *context;
} loop;

/* This thread's part. The team may be smaller than asked for: inside another parallel region. */
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

int wd_parallel_threads(void) { return omp_get_max_threads(); }
void wd_parallel_set_threads(int threads) { omp_set_num_threads(threads); }

#else

void wd_parallel_for(int64_t n, int64_t grain, wd_parallel_fn *fn, void *context)
{
    assert(grain > 0);
    (void)grain;
    if (n > 0) fn(0, n, context);
}

int wd_parallel_threads(void) { return 1; }
void wd_parallel_set_threads(int threads) { (void)threads; }

#endif
