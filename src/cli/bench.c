/* `wandistiller bench`: prints each figure as soon as it is known. */
#include "cli/progress.h"

static void print(void *context, const char *line)
{
    wd_cli_progress_hide();
    fprintf(context, "%s\n", line);
    fflush(context);
}

wd_status wd_cli_bench(int argc, char **argv, wd_err *err)
{
    wd_bench_options options;
    wd_cli_input input;
    wd_status status = wd_cli_open(&input, WD_JOB_BENCH, &options, argc, argv, err);
    options.print = print;
    options.print_context = stdout;
    if (status == WD_OK && !input.done) status = wd_bench(&options, err);
    wd_cli_close(&input);
    return status;
}
