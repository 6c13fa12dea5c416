/* Published models, for tests with their sizes. */
#ifndef WD_TESTS_TEST_PRESET_H
#define WD_TESTS_TEST_PRESET_H

#include "testing.h"

#include "model/files/preset.h"

/* The preset of that name, without files. */
static inline wd_pipeline wd_test_preset(const char *name)
{
    wd_pipeline p;
    wd_err err;
    wd_test_ok(wd_preset_pipeline(&p, name, &err), &err);
    return p;
}

#endif
