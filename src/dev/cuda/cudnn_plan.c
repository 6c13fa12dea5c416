/* Plans of cuDNN graphs: which engine runs one, with which settings, and the run. See
 * cudnn_graph.h. */
#include "dev/cuda/cudnn_graph.h"

#include <stdio.h>
#include <string.h>

#include "core/error.h"

enum { CANDIDATES = WD_CUDNN_CANDIDATES_MAX / 2, NOTES = 32 }; /* of a heuristic; of an engine */

typedef struct planner {
    const wd_cuda_cudnn *cudnn;
    wd_cudnn_graph *graph;
    wd_cudnn_descriptor operations; /* the finalized graph */
    wd_cudnn_status last;           /* of the last call */
} planner;

static bool ok(wd_cudnn_status status)
{
    return status == WD_CUDNN_STATUS_SUCCESS;
}

/* A descriptor that lives as long as the graph; NULL: there is none left, or no memory. */
static wd_cudnn_descriptor keep(planner *p, wd_cudnn_backend kind)
{
    wd_cudnn_descriptor d = NULL;
    if (p->graph->mades == WD_CUDNN_MADE_MAX) return NULL;
    p->last = p->cudnn->descriptor_create(kind, &d);
    if (!ok(p->last)) return NULL;
    return p->graph->made[p->graph->mades++] = d;
}

/* Destroys what was kept beyond the first `count` descriptors. */
static void drop(planner *p, int count)
{
    while (p->graph->mades > count) p->cudnn->descriptor_destroy(p->graph->made[--p->graph->mades]);
}

static bool set_one(planner *p, wd_cudnn_descriptor d, wd_cudnn_attr attribute, wd_cudnn_type type,
                    const void *value)
{
    p->last = p->cudnn->set(d, attribute, type, 1, value);
    return ok(p->last);
}

static bool finalized(planner *p, wd_cudnn_descriptor d)
{
    p->last = p->cudnn->finalize(d);
    return ok(p->last);
}

/* Reads which engine a finalized configuration has, and its settings. */
static bool read_choice(wd_cudnn_choice *out, planner *p, wd_cudnn_descriptor config,
                        wd_cudnn_descriptor engine)
{
    int64_t count = 0;
    int before = p->graph->mades;
    wd_cudnn_descriptor knob[WD_CUDNN_KNOBS_MAX];
    *out = (wd_cudnn_choice){0};
    p->last = p->cudnn->get(engine, WD_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, WD_CUDNN_TYPE_INT64, 1,
                            &count, &out->engine);
    for (int i = 0; ok(p->last) && i < WD_CUDNN_KNOBS_MAX; i++)
        knob[i] = keep(p, WD_CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    if (ok(p->last))
        p->last = p->cudnn->get(config, WD_CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, WD_CUDNN_KNOBS_MAX, &count, knob);
    if (ok(p->last)) out->knobs = (int)count;
    for (int i = 0; ok(p->last) && i < out->knobs; i++) {
        p->last = p->cudnn->get(knob[i], WD_CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                WD_CUDNN_TYPE_KNOB_TYPE, 1, &count, &out->knob[i]);
        if (ok(p->last))
            p->last = p->cudnn->get(knob[i], WD_CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                    WD_CUDNN_TYPE_INT64, 1, &count, &out->value[i]);
    }
    drop(p, before);
    return ok(p->last);
}

/* Whether the engine has none of the properties that are not wanted. */
static bool is_wanted(planner *p, wd_cudnn_descriptor engine, unsigned notes_refused)
{
    unsigned notes[NOTES], bits = 0;
    int64_t count = 0;
    p->last = p->cudnn->get(engine, WD_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                            WD_CUDNN_TYPE_NUMERICAL_NOTE, NOTES, &count, notes);
    for (int64_t i = 0; ok(p->last) && i < count && i < NOTES; i++) bits |= 1u << notes[i];
    return ok(p->last) && !(bits & notes_refused);
}

/* The plan of a configuration. */
static bool make_plan(wd_cudnn_plan *out, planner *p, wd_cudnn_descriptor config)
{
    const wd_cudnn_target *target = p->graph->target;
    int64_t count = 0;
    wd_cudnn_descriptor plan = keep(p, WD_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (!plan) return false;
    if (!set_one(p, plan, WD_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                 WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, &config))
        return false;
    if (target->handle ? !set_one(p, plan, WD_CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                  WD_CUDNN_TYPE_HANDLE, &target->handle)
                       : !set_one(p, plan, WD_CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                  WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, &target->device))
        return false;
    if (!finalized(p, plan)) return false;
    p->last = p->cudnn->get(plan, WD_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, WD_CUDNN_TYPE_INT64,
                            1, &count, &out->workspace_bytes);
    out->plan = plan;
    return ok(p->last);
}

/* The plan of an engine with settings. */
static bool plan_choice(wd_cudnn_plan *out, planner *p, const wd_cudnn_choice *c)
{
    const wd_cudnn_target *target = p->graph->target;
    wd_cudnn_descriptor engine = keep(p, WD_CUDNN_BACKEND_ENGINE_DESCRIPTOR), config;
    if (!engine ||
        !set_one(p, engine, WD_CUDNN_ATTR_ENGINE_OPERATION_GRAPH, WD_CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 &p->operations) ||
        !set_one(p, engine, WD_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, WD_CUDNN_TYPE_INT64, &c->engine))
        return false;
    if (!target->handle && !set_one(p, engine, WD_CUDNN_ATTR_ENGINE_DEVICEPROP,
                                    WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, &target->device))
        return false;
    if (!finalized(p, engine) || !(config = keep(p, WD_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) ||
        !set_one(p, config, WD_CUDNN_ATTR_ENGINECFG_ENGINE, WD_CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 &engine))
        return false;
    wd_cudnn_descriptor knob[WD_CUDNN_KNOBS_MAX];
    for (int i = 0; i < c->knobs; i++)
        if (!(knob[i] = keep(p, WD_CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)) ||
            !set_one(p, knob[i], WD_CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, WD_CUDNN_TYPE_KNOB_TYPE,
                     &c->knob[i]) ||
            !set_one(p, knob[i], WD_CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, WD_CUDNN_TYPE_INT64,
                     &c->value[i]) ||
            !finalized(p, knob[i]))
            return false;
    if (c->knobs) {
        p->last = p->cudnn->set(config, WD_CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, c->knobs, knob);
        if (!ok(p->last)) return false;
    }
    out->choice = *c;
    return finalized(p, config) && make_plan(out, p, config);
}

/* Appends the configurations of a heuristic that are wanted. */
static bool list_candidates(wd_cudnn_choice *out, int *listed, planner *p, unsigned mode,
                            unsigned notes_refused)
{
    const wd_cudnn_target *target = p->graph->target;
    wd_cudnn_descriptor config[CANDIDATES];
    int64_t count = 0, one = 0;
    wd_cudnn_descriptor heuristic = keep(p, WD_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    if (!heuristic ||
        !set_one(p, heuristic, WD_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                 WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, &p->operations) ||
        !set_one(p, heuristic, WD_CUDNN_ATTR_ENGINEHEUR_MODE, WD_CUDNN_TYPE_HEUR_MODE, &mode))
        return false;
    if (!target->handle && !set_one(p, heuristic, WD_CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                    WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, &target->device))
        return false;
    if (!finalized(p, heuristic)) return false;
    for (int i = 0; i < CANDIDATES; i++)
        if (!(config[i] = keep(p, WD_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR))) return false;
    p->last = p->cudnn->get(heuristic, WD_CUDNN_ATTR_ENGINEHEUR_RESULTS,
                            WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, CANDIDATES, &count, config);
    if (!ok(p->last)) return false;
    for (int64_t i = 0; i < count && i < CANDIDATES; i++) {
        int before = p->graph->mades;
        wd_cudnn_descriptor engine = keep(p, WD_CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        if (!engine) return false;
        p->last = p->cudnn->get(config[i], WD_CUDNN_ATTR_ENGINECFG_ENGINE,
                                WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &engine);
        if (ok(p->last) && is_wanted(p, engine, notes_refused) &&
            read_choice(&out[*listed], p, config[i], engine))
            ++*listed;
        drop(p, before);
    }
    return true;
}

static bool make_operations(planner *p)
{
    const wd_cudnn_target *target = p->graph->target;
    p->operations = keep(p, WD_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (!p->operations) return false;
    if (target->handle && !set_one(p, p->operations, WD_CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                   WD_CUDNN_TYPE_HANDLE, &target->handle))
        return false;
    p->last = p->cudnn->set(p->operations, WD_CUDNN_ATTR_OPERATIONGRAPH_OPS,
                            WD_CUDNN_TYPE_BACKEND_DESCRIPTOR, p->graph->ops, p->graph->op);
    return ok(p->last) && finalized(p, p->operations);
}

/* Whether a call failed for a reason that may go away. */
static wd_status status_of(wd_cudnn_status status)
{
    if (status == WD_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        status == WD_CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return WD_OUT_OF_MEMORY;
    return status >= WD_CUDNN_STATUS_EXECUTION_FAILED ? WD_INTERNAL : WD_UNSUPPORTED;
}

/* What may be behind a refusal; "" where nothing is known. Without NVRTC cuDNN has no engine for
 * attention, and calls that success. */
static const char *nvrtc_hint(void)
{
    return wd__cuda_api_lacks_nvrtc()
               ? "; NVRTC was not found, with which cuDNN compiles attention (pip install "
                 "nvidia-cuda-nvrtc, or nvidia-cuda-nvrtc-cu12)"
               : "";
}

static wd_status refused(const wd_cuda_cudnn *cudnn, wd_cudnn_status status, const char *part,
                         const char *what, wd_err *err)
{
    char text[256] = "";
    cudnn->last_error(text, sizeof text);
    text[sizeof text - 1] = 0;
    return wd_fail(err, status_of(status), "cuDNN %zu cannot plan %s: %s: %s%s%s%s",
                   cudnn->get_version(), what, part, cudnn->error_string(status), *text ? ": " : "",
                   text, nvrtc_hint());
}

wd_status wd__cudnn_candidates(wd_cudnn_choice *out, int *count, wd_cudnn_graph *graph,
                               unsigned notes_refused, const char *what, wd_err *err)
{
    static const unsigned modes[] = {WD_CUDNN_HEUR_MODE_A, WD_CUDNN_HEUR_MODE_FALLBACK};
    planner p = {.cudnn = graph->target->cudnn, .graph = graph, .last = graph->status};
    *count = 0;
    if (!ok(p.last)) return refused(p.cudnn, p.last, graph->failed, what, err);
    if (!make_operations(&p)) return refused(p.cudnn, p.last, "the graph", what, err);
    for (int m = 0; m < 2; m++)
        if (!list_candidates(out, count, &p, modes[m], notes_refused) &&
            status_of(p.last) != WD_UNSUPPORTED)
            return refused(p.cudnn, p.last, "the heuristic", what, err);
    if (*count) return WD_OK;
    if (!ok(p.last)) return refused(p.cudnn, p.last, "the heuristic", what, err);
    return wd_fail(err, WD_UNSUPPORTED,
                   "cuDNN %zu cannot plan %s: none of its engines repeats its results bit for "
                   "bit%s",
                   p.cudnn->get_version(), what, nvrtc_hint());
}

wd_status wd__cudnn_plan_open(wd_cudnn_plan *out, wd_cudnn_graph *graph,
                              const wd_cudnn_choice *choice, int64_t workspace_max,
                              const char *what, wd_err *err)
{
    char part[64];
    wd_status status = WD_OK;
    *out = (wd_cudnn_plan){0};
    planner p = {.cudnn = graph->target->cudnn, .graph = graph, .last = graph->status};
    snprintf(part, sizeof part, "engine %lld", (long long)choice->engine);
    if (!ok(p.last))
        status = refused(p.cudnn, p.last, graph->failed, what, err);
    else if (!make_operations(&p))
        status = refused(p.cudnn, p.last, "the graph", what, err);
    else if (!plan_choice(out, &p, choice))
        status = refused(p.cudnn, p.last, part, what, err);
    else if (out->workspace_bytes > workspace_max)
        status = wd_fail(err, WD_UNSUPPORTED,
                         "cuDNN %zu cannot plan %s: %s takes %lld bytes of workspace, and %lld are "
                         "planned for it",
                         p.cudnn->get_version(), what, part, (long long)out->workspace_bytes,
                         (long long)workspace_max);
    if (status == WD_OK) {
        out->graph = *graph;
        *graph = (wd_cudnn_graph){0};
        return WD_OK;
    }
    wd__cudnn_graph_close(graph);
    *out = (wd_cudnn_plan){0};
    return status;
}

void wd__cudnn_plan_close(wd_cudnn_plan *plan)
{
    wd__cudnn_graph_close(&plan->graph);
    *plan = (wd_cudnn_plan){0};
}

wd_status wd__cudnn_plan_run(const wd_cudnn_plan *plan, int count, const int64_t *id,
                             void *const *address, void *workspace, wd_err *err)
{
    const wd_cudnn_target *target = plan->graph.target;
    const wd_cuda_cudnn *cudnn = target->cudnn;
    wd_cudnn_descriptor pack = NULL;
    char text[256] = "";
    WD_REQUIRE(target->handle && count <= WD_CUDNN_TENSORS_MAX, "a plan that cannot be run");
    wd_cudnn_status status =
        cudnn->descriptor_create(WD_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (ok(status))
        status =
            cudnn->set(pack, WD_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, WD_CUDNN_TYPE_INT64, count, id);
    if (ok(status))
        status = cudnn->set(pack, WD_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, WD_CUDNN_TYPE_VOID_PTR,
                            count, address);
    if (ok(status))
        status = cudnn->set(pack, WD_CUDNN_ATTR_VARIANT_PACK_WORKSPACE, WD_CUDNN_TYPE_VOID_PTR, 1,
                            &workspace);
    if (ok(status)) status = cudnn->finalize(pack);
    if (ok(status)) status = cudnn->execute(target->handle, plan->plan, pack);
    if (!ok(status)) cudnn->last_error(text, sizeof text);
    text[sizeof text - 1] = 0;
    if (pack) cudnn->descriptor_destroy(pack);
    if (ok(status)) return WD_OK;
    return wd_fail(err, status_of(status), "cuDNN %zu failed to run it: %s%s%s",
                   cudnn->get_version(), cudnn->error_string(status), *text ? ": " : "", text);
}
