/* `wandistiller train`. */
#include "cli/cli.h"

wd_status wd_cli_train(int argc, char **argv, wd_err *err)
{
    wd_train_options options;
    wd_cli_input input;
    wd_status status = wd_cli_open(&input, WD_JOB_TRAIN, &options, argc, argv, err);
    if (status == WD_OK && !input.done) status = wd_train(&options, err);
    wd_cli_close(&input);
    return status;
}
