/* Fuzz target: any text as the value of --recipe. Accepted phases have shares above zero that add
 * up to 1, and each of them gets a step. */
#include "fuzzing.h"

#include <math.h>

#include "train/loop/phases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[256];
    wd_err err;
    wd_phases phases;
    double sum = 0;
    int64_t begun = 0;
    const size_t n = bytes < sizeof text - 1 ? bytes : sizeof text - 1;
    memcpy(text, data, n);
    text[n] = '\0';
    if (wd_phases_parse(&phases, text, &err) != WD_OK) return 0;
    if (phases.count < 1 || phases.count > WD_PHASES_MAX) abort();
    for (int i = 0; i < phases.count; i++) {
        const int64_t end = wd_phase_end_step(&phases, i, 100);
        if (!phases.phase[i].recipe || !(phases.phase[i].share >= 0) || end <= begun) abort();
        sum += phases.phase[i].share;
        begun = end;
    }
    if (fabs(sum - 1) > 1e-9 || begun != 100) abort();
    return 0;
}
