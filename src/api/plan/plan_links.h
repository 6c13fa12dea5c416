/* The bytes that a plan copies per step over each link, as text and as JSON. */
#ifndef WD_API_PLAN_PLAN_LINKS_H
#define WD_API_PLAN_PLAN_LINKS_H

#include <jansson.h>

#include "api/plan/train_plan.h"
#include "core/text.h"

/* Prints a line for every link. Corresponding links of different ranks have one line, with the
 * largest of their figures. */
void wd__plan_links_say(wd_text_builder *builder, const wd_train_plan *plan,
                        const wd_strategy_plan *candidate);

/* Makes an array of all links by name; the caller owns it. */
json_t *wd__plan_links_json(const wd_train_plan *plan, const wd_strategy_plan *candidate);

#endif
