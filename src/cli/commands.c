/* The commands: each takes its command line, runs its job, and prints what that returns. */
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

wd_status wd_cli_plan(int argc, char **argv, wd_err *err)
{
    wd_plan_options options;
    wd_cli_input input;
    char *text = NULL;
    wd_status status = wd_cli_open(&input, WD_JOB_PLAN, &options, argc, argv, err);
    if (status == WD_OK && !input.done) status = wd_plan(&text, &options, err);
    wd_cli_print(text);
    wd_cli_close(&input);
    return status;
}

wd_status wd_cli_sample(int argc, char **argv, wd_err *err)
{
    wd_sample_options options;
    wd_cli_input input;
    wd_status status = wd_cli_open(&input, WD_JOB_SAMPLE, &options, argc, argv, err);
    if (status == WD_OK && !input.done) status = wd_sample(&options, err);
    wd_cli_close(&input);
    return status;
}

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

wd_status wd_cli_forward(int argc, char **argv, wd_err *err)
{
    wd_forward_options options;
    wd_cli_input input;
    wd_status status = wd_cli_open(&input, WD_JOB_FORWARD, &options, argc, argv, err);
    if (status == WD_OK && !input.done) status = wd_forward(&options, err);
    wd_cli_close(&input);
    return status;
}

wd_status wd_cli_convert(int argc, char **argv, wd_err *err)
{
    wd_convert_options options;
    wd_cli_input input;
    wd_status status = wd_cli_open(&input, WD_JOB_CONVERT, &options, argc, argv, err);
    if (status == WD_OK && !input.done) status = wd_convert(&options, err);
    wd_cli_close(&input);
    return status;
}

wd_status wd_cli_report(int argc, char **argv, wd_err *err)
{
    wd_report_options options;
    wd_cli_input input;
    wd_status status = wd_cli_open(&input, WD_JOB_REPORT, &options, argc, argv, err);
    if (status == WD_OK && !input.done) status = wd_report(&options, err);
    wd_cli_close(&input);
    return status;
}

wd_status wd_cli_tell(int argc, char **argv, wd_err *err)
{
    wd_tell_options options;
    wd_cli_input input;
    wd_status status = wd_cli_open(&input, WD_JOB_TELL, &options, argc, argv, err);
    if (status == WD_OK && !input.done) status = wd_tell(&options, err);
    wd_cli_close(&input);
    return status;
}

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

/* Prints a line of `bench` as soon as it is measured. */
static void print_line(void *context, const char *line)
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
    options.print = print_line;
    options.print_context = stdout;
    if (status == WD_OK && !input.done) status = wd_bench(&options, err);
    wd_cli_close(&input);
    return status;
}
