/* What the prompts of a run ask for: rows of text that are computed, and memory to encode them. */
#ifndef WD_API_TEXT_PLAN_H
#define WD_API_TEXT_PLAN_H

#include "api/train_setup.h"
#include "distill/plan.h"

/* Opens *setup's embeddings: tokens of all prompts. Its machine gets the rows that they need, or,
 * of a run that is resumed, those it was begun with; *plan what encoding takes that the cache has
 * not, on device number `device`. */
wd_status wd_text_plan(wd_memory_plan *plan, wd_train_setup *setup, wd_devices *devices, int device,
                       wd_err *err);

/* The last of it alone, by embeddings that are open: what encoding takes. */
wd_status wd_text_plan_encoding(wd_memory_plan *plan, const wd_train_setup *setup,
                                const wd_devices *devices, int device, wd_err *err);

#endif
