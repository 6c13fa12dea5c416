/* Configuration of the scheduler: see model/tables/config.h. Defaults are those of the constructors
 * of diffusers 0.42. Keys that have no effect on flow sigmas (beta schedule, timestep spacing,
 * steps offset) are not read. */
#include <string.h>

#include "core/text.h"
#include "model/tables/config_read.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { SHIFT_MAX = 1000 }; /* Wan's models have 3 to 16 */

static const char *const class_names[] = {
    [WD_SCHEDULER_UNIPC] = "UniPCMultistepScheduler",
    [WD_SCHEDULER_EULER] = "FlowMatchEulerDiscreteScheduler",
};

const char *wd_scheduler_class_name(wd_scheduler_kind kind)
{
    return class_names[kind];
}

/* The kind of a class; COUNT(class_names): unknown. */
static wd_scheduler_kind kind_named(const char *class_name)
{
    wd_scheduler_kind kind = 0;
    while (kind < COUNT(class_names) && strcmp(class_name, class_names[kind])) kind++;
    return kind;
}

/* Reads a string that must be `a` or `b`; *second: it is `b`. */
static wd_status read_choice(bool *second, wd_json_reader r, const char *key, const char *a,
                             const char *b, wd_err *err)
{
    const char *text = *second ? b : a;
    WD_TRY(wd_json_text(&text, r, key, WD_JSON_OPTIONAL, err));
    if (strcmp(text, a) && strcmp(text, b))
        return wd_fail(err, WD_UNSUPPORTED, "%s: \"%s\": expected \"%s\" or \"%s\", found \"%.*s\"",
                       r.where, key, a, b, WD_TERMINAL_SAFE(text, 60));
    *second = !strcmp(text, b);
    return WD_OK;
}

static wd_status read_shift(wd_scheduler_config *c, wd_json_reader r, const char *key, wd_err *err)
{
    WD_TRY(wd_json_float(&c->flow_shift, r, key, WD_JSON_OPTIONAL, err));
    if (c->flow_shift > 0 && c->flow_shift <= SHIFT_MAX) return WD_OK;
    return wd_fail(err, WD_BAD_FORMAT, "%s: \"%s\": expected a positive number up to %d, found %g",
                   r.where, key, SHIFT_MAX, c->flow_shift);
}

/* Reads "bh1" or "bh2"; the reference uses "bh2" for the names of other solvers, too. */
static wd_status read_solver_type(bool *bh1, wd_json_reader r, wd_err *err)
{
    static const char *const others[] = {"midpoint", "heun", "logrho"};
    const char *text = "bh2";
    WD_TRY(wd_json_text(&text, r, "solver_type", WD_JSON_OPTIONAL, err));
    for (size_t i = 0; i < COUNT(others); i++) {
        if (!strcmp(text, others[i])) return WD_OK;
    }
    return read_choice(bh1, r, "solver_type", "bh2", "bh1", err);
}

static wd_status read_disable_corrector(uint64_t *out, wd_json_reader r, wd_err *err)
{
    enum { STEPS_MAX = 64 };
    int64_t step[STEPS_MAX], count = 0;
    WD_TRY(wd_json_ints(step, &count, STEPS_MAX, r, "disable_corrector", WD_JSON_OPTIONAL, err));
    for (int64_t i = 0; i < count; i++) {
        if (step[i] < 0) continue; /* negative numbers name no step */
        if (step[i] >= STEPS_MAX)
            return wd_fail(err, WD_UNSUPPORTED,
                           "%s: \"disable_corrector\": step %lld, expected at most %d", r.where,
                           (long long)step[i], STEPS_MAX - 1);
        *out |= UINT64_C(1) << step[i];
    }
    return WD_OK;
}

static wd_status read_unipc(wd_scheduler_config *c, wd_json_reader r, wd_err *err)
{
    static const char *const unsupported[] = {
        "thresholding",    "solver_p",       "use_karras_sigmas",    "use_exponential_sigmas",
        "use_beta_sigmas", "shift_terminal", "use_dynamic_shifting", "rescale_betas_zero_snr"};
    const char *prediction = "epsilon";
    bool flow_sigmas = false, sigma_min = false;
    WD_TRY(wd__config_refuse_set(r, unsupported, COUNT(unsupported), err));
    WD_TRY(wd_json_text(&prediction, r, "prediction_type", WD_JSON_OPTIONAL, err));
    WD_TRY(wd_json_bool(&flow_sigmas, r, "use_flow_sigmas", WD_JSON_OPTIONAL, err));
    if (strcmp(prediction, "flow_prediction") || !flow_sigmas)
        return wd_fail(err, WD_UNSUPPORTED,
                       "%s: \"prediction_type\" is \"%.*s\" and \"use_flow_sigmas\" %s: expected "
                       "\"flow_prediction\" and true, as every Wan model has them",
                       r.where, WD_TERMINAL_SAFE(prediction, 60), flow_sigmas ? "true" : "false");
    WD_TRY(read_shift(c, r, "flow_shift", err));
    WD_TRY(wd_json_int(&c->solver_order, r, "solver_order", 1, 3, WD_JSON_OPTIONAL, err));
    WD_TRY(read_solver_type(&c->bh1, r, err));
    WD_TRY(wd_json_bool(&c->lower_order_final, r, "lower_order_final", WD_JSON_OPTIONAL, err));
    WD_TRY(wd_json_bool(&c->predict_x0, r, "predict_x0", WD_JSON_OPTIONAL, err));
    WD_TRY(read_choice(&sigma_min, r, "final_sigmas_type", "zero", "sigma_min", err));
    c->final_sigma_zero = !sigma_min;
    return read_disable_corrector(&c->disable_corrector, r, err);
}

static wd_status read_euler(wd_scheduler_config *c, wd_json_reader r, wd_err *err)
{
    static const char *const unsupported[] = {
        "use_dynamic_shifting", "invert_sigmas",          "shift_terminal",     "use_karras_sigmas",
        "use_beta_sigmas",      "use_exponential_sigmas", "stochastic_sampling"};
    WD_TRY(wd__config_refuse_set(r, unsupported, COUNT(unsupported), err));
    return read_shift(c, r, "shift", err);
}

wd_status wd_scheduler_config_read(wd_scheduler_config *out, const json_t *json, const char *where,
                                   wd_err *err)
{
    wd_scheduler_config c = {.num_train_timesteps = 1000,
                             .flow_shift = 1,
                             .solver_order = 2,
                             .lower_order_final = true,
                             .predict_x0 = true,
                             .final_sigma_zero = true};
    const wd_json_reader r = {json, where};
    const char *class_name = NULL;
    WD_TRY(wd_json_text(&class_name, r, "_class_name", WD_JSON_REQUIRED, err));
    WD_TRY(wd_json_int(&c.num_train_timesteps, r, "num_train_timesteps", 1, 1 << 20,
                       WD_JSON_OPTIONAL, err));
    c.kind = kind_named(class_name);
    if (c.kind == COUNT(class_names))
        return wd_fail(err, WD_UNSUPPORTED, "%s: \"_class_name\": expected %s or %s, found %.*s",
                       where, class_names[WD_SCHEDULER_UNIPC], class_names[WD_SCHEDULER_EULER],
                       WD_TERMINAL_SAFE(class_name, 100));
    WD_TRY(c.kind == WD_SCHEDULER_UNIPC ? read_unipc(&c, r, err) : read_euler(&c, r, err));
    *out = c;
    return WD_OK;
}
