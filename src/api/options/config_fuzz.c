/* Fuzz target: any JSON as the --config of every command. */
#include "fuzzing.h"

#include "wandistiller.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    wd_err err;
    wd_config *config;
    const char *path = wd_fuzz_file("config.json", data, bytes);
    if (wd_config_open(&config, path, &err) != WD_OK) return 0;
    wd_train_options train = wd_train_defaults();
    wd_config_apply(config, WD_JOB_TRAIN, &train, &err);
    wd_sample_options sample = wd_sample_defaults();
    wd_config_apply(config, WD_JOB_SAMPLE, &sample, &err);
    wd_config_close(config);
    return 0;
}
