/* Loops over several threads. The one place where the library meets OpenMP: oneDNN brings libgomp,
 * and a second runtime in the process would mean twice the threads. */
#ifndef WD_DEV_CPU_PARALLEL_H
#define WD_DEV_CPU_PARALLEL_H

#include <stdint.h>

#include "core/error.h"

/* Does the part [begin, end) of a loop. */
typedef void wd_parallel_fn(int64_t begin, int64_t end, void *context);

/* Calls `fn` so that every index of [0, n) is covered once, by up to wd_parallel_threads() threads,
 * each with one contiguous part of at least `grain` indices where n allows. Returns when all are
 * done. Where the parts begin depends on the number of threads: results must not. */
void wd_parallel_for(int64_t n, int64_t grain, wd_parallel_fn *fn, void *context);

/* How many threads loops of the calling thread use, and so does oneDNN when called from it. In a
 * build without OpenMP (WD_OPENMP=OFF) loops use one, and setting another number does nothing: not
 * to oneDNN either, whose threads are then as OMP_NUM_THREADS says. */
int wd_parallel_threads(void);
void wd_parallel_set_threads(int threads); /* > 0 */

/* Starts the calling thread's team of `threads` (> 0). *out is the number of threads that OpenMP
 * really gives, which is smaller under OMP_THREAD_LIMIT and inside a parallel region; a warning
 * says so, and loops then use that many. Nothing may ask for more from then on. WD_OUT_OF_MEMORY
 * where the system refuses so many: a loop that meets that has libgomp end the process. */
wd_status wd_parallel_start(int *out, int threads, wd_err *err);

#endif
