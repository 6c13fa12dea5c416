/* The refusal of a drawing that does not fit: what is missing, and the commands that fit, which are
 * planned as the refused one was. */
#include <stdio.h>
#include <string.h>

#include "api/options/options.h"
#include "api/plan/drawing_impl.h"
#include "api/setup/memory_report.h"
#include "core/log.h"
#include "core/memory.h"

enum { SUGGESTIONS_MAX = 3, COMMAND_MAX = 1 << 15 };

static void say_place(const wd_drawing_plan *p, const char *place, size_t needed, size_t there)
{
    char need[32], is[32], missing[32];
    if (needed <= there) return;
    wd_log(WD_LOG_ERROR, "%s: %s of %s needed, %s there; %s are missing (%zu bytes)",
           wd_strategy_name(p->strategy), wd_bytes_text(need, sizeof need, needed), place,
           wd_bytes_text(is, sizeof is, there),
           wd_bytes_text(missing, sizeof missing, needed - there), needed - there);
}

static void say_missing(const wd_drawing_search *s)
{
    char name[WD_DEVICE_SHORT_NAME];
    wd__drawing_device_name(name, s->drawing->run);
    for (int i = 0; i < s->refusals; i++) {
        const wd_drawing_plan *p = &s->refused[i];
        say_place(p, name, p->device_bytes, p->device_bytes_max);
        say_place(p, "host memory", p->host_bytes, p->host_bytes_max);
    }
}

/* Another way to draw the same. */
typedef struct variant {
    wd_drawing drawing;
    wd_drawing_model_options model[WD_DRAWING_MODELS_MAX];
    bool bfloat16; /* instead of what the drawing computes in */
    char command[COMMAND_MAX];
} variant;

static bool computes_in_float32(const wd_drawing *d)
{
    bool any = false;
    for (int i = 0; i < d->models; i++) any |= d->model[i]->dtype == WD_F32;
    return any;
}

static void begin_variant(variant *v, const wd_drawing *d, bool bfloat16)
{
    v->drawing = *d;
    v->bfloat16 = bfloat16;
    v->drawing.batch = 0;
    for (int i = 0; i < d->models; i++) {
        v->model[i] = *d->model[i];
        if (bfloat16) v->model[i].dtype = WD_BF16;
        v->drawing.model[i] = &v->model[i];
    }
}

static void say_variant(variant *v, const wd_drawing_plan *p)
{
    char device[96] = "", name[WD_DEVICE_SHORT_NAME], bytes[32], host[32];
    const wd_run *run = v->drawing.run;
    const wd_option_value change[] = {
        {"teacher_device_strategy", wd_strategy_name(p->strategy)},
        {"batch_size", "0"},
        {"dtype", "bfloat16"},
    };
    if (p->device_bytes)
        snprintf(device, sizeof device, "%s of %s, ",
                 wd_bytes_text(bytes, sizeof bytes, p->device_bytes),
                 wd__drawing_device_name(name, run));
    wd_job_command(v->command, sizeof v->command, v->drawing.job, v->drawing.options, change,
                   v->bfloat16 ? 3 : 2);
    wd_log(WD_LOG_ERROR, "  # %s%s of host memory", device,
           wd_bytes_text(host, sizeof host, p->host_bytes));
    wd_log(WD_LOG_ERROR, "  %s", v->command);
}

/* Whether a strategy with the user's dtype and number of pictures was refused already. */
static bool was_tried(const variant *v, const wd_drawing_search *search, wd_strategy strategy)
{
    if (v->bfloat16 || search->drawing->batch) return false;
    for (int i = 0; i < search->refusals; i++)
        if (search->refused[i].strategy == strategy) return true;
    return false;
}

/* Logs the strategies that fit with one dtype; returns their number. */
static int say_fitting(variant *v, const wd_drawing_search *search)
{
    const wd_run *run = search->drawing->run;
    wd_drawing_search s;
    wd_strategy strategy[WD_DRAWING_STRATEGIES + 1];
    int said = 0, strategies = wd__drawing_strategies(strategy, run);
    if (strategy[0] != WD_STRATEGY_cpu) strategy[strategies++] = WD_STRATEGY_cpu;
    const wd_dtype encoding = v->bfloat16 ? WD_BF16 : WD_DTYPE_COUNT;
    if (wd__drawing_search_open(&s, &v->drawing, encoding, NULL) != WD_OK) return 0;
    for (int i = 0; i < strategies && said < SUGGESTIONS_MAX; i++) {
        bool fits;
        if (was_tried(v, search, strategy[i])) continue;
        if (wd__drawing_try(&fits, &s, strategy[i], NULL) != WD_OK || !fits) continue;
        say_variant(v, &s.plan);
        said++;
    }
    return said;
}

wd_status wd__drawing_refuse(const wd_drawing_search *search, wd_err *err)
{
    const wd_drawing *d = search->drawing;
    variant *v;
    int said = 0;
    WD_TRY(wd_alloc((void **)&v, 1, sizeof *v, "a plan", err));
    say_missing(search);
    wd_log(WD_LOG_ERROR, "what would fit, best first:");
    for (int bfloat16 = 0; bfloat16 < 2 && !said; bfloat16++) {
        if (bfloat16 && !computes_in_float32(d)) continue;
        begin_variant(v, d, bfloat16);
        said = say_fitting(v, search);
    }
    wd_free(v);
    if (said)
        return wd_fail(
            err, WD_DOES_NOT_FIT,
            "%s: drawing with it does not fit, and nothing was loaded; the commands above "
            "do",
            d->model[0]->pipeline->path);
    wd_log(WD_LOG_ERROR, "  nothing with this model on %s", wd_device_name(d->run->device));
    return wd_fail(
        err, WD_DOES_NOT_FIT,
        "%s: drawing with it does not fit, and nothing was loaded: take smaller pictures "
        "(--height, --width), another --device, or more memory (--host_memory says how "
        "much may be used)",
        d->model[0]->pipeline->path);
}
