/* Sweeps over a teacher of random weights, for measurements of where its weights are kept. */
#ifndef WD_BENCH_RIG_H
#define WD_BENCH_RIG_H

#include "bench/bench.h"
#include "model/files/pipeline.h"
#include "teacher/plan/strategy.h"

enum { WD_BENCH_TEXT_DIM = 64 }; /* of every configuration */

typedef struct wd_bench_teacher {
    wd_dit_config config;
    int64_t latent;     /* height and width of latents */
    wd_dtype dtype;     /* of the files, in which it is also kept */
    wd_dtype quantised; /* of the matrices of blocks: WD_F8_E4M3 and WD_I8 (model/files/overlay.h),
                         * WD_Q8_0 (a GGUF file); WD_F32: as the others */
    /* from here on, open fills it in */
    char folder[WD_PATH_MAX], cache[WD_PATH_MAX];
    wd_pipeline pipeline;
    wd_teacher_size size; /* with FLOPs */
    size_t bytes;         /* of all stages on a device */
} wd_bench_teacher;

/* Writes the teacher's files below TMPDIR; close removes them, also after an error. */
wd_status wd_bench_teacher_open(wd_bench_teacher *teacher, wd_bench_context *bench, wd_err *err);
void wd_bench_teacher_close(const wd_bench_teacher *teacher);

/* A set-up that is measured. */
typedef struct wd_bench_workload {
    const char *devices; /* a value of --devices */
    wd_strategy strategy;
    int64_t window; /* trajectories; a micro-batch has one */
    bool alone;     /* a sweep begins when the previous one has ended */
    int ranks;      /* number of ranks with these devices each; at most 4 */
    int threads;    /* of the processor; 0: one */
    int64_t rounds; /* sweeps that are measured; 0: five */
    bool processor; /* its time is measured, not that which passes: with one thread, what other
                     * programs do matters less */
} wd_bench_workload;

/* Measures seconds per target, after all trajectories have begun. */
wd_status wd_bench_time_target(double *seconds, const wd_bench_teacher *teacher,
                               const wd_bench_workload *work, wd_err *err);

#endif
