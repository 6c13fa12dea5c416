/* A job whose options were set by name: see wd_options_run in wandistiller.h. Every job gives JSON
 * here, also those that print a table or nothing on the command line. */
#include "api/options/by_name.h"
#include "api/options/options.h"
#include "core/error.h"
#include "io/file/file.h"

/* Writes `json`, which it frees, to *text. */
static wd_status give(char **text, json_t *json, wd_err *err)
{
    const wd_status status = wd_json_text_of(text, json, err);
    json_decref(json);
    return status;
}

static wd_status written(char **text, const char *out, wd_err *err)
{
    return give(text, json_pack("{s:o}", "out", wd_json_string(out)), err);
}

static wd_status run_train(char **result, void *fields, wd_err *err)
{
    const wd_train_options *o = fields;
    wd_train_result r = {0};
    if (o->nproc_per_node || o->multi_gpu)
        return wd_fail(err, WD_INVALID_ARGUMENT,
                       "--%s: the command line program starts ranks, the library does not: run "
                       "`wandistiller train`, or start this program by mpirun and set distributed",
                       o->multi_gpu ? "multi_gpu" : "nproc_per_node");
    WD_TRY(wd_train(&r, o, err));
    json_t *loss = json_real(r.loss); /* NULL for NaN */
    return give(result,
                json_pack("{s:b, s:I, s:I, s:o, s:f, s:o}", "stopped", r.stopped, "steps",
                          (json_int_t)r.steps, "targets", (json_int_t)r.targets, "loss",
                          loss ? loss : json_null(), "seconds", r.seconds, "output_dir",
                          wd_json_string(o->output_dir)),
                err);
}

static wd_status run_plan(char **result, void *fields, wd_err *err)
{
    wd_plan_options *o = fields;
    o->json = true;
    return wd_plan(result, o, err);
}

static wd_status run_sample(char **result, void *fields, wd_err *err)
{
    const wd_sample_options *o = fields;
    WD_TRY(wd_sample(o, err));
    return written(result, o->out, err);
}

static wd_status run_eval(char **result, void *fields, wd_err *err)
{
    wd_eval_options *o = fields;
    o->json = true;
    return wd_eval(result, o, err);
}

static wd_status run_inspect(char **result, void *fields, wd_err *err)
{
    wd_inspect_options *o = fields;
    o->json = true;
    return wd_inspect(result, o, err);
}

static wd_status run_convert(char **result, void *fields, wd_err *err)
{
    const wd_convert_options *o = fields;
    WD_TRY(wd_convert(o, err));
    return written(result, o->out, err);
}

static wd_status run_report(char **result, void *fields, wd_err *err)
{
    const wd_report_options *o = fields;
    char path[WD_PATH_MAX];
    WD_TRY(wd_report(o, err));
    if (o->out) return written(result, o->out, err);
    WD_TRY(wd_path_join(path, o->runs.item[0], "report.html", err));
    return written(result, path, err);
}

static wd_status run_tell(char **result, void *fields, wd_err *err)
{
    WD_TRY(wd_tell(fields, err));
    return give(result, json_object(), err);
}

static wd_status run_forward(char **result, void *fields, wd_err *err)
{
    const wd_forward_options *o = fields;
    WD_TRY(wd_forward(o, err));
    return written(result, o->out, err);
}

static void keep_line(void *context, const char *line)
{
    json_array_append_new(context, wd_json_string(line));
}

static wd_status run_bench(char **result, void *fields, wd_err *err)
{
    wd_bench_options *o = fields;
    json_t *lines = json_array();
    o->print = keep_line;
    o->print_context = lines;
    const wd_status status = wd_bench(o, err);
    if (status == WD_OK) return give(result, json_pack("{s:o}", "lines", lines), err);
    json_decref(lines);
    return status;
}

wd_status wd_options_run(char **result, wd_options *options, wd_err *err)
{
    typedef wd_status run_fn(char **, void *, wd_err *);
    static run_fn *const run[] = {
#define X(JOB, job, summary) [WD_JOB_##JOB] = run_##job,
        WD_JOB_MAP(X)
#undef X
    };
    WD_TRY(wd_option_source_end(&options->given, options->job, options->fields, err));
    return run[options->job](result, options->fields, err);
}
