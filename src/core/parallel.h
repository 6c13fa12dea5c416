/* Loops over several threads. Only this file uses OpenMP. It uses libgomp, as oneDNN does, since a
 * second runtime in the process would start twice as many threads. */
#ifndef WD_CORE_PARALLEL_H
#define WD_CORE_PARALLEL_H

#include <stdint.h>

#include "core/error.h"

/* Runs the part [begin, end) of a loop. */
typedef void wd_parallel_fn(int64_t begin, int64_t end, void *context);

/* Calls `fn` so that every index of [0, n) is covered once, by up to wd_parallel_threads() threads,
 * each with one contiguous part of at least `grain` indices where n allows. Returns when all are
 * done. The division depends on the number of threads, but results must not. */
void wd_parallel_for(int64_t n, int64_t grain, wd_parallel_fn *fn, void *context);

/* The number of threads of loops of the calling thread, and of oneDNN's calls from it. In a build
 * without OpenMP (WD_OPENMP=OFF) loops use one thread, and setting another number has no effect,
 * also not on oneDNN, whose number is then that of OMP_NUM_THREADS. */
int wd_parallel_threads(void);
void wd_parallel_set_threads(int threads); /* > 0 */

/* Starts the calling thread's team of `threads` (> 0). *out is the number of threads that OpenMP
 * really starts, which is smaller under OMP_THREAD_LIMIT and inside a parallel region; then a
 * warning is logged, and loops use this number. Later calls must not ask for more.
 * WD_OUT_OF_MEMORY: the system cannot start so many threads. (If that happens later, in a loop,
 * libgomp ends the process.) */
wd_status wd_parallel_start(int *out, int threads, wd_err *err);

#endif
