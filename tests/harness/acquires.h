/* Counts the stages that are acquired, in tests linked with --wrap=wd_residency_acquire. */
#ifndef WD_TESTS_HARNESS_ACQUIRES_H
#define WD_TESTS_HARNESS_ACQUIRES_H

#include "teacher/run/residency.h"

static int64_t acquires_seen;

wd_status __real_wd_residency_acquire(wd_residency *residency, wd_dit_stage *out, int expert,
                                      int stage, wd_queue *queue, wd_err *err);
wd_status __wrap_wd_residency_acquire(wd_residency *residency, wd_dit_stage *out, int expert,
                                      int stage, wd_queue *queue, wd_err *err);

wd_status __wrap_wd_residency_acquire(wd_residency *residency, wd_dit_stage *out, int expert,
                                      int stage, wd_queue *queue, wd_err *err)
{
    acquires_seen++;
    return __real_wd_residency_acquire(residency, out, expert, stage, queue, err);
}

#endif
