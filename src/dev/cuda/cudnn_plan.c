/* Plans of cuDNN graphs: which engine runs one, with which settings, and the run. See
 * cudnn_graph.h. */
#include "dev/cuda/cudnn_graph.h"

#include <string.h>

#include "core/require.h"

enum { CANDIDATES = 16, NOTES = 32 };

typedef struct planner {
    const wd_cuda_cudnn *cudnn;
    wd_cudnn_graph *graph;
    wd_cudnn_descriptor operations; /* the finalized graph */
    const wd_cudnn_wish *wish;
    wd_cudnn_status last;    /* of the last call */
    int candidates;          /* configurations that were tried */
    wd_cudnn_status failure; /* of the first candidate for which a call failed, and its text */
    char failure_text[256];
} planner;

static bool ok(wd_cudnn_status status)
{
    return status == WD_CUDNN_STATUS_SUCCESS;
}

/* Keeps why the first candidate failed, before later ones are tried; those that are only unwanted
 * have failed no call. */
static void note_candidate(planner *p)
{
    p->candidates++;
    if (ok(p->last) || !ok(p->failure)) return;
    p->failure = p->last;
    p->cudnn->last_error(p->failure_text, sizeof p->failure_text);
    p->failure_text[sizeof p->failure_text - 1] = 0;
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
static bool is_wanted(planner *p, wd_cudnn_descriptor engine)
{
    unsigned notes[NOTES], bits = 0;
    int64_t count = 0;
    p->last = p->cudnn->get(engine, WD_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                            WD_CUDNN_TYPE_NUMERICAL_NOTE, NOTES, &count, notes);
    for (int64_t i = 0; ok(p->last) && i < count && i < NOTES; i++) bits |= 1u << notes[i];
    return ok(p->last) && !(bits & p->wish->notes_refused);
}

/* The plan of a configuration, if it can be made within the workspace. */
static bool try_config(wd_cudnn_plan *out, planner *p, wd_cudnn_descriptor config)
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
    if (!ok(p->last) || out->workspace_bytes > p->wish->workspace_max) return false;
    out->plan = plan;
    return true;
}

/* The engine and settings that are wished for. */
static bool try_choice(wd_cudnn_plan *out, planner *p)
{
    const wd_cudnn_target *target = p->graph->target;
    const wd_cudnn_choice *c = p->wish->choice;
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
    return finalized(p, config) && try_config(out, p, config);
}

/* The first configuration of a heuristic that is wanted and can be planned. */
static bool try_heuristic(wd_cudnn_plan *out, planner *p, unsigned mode)
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
        if (ok(p->last) && is_wanted(p, engine) &&
            read_choice(&out->choice, p, config[i], engine) && try_config(out, p, config[i]))
            return true;
        note_candidate(p);
        drop(p, before);
    }
    return false;
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

/* Explains why there is no plan; `part` is what failed. */
static wd_status refused(const planner *p, const char *part, const char *what, wd_err *err)
{
    const char *advice =
        wd_cuda_api_lacks_nvrtc()
            ? "install NVRTC, which was not found and with which cuDNN compiles attention (pip "
              "install nvidia-cuda-nvrtc, or nvidia-cuda-nvrtc-cu12)"
            : "install a newer cuDNN 9";
    const wd_cuda_cudnn *cudnn = p->cudnn;
    char text[256] = "";
    if (!ok(p->failure))
        return wd_fail(err, WD_UNSUPPORTED,
                       "cuDNN %zu cannot plan %s: of %d engines the first that failed: %s%s%s: %s, "
                       "or say --devices cpu (--device cpu) to compute on the processor",
                       cudnn->get_version(), what, p->candidates, cudnn->error_string(p->failure),
                       *p->failure_text ? ": " : "", p->failure_text, advice);
    if (ok(p->last)) /* of all that it was asked */
        return wd_fail(err, WD_UNSUPPORTED,
                       "cuDNN %zu cannot plan %s: none of its %d engines repeats its results bit "
                       "for bit in the planned workspace: %s, or say --devices cpu (--device cpu) "
                       "to compute on the processor",
                       cudnn->get_version(), what, p->candidates, advice);
    cudnn->last_error(text, sizeof text);
    text[sizeof text - 1] = 0;
    return wd_fail(err, WD_UNSUPPORTED,
                   "cuDNN %zu cannot plan %s: %s: %s%s%s: %s, or say --devices cpu (--device cpu) "
                   "to compute on the processor",
                   cudnn->get_version(), what, part, cudnn->error_string(p->last),
                   *text ? ": " : "", text, advice);
}

wd_status wd_cudnn_plan_open(wd_cudnn_plan *out, wd_cudnn_graph *graph, const wd_cudnn_wish *wish,
                             const char *what, wd_err *err)
{
    *out = (wd_cudnn_plan){0};
    planner p = {.cudnn = graph->target->cudnn, .graph = graph, .wish = wish};
    const char *part = graph->failed;
    bool found = false;
    p.last = graph->status;
    if (ok(p.last)) {
        part = "the graph";
        if (make_operations(&p)) {
            part = "no engine fits";
            found = wish->choice ? try_choice(out, &p)
                                 : try_heuristic(out, &p, WD_CUDNN_HEUR_MODE_A) ||
                                       try_heuristic(out, &p, WD_CUDNN_HEUR_MODE_FALLBACK);
        }
    }
    if (found) {
        out->graph = *graph;
        *graph = (wd_cudnn_graph){0};
        return WD_OK;
    }
    wd_status status = refused(&p, part, what, err);
    wd_cudnn_graph_close(graph);
    *out = (wd_cudnn_plan){0};
    return status;
}

void wd_cudnn_plan_close(wd_cudnn_plan *plan)
{
    wd_cudnn_graph_close(&plan->graph);
    *plan = (wd_cudnn_plan){0};
}

wd_status wd_cudnn_plan_run(const wd_cudnn_plan *plan, int count, const int64_t *id,
                            void *const *address, void *workspace, const char *what, wd_err *err)
{
    const wd_cudnn_target *target = plan->graph.target;
    const wd_cuda_cudnn *cudnn = target->cudnn;
    wd_cudnn_descriptor pack = NULL;
    WD_REQUIRE(target->handle && count <= WD_CUDNN_TENSORS_MAX, "%s cannot be run", what);
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
    if (pack) cudnn->descriptor_destroy(pack);
    if (ok(status)) return WD_OK;
    return wd_fail(err, WD_UNSUPPORTED, "cuDNN %zu failed to run %s: %s", cudnn->get_version(),
                   what, cudnn->error_string(status));
}
