/* A placement for tests: all stages of a teacher have one home, and its first device computes. */
#ifndef WD_TESTS_ALL_IN_H
#define WD_TESTS_ALL_IN_H

#include "teacher/residency.h"

static inline wd_placement wd_test_all_in(const wd_pipeline *pipeline, wd_home home)
{
    wd_placement p = {.experts = wd_teacher_experts(pipeline),
                      .stages = wd_dit_stages(&pipeline->dit),
                      .slots = 2,
                      .devices = 1,
                      .each = true};
    for (int e = 0; e < p.experts; e++)
        for (int s = 0; s < p.stages; s++) p.place[e][s].home = home;
    return p;
}

#endif
