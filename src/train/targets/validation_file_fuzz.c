/* Fuzz target: any bytes as a file of states of validation. What is read is finite. */
#include "fuzzing.h"

#include <math.h>

#include "train/targets/validation_states.h"

enum { WIDTH = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    wd_err err;
    wd_validation_states s;
    const wd_validation_states_options options = {
        .scheduler = {.kind = WD_SCHEDULER_EULER, .num_train_timesteps = 1000, .flow_shift = 3},
        .prompts = 1,
        .state_count = WIDTH};
    const char *path = wd_fuzz_file("validation.safetensors", data, bytes);
    if (wd_validation_states_open(&s, &options, true, &err) != WD_OK) abort();
    if (wd_validation_states_load(&s, path, "key", &err) == WD_OK)
        for (int64_t i = 0; i < s.levels * WIDTH; i++)
            if (!isfinite(s.latents[i]) || !isfinite(s.target[i])) abort();
    wd_validation_states_close(&s);
    return 0;
}
