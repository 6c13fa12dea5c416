/* Fuzz target: any bytes as the validation.json of a best student. What is read is a step and an
 * error that is a number. */
#include "fuzzing.h"

#include <math.h>

#include "train/output/best.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    wd_validation_result best;
    wd_err err;
    wd_fuzz_file("best/validation.json", data, bytes);
    if (wd_best_read(&best, wd_fuzz_folder(), &err) != WD_OK) return 0;
    if (best.step < 0 || !(best.error >= 0) || !isfinite(best.error)) abort();
    if (wd_best_check(wd_fuzz_folder(), &err) != WD_OK) abort();
    return 0;
}
