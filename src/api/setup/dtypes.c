/* The dtypes of models: see api/setup/dtypes.h. */
#include "api/setup/dtypes.h"

#include <string.h>

#include "core/log.h"

/* ---- the dtype of a command ---- */

/* *out = whether most weights of the component are float32 in its own files: LoRAs and what
 * quantises them are left out. */
static wd_status is_float32(bool *out, const wd_pipeline *pipeline, wd_component component,
                            wd_err *err)
{
    wd_pipeline files = *pipeline;
    wd_safetensors *set;
    int64_t float32 = 0, all = 0;
    files.lora[0] = files.lora[1] = NULL;
    files.overlay = (wd_overlay){0};
    WD_TRY(wd_pipeline_open_weights(&set, &files, component, err));
    for (int64_t i = 0; i < wd_safetensors_count(set); i++) {
        const wd_tensor *t = &wd_safetensors_at(set, i)->tensor;
        all += wd_tensor_count(t);
        if (t->dtype == WD_F32) float32 += wd_tensor_count(t);
    }
    wd_safetensors_close(set);
    *out = float32 > all / 2;
    return WD_OK;
}

wd_status wd_compute_dtype(wd_dtype *out, const char *given, const wd_pipeline *pipeline,
                           wd_component component, const wd_device *device, wd_err *err)
{
    bool float32;
    if (given) {
        wd_dtype_parse(out, given);
        return WD_OK;
    }
    *out = WD_BF16;
    if (!wd_device_traits(device)->reads_host) return WD_OK;
    WD_TRY(is_float32(&float32, pipeline, component, err));
    if (float32) *out = WD_F32;
    return WD_OK;
}

/* ---- the dtypes of a run ---- */

static bool is(const char *given, const char *value)
{
    return given && !strcmp(given, value);
}

/* fp16 is for storage only: its range is too small for a transformer's activations. */
static void say_float16(const wd_train_options *o)
{
    if (is(o->teacher_dtype, "float16"))
        wd_log(WD_LOG_INFO,
               "--teacher_dtype float16: the teacher's weights are rounded to bf16, in "
               "which it computes on every device; fp16 is for storage only");
    if (is(o->mixed_precision, "fp16"))
        wd_log(WD_LOG_INFO,
               "--mixed_precision fp16: the student computes in bf16, on every device; "
               "fp16 is for storage only");
}

static void choose(wd_train_setup *s, bool has_gpus)
{
    const wd_train_options *given = &s->given;
    wd_train_options *o = &s->options;
    o->teacher_dtype = given->teacher_dtype;
    o->mixed_precision = given->mixed_precision;
    if (!o->teacher_dtype) o->teacher_dtype = s->begun_teacher_dtype;
    if (!o->mixed_precision) o->mixed_precision = s->begun_mixed_precision;
    if (!o->teacher_dtype) o->teacher_dtype = has_gpus ? "bfloat16" : "float32";
    if (!o->mixed_precision) o->mixed_precision = has_gpus ? "bf16" : "no";
    if (is(o->teacher_dtype, "float16")) o->teacher_dtype = "bfloat16";
    if (is(o->mixed_precision, "fp16")) o->mixed_precision = "bf16";
    s->encoder_dtype = is(o->teacher_dtype, "float32") ? WD_F32 : WD_BF16;
}

/* The choice of an option of `train` that a checkpoint has under its name; NULL: none. */
static const char *choice_of(const json_t *run, const char *name)
{
    const char *value = json_string_value(json_object_get(run, name));
    const wd_option *option = wd_option_find(WD_JOB_TRAIN, name, NULL);
    for (const char *const *c = option->choices; value && *c; c++)
        if (!strcmp(*c, value)) return *c;
    return NULL;
}

void wd__train_dtypes_keep(wd_train_setup *s, const json_t *run)
{
    s->begun_teacher_dtype = choice_of(run, "teacher_dtype");
    s->begun_mixed_precision = choice_of(run, "mixed_precision");
}

wd_status wd__train_dtypes_resolve(wd_train_setup *s, wd_err *err)
{
    wd_device_list list = {0};
    const bool open = !s->given.teacher_dtype || !s->given.mixed_precision;
    if (open) WD_TRY(wd_device_list_parse(&list, s->given.devices, err));
    say_float16(&s->given);
    choose(s, wd_device_list_has_gpus(&list));
    return WD_OK;
}

void wd_train_dtypes_follow(wd_train_setup *s, const wd_device_list *opened)
{
    choose(s, wd_device_list_has_gpus(opened));
    wd__train_dtypes_apply(s);
}

void wd__train_dtypes_apply(wd_train_setup *s)
{
    wd_stepper_options *m = &s->trainer.stepper;
    wd_dtype dtype = WD_F32;
    wd_dtype_parse(&dtype, s->options.teacher_dtype);
    const bool quantises = wd_dtype_is_quantised(dtype);
    m->teacher_dtype = quantises ? WD_BF16 : dtype;
    m->student_dtype = is(s->options.mixed_precision, "no") ? WD_F32 : WD_BF16;
    m->gradients = is(s->options.gradient_dtype, "bfloat16") ? m->student_dtype : WD_F32;
    s->teacher.overlay = (wd_overlay){
        .folder = s->cache_dir, .dtype = m->teacher_dtype, .quantised = quantises ? dtype : WD_F32};
}
