/* A copy of models/wan-tiny that a test may change. */
#ifndef WD_TESTS_TEACHER_COPY_H
#define WD_TESTS_TEACHER_COPY_H

#include "testing.h"

/* Copies the model to the test folder as `name`; `to` gets its path. */
static inline void wd_test_copy_teacher(char to[WD_PATH_MAX], const char *name)
{
    char command[WD_PATH_MAX + 256];
    wd_err err;
    wd_test_ok(wd_path_join(to, wd_test_folder(), name, &err), &err);
    snprintf(command, sizeof command, "cp -r %s/models/wan-tiny %s", WD_SOURCE_DIR, to);
    assert_int_equal(system(command), 0);
}

/* "folder/name"; the text lives for the next 63 calls. */
static inline const char *wd_test_in(const char *folder, const char *name)
{
    static char path[64][WD_PATH_MAX];
    static int next;
    wd_err err;
    char *out = path[next++ % 64];
    wd_test_ok(wd_path_join(out, folder, name, &err), &err);
    return out;
}

#endif
