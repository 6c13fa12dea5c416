/* Bytes per link: see api/plan/plan_print.h. */
#include "api/plan/plan_print.h"

#include <stdio.h>
#include <string.h>

#include "api/setup/memory_report.h"

enum { NAME = 48, CELL = 32 };

/* The names of a link's ends, such as "disk of host 1" and "host memory". */
typedef struct ends {
    char from[NAME], to[NAME];
} ends;

static void device_name(char out[NAME], const wd_train_plan *plan,
                        const wd_strategy_plan *candidate, int device, bool numbered)
{
    if (numbered)
        wd__train_plan_device(out, plan, candidate, device);
    else
        snprintf(out, NAME, "%s",
                 plan->devices->name[wd_placed_local(&candidate->placement, device)]);
}

/* `numbered`: hosts and ranks have their numbers where there are several. Without numbers, links
 * that differ only in their rank have the same names. */
static ends ends_of(const wd_link *link, const wd_train_plan *plan,
                    const wd_strategy_plan *candidate, bool numbered)
{
    ends e = {"host memory", "host memory"};
    const bool alike = candidate->placement.each || plan->input.cluster.ranks <= 1;
    if (alike) numbered = false;
    switch (link->kind) {
    case WD_LINK_READ:
        if (numbered && plan->input.cluster.hosts > 1)
            snprintf(e.from, NAME, "disk of host %d", link->from);
        else
            snprintf(e.from, NAME, "disk");
        break;
    case WD_LINK_NEAR:
    case WD_LINK_FAR:
        if (numbered)
            snprintf(e.from, NAME, "rank %d", link->from);
        else
            snprintf(e.from, NAME, "%s", alike ? "each rank" : "a rank");
        if (numbered && link->to != WD_LINK_ALL)
            snprintf(e.to, NAME, "rank %d", link->to);
        else
            snprintf(e.to, NAME, "%s",
                     link->kind == WD_LINK_NEAR ? "others of its host" : "other hosts");
        break;
    default:
        if (link->kind != WD_LINK_IN) device_name(e.from, plan, candidate, link->from, numbered);
        if (link->kind != WD_LINK_OUT) device_name(e.to, plan, candidate, link->to, numbered);
    }
    return e;
}

static bool are_equal(const ends *a, const ends *b)
{
    return !strcmp(a->from, b->from) && !strcmp(a->to, b->to);
}

/* ---- in words ---- */

static void say_cell(wd_text_builder *builder, double bytes)
{
    char cell[CELL];
    wd_text_builder_say(builder, " %9s", wd_bytes_text(cell, sizeof cell, (size_t)bytes));
}

/* Prints the line of all links that have the names of link `first`; nothing if an earlier one
 * has. */
static void say_links(wd_text_builder *builder, const wd_train_plan *plan,
                      const wd_strategy_plan *candidate, const wd_traffic *traffic, int first)
{
    char name[2 * NAME + 4];
    wd_link most = traffic->link[first];
    const ends line = ends_of(&most, plan, candidate, false);
    int links = 0;
    for (int i = 0; i < traffic->links; i++) {
        const wd_link *link = &traffic->link[i];
        if (link->kind != most.kind) continue; /* before names are made */
        const ends e = ends_of(link, plan, candidate, false);
        if (!are_equal(&e, &line)) continue;
        if (i < first) return;
        links += link->alike;
        if (link->bytes > most.bytes) most = *link;
    }
    snprintf(name, sizeof name, "%s to %s", line.from, line.to);
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
    for (int i = 0; i < traffic->links; i++) say_links(builder, plan, candidate, traffic, i);
}

/* ---- JSON ---- */

json_t *wd__plan_links_json(const wd_train_plan *plan, const wd_strategy_plan *candidate)
{
    const wd_traffic *traffic = wd_planner_traffic(plan->planner, candidate);
    json_t *links = json_array();
    for (int i = 0; i < traffic->links; i++) {
        const wd_link *link = &traffic->link[i];
        const ends e = ends_of(link, plan, candidate, true);
        json_array_append_new(links,
                              json_pack("{s:s, s:s, s:f, s:f, s:i}", "from", e.from, "to", e.to,
                                        "bytes_per_step", link->bytes, "of_these_gradients",
                                        link->gradients, "links", link->alike));
    }
    return links;
}
