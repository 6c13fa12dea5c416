/* The pipeline of models/wan-tiny, for a group of tests that all use it. */
#ifndef WD_TESTS_TINY_TEACHER_H
#define WD_TESTS_TINY_TEACHER_H

#include "model/files/pipeline.h"
#include "testing.h"

static wd_pipeline teacher;

static inline int open_teacher(void **state)
{
    (void)state;
    wd_err err;
    wd_test_ok(wd_pipeline_open(&teacher, WD_SOURCE_DIR "/models/wan-tiny", &err), &err);
    return 0;
}

#endif
