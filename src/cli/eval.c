/* `wandistiller eval`: prints what the job returns. */
#include "cli/cli.h"

wd_status wd_cli_eval(int argc, char **argv, wd_err *err)
{
    wd_eval_options options;
    wd_cli_input input;
    char *text = NULL;
    wd_status status = wd_cli_open(&input, WD_JOB_EVAL, &options, argc, argv, err);
    if (status == WD_OK && !input.done) status = wd_eval(&text, &options, err);
    wd_cli_print(text);
    wd_cli_close(&input);
    return status;
}
