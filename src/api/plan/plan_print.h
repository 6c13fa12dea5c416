/* The plans of a run as text and as JSON. */
#ifndef WD_API_PLAN_PLAN_PRINT_H
#define WD_API_PLAN_PLAN_PRINT_H

#include <jansson.h>

#include "api/plan/disk_plan.h"
#include "api/plan/train_plan.h"
#include "core/text.h"

/* The same run with LoRAs of the teacher for four steps without guidance. */
typedef struct wd_step_loras {
    double seconds;            /* per step; 0: nothing to say */
    const char *teacher_dtype; /* of the option that it needs, too, since weights that LoRAs change
                                * do not stay quantised without it; NULL: none */
} wd_step_loras;

/* All strategies' plans [WD_STRATEGY_auto], and the best of them. */
typedef struct wd_plan_table {
    const wd_train_plan *plan;
    const wd_train_setup *setup;
    const char *teacher; /* the teacher's name */
    const wd_strategy_plan *strategy;
    const wd_strategy_plan *best;  /* the fastest that fits, else the one that lacks least */
    const wd_strategy_plan *shown; /* in detail: the one that was asked for, or recommended */
    bool fits;                     /* the shown one, and what encodes the prompts */
    bool lacks_disk;               /* the run's files have no room */
    bool verbose;                  /* text only: all strategies, columns and items */
    double guided_seconds; /* per step of the same run with guidance; 0: it has guidance, or does
                            * not fit with it */
    wd_step_loras step_loras;
    const wd_disk_plan *disks;
} wd_plan_table;

/* The memory of a strategy item by item: of the teacher, and of everything else. */
wd_memory_plan wd__plan_items(const wd_train_plan *plan, const wd_strategy_plan *candidate);

/* "sim:0 lacks 1.24 GiB": where most is missing, of a strategy that does not fit. Returns `out`. */
enum { WD_PLAN_MISSING_TEXT = 56 };
const char *wd__plan_missing_text(char out[WD_PLAN_MISSING_TEXT], const wd_devices *devices,
                                  const wd_strategy_plan *candidate);

/* Formats the plans as text. The caller frees *out with wd_free. */
wd_status wd__plan_table_text(char **out, const wd_plan_table *table, wd_err *err);

json_t *wd__plan_table_json(const wd_plan_table *table);

/* ---- the bytes that a plan copies per step over each link: plan_links.c ---- */

/* Prints a line for every link. Corresponding links of different ranks have one line, with the
 * largest of their figures. */
void wd__plan_links_say(wd_text_builder *builder, const wd_train_plan *plan,
                        const wd_strategy_plan *candidate);

/* Makes an array of all links by name; the caller owns it. */
json_t *wd__plan_links_json(const wd_train_plan *plan, const wd_strategy_plan *candidate);

#endif
