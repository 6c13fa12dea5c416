/* `wandistiller inspect`: prints what the job returns. */
#include "cli/cli.h"

wd_status wd_cli_inspect(int argc, char **argv, wd_err *err)
{
    wd_inspect_options options;
    wd_cli_input input;
    char *text = NULL;
    wd_status status = wd_cli_open(&input, WD_JOB_INSPECT, &options, argc, argv, err);
    if (status == WD_OK && !input.done) status = wd_inspect(&text, &options, err);
    wd_cli_print(text);
    wd_cli_close(&input);
    return status;
}
