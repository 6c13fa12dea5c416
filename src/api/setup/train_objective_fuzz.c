/* Fuzz target: any text as the value of --trajectory_sigmas. Accepted levels fall from 1 and stay
 * above 0. */
#include "fuzzing.h"

#include <math.h>

#include "api/setup/train_objective.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[1024];
    wd_err err;
    float sigma[WD_TRAJECTORY_SIGMAS_MAX];
    int64_t count;
    const size_t n = bytes < sizeof text - 1 ? bytes : sizeof text - 1;
    memcpy(text, data, n);
    text[n] = '\0';
    if (wd__trajectory_sigmas_parse(sigma, &count, text, &err) != WD_OK) return 0;
    if (count < 1 || count > WD_TRAJECTORY_SIGMAS_MAX || sigma[0] != 1) abort();
    for (int64_t i = 1; i < count; i++)
        if (!(sigma[i] > 0 && sigma[i] < sigma[i - 1])) abort();
    for (int64_t steps = 1; steps <= count; steps++) {
        double shift = NAN;
        if (count % steps) continue;
        if (wd__trajectory_sigmas_shift(&shift, sigma, count, steps, &err) == WD_OK && steps > 1 &&
            !(shift > 0))
            abort();
    }
    return 0;
}
