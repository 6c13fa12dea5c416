/* What a plan moves in a step, link by link, in words and as JSON. */
#ifndef WD_API_PLAN_LINKS_H
#define WD_API_PLAN_LINKS_H

#include <jansson.h>

#include "api/train_plan.h"
#include "core/page.h"

/* A line for every link; of those that ranks have alike one, with the most that any of them has. */
void wd_plan_links_say(wd_page *page, const wd_train_plan *plan, const wd_strategy_plan *of);

/* A new array of all links by name. */
json_t *wd_plan_links_json(const wd_train_plan *plan, const wd_strategy_plan *of);

#endif
