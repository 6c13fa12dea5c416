/* `wandistiller train`. */
#include "cli/cli.h"

wd_status wd_cli_train(int argc, char **argv, wd_err *err)
{
    wd_train_options options;
    wd_cli_input input;
    wd_status status = wd_cli_open(&input, WD_JOB_TRAIN, &options, argc, argv, err);
    int exit_code = -1;
    if (status != WD_OK) wd_train_fail(err);
    if (status == WD_OK && !input.done)
        status = wd_train_start_ranks(&exit_code, &options, argc, argv, err);
    if (exit_code > 0) { /* the ranks have reported the error */
        err->message[0] = 0;
        status = err->status = (wd_status)exit_code;
    }
    if (status == WD_OK && !input.done && exit_code < 0) status = wd_train(NULL, &options, err);
    wd_cli_close(&input);
    return status;
}
