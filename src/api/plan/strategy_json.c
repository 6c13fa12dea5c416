/* A strategy's plan as JSON: see api/plan/train_plan.h. */
#include "api/plan/plan_links.h"

static const char *const home_name[] = {
    [WD_HOME_DEVICE] = "device", [WD_HOME_HOST] = "host memory", [WD_HOME_DISK] = "disk"};

/* Makes an array of runs of stages with equal places: {"expert": 0, "stages": [0, 41], "home": ...,
 * "device": ...}. */
static json_t *placement_json(const wd_train_plan *plan, const wd_strategy_plan *candidate)
{
    char name[32];
    const wd_placement *p = &candidate->placement;
    json_t *runs = json_array();
    for (int e = 0; e < p->experts; e++)
        for (int s = 0, last; s < p->stages; s = last + 1) {
            const wd_stage_placement *place = &p->place[e][s];
            for (last = s; last + 1 < p->stages; last++)
                if (p->place[e][last + 1].home != place->home ||
                    p->place[e][last + 1].device != place->device)
                    break;
            json_array_append_new(
                runs, json_pack("{s:i, s:[i,i], s:s, s:s}", "expert", e, "stages", s, last, "home",
                                home_name[place->home], "device",
                                wd_train_plan_device(name, plan, candidate, place->device)));
        }
    return runs;
}

static json_t *device_json(const wd_train_plan *plan, const wd_strategy_plan *candidate, int d)
{
    char name[32];
    const wd_placed_device *b = &candidate->bytes.device[d];
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name",
                     wd_train_plan_device(name, plan, candidate, d), "weights",
                     (json_int_t)b->weights, "streaming", (json_int_t)b->streaming, "widening",
                     (json_int_t)b->widening, "activations", (json_int_t)b->activations,
                     "workspace", (json_int_t)b->workspace, "beside", (json_int_t)b->taken,
                     "opening", (json_int_t)b->opening, "peak",
                     (json_int_t)wd_placed_peak(&candidate->bytes, d), "missing",
                     (json_int_t)candidate->missing[d]);
}

/* The bytes per step. */
static json_t *moved_json(const wd_strategy_plan *candidate)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "bytes_copied_per_step",
                     wd_planner_copied(candidate), "bytes_read_per_step",
                     candidate->step_bytes[WD_LINK_READ], "bytes_sent_per_step",
                     candidate->step_bytes_sent, "seconds_of_gradients", candidate->reduce_seconds,
                     "of_these_waited_for", candidate->exposed_seconds);
}

static json_t *host_json(const wd_train_plan *plan, const wd_strategy_plan *candidate)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "host_weights",
                     (json_int_t)candidate->bytes.host.weights, "host_reading",
                     (json_int_t)candidate->bytes.host.reading, "host_mapped",
                     (json_int_t)candidate->bytes.mapped, "host_peak",
                     (json_int_t)wd_placed_host_peak(&candidate->bytes, &plan->input.cluster),
                     "host_missing", (json_int_t)candidate->host_missing);
}

json_t *wd_strategy_plan_json(const wd_train_plan *plan, const wd_strategy_plan *candidate)
{
    char limit[64];
    json_t *devices = json_array();
    const char *name = wd_strategy_name(candidate->strategy);
    if (candidate->objection)
        return json_pack("{s:s, s:b, s:o, s:o}", "strategy", name, "possible", 0, "because",
                         wd_json_string(candidate->objection), "devices", devices);
    for (int d = 0; d < candidate->bytes.devices; d++)
        json_array_append_new(devices, device_json(plan, candidate, d));
    json_t *json =
        json_pack("{s:s, s:b, s:b, s:b, s:I, s:I, s:f, s:f, s:s}", "strategy", name, "possible", 1,
                  "fits", candidate->fits, "each_rank", candidate->placement.each, "window",
                  (json_int_t)candidate->window, "micro_batch", (json_int_t)candidate->micro_batch,
                  "seconds_per_step", candidate->step_seconds, "samples_per_s",
                  wd_train_plan_samples_per_s(plan, candidate), "limited_by",
                  wd_train_plan_limit(limit, sizeof limit, plan, candidate));
    json_object_update_new(json, moved_json(candidate));
    json_object_update_new(json, host_json(plan, candidate));
    json_object_set_new(json, "links", wd_plan_links_json(plan, candidate));
    json_object_set_new(json, "devices", devices);
    json_object_set_new(json, "placement", placement_json(plan, candidate));
    return json;
}
