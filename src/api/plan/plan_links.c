/* Bytes per link: see api/plan/plan_print.h. */
#include "api/plan/plan_print.h"

#include <stdio.h>

#include "api/setup/memory_report.h"

enum { NAME = 48, CELL = 32 };

static bool is_between_ranks(const wd_link *link)
{
    return link->kind == WD_LINK_NEAR || link->kind == WD_LINK_FAR;
}

/* ---- in words ---- */

/* Writes the ends of a link without the number of the rank. */
static void name_of(char out[2 * NAME], const wd_link *link, const wd_train_plan *plan,
                    const wd_strategy_plan *candidate)
{
    const wd_devices *d = plan->devices;
    static const char *const host = "host memory";
    const char *from = link->kind == WD_LINK_READ ? "disk" : host, *to = host;
    if (link->kind == WD_LINK_OUT || link->kind == WD_LINK_ACROSS)
        from = d->name[wd_placed_local(&candidate->placement, link->from)];
    if (link->kind == WD_LINK_IN || link->kind == WD_LINK_ACROSS)
        to = d->name[wd_placed_local(&candidate->placement, link->to)];
    if (is_between_ranks(link)) {
        from = "a rank";
        to = link->kind == WD_LINK_NEAR ? "others of its host" : "other hosts";
    }
    snprintf(out, 2 * NAME, "%s to %s", from, to);
}

/* Whether both links have the same ends in their ranks. */
static bool are_of_one_name(const wd_link *a, const wd_link *b, const wd_placement *p)
{
    if (a->kind != b->kind) return false;
    if (a->kind == WD_LINK_READ || is_between_ranks(a)) return true;
    return (a->from < 0 || wd_placed_local(p, a->from) == wd_placed_local(p, b->from)) &&
           (a->to < 0 || wd_placed_local(p, a->to) == wd_placed_local(p, b->to));
}

static void say_cell(wd_text_builder *builder, double bytes)
{
    char cell[CELL];
    wd_text_builder_say(builder, " %9s", wd_bytes_text(cell, sizeof cell, (size_t)bytes));
}

/* Prints the line of all links from `first` on that have the same ends. */
static void say_links(wd_text_builder *builder, const wd_train_plan *plan,
                      const wd_strategy_plan *candidate, const wd_traffic *traffic, int first)
{
    char name[2 * NAME];
    wd_link most = traffic->link[first];
    int links = 0;
    for (int i = first; i < traffic->links; i++) {
        const wd_link *link = &traffic->link[i];
        if (!are_of_one_name(link, &most, &candidate->placement)) continue;
        links += link->alike;
        if (link->bytes > most.bytes) most = *link;
    }
    name_of(name, &most, plan, candidate);
    wd_text_builder_say(builder, "  %-44s", name);
    say_cell(builder, most.bytes);
    if (plan->input.cluster.ranks > 1) {
        wd_text_builder_say(builder, " %9d", links);
        if (most.gradients > 0) say_cell(builder, most.gradients);
    }
    wd_text_builder_say(builder, "\n");
}

void wd__plan_links_say(wd_text_builder *builder, const wd_train_plan *plan,
                        const wd_strategy_plan *candidate)
{
    const wd_traffic *traffic = wd_planner_traffic(plan->planner, candidate);
    const bool many = plan->input.cluster.ranks > 1;
    if (!traffic->links) return;
    wd_text_builder_say(builder, "\n%s, by what moves in a step%s:\n  %-44s %9s%s\n",
                        wd_strategy_name(candidate->strategy),
                        many ? ", over the link that has most of it" : "", "", "bytes",
                        many ? "     links gradients" : "");
    for (int i = 0; i < traffic->links; i++) {
        bool again = false;
        for (int k = 0; k < i && !again; k++)
            again = are_of_one_name(&traffic->link[k], &traffic->link[i], &candidate->placement);
        if (!again) say_links(builder, plan, candidate, traffic, i);
    }
}

/* ---- JSON ---- */

static const char *numbered(char out[NAME], const char *what, int number)
{
    snprintf(out, NAME, "%s %d", what, number);
    return out;
}

/* The name of a link's begin, such as "disk of host 1", "rank 3"; without a number if it stands for
 * all ranks. */
static const char *begin_of(char out[NAME], const wd_link *link, const wd_train_plan *plan,
                            const wd_strategy_plan *candidate)
{
    const bool alike = candidate->placement.each || plan->input.cluster.ranks <= 1;
    switch (link->kind) {
    case WD_LINK_READ:
        return alike || plan->input.cluster.hosts <= 1 ? "disk"
                                                       : numbered(out, "disk of host", link->from);
    case WD_LINK_NEAR:
    case WD_LINK_FAR:
        return alike ? "each rank" : numbered(out, "rank", link->from);
    case WD_LINK_IN:
        return "host memory";
    default:
        return wd__train_plan_device(out, plan, candidate, link->from);
    }
}

static const char *end_of(char out[NAME], const wd_link *link, const wd_train_plan *plan,
                          const wd_strategy_plan *candidate)
{
    if (is_between_ranks(link) && link->to == WD_LINK_ALL)
        return link->kind == WD_LINK_NEAR ? "others of its host" : "other hosts";
    if (is_between_ranks(link)) return numbered(out, "rank", link->to);
    if (link->kind == WD_LINK_IN || link->kind == WD_LINK_ACROSS)
        return wd__train_plan_device(out, plan, candidate, link->to);
    return "host memory";
}

json_t *wd__plan_links_json(const wd_train_plan *plan, const wd_strategy_plan *candidate)
{
    char from[NAME], to[NAME];
    const wd_traffic *traffic = wd_planner_traffic(plan->planner, candidate);
    json_t *links = json_array();
    for (int i = 0; i < traffic->links; i++) {
        const wd_link *link = &traffic->link[i];
        json_array_append_new(links, json_pack("{s:s, s:s, s:f, s:f, s:i}", "from",
                                               begin_of(from, link, plan, candidate), "to",
                                               end_of(to, link, plan, candidate), "bytes_per_step",
                                               link->bytes, "of_these_gradients", link->gradients,
                                               "links", link->alike));
    }
    return links;
}
