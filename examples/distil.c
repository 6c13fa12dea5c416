/* Distils a teacher into a student, through the library. Options may come from a file as well:
 * names, types, ranges and help of all of them are data (wd_options_of).
 *
 *   cc distil.c $(pkg-config --cflags --libs wandistiller) -o distil
 *   ./distil path/to/teacher prompts.txt student num_steps=1000 lr=2e-4 mixed_precision=bf16
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <wandistiller.h>

static void say(void *context, wd_log_level level, const char *message)
{
    (void)context, (void)level;
    fprintf(stderr, "%s\n", message);
}

static void show(void *context, const wd_progress *p)
{
    (void)context;
    fprintf(stderr, "\r%s: %s %lld of %lld  ", p->what, p->unit, (long long)p->done,
            (long long)p->total);
}

/* Ctrl-C ends the run with a checkpoint and a student. */
static void stop(int signal_number)
{
    (void)signal_number;
    wd_request_stop();
}

/* "name=value", which is cut in two. */
static wd_status set(wd_train_options *options, char *text, wd_err *err)
{
    char *value = strchr(text, '=');
    if (value) *value++ = 0;
    const wd_option *option = wd_option_find(WD_JOB_TRAIN, text, err);
    if (!option) return WD_INVALID_ARGUMENT;
    return wd_option_set(options, option, value ? value : "true", err);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s TEACHER PROMPTS OUTPUT [name=value ...]\n", argv[0]);
        return WD_INVALID_ARGUMENT;
    }
    wd_log_to(say, NULL, WD_LOG_WARNING);
    wd_progress_to(show, NULL);
    signal(SIGINT, stop);

    wd_err err;
    wd_train_result result = {0};
    wd_status status = WD_OK;
    wd_train_options options = wd_train_defaults();
    options.teacher_path = argv[1];
    options.data_path = argv[2];
    options.output_dir = argv[3];
    for (int i = 4; i < argc && status == WD_OK; i++) status = set(&options, argv[i], &err);
    if (status == WD_OK) status = wd_train(&result, &options, &err);
    if (status != WD_OK)
        fprintf(stderr, "\n%s\n", err.message);
    else
        fprintf(stderr, "\n%s after %lld steps, loss %.3g\n", result.stopped ? "stopped" : "done",
                (long long)result.steps, result.loss);
    return (int)status;
}
