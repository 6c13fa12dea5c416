/* Plans of drawing: see api/plan/drawing_plan.h. What a plan needs is found by running its parts on
 * dry devices: encoding, drawing, decoding. Encoder and decoder are chosen once, then a strategy
 * after the other is tried with fewer and fewer pictures at a time. */
#include "api/plan/drawing_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/options/teacher_choice.h"
#include "api/plan/drawing_impl.h"
#include "api/setup/memory_report.h"
#include "core/host.h"
#include "core/log.h"
#include "core/memory.h"
#include "dev/ops.h"
#include "model/sampling/painter.h"

/* ---- dry runs ---- */

enum { STEPS = 2 }; /* of the sampler: further steps take the same memory */

/* A dry device that stands for another one, and the memory meter since it was opened. */
typedef struct rehearsal {
    wd_device *device;
    wd_queue *queue;
    int64_t held_before;
    size_t host; /* host memory that the meter does not see */
} rehearsal;

static wd_status begin(rehearsal *r, wd_device *target, wd_err *err)
{
    *r = (rehearsal){0};
    WD_TRY(wd_device_open_dry(&r->device, target, err));
    r->held_before = wd_memory_held();
    wd_memory_restart_peak();
    wd_memory_plan_only(true);
    return wd_queue_open(&r->queue, r->device, err);
}

/* Adds up what was counted, if `status` is WD_OK; closes the device in any case. */
static wd_status end(wd_drawing_need *out, rehearsal *r, wd_status status, wd_err *err)
{
    wd_memory_plan_only(false);
    if (status == WD_OK) status = wd_device_check_kernels(err);
    if (status == WD_OK) status = wd_device_check_planned(r->device, err);
    if (status == WD_OK) {
        const size_t pool = wd_device_bytes_peak(r->device) + wd_queue_workspace_bytes(r->queue);
        const bool is_host = wd_device_traits(r->device)->reads_host;
        out->device = is_host ? 0 : pool;
        out->host = (size_t)(wd_memory_peak() - r->held_before) + r->host + (is_host ? pool : 0);
    }
    wd_queue_close(r->queue);
    wd_device_close(r->device);
    return status;
}

/* *out = what encoding the job's prompts on `device` needs; in another dtype than the text cache's:
 * what any prompts need at most. WD_UNSUPPORTED: the device cannot. */
static wd_status rehearse_encoding(wd_drawing_need *out, const wd_drawing *drawing, wd_dtype dtype,
                                   wd_device *device, wd_err *err)
{
    rehearsal r;
    const wd_drawing_model_options *m = drawing->model[0];
    *out = (wd_drawing_need){0};
    wd_status status = begin(&r, device, err);
    if (status == WD_OK && dtype == WD_DTYPE_COUNT)
        status = wd_text_cache_encode(drawing->text, r.queue, err);
    else if (status == WD_OK)
        status = wd_text_cache_rehearse(m->pipeline, m->embeds->tokens, dtype, r.queue, err);
    return end(out, &r, status, err);
}

/* A batch's latents and pictures in host memory, which are zeros. */
typedef struct arrays {
    float *latents, *image;
} arrays;

static wd_status alloc_arrays(arrays *a, const wd_drawing *d, int64_t batch, wd_err *err)
{
    const wd_drawing_model_options *m = d->model[0];
    const int64_t scale = wd_pipeline_vae_scale(d->vae), pixels = m->height * m->width;
    *a = (arrays){0};
    WD_TRY(wd_alloc((void **)&a->latents, (size_t)(batch * pixels),
                    (size_t)m->pipeline->dit.in_channels * sizeof(float), "latents", err));
    return wd_alloc((void **)&a->image, (size_t)(batch * pixels),
                    (size_t)(3 * scale * scale) * sizeof(float), "pictures", err);
}

static void free_arrays(arrays *a)
{
    wd_free(a->latents);
    wd_free(a->image);
}

static wd_status decode(const arrays *a, const wd_drawing *d, int64_t batch, wd_queue *queue,
                        wd_err *err)
{
    return wd_pictures_decode(a->image, a->latents, batch, d->model[0]->height, d->model[0]->width,
                              d->vae, queue, err);
}

/* *out = what decoding `batch` pictures on `device`, with nothing else there, needs.
 * WD_UNSUPPORTED: it cannot. */
static wd_status rehearse_decoding(wd_drawing_need *out, const wd_drawing *drawing,
                                   wd_device *device, int64_t batch, wd_err *err)
{
    rehearsal r;
    arrays a = {0};
    *out = (wd_drawing_need){0};
    wd_status status = begin(&r, device, err);
    if (status == WD_OK) status = alloc_arrays(&a, drawing, batch, err);
    if (status == WD_OK) status = decode(&a, drawing, batch, r.queue, err);
    free_arrays(&a);
    return end(out, &r, status, err);
}

/* *out = what drawing as `plan` says needs, on the device of plan->sampler: with decoding, where
 * that takes place beside the models. */
static wd_status rehearse_drawing(wd_drawing_need *out, const wd_drawing *drawing,
                                  const wd_drawing_plan *plan, wd_err *err)
{
    rehearsal r;
    arrays a = {0};
    wd_drawing_model *model[WD_DRAWING_MODELS_MAX] = {NULL};
    wd_status status;
    *out = (wd_drawing_need){0};
    WD_TRY_OUT(begin(&r, wd_queue_device(plan->sampler), err));
    WD_TRY_OUT(alloc_arrays(&a, drawing, plan->batch, err));
    for (int i = 0; i < drawing->models; i++) {
        wd_drawing_model_options o = *drawing->model[i];
        wd_drawing_follow(&o, plan, drawing->run, i);
        o.steps = o.steps < STEPS ? o.steps : STEPS;
        WD_TRY_OUT(wd_drawing_model_open(&model[i], &o, r.queue, err));
        r.host += wd_drawing_model_weights(model[i])->host_bytes;
        out->mapped += wd_drawing_model_weights(model[i])->mapped_bytes;
    }
    for (int i = 0; i < drawing->models; i++)
        WD_TRY_OUT(wd_drawing_model_run(model[i], a.latents, NULL, 0,
                                        wd_drawing_model_batch(model[i]), err));
    if (!plan->in_turn && plan->decoder == plan->sampler)
        WD_TRY_OUT(decode(&a, drawing, plan->batch, r.queue, err));
out:
    for (int i = 0; i < drawing->models; i++) wd_drawing_model_close(model[i]);
    free_arrays(&a);
    return end(out, &r, status, err);
}

/* ---- budgets ---- */

/* Measurements of the program's own memory differ by less than this between runs. */
enum { PROGRAM_SLACK = 1 << 20 };

static bool is_processor(const wd_run *run)
{
    return run->device == run->processor;
}

static void raise_to(size_t *most, size_t bytes)
{
    if (bytes > *most) *most = bytes;
}

static size_t device_max(const wd_device *device)
{
    return wd_device_traits(device)->reads_host ? SIZE_MAX : wd_device_bytes_max(device);
}

static size_t own_bytes(const wd_run *run)
{
    wd_host_memory_trim();
    const size_t now = wd_host_memory_own();
    return now > run->bytes_before ? now - run->bytes_before : 0;
}

static wd_status open_budget(wd_drawing_search *s, wd_err *err)
{
    const wd_run *run = s->drawing->run;
    const size_t free = wd_host_memory_available(), own = own_bytes(run);
    s->device_max = device_max(run->device);
    s->host_max = free < SIZE_MAX - own ? free + own : SIZE_MAX;
    if (!s->drawing->host_memory) return WD_OK;
    return wd_bytes_parse(&s->host_max, "--host_memory", s->drawing->host_memory, err);
}

/* Whether a need that was found on `device` fits there. */
static bool has_room(const wd_drawing_search *s, const wd_drawing_need *need)
{
    return need->device <= s->device_max;
}

/* ---- encoder and decoder ---- */

/* Takes the device of the run, or, if `status` and `need` say that it cannot or has no room, the
 * processor, whose need the caller then finds. False: an error of another kind. */
static bool pick_device(bool *on_processor, const wd_drawing_search *s, wd_status status,
                        const wd_drawing_need *need)
{
    *on_processor = status == WD_UNSUPPORTED || (status == WD_OK && !has_room(s, need));
    *on_processor &= !is_processor(s->drawing->run);
    return status == WD_OK || *on_processor;
}

static wd_status choose_encoder(wd_drawing_search *s, wd_err *err)
{
    const wd_drawing *d = s->drawing;
    bool on_processor;
    wd_err why = {0};
    s->encoder = d->run->device;
    const wd_status status =
        rehearse_encoding(&s->encoding, d, s->encoding_dtype, s->encoder, &why);
    if (!pick_device(&on_processor, s, status, &s->encoding))
        return wd_fail(err, status, "%s", why.message);
    if (!on_processor) return WD_OK;
    s->encoder = d->run->processor;
    return rehearse_encoding(&s->encoding, d, s->encoding_dtype, s->encoder, err);
}

/* The decoder is the device's if that has room for the fewest pictures that it may have to decode
 * at a time. */
static wd_status choose_decoder(wd_drawing_search *s, wd_err *err)
{
    const wd_drawing *d = s->drawing;
    bool on_processor;
    wd_err why = {0};
    s->decoder = d->run->queue;
    s->decoded = d->batch ? s->batch : 1;
    const wd_status status = rehearse_decoding(&s->decoding, d, d->run->device, s->decoded, &why);
    if (!pick_device(&on_processor, s, status, &s->decoding))
        return wd_fail(err, status, "%s", why.message);
    if (!on_processor) return WD_OK;
    s->decoder = d->run->host;
    return rehearse_decoding(&s->decoding, d, d->run->processor, s->decoded, err);
}

/* ---- one strategy ---- */

/* Rehearses s->plan, and sets its bytes. */
static wd_status rehearse(wd_drawing_search *s, wd_err *err)
{
    const wd_drawing *d = s->drawing;
    wd_drawing_plan *p = &s->plan;
    wd_drawing_need need;
    if (p->batch != s->decoded)
        WD_TRY(rehearse_decoding(&s->decoding, d, wd_queue_device(s->decoder), p->batch, err));
    s->decoded = p->batch;
    WD_TRY(rehearse_drawing(&need, d, p, err));
    const size_t array_bytes = d->host_bytes + (size_t)p->batch * d->host_bytes_each;
    p->device_bytes = need.device;
    raise_to(&p->device_bytes, s->encoding.device);
    raise_to(&p->device_bytes, s->decoding.device);
    p->host_bytes = need.host + array_bytes;
    raise_to(&p->host_bytes, s->decoding.host + array_bytes);
    raise_to(&p->host_bytes, s->encoding.host);
    p->host_bytes += s->program;
    p->mapped_bytes = need.mapped;
    return WD_OK;
}

static bool plan_fits(const wd_drawing_plan *p)
{
    return p->device_bytes <= p->device_bytes_max && p->host_bytes <= p->host_bytes_max;
}

/* Whether the mapped weights stay in the page cache. */
static bool is_cached(const wd_drawing_plan *p)
{
    return p->mapped_bytes <= p->host_bytes_max - p->host_bytes;
}

wd_status wd__drawing_try(bool *fits, wd_drawing_search *s, wd_strategy strategy, wd_err *err)
{
    const wd_drawing *d = s->drawing;
    const bool one_batch = d->decodes_beside;
    s->plan = (wd_drawing_plan){.strategy = strategy,
                                .batch = d->batch ? s->batch : 1,
                                .in_turn = !d->decodes_beside,
                                .alike = d->alike,
                                .encoder = s->encoder,
                                .decoder = s->decoder,
                                .device_bytes_max = s->device_max,
                                .host_bytes_max = s->host_max};
    s->plan.sampler = strategy == WD_STRATEGY_cpu ? d->run->host : d->run->queue;
    WD_TRY(rehearse(s, err)); /* the least that it needs */
    *fits = plan_fits(&s->plan);
    if (!*fits) return WD_OK;
    for (s->plan.batch = s->batch;; s->plan.batch = (s->plan.batch + 1) / 2)
        for (int in_turn = one_batch ? 1 : 0; in_turn < 2; in_turn++) {
            s->plan.in_turn = in_turn && !d->decodes_beside;
            WD_TRY(rehearse(s, err));
            if (plan_fits(&s->plan) || (s->plan.batch == 1 && in_turn)) return WD_OK;
        }
}

/* ---- the choice ---- */

int wd__drawing_strategies(wd_strategy out[WD_DRAWING_STRATEGIES], const wd_run *run)
{
    int n = 0;
    if (!is_processor(run)) out[n++] = WD_STRATEGY_gpu;
    if (!is_processor(run)) out[n++] = WD_STRATEGY_offload;
    if (is_processor(run)) out[n++] = WD_STRATEGY_cpu;
    out[n++] = WD_STRATEGY_disk;
    return n;
}

/* WD_UNSUPPORTED: the devices of a run cannot serve `strategy`. */
static wd_status check_strategy(wd_strategy strategy, const wd_run *run, wd_err *err)
{
    if (strategy != WD_STRATEGY_gpu || !is_processor(run)) return WD_OK;
    return wd_fail(
        err, WD_UNSUPPORTED,
        "--teacher_device_strategy %s needs a GPU, real or simulated, and --device is the "
        "processor: expected cpu, disk or auto",
        wd_strategy_name(strategy));
}

wd_status wd__drawing_search_open(wd_drawing_search *s, const wd_drawing *drawing,
                                  wd_dtype encoding, wd_err *err)
{
    *s = (wd_drawing_search){.drawing = drawing, .encoding_dtype = encoding};
    s->batch = drawing->batch ? drawing->batch : wd_drawing_model_usual_batch(drawing->model[0]);
    const int64_t pictures = wd_drawing_model_pictures(drawing->model[0]);
    if (s->batch > pictures) s->batch = pictures;
    WD_TRY(open_budget(s, err));
    WD_TRY(choose_encoder(s, err));
    WD_TRY(choose_decoder(s, err));
    s->program = own_bytes(drawing->run) + PROGRAM_SLACK;
    return WD_OK;
}

/* Tries the strategies in their order. *out = the first plan that fits and whose mapped weights
 * stay in the page cache, else the first that fits; none does: *found is false. */
static wd_status choose(wd_drawing_plan *out, bool *found, wd_drawing_search *s,
                        const wd_strategy *strategy, int count, wd_err *err)
{
    *found = false;
    for (int i = 0; i < count; i++) {
        bool fits;
        WD_TRY(wd__drawing_try(&fits, s, strategy[i], err));
        if (!fits) {
            s->refused[s->refusals++] = s->plan;
            continue;
        }
        if (!*found || is_cached(&s->plan)) *out = s->plan;
        *found = true;
        if (is_cached(out)) return WD_OK;
    }
    return WD_OK;
}

const char *wd__drawing_device_name(char out[WD_DEVICE_SHORT_NAME], const wd_run *run)
{
    const char *name = wd_device_name(run->device); /* "sim:0 (...)" */
    snprintf(out, WD_DEVICE_SHORT_NAME, "%.*s", (int)strcspn(name, " "), name);
    return out;
}

static void say_plan(const wd_drawing_plan *p, const wd_drawing_search *s)
{
    char device[96] = "", name[WD_DEVICE_SHORT_NAME], bytes[32], host[32], mapped[32];
    const wd_run *run = s->drawing->run;
    wd__drawing_device_name(name, run);
    if (!is_processor(run))
        snprintf(device, sizeof device, "%s of %s, ",
                 wd_bytes_text(bytes, sizeof bytes, p->device_bytes), name);
    wd_log(WD_LOG_INFO,
           "drawing: weights under %s, %" PRId64 " at a time; planned are %s%s of host "
           "memory",
           wd_strategy_name(p->strategy), p->batch, device,
           wd_bytes_text(host, sizeof host, p->host_bytes));
    if (p->encoder != run->device)
        wd_log(WD_LOG_INFO, "the processor encodes the prompts: %s cannot, or has no room for it",
               name);
    if (p->decoder != run->queue)
        wd_log(WD_LOG_INFO, "the processor decodes the pictures: %s cannot, or has no room for it",
               name);
    if (is_cached(p)) return;
    wd_log(WD_LOG_WARNING,
           "%s of weights are used where their files are mapped, and less host memory is left to "
           "keep them: they are read from disk again in every step. --teacher_device_strategy "
           "disk, where it fits, reads them ahead of time",
           wd_bytes_text(mapped, sizeof mapped, p->mapped_bytes));
}

wd_status wd_drawing_plan_open(wd_drawing_plan *out, const wd_drawing *drawing, wd_err *err)
{
    wd_drawing_search search;
    wd_strategy strategy[WD_DRAWING_STRATEGIES] = {WD_STRATEGY_auto};
    int count = 1;
    bool found;
    if (drawing->strategy) WD_TRY(wd_strategy_of(&strategy[0], drawing->strategy, err));
    if (is_processor(drawing->run)) strategy[0] = wd_teacher_choice_on_processor(strategy[0]);
    WD_TRY(check_strategy(strategy[0], drawing->run, err));
    if (strategy[0] == WD_STRATEGY_auto) count = wd__drawing_strategies(strategy, drawing->run);
    WD_TRY(wd__drawing_search_open(&search, drawing, WD_DTYPE_COUNT, err));
    WD_TRY(choose(out, &found, &search, strategy, count, err));
    if (!found) return wd__drawing_refuse(&search, err);
    say_plan(out, &search);
    return WD_OK;
}

/* ---- use ---- */

wd_status wd_drawing_encode(const wd_drawing_plan *plan, wd_text_cache *text, wd_err *err)
{
    wd_queue *queue; /* of its own, whose workspace is freed with it */
    WD_TRY(wd_queue_open(&queue, plan->encoder, err));
    const wd_status status = wd_text_cache_encode(text, queue, err);
    wd_queue_close(queue);
    return status;
}

void wd_drawing_follow(wd_drawing_model_options *options, const wd_drawing_plan *plan,
                       const wd_run *run, int model)
{
    options->strategy = model && !plan->alike ? WD_STRATEGY_gpu : plan->strategy;
    options->batch_max = plan->batch;
    options->processor = run->host;
}
