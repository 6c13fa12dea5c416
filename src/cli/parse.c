/* Reads the options of a command line.
 *
 * --name VALUE, --name=VALUE, --flag, --list VALUE VALUE ...; '-' and '_' in names are the same;
 * "--" ends the options. Arguments are read twice: the first time to find --config, whose file is
 * applied then, and the second time to replace its values. File and command line are two sources.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

/* The options of the job, or those of every command: their struct, and the source of those that the
 * command line gives. */
typedef struct target {
    void *options;
    wd_option_source given;
} target;

typedef struct reader {
    wd_job job;
    target own, common;
    int argc, at;
    char **argv;
    int positional; /* arguments without a name so far */
} reader;

static wd_status refuse(wd_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

static wd_status refuse(wd_err *err, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    err->status = WD_INVALID_ARGUMENT;
    vsnprintf(err->message, sizeof err->message, format, list);
    va_end(list);
    return WD_INVALID_ARGUMENT;
}

static bool is_name(const char *arg)
{
    return !strncmp(arg, "--", 2) && arg[2];
}

/* Finds the option called `name`: one of every command (*is_common), or one of the job. */
static const wd_option *find(bool *is_common, wd_job job, const char *name, wd_err *err)
{
    wd_err ignored;
    const wd_option *o = wd_option_find(WD_JOB_COMMON, name, &ignored);
    *is_common = o != NULL;
    return o ? o : wd_option_find(job, name, err);
}

static wd_status give(target *to, const wd_option *o, const char *value, wd_err *err)
{
    return wd_option_give(&to->given, to->options, o, value, err);
}

/* Reads the values after the name of `o`, as many as its type takes. */
static wd_status read_values(reader *r, target *to, const wd_option *o, wd_err *err)
{
    const bool next = r->at < r->argc;
    if (o->type == WD_OPTION_FLAG) return give(to, o, o->bare, err);
    if (o->bare && (!next || is_name(r->argv[r->at]))) return give(to, o, o->bare, err);
    if (!next || (o->type == WD_OPTION_TEXTS && is_name(r->argv[r->at]))) {
        char value[256];
        return refuse(err, "--%s: expected %s behind it, found nothing", o->name,
                      wd_cli_value_text(value, sizeof value, o));
    }
    wd_status status;
    do {
        status = give(to, o, r->argv[r->at++], err);
    } while (status == WD_OK && o->type == WD_OPTION_TEXTS && r->at < r->argc &&
             !is_name(r->argv[r->at]));
    return status;
}

static wd_status read_named(reader *r, char *arg, wd_err *err)
{
    char *name = arg + 2, *value = strchr(name, '=');
    char copy[128];
    if (value) {
        const size_t n = (size_t)(value - name);
        if (n >= sizeof copy) return refuse(err, "%s: there is no such option", arg);
        memcpy(copy, name, n);
        copy[n] = 0;
        name = copy;
        value++;
    }
    bool is_common;
    const wd_option *o = find(&is_common, r->job, name, err);
    if (!o) return WD_INVALID_ARGUMENT;
    target *to = is_common ? &r->common : &r->own;
    return value ? give(to, o, value, err) : read_values(r, to, o, err);
}

static wd_status read_positional(reader *r, const char *arg, wd_err *err)
{
    int64_t count;
    const wd_option *table = wd_options_of(r->job, &count);
    int seen = 0;
    for (int64_t i = 0; i < count; i++)
        if (table[i].flags & WD_OPTION_POSITIONAL && seen++ == r->positional) {
            if (table[i].type != WD_OPTION_TEXTS) r->positional++; /* a list takes all others */
            return give(&r->own, &table[i], arg, err);
        }
    return refuse(err, "%s: unexpected argument \"%s\"; options begin with --", wd_job_name(r->job),
                  arg);
}

static wd_status read_all(reader *r, wd_err *err)
{
    bool names = true;
    while (r->at < r->argc) {
        char *arg = r->argv[r->at++];
        wd_status status = WD_OK;
        if (names && !strcmp(arg, "--"))
            names = false;
        else if (names && is_name(arg))
            status = read_named(r, arg, err);
        else
            status = read_positional(r, arg, err);
        if (status != WD_OK) return status;
    }
    return wd_option_source_end(&r->own.given, r->job, r->own.options, err);
}

static reader begin(wd_job job, void *options, wd_common_options *common, int argc, char **argv)
{
    wd_options_default(common, sizeof *common, WD_JOB_COMMON);
    wd_options_default(options, wd_options_bytes(job), job);
    return (reader){.job = job,
                    .own.options = options,
                    .common.options = common,
                    .argc = argc,
                    .at = 1,
                    .argv = argv};
}

static bool is_resumed_alone(const wd_train_options *o)
{
    const bool has_teacher = o->teacher_path || o->transformer;
    return o->resume && strcmp(o->resume, "auto") && !(has_teacher && o->data_path);
}

/* Cuts the last name off a path; returns it, or "" if there is none. */
static const char *cut_name(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || slash == path) return "";
    *slash = 0;
    return slash + 1;
}

static bool has_run(char file[PATH_BYTES], const char *folder)
{
    return snprintf(file, PATH_BYTES, "%s/run.json", folder) < PATH_BYTES && !access(file, F_OK);
}

/* Finds the run.json that says everything else about `train --resume FOLDER`, where teacher and
 * prompts are not both named: FOLDER is a run's folder, or one of its checkpoints.
 * Writes its path, and that of the run's folder, which stays good when the checkpoint is removed.
 */
static wd_status find_resumed_run(char file[PATH_BYTES], char folder[PATH_BYTES],
                                  const char *resume, wd_err *err)
{
    if (strlen(resume) < PATH_BYTES && realpath(resume, folder)) {
        if (has_run(file, folder)) return WD_OK;
        cut_name(folder);
        if (!strcmp(cut_name(folder), "checkpoints") && has_run(file, folder)) return WD_OK;
    }
    return refuse(err,
                  "--resume %s: expected a run's folder, which has a run.json, or one of its "
                  "checkpoints, found neither; or give --teacher_path and --data_path, too",
                  resume);
}

/* Applies the file of the last --config. Errors in arguments are ignored here, since the second
 * reading finds and reports them. */
static wd_status apply_config(wd_cli_input *out, reader *first, wd_err *err)
{
    wd_err ignored;
    const wd_common_options *common = first->common.options;
    void *options = first->own.options;
    read_all(first, &ignored);
    char file[PATH_BYTES] = "";
    const bool resumes = first->job == WD_JOB_TRAIN && !common->config && is_resumed_alone(options);
    if (resumes) {
        const char *resume = ((wd_train_options *)options)->resume;
        const wd_status found = find_resumed_run(file, out->run_folder, resume, err);
        if (found != WD_OK) return found;
    }
    wd_options_default(options, wd_options_bytes(first->job), first->job);
    if (!common->config && !resumes) return WD_OK;
    wd_status status = wd_config_open(&out->config, resumes ? file : common->config, err);
    if (status == WD_OK) status = wd_config_apply(out->config, first->job, options, err);
    if (resumes) ((wd_train_options *)options)->output_dir = out->run_folder;
    return status;
}

static void to_stderr(void *context, wd_log_level level, const char *message)
{
    (void)context;
    static const char *const prefix[] = {"wandistiller: ", "wandistiller: warning: ", "", ""};
    wd_cli_progress_hide();
    fprintf(stderr, "%s%s\n", prefix[level], message);
}

static void direct_log(const char *level)
{
    static const char *const name[] = {"error", "warning", "info", "debug"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(name[i], level)) wd_log_to(to_stderr, NULL, (wd_log_level)i);
}

/* --help, or --help all. */
static bool asks_for_help(bool *all, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (strcmp(argv[i], "--help") && strcmp(argv[i], "-h")) continue;
        *all = i + 1 < argc && !strcmp(argv[i + 1], "all");
        return true;
    }
    return false;
}

wd_status wd_cli_open(wd_cli_input *out, wd_job job, void *options, int argc, char **argv,
                      wd_err *err)
{
    bool all = false;
    *out = (wd_cli_input){0};
    reader r = begin(job, options, &out->common, argc, argv);
    direct_log(out->common.log_level);
    if (asks_for_help(&all, argc, argv)) {
        wd_cli_print_help(stdout, job, all);
        out->done = true;
        return WD_OK;
    }
    reader first = r;
    wd_status status = apply_config(out, &first, err);
    if (status == WD_OK) status = read_all(&r, err);
    if (status != WD_OK) return status;
    direct_log(out->common.log_level);
    if (strcmp(out->common.log_level, "error") && strcmp(out->common.log_level, "warning"))
        wd_cli_progress_begin();
    return status;
}

void wd_cli_close(wd_cli_input *input)
{
    wd_cli_progress_end();
    wd_config_close(input->config);
}

void wd_cli_print(char *text)
{
    wd_cli_progress_hide();
    if (text) fputs(text, stdout);
    wd_text_free(text);
}
